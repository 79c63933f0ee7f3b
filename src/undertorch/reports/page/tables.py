"""Rows of the tables: kernels, phases, and what the page leaves out or takes for granted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from undertorch.records import Gpu, Launch, Origin, Phase, Step, Where
from undertorch.reports.page.rates import Rates, rates_together
from undertorch.reports.terminal.accounting import by_launch
from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.missing import Missing, missing, of
from undertorch.reports.terminal.runs import Run, busy, by_kernel, by_phase, grouped, longest


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """A kernel by name, over all its launches; geometry and occupancy of the longest of them."""

    launch: Launch
    launches: int
    time_us: float
    share: float
    """Of the busy time."""
    bound: str
    rates: Rates
    where: Where | None
    """The line at which it spends most of its time."""
    places: int
    """Lines that launch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """A phase of the step."""

    phase: Phase
    launches: int
    time_us: float
    share: float
    """Of the busy time."""
    bound: str


def kernel_rows(runs: Sequence[Run], gpu: Gpu | None) -> tuple[KernelRow, ...]:
    """The longest first."""
    whole = busy(runs)
    return tuple(_kernel(group, whole, gpu) for group in by_kernel(runs))


def _kernel(group: Sequence[Run], whole: float, gpu: Gpu | None) -> KernelRow:
    launch = longest(group)
    lines = grouped(group, lambda run: None if run.where is None else (run.where.file, run.where.line))
    most = max(lines.values(), key=busy)
    return KernelRow(
        launch=launch,
        launches=len(group),
        time_us=busy(group),
        share=busy(group) / whole if whole else 0.0,
        bound=bound(group),
        rates=rates_together([run.launch for run in group], launch, gpu),
        where=most[0].where,
        places=len(lines),
    )


def phase_rows(runs: Sequence[Run]) -> tuple[PhaseRow, ...]:
    """In the order of the vocabulary. Their times sum to the busy time."""
    whole = busy(runs)
    return tuple(
        PhaseRow(
            phase=phase,
            launches=len(some),
            time_us=busy(some),
            share=busy(some) / whole if whole else 0.0,
            bound=bound(some),
        )
        for phase, some in by_phase(runs)
    )


def left_out(runs: Sequence[Run]) -> tuple[Missing, ...]:
    """What the sums leave out; nothing where all is known."""
    without = [run for run in runs if run.where is None]
    return (*([of(without, runs, "source line")] if without else []), *missing(runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginRow:
    """A group of figures and where they come from, by launch."""

    what: str
    counts: tuple[tuple[Origin | None, int], ...]
    """None: not known, or the kernel has no such figure."""


def origin_rows(step: Step, runs: Sequence[Run]) -> tuple[OriginRow, ...]:
    """In the order in which the page shows the figures."""
    return tuple(
        OriginRow(what=what, counts=tuple(Counter(origins).most_common()))
        for what, origins in by_launch(step, runs).items()
        if origins
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Something that was answered without a value."""

    where: Where | None
    what: str
    times: int


def assumptions(step: Step) -> tuple[Assumed, ...]:
    """The run's, then those of single Ops that are not among them."""
    found = [Assumed(where=one.where, what=one.what, times=one.count) for one in step.accounting.assumed]
    of_ops = Counter((op.where, sentence) for op in step.ops for sentence in op.assumed)
    known = [one.what for one in found]
    found += [
        Assumed(where=where, what=sentence, times=times)
        for (where, sentence), times in of_ops.items()
        if not any(what.startswith(sentence) for what in known)  # the run's own goes on with what to do
    ]
    return tuple(found)
