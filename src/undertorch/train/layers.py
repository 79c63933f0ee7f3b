"""Layers of the model that compute as torch's do, with faster products (products.py), and whose gradients take fewer
passes over large matrices.

torch sums a bias's gradient in one kernel in which few blocks walk all rows and wait for each other (1.6 TB/s on an
H200, of 4.2); joins the gradients of queries, keys and values by a copy, and then reads that again for their bias; and
makes a table of the embedding's gradient, which is added to the last layer's where both are one. Where own kernels do
not run (the CPU, torch.compile, UNDERTORCH_OPS=library) these are torch's functions.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from undertorch import ops
from undertorch.ops.calls import runs_own
from undertorch.ops.choose import prefers_library
from undertorch.train.gradients import bias_gradient, gelu_gradient, join, rows_added
from undertorch.train.products import gelu_product, product


def own(*tensors: Tensor) -> bool:
    """Whether own kernels serve these, in a step: what is only evaluated has other shapes each time, for each of which
    algorithms would be measured.
    """
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not prefers_library()
        and runs_own(*tensors)
        and all(tensor.dtype == tensors[0].dtype for tensor in tensors)
    )


def dense(x: Tensor) -> Tensor:
    """As rows, each of which is dense."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias; x: (..., D), weight: (F, D)."""
    if not own(x, weight, *(() if bias is None else (bias,))):
        return functional.linear(x, weight, bias)
    apply: Any = _Linear.apply
    answer: Tensor = apply(x, weight, bias)
    return answer


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        answer: Tensor = product(dense(x), weight.t(), bias)
        return answer.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = dense(dy)
        dx, dweight = product(rows, weight, None), product(rows.t(), dense(x), None)
        return dx.view(x.shape), dweight, bias_gradient(rows) if ctx.biased else None


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu(x @ weight.T + bias), GELU by tanh."""
    if not own(x, weight, bias):
        return ops.linear_act(x, weight, bias, "gelu_tanh")
    apply: Any = _LinearGelu.apply
    answer: Tensor = apply(x, weight, bias)
    return answer


class _LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        answer, before = gelu_product(dense(x), weight.t(), bias)
        ctx.save_for_backward(x, weight, before)
        made: Tensor = answer.view(*x.shape[:-1], weight.shape[0])
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, before = ctx.saved_tensors
        rows, dbias = gelu_gradient(dense(dy), before)
        return product(rows, weight, None).view(x.shape), product(rows.t(), dense(x), None), dbias


def heads(x: Tensor, weight: Tensor, bias: Tensor | None, queries: int, keys: int) -> tuple[Tensor, ...]:
    """x @ weight.T + bias as `queries` heads of queries, `keys` heads of keys and of values: each (batch, heads,
    tokens, size), cut out of one matrix.
    """
    if bias is None or not own(x, weight, bias):
        return _cut(functional.linear(x, weight, bias), queries, keys)
    apply: Any = _Heads.apply
    answer: tuple[Tensor, ...] = apply(x, weight, bias, queries, keys)
    return answer


def _cut(joined: Tensor, queries: int, keys: int) -> tuple[Tensor, ...]:
    # Before anything is done to them: the three gradients are then joined by one copy that reads and writes in order.
    inner = joined.view(*joined.shape[:2], queries + 2 * keys, -1)
    return tuple(part.transpose(1, 2) for part in inner.split((queries, keys, keys), dim=2))


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, queries: int, keys: int) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        joined = product(dense(x), weight.t(), bias)
        return _cut(joined.view(*x.shape[:-1], weight.shape[0]), queries, keys)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows, sums = join(dq, dk, dv)
        dx, dweight = product(rows, weight, None), product(rows.t(), dense(x), None)
        return dx.view(x.shape), dweight, sums, None, None


# A tied embedding


class Tie:
    """Of an embedding whose weight is the last layer's too: holds the last layer's gradient of it until the backward
    has come to the embedding, whose own is then added onto that.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.gradient = weight, None
        self.own = own(weight)

    gradient: Tensor | None

    def embedded(self, tokens: Tensor) -> Tensor:
        """weight[tokens]."""
        if not self.own:
            return functional.embedding(tokens, self.weight)
        apply: Any = _Embedded.apply
        answer: Tensor = apply(self.weight, tokens, self)
        return answer

    def last(self) -> Tensor:
        """The weight, for the last layer."""
        if not self.own:
            return self.weight
        apply: Any = _Last.apply
        answer: Tensor = apply(self.weight, self)
        return answer


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, tokens: Tensor, tie: Tie) -> Tensor:
        ctx.tie, ctx.shape = tie, weight.shape
        # Of 16 bits where they are enough: the sort then takes two passes and not eight.
        ctx.least, dtype = (-(2**15), torch.int16) if weight.shape[0] <= 2**16 else (0, torch.int32)
        ctx.save_for_backward(*torch.sort((tokens.flatten() + ctx.least).to(dtype), stable=True))
        return functional.embedding(tokens, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        tokens, order = ctx.saved_tensors
        table, ctx.tie.gradient = ctx.tie.gradient, None
        if table is None:
            table = torch.zeros(ctx.shape, dtype=dy.dtype, device=dy.device)
        rows_added(table, dense(dy).contiguous(), tokens, order, ctx.least)
        return table, None, None


class _Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, tie: Tie) -> Tensor:
        ctx.tie = tie
        return weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dweight: Tensor) -> tuple[None, None]:
        ctx.tie.gradient = dweight
        return None, None
