"""The roofline (Williams, Waterman, Patterson, CACM 52(4), 2009): what kernels reach, under what the GPU can.

Kernels without FLOPs have no intensity. They stand beside it, in a strip of their own, at the bytes a second they move.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from undertorch.records import Gpu, Kernel, Math, Phase, Where
from undertorch.records.totals import longest_first
from undertorch.reports.page.axes import LogAxis, Tick, log_axis, tidy
from undertorch.reports.page.rates import Rates, rates
from undertorch.reports.terminal.numbers import count, flops, ratio, size, time
from undertorch.reports.terminal.runs import Run, busy, by_phase, grouped

LARGEST, SMALLEST = 38.0, 5.0
"""Diameters of the dots, in pixels; the area goes with the time."""
ROOM = 48.0
"""Percent of the plot that the text of a roof takes on a phone."""
CROWDED = 10.0
"""And the figure of a ridge."""
SEEN = 0.005
"""Share of the busy time from which on a kernel decides how far the axes reach. Shorter ones may stand at an edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A kernel. `left` and `up` are percent of its plot, `across` its diameter in pixels."""

    left: float
    up: float
    across: float
    phase: Phase
    """In which it spends most of its time."""
    where: Where | None
    """The line at which it spends most of its time."""
    name: str
    what: str
    """Its figures, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The peak of a unit: a level from its ridge to the right edge."""

    math: Math
    text: str
    up: float
    ridge: float
    """Percent of the plot."""
    ridge_text: str
    crowded: bool
    """Whether the ridge before it is so near that on a narrow screen only one of the two has room for its figure."""

    @property
    def room_before(self) -> bool:
        """Whether its text fits to the left of its ridge, where no kernel can stand."""
        return self.ridge >= ROOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """The memory's bandwidth: a line through the plot, from its lower or left edge up to the highest roof."""

    left: float
    left_up: float
    right: float
    right_up: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Both plots. An axis is None where nothing stands in its plot."""

    x: LogAxis | None
    y: LogAxis | None
    moves: LogAxis | None
    dots: tuple[Dot, ...]
    moving: tuple[Dot, ...]
    """Kernels without FLOPs; `left` spreads them by their time."""
    roofs: tuple[Roof, ...]
    slope: Slope | None
    bandwidth: Tick | None
    """Of the memory, on the strip's axis."""
    outside: int
    """Dots that stand at an edge, since they lie beyond it."""
    left_out: int
    """Launches whose bytes, FLOPs or time are unknown or nothing."""

    left_out_us: float
    """Their time."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Of the dots, in the order of the vocabulary."""
        there = {dot.phase for dot in (*self.dots, *self.moving)}
        return tuple(phase for phase in Phase if phase in there)

    @property
    def x_ticks(self) -> tuple[Tick, ...]:
        """FLOPs a byte, each decade."""
        return _ticks(self.x, lambda value: f"{value:,.10g}")

    @property
    def y_ticks(self) -> tuple[Tick, ...]:
        """FLOPs a second, each decade."""
        return _ticks(self.y, lambda value: f"{flops(value)}/s")

    @property
    def moves_ticks(self) -> tuple[Tick, ...]:
        """Bytes a second, each decade."""
        return _ticks(self.moves, lambda value: f"{size(value)}/s")

    def spot(self, of: Rates) -> tuple[float, float] | None:
        """Where a kernel stands, in percent from the left and from below; None where it has no place."""
        if self.x is None or self.y is None or of.intensity is None or not of.flops_a_second:
            return None
        return self.x.at(of.intensity), self.y.at(of.flops_a_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """All launches of one kernel, and where they stand: in the roofline (intensity and FLOPs a second), in the strip
    (bytes a second), or nowhere."""

    runs: Sequence[Run]
    time_us: float
    rates: Rates
    roofline: tuple[float, float] | None
    strip: float | None


def roofline(runs: Sequence[Run], gpu: Gpu | None) -> Roofline:
    """A dot a kernel, over all its launches in the step."""
    groups = [_group(kernel, some, gpu) for kernel, some in grouped(runs, lambda run: run.launch.kernel).items()]
    groups = longest_first(groups, lambda group: group.time_us)  # small dots on top of large ones
    placed = [(group, *group.roofline) for group in groups if group.roofline is not None]
    moving = [(group, group.strip) for group in groups if group.strip is not None]
    least = SEEN * busy(runs)
    long = [(at_x, at_y) for group, at_x, at_y in placed if group.time_us >= least]
    long_moves = [at for group, at in moving if group.time_us >= least]
    left_out = [group for group in groups if group.roofline is None and group.strip is None]
    units = dict.fromkeys(group.runs[0].launch.kernel.math for group, _, _ in placed)
    peaks = {} if gpu is None else {math: peak for math, peak in gpu.peaks.items() if math in units}
    bandwidth = [] if gpu is None else [gpu.memory_bandwidth]
    ridges = [2 * peak / rate for peak in peaks.values() for rate in bandwidth]  # room to the right of the ridges
    x = log_axis([at for at, _ in long] + ridges) if long else None
    y = log_axis([at for _, at in long] + list(peaks.values())) if long else None
    moves = log_axis(long_moves + bandwidth) if long_moves else None
    longest = max((group.time_us for group in groups), default=0.0)
    return Roofline(
        x=x,
        y=y,
        moves=moves,
        dots=tuple(_dot(group, longest, x.at(to_x), y.at(to_y)) for group, to_x, to_y in placed) if x and y else (),
        moving=tuple(_dot(group, longest, 50.0, moves.at(to_y)) for group, to_y in moving) if moves else (),
        roofs=_roofs(peaks, gpu, x, y),
        slope=_slope(peaks, gpu, x, y),
        bandwidth=None if gpu is None or moves is None else _bandwidth(gpu, moves),
        outside=sum(not (x.holds(to_x) and y.holds(to_y)) for _, to_x, to_y in placed if x and y)
        + sum(not moves.holds(to_y) for _, to_y in moving if moves),
        left_out=sum(len(group.runs) for group in left_out),
        left_out_us=sum(group.time_us for group in left_out),
    )


def _group(kernel: Kernel, runs: Sequence[Run], gpu: Gpu | None) -> _Group:
    mean_us = sum(run.launch.time_us for run in runs) / len(runs)
    of = rates(kernel, mean_us, gpu)
    placed = None if of.intensity is None or not of.flops_a_second else (of.intensity, of.flops_a_second)
    moves = of.bytes_a_second if kernel.flops == 0 and of.bytes_a_second else None
    return _Group(runs=runs, time_us=busy(runs), rates=of, roofline=placed, strip=moves)


def _dot(group: _Group, longest: float, left: float, up: float) -> Dot:
    kernel = group.runs[0].launch.kernel
    lines = grouped(group.runs, lambda run: run.where)
    phase, _ = max(by_phase(group.runs), key=lambda pair: busy(pair[1]))
    facts = [
        str(phase),
        f"{time(group.time_us)} in {count(len(group.runs), 'launch', 'launches')}",
        *([group.rates.reached] if group.rates.reached else []),
        *([group.rates.of_peak] if group.rates.of_peak else []),
        *([f"{group.rates.intensity:.3g} FLOPs a byte"] if group.rates.intensity is not None else []),
    ]
    return Dot(
        left=left,
        up=up,
        across=max(SMALLEST, LARGEST * sqrt(ratio(group.time_us, longest) or 0.0)),
        phase=phase,
        where=max(lines, key=lambda where: busy(lines[where])),
        name=kernel.name,
        what=" · ".join(facts),
    )


def _roofs(peaks: Mapping[Math, float], gpu: Gpu | None, x: LogAxis | None, y: LogAxis | None) -> tuple[Roof, ...]:
    if gpu is None or x is None or y is None:
        return ()
    found: list[Roof] = []
    for math, peak in sorted(peaks.items(), key=lambda pair: pair[1], reverse=True):
        ridge = x.at(peak / gpu.memory_bandwidth)
        roof = Roof(
            math=math,
            text=f"{flops(peak)}/s {math}",
            up=y.at(peak),
            ridge=ridge,
            ridge_text=f"{peak / gpu.memory_bandwidth:.3g}",
            crowded=bool(found) and found[-1].ridge - ridge < CROWDED,
        )
        found.append(roof)
    return tuple(found)


def _slope(peaks: Mapping[Math, float], gpu: Gpu | None, x: LogAxis | None, y: LogAxis | None) -> Slope | None:
    """Clipped to the plot: a line of FLOPs a second = intensity × bandwidth."""
    if gpu is None or x is None or y is None:
        return None
    bandwidth = gpu.memory_bandwidth
    top = max(peaks.values(), default=10.0**y.high)
    left = max(10.0**x.low, 10.0**y.low / bandwidth)
    right = min(10.0**x.high, top / bandwidth)
    return Slope(
        left=x.at(left),
        left_up=y.at(left * bandwidth),
        right=x.at(right),
        right_up=y.at(right * bandwidth),
        text=f"{size(bandwidth)}/s memory",
    )


def _bandwidth(gpu: Gpu, moves: LogAxis) -> Tick:
    return Tick(at=moves.at(gpu.memory_bandwidth), text=f"{size(gpu.memory_bandwidth)}/s memory")


def _ticks(axis: LogAxis | None, text: Callable[[float], str]) -> tuple[Tick, ...]:
    return () if axis is None else tuple(Tick(at=axis.at(value), text=tidy(text(value))) for value in axis.decades)
