"""Bytes alive on the device over the step, as a stepped curve."""

from collections.abc import Sequence
from dataclasses import dataclass

from undertorch.records import Gpu, Op, Step
from undertorch.reports.page.axes import Tick, linear_ticks, tidy
from undertorch.reports.page.span import Span, Strip, phase_strip
from undertorch.reports.terminal.numbers import size, time
from undertorch.reports.terminal.runs import Run
from undertorch.reports.when import op_starts

POINTS = 1500
"""Of the curve; of more samples each stretch keeps its least and its most."""
IN_SIGHT = 0.3
"""Share of the GPU's memory from which on the peak is drawn under the GPU's limit."""
SPARE = 1.08
"""The plot is this much higher than what stands in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChart:
    """In percent of the plot. Paths are in a viewBox of 100 × 100, 0 at the top."""

    curve: str
    area: str
    ticks: tuple[Tick, ...]
    peak: tuple[float, float] | None
    """From the left and from below; None where its Op has no place on the axis."""
    limit: float | None
    """The GPU's memory; None where that is not known, or too far above to be in sight."""
    phases: Strip
    times: tuple[Tick, ...]
    by_time: bool
    """Whether the curve runs over the step's time; otherwise over its ops, since none has a launch."""


def memory_chart(step: Step, runs: Sequence[Run], gpu: Gpu | None, whole: Span) -> MemoryChart | None:
    """None where there are no samples."""
    memory = step.memory
    if not memory.samples:
        return None
    starts = op_starts(step)
    last = max(sample.op for sample in memory.samples)
    by_time = bool(starts)

    def left(op: int) -> float:
        return (whole.share(starts.get(op, whole.start_us)) if by_time else op / max(last, 1)) * 100

    most = max(sample.live_bytes for sample in memory.samples)
    limit = gpu.memory_bytes if gpu is not None and most >= IN_SIGHT * gpu.memory_bytes else None
    top = max(most, limit or 0) * SPARE or 1.0
    first = memory.start_bytes if memory.start_bytes is not None else memory.samples[0].live_bytes
    points = thinned([(left(sample.op), sample.live_bytes / top * 100) for sample in memory.samples])
    curve = _stepped([(0.0, first / top * 100), *points, (100.0, points[-1][1])])
    peak = None
    if memory.peak_bytes is not None and memory.peak_op is not None and (not by_time or memory.peak_op in starts):
        peak = (left(memory.peak_op), memory.peak_bytes / top * 100)
    return MemoryChart(
        curve=curve,
        area=f"{curve}V100H0z",
        ticks=tuple(Tick(at=value / top * 100, text=_tick(size(value))) for value in linear_ticks(top)),
        peak=peak,
        limit=None if limit is None else limit / top * 100,
        phases=phase_strip(runs, whole),
        times=_times(whole) if by_time else (),
        by_time=by_time,
    )


def _times(whole: Span) -> tuple[Tick, ...]:
    values = linear_ticks(whole.time_us, about=8)
    return tuple(Tick(at=value / whole.time_us * 100, text=_tick(time(whole.start_us + value))) for value in values)


def _tick(text: str) -> str:
    """Nothing is nothing in any unit: the other ticks of the axis have another one than `0 µs` would."""
    return "0" if text in ("0 µs", "0 B") else tidy(text)


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most about POINTS of the points: of each stretch the first, the lowest, the highest and the last."""
    if len(points) <= POINTS:
        return list(points)
    size_of_stretch = -(-len(points) * 4 // POINTS)
    kept: list[tuple[float, float]] = []
    for begin in range(0, len(points), size_of_stretch):
        stretch = points[begin : begin + size_of_stretch]
        by_height = sorted(range(len(stretch)), key=lambda index: stretch[index][1])
        kept.extend(stretch[index] for index in sorted({0, by_height[0], by_height[-1], len(stretch) - 1}))
    return kept


def _stepped(points: Sequence[tuple[float, float]]) -> str:
    """An SVG path that keeps its height until the next point."""
    path = [f"M{points[0][0]:.2f} {100 - points[0][1]:.2f}"]
    path.extend(f"H{left:.2f}V{100 - up:.2f}" for left, up in points[1:])
    return "".join(path)


def op_of(step: Step, number: int | None) -> Op | None:
    """The Op of that id; None where there is none."""
    return None if number is None else next((op for op in step.ops if op.id == number), None)
