"""Times ways to run the cross-entropies, the gated activations, and the activation of linear_act.

    PYTHONPATH=src python3 benchmarks/linear_ways.py OUT [--limit SECONDS] [--only WORD] [--on cpu]

As benchmarks/transformer_ways.py; OUT/linear_ways.jsonl.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from transformer_ways import BF16, FEW, FP32, TOLD, Case, copy_cases, main, randn
from undertorch.costs.training_ops import SUMMED_COLUMNS, SUMMED_WARPS
from undertorch.ops import gated_kernels, linear_act_kernels
from undertorch.ops.calls import multiprocessors
from undertorch.ops.norm_kernels import column_sums

linear, entropy, cuts = (
    import_module(f"undertorch.ops.{name}") for name in ("linear_cross_entropy", "cross_entropy", "cross_entropy_ways")
)

TRITON = cuts.Piece(block=16384, warps=32)
RINGS = {
    1: cuts.Ring(threads=384, slot_bytes=12288, cluster=1),
    2: cuts.Ring(threads=768, slot_bytes=12288, cluster=2),
}
COMPILED = "torch.compile"
LARGE, SMALL, ODD = (16384, 4096, 128256), (32768, 768, 50304), (32768, 768, 50257)
"""Rows, features, classes."""


@dataclass(frozen=True)
class Chunks:
    """linear_cross_entropy with so many rows at a time."""

    rows: int
    sums: torch.dtype
    losses: Any

    def __str__(self) -> str:
        return f"{self.rows} rows, {str(self.sums).removeprefix('torch.')} sums, {self.losses}"


def entropy_cases(device: str, few: bool) -> Iterator[Case]:
    for (rows, features, classes), ways in (
        (ODD, (Chunks(5632, FP32, TRITON), Chunks(5632, BF16, TRITON))),
        (SMALL, tuple(Chunks(n, sums, RINGS[1]) for n in (4096, 5632) for sums in (FP32, BF16))),
        (
            LARGE,
            (Chunks(4096, FP32, RINGS[2]), *(Chunks(n, BF16, RINGS[2]) for n in (512, 1024, 2048, 4096)), COMPILED),
        ),
    ):
        here = FEW if few else rows
        x, weight = randn(device, here, features), randn(device, 8 if few else classes, features) * features**-0.5
        labels = torch.randint(0, weight.shape[0], (here,), device=device)
        yield Case(
            name=f"linear_cross_entropy both {rows}x{features}x{classes}",
            tensors=(x, weight),
            ways=ways,
            call=partial(both, labels, torch.ones((), device=device)),
            flops=6 * rows * features * classes,
            holds=True,
        )


def both(labels: Tensor, one: Tensor, way: Any, given: Sequence[Any]) -> Any:
    x, weight = given
    if way == COMPILED:
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in (x, weight)]
            return torch.autograd.grad(compiled()(*leaves, labels), leaves, one)
    loss, *gradients = linear.forward(
        x, weight, labels, -100, 0.0, "mean", 0.0, None, way.sums, True, True, at_once=way.rows, way=way.losses
    )
    linear.scale(gradients, one)
    return loss, gradients


@cache
def compiled() -> Callable[..., Tensor]:
    return torch.compile(
        lambda x, weight, labels: functional.cross_entropy(x @ weight.t(), labels), dynamic=False
    )  # fmt: skip


def odd_cases(device: str, few: bool) -> Iterator[Case]:
    """A vocabulary that is no multiple of 8, whose rows begin at any address, beside the next that is one."""
    for classes, ways in ((50257, 4), (50264, 2)):
        logits = randn(device, FEW if few else 8192, classes)
        labels = torch.randint(0, classes, (logits.shape[0],), device=device)
        size = 8192 * classes * 2
        for early, kinds in ((False, cuts.LOSS_PIECES), (True, cuts.BOTH_PIECES)):
            yield Case(
                name=f"cross_entropy {'with gradient' if early else 'alone'} 8192x{classes}",
                tensors=(logits,),
                ways=(*cuts.pieces(classes, kinds)[:ways], *(() if early else (TOLD,))),
                call=partial(entropy_forward, labels, early),
                least_bytes=(1 + early) * size,
            )
        yield Case(
            name=f"cross_entropy backward 8192x{classes}",
            tensors=(logits,),
            ways=cuts.pieces(classes, cuts.GRADIENT_PIECES)[:ways],
            call=partial(entropy_backward, labels),
            least_bytes=2 * size,
        )


def entropy_forward(labels: Tensor, early: bool, way: Any, given: Sequence[Any]) -> Any:
    if way == TOLD:
        return functional.cross_entropy(given[0], labels)
    return entropy.forward(given[0], labels, None, -100, 0.0, "mean", 0.0, None, early, piece=way)


def entropy_backward(labels: Tensor, way: Any, given: Sequence[Any]) -> Any:
    (logits,) = given
    lse, one = logits.new_empty((2, logits.shape[0]), dtype=FP32), logits.new_ones((), dtype=FP32)
    return entropy.backward(one, logits, labels, None, lse, one, -100, 0.0, "mean", 0.0, None, piece=way)


@dataclass(frozen=True)
class Strip:
    """Elements of a block (rows, of the activation's backward, and columns), warps, and blocks on an SM."""

    columns: int
    warps: int
    rows: int = 1
    blocks_per_sm: int = 0

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns}, {self.warps} warps, {self.blocks_per_sm} blocks an SM"


STRIPS = tuple(
    Strip(columns, warps) for columns, warps in ((4096, 8), (4096, 16), (2048, 8), (2048, 4), (1024, 4), (8192, 16))
)


def gated_cases(device: str, few: bool) -> Iterator[Case]:
    for name, kind, rows, width in (("swiglu", 0, 16384, 14336), ("geglu", 1, 32768, 3072)):
        gate, up, dy = (randn(device, FEW if few else rows, width) for _ in range(3))
        size = rows * width * 2
        yield Case(
            name=f"{name} forward {rows}x{width}",
            tensors=(gate, up),
            ways=STRIPS,
            call=partial(gated_forward, kind),
            least_bytes=3 * size,
        )
        yield Case(
            name=f"{name} backward {rows}x{width}",
            tensors=(dy, gate, up),
            ways=STRIPS,
            call=partial(gated_backward, kind),
            least_bytes=5 * size,
        )


def gated_forward(kind: int, way: Strip, given: Sequence[Any]) -> Tensor:
    gate, up = given
    y, count = torch.empty_like(gate), gate.numel()
    pieces = triton.cdiv(count, way.columns)
    gated_kernels.gated_forward[(pieces,)](
        gate, up, y, pieces, count, count, count, KIND=kind, BLOCK=way.columns, num_warps=way.warps
    )
    return y


def gated_backward(kind: int, way: Strip, given: Sequence[Any]) -> Any:
    dy, gate, up = given
    dgate, dup, count = torch.empty_like(gate), torch.empty_like(up), gate.numel()
    pieces = triton.cdiv(count, way.columns)
    gated_kernels.gated_backward[(pieces,)](
        dy, gate, up, dgate, dup, pieces, count, count, count, count,
        NEED_GATE=True, NEED_UP=True, KIND=kind, BLOCK=way.columns, num_warps=way.warps,
    )  # fmt: skip
    return dgate, dup


BACKWARD_STRIPS = tuple(
    Strip(columns, warps, rows, per_sm)
    for rows, columns, warps, per_sm in (
        (16, 256, 4, 4), (8, 256, 4, 4), (8, 256, 4, 8), (4, 256, 4, 8), (16, 128, 4, 8), (8, 512, 4, 4),
        (8, 512, 8, 4), (4, 512, 4, 8), (16, 256, 8, 4), (4, 1024, 8, 4),
    )
)  # fmt: skip


def activation_cases(device: str, few: bool) -> Iterator[Case]:
    for rows, features, kind in ((32768, 3072, 1), (16384, 14336, 1)):
        before, dy = (randn(device, FEW if few else rows, features) for _ in range(2))
        size = rows * features * 2
        yield Case(
            name=f"activate {rows}x{features}",
            tensors=(before,),
            ways=STRIPS,
            call=partial(activate, kind),
            least_bytes=2 * size,
        )
        yield Case(
            name=f"activate_backward {rows}x{features}",
            tensors=(dy, before),
            ways=BACKWARD_STRIPS,
            call=partial(activate_backward, kind),
            least_bytes=3 * size,
        )


def activate(kind: int, way: Strip, given: Sequence[Any]) -> Tensor:
    (before,) = given
    y, count = torch.empty_like(before), before.numel()
    linear_act_kernels.activate[(triton.cdiv(count, way.columns),)](
        before, y, count, KIND=kind, BLOCK=way.columns, num_warps=way.warps
    )
    return y


def activate_backward(kind: int, way: Strip, given: Sequence[Any]) -> Any:
    dy, before = given
    rows, features = before.shape
    strips = triton.cdiv(features, way.columns)
    shares = min(max(multiprocessors(before) * way.blocks_per_sm // strips, 1), triton.cdiv(rows, way.rows))
    dbefore, dbias = torch.empty_like(before), torch.empty(features, dtype=before.dtype, device=before.device)
    sums = torch.empty((shares, features), dtype=FP32, device=before.device)
    linear_act_kernels.activate_backward[(strips, shares)](
        dy, before, dbefore, sums, rows, features, features,
        NEED_BIAS=True, KIND=kind, ROWS=way.rows, COLUMNS=way.columns, num_warps=way.warps,
    )  # fmt: skip
    columns = SUMMED_COLUMNS[features > 8192]
    column_sums[(triton.cdiv(features, columns), 1)](
        sums, dbias, dbias, shares, features, ROWS=32, BLOCK=columns, num_warps=SUMMED_WARPS
    )
    return dbefore, dbias


GROUPS = (copy_cases, odd_cases, gated_cases, activation_cases, entropy_cases)

if __name__ == "__main__":
    main(GROUPS, __file__, __doc__)
