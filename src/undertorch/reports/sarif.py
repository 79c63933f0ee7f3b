"""Findings as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"), which code scanning reads."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

import msgspec

from undertorch import __version__
from undertorch.records import Checked, Finding, FindingKind, Place, Severity
from undertorch.reports.github import where_lines_count_from

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
RULES = {
    FindingKind.RACE_SHARED: "Two accesses to the same bytes of shared memory, one a write, that nothing orders.",
    FindingKind.RACE_GLOBAL: "Two accesses to the same bytes of global memory, one a write, that nothing orders.",
    FindingKind.RACE_PARTIAL: "Atomic accesses that overlap in part.",
    FindingKind.BARRIER_DIVERGENCE: "Threads of a block that do not all come to one barrier.",
    FindingKind.BAD_MASK: "A mask that leaves out the lane that executes it, or names lanes that have ended.",
    FindingKind.BANK_CONFLICT: "Lanes of a warp that queue at one bank of shared memory.",
    FindingKind.DIVERGENCE: "A warp that walks through both arms of a branch.",
    FindingKind.UNCOALESCED: "A warp's access that fetches more of global memory than it uses.",
    FindingKind.OCCUPANCY: "Registers, shared memory or the block's size that leave the GPU partly empty.",
    FindingKind.SPILL: "Registers that the compiler had to keep in memory.",
    FindingKind.TAIL_WAVE: "A grid whose last wave of blocks leaves most of the GPU idle.",
    FindingKind.NC_WRITE: "ld.global.nc of bytes that the same launch writes.",
    FindingKind.OUT_OF_BOUNDS: "An access outside of what the launch was given.",
    FindingKind.MISALIGNED: "An access whose address is no multiple of its size.",
    FindingKind.UNINITIALIZED: "A read of memory that nobody has written.",
    FindingKind.DEADLOCK: "Threads that wait for ever.",
    FindingKind.TRAP: "A thread that executed trap.",
    FindingKind.ASSERT: "An assertion that does not hold.",
    FindingKind.INVALID_FREE: "A free of what malloc did not return, or of it twice.",
}
"""What each kind means, one sentence."""


def to_sarif(checked: Sequence[Checked]) -> bytes:
    """One run with a result for each finding. Files are named from the folder of the command on; `%SRCROOT%`."""
    kinds = sorted({finding.kind for one in checked for finding in _all(one)})
    results = [
        result
        for one in checked
        for result in (
            *(_result(finding, one, kinds) for finding in one.findings),
            *(_result(s.finding, one, kinds, s.reason) for s in one.suppressed),
        )
    ]
    driver = {
        "name": "undertorch check",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [{"id": kind, "shortDescription": {"text": RULES[kind]}} for kind in kinds],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=1)


def _all(checked: Checked) -> list[Finding]:
    return [*checked.findings, *(one.finding for one in checked.suppressed)]


def _result(
    finding: Finding, checked: Checked, kinds: Sequence[FindingKind], accepted: str | None = None
) -> dict[str, Any]:
    said = [
        finding.message,
        f"Seen: {finding.evidence}.",
        finding.cost,
        f"Remedy: {finding.remedy}.",
        where_lines_count_from(checked, finding),
    ]
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(part for part in said if part)},
        "locations": [_location(checked.standing(finding.place), checked.kernel)],
        "partialFingerprints": {"undertorch/v1": finding.fingerprint},
        "occurrenceCount": finding.count,
    }
    if finding.other is not None:
        result["relatedLocations"] = [{"id": 1, **_location(checked.standing(finding.other), checked.kernel),
                                       "message": {"text": "the other place"}}]  # fmt: skip
    if accepted is not None:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": accepted}]
    return result


def _location(place: Place, kernel: str) -> dict[str, Any]:
    function = [{"name": kernel, "kind": "function"}]
    if place.file == "PTX":
        return {"logicalLocations": function}  # which is in no file
    region: dict[str, Any] = {"startLine": place.line}
    if place.column:
        region["startColumn"] = place.column
    artifact: dict[str, Any] = {"uri": _uri(place.file)}
    if not PurePath(place.file).is_absolute():
        artifact["uriBaseId"] = "%SRCROOT%"
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": region},
        "logicalLocations": function,
    }


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
