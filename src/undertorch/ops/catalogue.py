"""Every op, who may serve it, and how fast each of its ways is here."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, resources
from typing import Any

import torch

from undertorch.ops.calls import BadCall
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import Choice, everything_stored, measure
from undertorch.ops.passes import PASSES, Pass

NAMES = tuple(PASSES)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


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


def has_gpu() -> bool:
    """Whether ways can be measured and chosen on this machine."""
    return torch.cuda.is_available()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A pass of an op, as `benchmarks/ops.py` measured it beside others'."""

    case: str
    """Such as `rms_norm 16384 × 8192, forward`, of bfloat16 unless another dtype stands in it."""
    microseconds: dict[str, float]
    """Of a call, by who: `auto` and `own` are ours, as UNDERTORCH_OPS says."""


def measured(op: str) -> tuple[str, list[Measured]]:
    """The GPU, versions and date of the published measurement, and what it has of an op: the rows of docs/ops.md's
    table, in a file that docs/tables.py writes with it.
    """
    content: dict[str, Any] = json.loads(resources.files("undertorch.ops").joinpath("measured.json").read_text("utf-8"))
    rows = [Measured(case=row["case"], microseconds=row["us"]) for row in content["rows"] if row["op"] == op]
    return content["where"], rows


def choices(op: str) -> Iterator[tuple[str, Choice]]:
    """What was chosen for an op's passes, with the environment in which it was."""
    for where, stored in everything_stored().items():
        for choice in stored.values():
            name = choice.key.split()[0]
            if name == op or name.startswith(f"{op}_"):
                yield where, choice


def timed(op: str, sizes: tuple[int, ...], dtype: str) -> Iterator[tuple[Pass, dict[str, float]]]:
    """Each pass of an op at a shape on the current GPU, with the microseconds of a call in each way.

    Raises BadCall for another number of sizes than the op has, a dtype that is not served, and where there is no GPU.
    """
    candidates(op)
    passes, shape = PASSES[op]
    if len(sizes) != shape.count("x") + 1:
        raise BadCall(f"{op} is measured at a shape {shape}.")
    if dtype not in DTYPES:
        raise BadCall(f"the dtype {dtype!r} is not served; there are: {', '.join(DTYPES)}.")
    if not has_gpu():
        raise BadCall("there is no GPU here to measure on.")
    for each in passes(op, sizes, DTYPES[dtype], "cuda"):
        yield each, measure(each.ways, each.call, each.tensors)
