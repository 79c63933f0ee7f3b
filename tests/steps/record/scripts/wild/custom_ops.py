"""Ops of one's own, registered with torch: written in Python, with and without a rule for their shape."""

import torch
from torch import Tensor, nn


@torch.library.custom_op("wild::scaled", mutates_args=(), device_types="cuda")
def scaled(x: Tensor, by: float) -> Tensor:
    return torch.sin(x) * by


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.by = inputs[1]


def scaled_backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    return gradient * torch.cos(x) * ctx.by, None


scaled.register_autograd(scaled_backward, setup_context=keep)


@torch.library.custom_op("wild::without_a_rule", mutates_args=())
def without_a_rule(x: Tensor) -> Tensor:
    return torch.exp(x)


without_a_rule.register_autograd(lambda ctx, gradient: gradient)


@torch.library.custom_op("wild::opaque", mutates_args=())
def opaque(x: Tensor) -> Tensor:
    raise RuntimeError("calls into a compiled extension")


opaque.register_fake(torch.empty_like)
opaque.register_autograd(lambda ctx, gradient: gradient)

older = torch.library.Library("wild_older", "DEF")
older.define("twice(Tensor x) -> Tensor")
older.impl("twice", lambda x: x * 2, "CUDA")

model = nn.Linear(8, 8).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    y = scaled(model(torch.randn(4, 8, device="cuda")), 3.0)
    y = opaque(without_a_rule(y))
    with torch.no_grad():
        assert torch.ops.wild_older.twice(y).shape == y.shape
    loss = y.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
