"""A loop without an optimizer: python by_hand.py STEPS."""

import sys

import torch

weight = torch.ones(4, requires_grad=True)
for _ in range(int(sys.argv[1])):
    (weight * weight).sum().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None
