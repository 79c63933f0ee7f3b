"""What the scripts of the page draw from: launches as columns, each text once. No Op and no tensor is among it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from undertorch.records import Bound, Gpu, IdleCause, Launch, Phase
from undertorch.records.totals import source_rows
from undertorch.reports.page.marks import place_text
from undertorch.reports.page.rates import rates
from undertorch.reports.page.step import StepView
from undertorch.reports.page.text import shown
from undertorch.reports.terminal.numbers import geometry, percent
from undertorch.reports.when import segments

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """A kernel's name and its figures, in words."""

    name: str
    facts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineText:
    """A line: the id of its row, and `train.py:31`."""

    id: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """One entry a launch in each column; all but the last three are numbers into the step's texts, None: unknown."""

    kernel: tuple[int, ...]
    line: tuple[int | None, ...]
    op: tuple[int | None, ...]
    module: tuple[int | None, ...]
    lane: tuple[int, ...]
    phase: tuple[int, ...]
    bound: tuple[int | None, ...]
    start: tuple[float, ...]
    """Microseconds, like time."""
    time: tuple[float, ...]
    share: tuple[float | None, ...]
    """Of the nearer one of the GPU's peaks, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idles:
    """One entry an idle interval in each column."""

    cause: tuple[int, ...]
    line: tuple[str, ...]
    """`train.py:31`; empty where none is known."""
    start: tuple[float, ...]
    time: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """The phases of the first GPU, one entry a stretch in each column."""

    phase: tuple[int, ...]
    start: tuple[float, ...]
    end: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepData:
    """One step, as the timeline draws it."""

    start: float
    end: float
    origin: str
    kernels: tuple[KernelText, ...]
    lines: tuple[LineText, ...]
    ops: tuple[str, ...]
    modules: tuple[str, ...]
    lanes: tuple[str, ...]
    phases: tuple[str, ...]
    bounds: tuple[str, ...]
    causes: tuple[str, ...]
    peaks: bool
    """Whether the GPU's peaks are known, so that shares mean something."""
    launches: Launches
    idle: Idles
    stretches: Stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """All of it. `sources` holds the rows of the source files, for the gaps."""

    sources: tuple[tuple[str, ...], ...]
    steps: tuple[StepData, ...]


def page_data(views: Sequence[StepView], sources: Sequence[str]) -> PageData:
    """Of the steps as the page shows them; `sources` are the files' texts."""
    return PageData(
        sources=tuple(tuple(source_rows(shown(text))) for text in sources),
        steps=tuple(_step(view) for view in views),
    )


def _step(view: StepView) -> StepData:
    runs, launches = view.runs, [run.launch for run in view.runs]
    kernels, kernel = numbered([(launch.kernel.name, _facts(launch)) for launch in launches])
    lines, line = numbered([None if run.where is None else (run.where.file, run.where.line) for run in runs])
    ops, op = numbered([None if run.op is None else run.op.name for run in runs])
    modules, module = numbered([None if run.op is None else run.op.module for run in runs])
    lanes = sorted({(launch.device, launch.stream) for launch in launches})
    devices = len({device for device, _ in lanes})
    phases, bounds, causes = list(Phase), list(Bound), list(IdleCause)
    return StepData(
        start=view.span.start_us,
        end=view.span.end_us,
        origin=view.step.time_origin,
        kernels=tuple(KernelText(name=shown(name), facts=shown(facts)) for name, facts in kernels),
        lines=tuple(LineText(id=view.links[place], place=shown(f"{place[0]}:{place[1]}")) for place in lines),
        ops=tuple(shown(name) for name in ops),
        modules=tuple(shown(name) for name in modules),
        lanes=tuple(
            f"GPU {device} · stream {stream}" if devices > 1 else f"stream {stream}" for device, stream in lanes
        ),
        phases=tuple(phases),
        bounds=tuple(bounds),
        causes=tuple(causes),
        peaks=view.gpu is not None,
        launches=Launches(
            kernel=tuple(number for number in kernel if number is not None),
            line=line,
            op=op,
            module=module,
            lane=tuple(lanes.index((launch.device, launch.stream)) for launch in launches),
            phase=tuple(phases.index(launch.phase) for launch in launches),
            bound=tuple(None if launch.bound is None else bounds.index(launch.bound) for launch in launches),
            start=tuple(round(launch.start_us, 3) for launch in launches),
            time=tuple(round(launch.time_us, 3) for launch in launches),
            share=tuple(_share(launch, view.gpu) for launch in launches),
        ),
        idle=Idles(
            cause=tuple(causes.index(idle.cause) for idle in view.step.idle),
            line=tuple(shown(place_text(idle.where)) for idle in view.step.idle),
            start=tuple(round(idle.start_us, 3) for idle in view.step.idle),
            time=tuple(round(idle.time_us, 3) for idle in view.step.idle),
        ),
        stretches=_stretches(launches, phases),
    )


def _stretches(launches: Sequence[Launch], phases: Sequence[Phase]) -> Stretches:
    first = min((launch.device for launch in launches), default=None)
    of_first = [launch for launch in launches if launch.device == first]
    found = tuple(segments(of_first, lambda index: of_first[index].phase))
    return Stretches(
        phase=tuple(phases.index(one.key) for one in found),
        start=tuple(round(one.start_us, 3) for one in found),
        end=tuple(round(one.end_us, 3) for one in found),
    )


def numbered(values: Sequence[Value | None]) -> tuple[tuple[Value, ...], tuple[int | None, ...]]:
    """The different values in the order in which they come, and of each value its number; None has none."""
    numbers: dict[Value, int] = {}
    found = tuple(None if value is None else numbers.setdefault(value, len(numbers)) for value in values)
    return tuple(numbers), found


def _facts(launch: Launch) -> str:
    kernel = launch.kernel
    limiter = "" if launch.limiter is None else f" ({launch.limiter})"
    occupancy = "" if launch.occupancy is None else f"occupancy {percent(launch.occupancy)}{limiter}"
    drawn = "" if kernel.grid is None else geometry(kernel)
    return " · ".join(part for part in (f"{kernel.kind}, {kernel.library}", drawn, occupancy) if part)


def _share(launch: Launch, gpu: Gpu | None) -> float | None:
    share = rates(launch.kernel, launch.time_us, gpu).share if launch.time_us else None
    return None if share is None else round(share, 5)
