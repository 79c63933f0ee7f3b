"""A Comparison: what changed from one Step to another, by line, phase and kind of kernel; and what a budget says."""

from dataclasses import dataclass
from enum import StrEnum

from undertorch.records.kinds import Kind, Phase
from undertorch.records.origins import Origin
from undertorch.records.steps import IdleCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure before and after. Unknown is None, never 0; what is not there on one side is 0 there."""

    before: float | None
    after: float | None
    difference: float | None
    """after − before. None where a side is unknown, or where launches of unknown figure differ between the sides; the
    same unknown launches on both sides cancel."""
    before_missing: int = 0
    """Launches whose figure is not known; `before` is the sum of the others."""
    after_missing: int = 0

    @property
    def ratio(self) -> float | None:
        """The difference as a share of what was before; None where that is unknown or 0."""
        return None if self.difference is None or not self.before else self.difference / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a group of launches asks of the GPU, before and after."""

    time_us: Change
    """Its part of the busy time."""
    min_bytes: Change
    flops: Change
    launches: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange(Figures):
    """A phase that either side has. Their differences sum to that of the busy time."""

    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class KindChange(Figures):
    """A kind of kernel that either side launches. Their differences sum to that of the busy time."""

    kind: Kind


class Match(StrEnum):
    """How a line before was found again after."""

    SAME = "same"
    """The same text in the same function; its number may be another."""
    MOVED = "moved"
    """The same text in another function or file."""
    EDITED = "edited"
    """Its text changed a little."""
    NEW = "new"
    """Nothing before is like it."""
    GONE = "gone"
    """Nothing after is like it."""
    NO_LINE = "no line"
    """Not a line: the launches that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line that launched something, as one side has it."""

    file: str
    line: int
    """Counted from 1."""
    function: str
    source: str | None
    """Its text, stripped; None where the file could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange(Figures):
    """A source line that either side launches from. Their differences sum to that of the busy time."""

    match: Match
    before: SourceLine | None
    after: SourceLine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleChange:
    """Idle time of a cause that either side has. Their differences and that of the busy time sum to that of the step,
    where it runs on one GPU."""

    cause: IdleCause
    time_us: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLineChange:
    """A source line for which the GPU waits on either side; both None: what has no line."""

    match: Match
    before: SourceLine | None
    after: SourceLine | None
    time_us: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side's figures hold for."""

    gpu: str
    time_origin: Origin
    script: str
    arguments: tuple[str, ...]
    step: int
    samples: int | None
    versions: dict[str, str]
    ops_without_cost: tuple[str, ...]
    """Names of Ops whose kernels are not known: every sum of this side leaves them out."""
    ops_without_cost_count: int
    lost_launches: int
    """Launches that a profiler lost: likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changed from one Step to another: the whole, then by phase, kind of kernel and source line."""

    before: Side
    after: Side
    step_us: Change
    """Wall time."""
    busy_us: Change
    min_bytes: Change
    flops: Change
    launches: Change
    peak_bytes: Change
    """Of memory."""
    phases: tuple[PhaseChange, ...]
    kinds: tuple[KindChange, ...]
    lines: tuple[LineChange, ...]
    """The largest change of time first; what has no line last."""
    idle: tuple[IdleChange, ...] = ()
    """In the order of the vocabulary; empty where the wall time of a side is not known."""
    idle_lines: tuple[IdleLineChange, ...] = ()
    """The same time by line: the largest change first; what has no line last."""
    same_left_out: bool
    """Whether both sides leave out the same Ops (names, shapes and dtypes) and no launch was lost: then the
    differences hold although the sums do not."""

    @property
    def mixed(self) -> bool:
        """Whether a prediction stands beside a measurement."""
        return self.before.time_origin is not self.after.time_origin

    @property
    def one_gpu(self) -> bool:
        """Whether both sides are of the same GPU."""
        return self.before.gpu == self.after.gpu


class Metric(StrEnum):
    """What a budget can be set for."""

    STEP = "step"
    """Wall time; busy time where the wall time of a side is not known."""
    BUSY = "busy"
    BYTES = "bytes"
    """Least bytes."""
    MEMORY = "memory"
    """Peak memory."""
    LAUNCHES = "launches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much a figure may grow."""

    text: str
    """As it was given, such as `step+5%`."""
    metric: Metric
    percent: float | None
    """Of what was before; None where `amount` is given."""
    amount: float | None
    """Microseconds, bytes or launches."""


class Verdict(StrEnum):
    """What a budget says."""

    HOLDS = "holds"
    OVERRUN = "overrun"
    UNKNOWN = "unknown"
    """It cannot be judged, which is a failure and not a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A budget, held against one comparison."""

    budget: Budget
    gpu: str
    verdict: Verdict
    figure: str
    """Which figure was judged: `step`, or `busy` in its place."""
    change: Change | None
    """None where there was nothing to compare."""
    why: str | None
    """Why it cannot be judged, as the end of a sentence; None where it was."""
