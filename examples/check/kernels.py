"""A sum on the GPU, as one writes it first: right with one program, and a race with more."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    tl.store(out, tl.load(out) + part)


@triton.jit
def scale_kernel(x, y, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def total(x):
    out = torch.zeros((), device=x.device)
    sum_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


def scaled(x, factor):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, factor, x.numel(), BLOCK=256)
    return y


undertorch_args = {
    "sum_kernel": lambda: {"grid": 4, "x": torch.ones(1000), "out": torch.zeros(1), "n": 1000, "BLOCK": 256}
}
"""What `undertorch check kernels.py::sum_kernel` launches it with."""
