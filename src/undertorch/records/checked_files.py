"""Checks as JSON: `undertorch check --json`. The schema is generated from the records here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from undertorch.records.checked import Checked, Counts
from undertorch.records.findings import Figures, Finding, FindingKind, Place, Severity
from undertorch.records.kernels import Dim3

SCHEMA = 1
"""Version of the layout. It grows when a field changes its meaning or goes; new fields do not change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEntry:
    """A source position as it stands in a file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEntry:
    """A Finding as it stands in a file."""

    kind: FindingKind
    severity: Severity
    file: str
    line: int
    column: int | None
    inlined_at: tuple[PlaceEntry, ...]
    message: str
    evidence: str
    other: PlaceEntry | None
    count: int
    cost: str | None
    remedy: str
    fingerprint: str
    figures: Figures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressedEntry:
    """A finding that pyproject.toml accepts."""

    finding: FindingEntry
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """A kernel that was checked."""

    name: str
    grid: Dim3
    block: Dim3
    gpu: str
    runs: int
    launches: int
    watched: int
    missed: str | None
    findings: tuple[FindingEntry, ...]
    suppressed: tuple[SuppressedEntry, ...]
    skipped: str | None
    counters: Counts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFile:
    """The whole file."""

    schema: int
    target_arch: str | tuple[str, ...] | None
    """What the code was compiled for; several where kernels differ, null where none was checked."""
    kernels: tuple[KernelEntry, ...]


def to_json(checked: Sequence[Checked]) -> bytes:
    """The kernels that were checked, with their findings."""
    targets = tuple(sorted({one.target for one in checked}))
    file = CheckFile(
        schema=SCHEMA,
        target_arch=None if not targets else targets[0] if len(targets) == 1 else targets,
        kernels=tuple(map(_kernel, checked)),
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=1)


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `check --json`."""
    return msgspec.json.schema(CheckFile)


def _kernel(one: Checked) -> KernelEntry:
    return KernelEntry(
        name=one.kernel,
        grid=one.grid,
        block=one.block,
        gpu=one.gpu,
        runs=one.runs,
        launches=one.launches,
        watched=one.watched,
        missed=one.missed,
        findings=tuple(map(_finding, one.findings)),
        suppressed=tuple(SuppressedEntry(finding=_finding(s.finding), reason=s.reason) for s in one.suppressed),
        skipped=one.skipped,
        counters=one.counts,
    )


def _finding(finding: Finding) -> FindingEntry:
    return FindingEntry(
        kind=finding.kind,
        severity=finding.severity,
        file=finding.place.file,
        line=finding.place.line,
        column=finding.place.column,
        inlined_at=tuple(map(_place, finding.place.inlined_at)),
        message=finding.message,
        evidence=finding.evidence,
        other=None if finding.other is None else _place(finding.other),
        count=finding.count,
        cost=finding.cost,
        remedy=finding.remedy,
        fingerprint=finding.fingerprint,
        figures=finding.figures,
    )


def _place(place: Place) -> PlaceEntry:
    return PlaceEntry(file=place.file, line=place.line)
