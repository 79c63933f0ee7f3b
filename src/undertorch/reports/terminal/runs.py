"""A Step's launches with what every part of the report needs: their share of the busy time and the Op they served."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from undertorch.records import Bound, Launch, Op, Phase, Step, Where
from undertorch.records.totals import longest_first, shares_us

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A launch, its part of the busy time, and its first Op."""

    launch: Launch
    time_us: float
    op: Op | None

    @property
    def where(self) -> Where | None:
        """The source line of its first Op."""
        return None if self.op is None else self.op.where


def runs(step: Step) -> tuple[Run, ...]:
    """One Run a launch, in order. Their times sum to the busy time."""
    by_id = {op.id: op for op in step.ops}
    shares = shares_us(step.launches)
    return tuple(
        Run(launch=launch, time_us=share, op=by_id[launch.ops[0]] if launch.ops else None)
        for launch, share in zip(step.launches, shares, strict=True)
    )


def grouped(all_runs: Iterable[Run], key: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """The runs by key, in the order in which the keys first appear."""
    groups: dict[Key, list[Run]] = defaultdict(list)
    for run in all_runs:
        groups[key(run)].append(run)
    return dict(groups)


def by_kernel(all_runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of each kernel (name, kind and library), the longest first; those that tie as they come in the step."""
    groups = grouped(all_runs, lambda run: (run.launch.kernel.name, run.launch.kernel.kind, run.launch.kernel.library))
    return longest_first(groups.values(), busy)


def by_phase(all_runs: Iterable[Run]) -> list[tuple[Phase, list[Run]]]:
    """The runs of each phase that has any, in the order of the vocabulary."""
    groups = grouped(all_runs, lambda run: run.launch.phase)
    return [(phase, groups[phase]) for phase in Phase if phase in groups]


def busy(some: Iterable[Run]) -> float:
    """Their part of the busy time, in microseconds."""
    return sum(run.time_us for run in some)


def longest(some: Sequence[Run]) -> Launch:
    """The launch of a group that stands for it: the longest."""
    return max((run.launch for run in some), key=lambda launch: launch.time_us)


def bounds(some: Iterable[Run]) -> list[tuple[Bound | None, float]]:
    """Time by what bounds it, the longest first; None: not known."""
    groups = grouped(some, lambda run: run.launch.bound)
    return longest_first(((bound, busy(group)) for bound, group in groups.items()), lambda pair: pair[1])
