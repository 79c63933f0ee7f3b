"""A Finding: one fault or pitfall of a kernel, at its source line."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How sure it is that this is wrong."""

    ERROR = "error"
    """The result can be wrong, or the kernel can hang."""
    WARNING = "warning"
    """Right, and needlessly slow."""
    NOTE = "note"


class FindingKind(StrEnum):
    """Every kind that a check reports."""

    RACE_SHARED = "race-shared"
    RACE_GLOBAL = "race-global"
    RACE_PARTIAL = "race-partial"
    BARRIER_DIVERGENCE = "barrier-divergence"
    BAD_MASK = "bad-mask"
    BANK_CONFLICT = "bank-conflict"
    DIVERGENCE = "divergence"
    UNCOALESCED = "uncoalesced"
    OCCUPANCY = "occupancy"
    SPILL = "spill"
    TAIL_WAVE = "tail-wave"
    NC_WRITE = "nc-write"
    OUT_OF_BOUNDS = "out-of-bounds"
    MISALIGNED = "misaligned"
    UNINITIALIZED = "uninitialized"
    DEADLOCK = "deadlock"
    TRAP = "trap"
    ASSERT = "assert"
    INVALID_FREE = "invalid-free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A source position of a kernel."""

    file: str
    line: int
    column: int | None = None
    inlined_at: tuple["Place", ...] = ()
    """Where it was inlined into, innermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault or pitfall, with its evidence, its cost and its remedy."""

    kind: FindingKind
    severity: Severity
    place: Place
    message: str
    """What is wrong, one sentence."""
    evidence: str
    """What was seen: threads, addresses, counts."""
    other: Place | None = None
    """The second place of a pair, such as the other access of a race."""
    count: int
    """How often it happened in the launch."""
    cost: str | None = None
    """What it costs, where that is known."""
    remedy: str
    fingerprint: str
    """The same for the same fault after edits elsewhere in the file."""
