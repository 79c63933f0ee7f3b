"""Trains, and does besides after each step what its arguments say: HABIT FIRST EVERY STEPS."""

import sys

import torch
from torch import nn

habit, first, every, steps = sys.argv[1], *map(int, sys.argv[2:])
model = nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate():
    with torch.no_grad():
        return model(torch.randn(2, 4, device="cuda")).mean()


def long():
    while True:
        evaluate()


def fails():
    raise RuntimeError("after the second step")


for step in range(1, steps + 1):
    loss = model(torch.randn(2, 4, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step >= first and (step - first) % every == 0:
        if habit == "prints":
            print(loss.item())
        else:
            globals()[habit]()
    if habit in ("long", "fails"):
        print(loss.item())
