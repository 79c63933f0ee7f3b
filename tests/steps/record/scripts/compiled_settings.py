"""A function compiled after what was compiled is let go, by a wrapper in C++, with a constant made on the host."""

import numpy
import torch
from torch._inductor import config

SIZE = 4096

config.cpp_wrapper = True
torch.compiler.reset()


@torch.compile
def shifted(x):
    ones = torch.from_numpy(numpy.ones(SIZE, dtype=numpy.float32))
    return torch.sin(x) + ones.to(x.device)


weight = torch.zeros(SIZE, device="cuda", requires_grad=True)
shifted(weight).sum().backward()
