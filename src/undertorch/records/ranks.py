"""One step on several ranks: what each gave, and what they say of one another."""

from dataclasses import dataclass, field

from undertorch.records.ops import Where
from undertorch.records.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective operation as one rank ran it: a launch of its Step, with what names it on every rank."""

    launch: int
    """Place of its kernel in the Step's launches."""
    operation: str
    """As torch.distributed calls it, such as `all_reduce`."""
    group: str
    """Name of the process group; the same on its ranks. Empty where it is not known."""
    ranks: tuple[int, ...] = ()
    """Global ranks of the group; empty where they are not known."""
    sequence: int | None = None
    """The group's own number of it, the same on every rank; None where it was not recorded."""
    bytes: int | None = None
    """That this rank puts in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedStep:
    """A Step of one rank, on that rank's clock."""

    rank: int
    step: Step
    clock_us: float
    """When the step began, on the rank's own clock, which need not agree with another's: `join_ranks` aligns them."""
    origin_ns: int = 0
    """The moment that `clock_us` counts from, kept apart since a float has no room for both."""
    collectives: tuple[Collective, ...]
    """In the order of their start."""
    world_size: int | None = None
    """How many ranks there are; None where it is not known."""
    lost_collectives: int = 0
    """Launches of collectives whose kernels the profiler lost."""
    unprofiled_us: tuple[float, ...] = ()
    """Of each of some steps of this rank without the profiler; empty where none was timed."""
    gpu_only: bool = False
    """Whether the profiler followed the GPU alone in it, which slows the CPU less than the whole profiler."""
    steady: bool = True
    """Whether the step before was recorded too, so that this one lasts from the end of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """What one rank did in the step. Unknown is None, never 0. Microseconds."""

    rank: int
    gpu: str
    step_us: float | None
    """Of the step that is shown, as it was profiled."""
    unprofiled_us: float | None = None
    """Of a step without the profiler: the median. None where none was timed."""
    gpu_only: bool = False
    """Whether the step that is shown was profiled on the GPU alone."""
    busy_us: float
    """The union of its launches."""
    compute_us: float
    """The union of those that are no collectives."""
    communication_us: float
    """The union of its collectives; waiting for other ranks within them is part of it."""
    exposed_us: float
    """The part of `communication_us` in which no other kernel of the rank ran."""
    waited_us: float | None
    """Within its collectives, for ranks that came later; None where its clock could not be aligned."""
    exposed_waiting_us: float | None
    """The part of `waited_us` in which no other kernel of the rank ran."""
    waited_for_us: float | None
    """What all others waited for this one."""
    clock_us: float | None
    """Its clock's lead over the first rank's, as the ends of common collectives tell; None: there are none."""
    clock_error_us: float | None
    """How far those ends lie from that lead, in the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRank:
    """A collective on one of its ranks. Microseconds."""

    rank: int
    start_us: float
    """From the first rank's start of the step, on the aligned clock; on the rank's own where it is not aligned."""
    time_us: float
    exposed_us: float
    waited_us: float | None
    """From its start to that of the last rank; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFigures:
    """A collective operation on all of its ranks that are there."""

    operation: str
    group: str
    sequence: int | None
    order: int
    """Which of its group's collectives in the step it is, counted from 0."""
    bytes: int | None
    """That one rank puts in, the most."""
    where: Where | None
    module: str | None
    on: tuple[OnRank, ...]
    last: int | None
    """The rank that came last and that the others waited for; None where that cannot be told."""
    spread_us: float | None
    """From the first to come to the last."""

    @property
    def exposed_us(self) -> float:
        """On the rank where it is longest."""
        return max(one.exposed_us for one in self.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedLine:
    """Exposed communication of one operation from one line (or module, where no line is known), over all ranks."""

    where: Where | None
    module: str | None
    operation: str
    launches: int
    """Over all ranks."""
    exposed_us: float
    """The mean over the ranks."""
    waiting_us: float | None = None
    """The part of it in which the rank waited for the last to come; the rest moves data. The mean over the ranks; None
    where of none of the launches it is known."""
    time_us: float
    """The mean over the ranks, exposed or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long one rank waited for another, in collectives for which the other came last."""

    rank: int
    for_rank: int
    time_us: float
    collectives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReport:
    """One step on several ranks, on one clock."""

    ranks: tuple[RankFigures, ...]
    """In the order of their numbers."""
    collectives: tuple[CollectiveFigures, ...]
    """In the order of their start on the lowest rank that has them."""
    lines: tuple[ExposedLine, ...]
    """The longest exposed first."""
    waits: tuple[Wait, ...]
    """The longest first."""
    missing: tuple[int, ...] = ()
    """Ranks of the run that are not here."""
    unmatched: dict[str, int] = field(default_factory=dict)
    """Launches of collectives that were found on one rank alone of those here that share the group, by operation."""
    notes: tuple[str, ...] = ()
    """What else the reader has to know, a sentence each."""
