"""Comparisons as JSON, one way. The layout is the contract of `compare --json`; its schema is generated from here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from undertorch.records.comparisons import Comparison, Judged

SCHEMA = 1
"""Version of the layout. It grows when a field changes its meaning or goes; new fields do not change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareFile:
    """What `undertorch compare` found, as it stands in a file."""

    schema: int
    comparisons: tuple[Comparison, ...]
    """One a GPU."""
    only_before: tuple[str, ...]
    """GPUs that the file after has no step of."""
    only_after: tuple[str, ...]
    budgets: tuple[Judged, ...]


def to_json(
    comparisons: Sequence[Comparison],
    only_before: Sequence[str] = (),
    only_after: Sequence[str] = (),
    budgets: Sequence[Judged] = (),
) -> bytes:
    """The file's bytes."""
    return msgspec.json.encode(
        CompareFile(
            schema=SCHEMA,
            comparisons=tuple(comparisons),
            only_before=tuple(only_before),
            only_after=tuple(only_after),
            budgets=tuple(budgets),
        )
    )


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `compare --json`."""
    return msgspec.json.schema(CompareFile)
