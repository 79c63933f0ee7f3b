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


class Scope(StrEnum):
    """Threads among which two accesses are not ordered; what orders a wider one orders the narrower ones in it."""

    WARP = "warp"
    BLOCK = "block"
    GRID = "grid"


SPEED = frozenset({
    FindingKind.BANK_CONFLICT, FindingKind.UNCOALESCED, FindingKind.DIVERGENCE, FindingKind.OCCUPANCY,
    FindingKind.SPILL, FindingKind.TAIL_WAVE,
})  # fmt: skip
"""Kinds that say nothing against the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A source position of a kernel."""

    file: str
    line: int
    column: int | None = None
    inlined_at: tuple["Place", ...] = ()
    """Where it was inlined into, innermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOrigin:
    """Where a source that is no file stands in one: CUDA C++ that is a text in a program."""

    file: str
    line: int
    """Of its first line, or of what made it."""
    whole: bool = False
    """Whether its lines are lines of the file, from `line` on."""

    def place(self, place: Place) -> Place:
        """The file's position for one of the source."""
        return Place(file=self.file, line=self.line + place.line - 1 if self.whole else self.line)


class Unit(StrEnum):
    """What a finding about speed counts."""

    WAVEFRONTS = "wavefronts"
    """Turns of shared memory's banks."""
    SECTORS = "sectors"
    """Of 32 bytes of global memory."""
    INSTRUCTIONS = "warp instructions"
    WARPS = "warps"
    """That an SM holds at once."""
    WAVES = "waves"
    """Of blocks, as many as the GPU holds at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One access of one warp: an example, for a picture of it."""

    bytes: int
    """Of a lane."""
    addresses: tuple[int | None, ...]
    """Of each lane, None where it took no part. Of shared memory offsets into the block's; of global memory from the
    multiple of 128 bytes at or below the lowest of them."""
    taken: int
    ideal: int
    banks: tuple[int, ...] = ()
    """Of shared memory: how many wavefronts each of the 32 banks (4 bytes wide) is busy for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLanes:
    """What ran of one source line."""

    line: int
    warp_instructions: int
    thread_instructions: int
    """Active lanes, summed: over `warp_instructions` 0 to 32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a finding about speed was counted from: over the launch, at its line."""

    unit: Unit
    taken: float
    ideal: float
    """The least that the same work can take."""
    requests: int | None = None
    """Accesses of warps: `taken / requests` is what each takes."""
    share: float | None = None
    """`taken` over what the whole kernel takes of that unit, 0 to 1."""
    example: Request | None = None
    lines: tuple[LineLanes, ...] = ()
    """Lines under a divergent branch."""


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
    figures: Figures | None = None
    """Of a finding about speed."""
    scope: Scope | None = None
    """Of a race: the widest in which its two lines met."""
