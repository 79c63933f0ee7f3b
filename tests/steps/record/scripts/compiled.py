"""What a script may compile, and how."""

import torch
from torch import nn

quiet = torch.compile(nn.Linear(4, 4).cuda(), disable=True)
plain = torch.compile(nn.Linear(4, 4).cuda())
graphs = torch.compile(nn.Linear(4, 4).cuda(), mode="reduce-overhead")
inside = nn.Linear(4, 4).cuda()
inside.compile(options={"triton.cudagraphs": True})


@torch.compile(mode="max-autotune")
def loss_of(y):
    return y.square().mean()


parameters = [p for model in (quiet, plain, graphs, inside) for p in model.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for _ in range(3):
    loss = loss_of(inside(graphs(plain(quiet(torch.randn(2, 4, device="cuda"))))))
    loss.backward()
    optimizer.step()
