"""Every op, who may serve it, and how to call each of its passes on made-up tensors of a shape."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from undertorch.ops import norms
from undertorch.ops.calls import BadCall, multiprocessors, rows_of
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import LIBRARY, Call, measure

NORMS = {
    "rms_norm": (False, False),
    "layer_norm": (True, False),
    "add_rms_norm": (False, True),
    "add_layer_norm": (True, True),
}
"""Whether the mean is taken off, and whether a residual is added."""

NAMES = (
    *NORMS,
    "cross_entropy",
    "adamw",
    "grad_norm",
    "swiglu",
    "geglu",
    "linear_cross_entropy",
    "softmax",
    "rope",
    "linear_act",
    "attention",
)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass of an op on some tensors, in each of its ways."""

    name: str
    ways: tuple[Any, ...]
    call: Call
    tensors: Sequence[Tensor | None]
    least_bytes: int
    """Each input once and each output once."""


def candidates(op: str) -> tuple[Candidate, ...]:
    """Who may serve an op. Raises BadCall for a name that is none."""
    if op not in NAMES:
        raise BadCall(f"there is no op {op!r}; there are: {', '.join(NAMES)}.")
    found: tuple[Candidate, ...] = import_module(f"undertorch.ops.{op}").CANDIDATES
    return found


def summary(op: str) -> str:
    """The first sentence of an op's file."""
    text = import_module(f"undertorch.ops.{op}").__doc__ or ""
    return " ".join(text.split("\n\n")[0].split())


def timed(op: str, rows: int, width: int, dtype: str) -> Iterator[tuple[Pass, dict[str, float]]]:
    """Each pass of an op at a shape on the current GPU, with the microseconds of a call in each way.

    Raises BadCall for an op that has no rows, a dtype that is not served, and where there is no GPU.
    """
    candidates(op)
    if not torch.cuda.is_available():
        raise BadCall("there is no GPU here to measure on.")
    if dtype not in DTYPES:
        raise BadCall(f"the dtype {dtype!r} is not served; there are: {', '.join(DTYPES)}.")
    if op in NORMS:
        found = _norm_passes(op, rows, width, DTYPES[dtype])
    elif op == "cross_entropy":
        found = _entropy_passes(rows, width, DTYPES[dtype])
    else:
        raise BadCall(f"{op} is served in one way only, and there is nothing to compare.")
    for each in found:
        yield each, measure(each.ways, each.call, each.tensors)


def _norm_passes(op: str, rows: int, width: int, dtype: torch.dtype) -> Iterator[Pass]:
    centred, residual = NORMS[op]
    x, dy = (torch.randn(rows, width, device="cuda", dtype=dtype) for _ in range(2))
    added, dtotal = (torch.randn_like(x) if residual else None for _ in range(2))
    weight = torch.randn(width, device="cuda", dtype=dtype)
    bias = torch.randn_like(weight) if centred else None
    rstd = x.float().var(-1, unbiased=False).add(1e-5).rsqrt()
    mean = x.float().mean(-1) if centred else None
    tiles = norms.forward_tiles(width, rows, multiprocessors(x))
    yield Pass(
        name="forward",
        ways=(*(tiles or (None,)), LIBRARY),
        call=lambda way, given: norms.forward(
            given[0], given[1], given[2], given[3], 1e-5, centred=centred, name=op, tile=way
        ),
        tensors=(x, added, weight, bias),
        least_bytes=(4 if residual else 2) * x.numel() * x.element_size(),
    )
    tiles = norms.backward_tiles(width, rows, multiprocessors(x))
    tensors = (dy, dtotal, x, weight, mean, rstd)
    needs: Any = (dtype if centred else None, True, True, centred)
    again: Any = norms.backward
    yield Pass(
        name="backward",
        ways=(*(tiles or (None,)), LIBRARY),
        call=lambda way, given: again(*given, *needs, centred=centred, name=op, tile=way),
        tensors=tensors,
        least_bytes=(4 if residual else 3) * x.numel() * x.element_size(),
    )


def _entropy_passes(rows: int, width: int, dtype: torch.dtype) -> Iterator[Pass]:
    entropy: Any = import_module("undertorch.ops.cross_entropy")
    logits = torch.randn(rows, width, device="cuda", dtype=dtype)
    labels = torch.randint(0, width, (rows,), device="cuda")
    settings = (-100, 0.0, "mean", 0.0, None)
    size = logits.numel() * logits.element_size()
    alone = entropy.pieces(width, entropy.LOSS_PIECES)
    together = entropy.ways_of_both(logits, rows_of(logits, width), None, None)
    run: Any = entropy.forward
    for name, early, ways in (("forward", False, alone), ("forward with gradient", True, together)):
        yield Pass(
            name=name,
            ways=ways,
            call=partial(_entropy, run, labels, settings, early),
            tensors=(logits,),
            least_bytes=(1 + early) * size,
        )
    _, lse, denominator, _ = entropy.forward(logits, labels, None, *settings, False, piece=alone[0])
    one = torch.ones((), device="cuda")
    yield Pass(
        name="backward",
        ways=entropy.pieces(width, entropy.GRADIENT_PIECES),
        call=lambda way, given: entropy.backward(one, given[0], labels, None, lse, denominator, *settings, piece=way),
        tensors=(logits,),
        least_bytes=2 * size,
    )


def _entropy(run: Any, labels: Tensor, settings: tuple[Any, ...], early: bool, way: Any, given: Sequence[Any]) -> Any:
    return run(given[0], labels, None, *settings, early, piece=way)
