"""Custom autograd Functions of all sorts, whose backward runs ops of its own."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.pow(3)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.square()


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sinh()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient.cosh()


class Split(Function):
    """Two outputs."""

    @staticmethod
    def forward(ctx, x):
        return x.floor(), x.frac()

    @staticmethod
    def backward(ctx, whole, rest):
        return torch.hypot(whole, rest)


class Outer(Function):
    """Calls another in its forward, and again one in its backward."""

    @staticmethod
    def forward(ctx, x):
        return Once.apply(x)

    @staticmethod
    def backward(ctx, gradient):
        return Once.apply(gradient).atan()


class Reversed(Function):
    """A forward without any op."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg()


class Passing(torch.nn.Module):
    def forward(self, x):
        return Cube.apply(x)


model = torch.nn.Linear(6, 6).cuda()
passing = torch.compile(Passing(), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    y = model(torch.randn(4, 6, device="cuda"))
    y = Cube.apply(y)
    y = Once.apply(y)
    whole, rest = Split.apply(y)
    y = Outer.apply(whole * rest)
    y = Reversed.apply(y)
    y = passing(y)
    y.relu_()
    optimizer.zero_grad()
    y.log1p().sum().backward()
    optimizer.step()
