"""The head of a step's part: its figures, each with its origin, and what the step waits for."""

from collections.abc import Sequence
from dataclasses import dataclass

from undertorch.records import Bound, Gpu, IdleCause, Origin, Step
from undertorch.records.totals import longest_first
from undertorch.reports.page.marks import place_text
from undertorch.reports.page.memory import op_of
from undertorch.reports.terminal.bounds import IDLES, spent
from undertorch.reports.terminal.numbers import count, percent, ratio, size, time
from undertorch.reports.terminal.runs import Run, busy
from undertorch.reports.terminal.totals import utilisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One of the large figures."""

    label: str
    value: str
    said: str
    """What goes with it, in a few words; may be empty."""
    origin: Origin | None
    """None where the figure is unknown."""
    gauge: float | None = None
    """A share to draw, 0 to 1; more is drawn as too much."""
    where: tuple[str, int] | None = None
    """The line that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A part of the step's time, by what it is spent on."""

    key: str
    """A bound, `instructions`, `idle` or `unknown`: the name of its colour."""
    label: str
    said: str
    share: float
    """Of the whole bar."""
    time_us: float


def figures(step: Step, runs: Sequence[Run], gpu: Gpu | None) -> tuple[Figure, ...]:
    """Step time, busy time, samples a second, utilisation, peak memory."""
    busy_us = busy(runs)
    origin = step.time_origin
    rate = ratio(step.samples, step.step_us)
    used, explained = split_utilisation(step, gpu)
    wall = "" if step.step_us is None else "wall time"
    # Somebody's trace does not tell what a step trains on.
    tells_samples = step.samples is not None or origin is not Origin.MEASURED
    label = "step, at least" if wall and step.accounting.ops_without_cost_count else "step"
    return (
        Figure(label=label, value=time(step.step_us), said=wall, origin=_known(step.step_us, origin)),
        _busy(step, busy_us),
        *(
            [
                Figure(
                    label="samples a second",
                    value=count(None if rate is None else round(rate * 1e6)),
                    said="" if step.samples is None else f"{count(step.samples)} a step",
                    origin=_known(rate, origin),
                )
            ]
            if tells_samples
            else []
        ),
        Figure(
            label="model FLOP utilisation",
            value=used,
            said=f"of {explained.partition('; peak ')[2]}" if explained else "",
            origin=origin if explained else None,
        ),
        _memory(step, gpu),
    )


def split_utilisation(step: Step, gpu: Gpu | None) -> tuple[str, str]:
    """Model FLOP utilisation, and what it is made of, `26.5 TFLOP of … in 80.9 ms; peak 989 TFLOP/s, tensor-bf16`; that
    is empty where it is unknown."""
    used, _, explained = utilisation(step, gpu).partition(" (")
    return used, explained.removeprefix("model FLOP utilisation: ").removesuffix(")")


def busy_share(step: Step, busy_us: float) -> float | None:
    """Busy time over the step's, on average over its GPUs; None where nothing ran or the step's time is unknown."""
    devices = len({launch.device for launch in step.launches})
    return ratio(busy_us, (step.step_us or 0.0) * devices)


def _busy(step: Step, busy_us: float) -> Figure:
    devices = len({launch.device for launch in step.launches})
    share = busy_share(step, busy_us)
    said = "" if share is None else f"{percent(share)} of the step"
    return Figure(
        label="GPU busy" if devices < 2 else f"{devices} GPUs busy",
        value=time(busy_us if devices else None),
        said=f"{said}, on average" if share is not None and devices > 1 else said,
        origin=step.time_origin if devices else None,
        gauge=share,
    )


def _memory(step: Step, gpu: Gpu | None) -> Figure:
    memory = step.memory
    share = None if gpu is None else ratio(memory.peak_bytes, gpu.memory_bytes)
    said = "" if gpu is None else f"of the GPU's {size(gpu.memory_bytes)}"
    if share is not None and gpu is not None and share > 1:
        said = f"MORE than the GPU's {size(gpu.memory_bytes)}"
    op = op_of(step, memory.peak_op)
    where = None if op is None or op.where is None else (op.where.file, op.where.line)
    return Figure(
        label="peak memory",
        value=size(memory.peak_bytes),
        said=said if memory.peak_bytes is not None else "",
        origin=_known(memory.peak_bytes, memory.origin),
        gauge=share,
        where=where,
    )


def _known(figure: float | None, origin: Origin) -> Origin | None:
    return None if figure is None else origin


LABELS: dict[Bound | None, str] = {
    Bound.MEMORY: "memory",
    Bound.COMPUTE: "arithmetic",
    Bound.LATENCY: "small kernels",
    Bound.LAUNCH: "launches",
    Bound.COMMUNICATION: "other GPUs",
    Bound.LINK: "copies to and from the host",
    None: "not known",
}


def waits(step: Step, runs: Sequence[Run]) -> tuple[Wait, ...]:
    """The busy time by what bounds it, the longest first, then the idle time. Empty where nothing ran."""
    idle_us = sum(idle.time_us for idle in step.idle)
    whole = busy(runs) + idle_us
    if not runs or not whole:
        return ()
    found = [
        Wait(
            key="instructions" if one.instructions else str(one.bound or "unknown"),
            label="instructions" if one.instructions else LABELS[one.bound],
            said=one.said,
            share=one.time_us / whole,
            time_us=one.time_us,
        )
        for one in spent(runs)
    ]
    if idle_us:
        found.append(Wait(key="idle", label="idle", said="runs nothing", share=idle_us / whole, time_us=idle_us))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRow:
    """Idle time of one cause."""

    cause: IdleCause
    said: str
    time_us: float
    share: float | None
    """Of the step."""
    times: int
    most: str
    """The line that most of it is at; empty where none is known."""


def idle_rows(step: Step) -> tuple[IdleRow, ...]:
    """By cause, the longest first."""
    rows = []
    for cause in IdleCause:
        some = [idle for idle in step.idle if idle.cause is cause]
        if not some:
            continue
        spent = sum(idle.time_us for idle in some)
        places: dict[str, float] = {}
        for idle in some:
            place = place_text(idle.where)
            places[place] = places.get(place, 0.0) + idle.time_us
        most = max(places, key=lambda place: places[place])
        share = ratio(spent, step.step_us)
        rows.append(IdleRow(cause=cause, said=IDLES[cause], time_us=spent, share=share, times=len(some), most=most))
    return tuple(longest_first(rows, lambda row: row.time_us))
