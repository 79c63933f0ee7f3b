"""Checks as JSON: `undertorch check --json`."""

from collections.abc import Sequence
from typing import Any

from undertorch.records.checked import Checked
from undertorch.records.findings import Finding, Place

SCHEMA = 1


def to_json(checked: Sequence[Checked]) -> bytes:
    """The kernels that were checked, with their findings. `schema` counts changes that break readers."""
    import msgspec

    targets = sorted({one.target for one in checked})
    data = {
        "schema": SCHEMA,
        "target_arch": targets[0] if len(targets) == 1 else targets,
        "kernels": [_kernel(one) for one in checked],
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=1)


def _kernel(one: Checked) -> dict[str, Any]:
    return {
        "name": one.kernel,
        "grid": list(one.grid),
        "block": list(one.block),
        "gpu": one.gpu,
        "runs": one.runs,
        "findings": [_finding(finding) for finding in one.findings],
        "counters": {},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "file": finding.place.file,
        "line": finding.place.line,
        "column": finding.place.column,
        "inlined_at": [_place(place) for place in finding.place.inlined_at],
        "message": finding.message,
        "evidence": finding.evidence,
        "other": None if finding.other is None else _place(finding.other),
        "count": finding.count,
        "cost": finding.cost,
        "remedy": finding.remedy,
        "fingerprint": finding.fingerprint,
    }


def _place(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line}
