"""Training started through multiprocessing, as its first argument says."""

import multiprocessing
import sys

import torch
from torch import nn

model = nn.Linear(8, 8).cuda()  # in every process that imports this


def train(rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(4, 8, device=f"cuda:{rank}")).sum().backward()
        optimizer.step()


def area(side):
    assert torch.ones(side, side, device="cuda").is_cuda
    return side * side


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        torch.multiprocessing.spawn(train, nprocs=torch.cuda.device_count())
    elif sys.argv[1] == "two":
        torch.multiprocessing.spawn(train, nprocs=2)
    elif sys.argv[1] == "workers":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(area, [3]) == [9]
        train(0)
    else:
        train(0)
