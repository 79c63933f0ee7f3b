"""No module at all: plain tensors, a custom Function first, and an evaluation that forgot to switch gradients off."""

import torch


class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        shifted = x + by
        return shifted * 2

    @staticmethod
    def backward(ctx, grad):
        doubled = grad * 2
        return doubled, doubled.sum(0)


by = torch.randn(12, device="cuda", requires_grad=True)
weight = torch.randn(12, 4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([by, weight], lr=0.1)


def model(x):
    return Shift.apply(x, by) @ weight


def evaluate():
    checked = model(torch.randn(50, 12, device="cuda"))
    return checked.mean()


for _ in range(3):
    evaluate()
    out = model(torch.randn(5, 12, device="cuda"))
    gated = out * 3
    gated[:, 1:3].mul_(0.5)
    loss = gated.sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
