"""A Step as a trace that ui.perfetto.dev opens: Chrome's trace-event format, as JSON.

The format is Google's "Trace Event Format". A complete event ("X") has a start and a duration in microseconds, a
counter ("C") holds its value until the next one, metadata ("M") names processes and threads. The slices of a track must
nest: launches of a stream that overlap (real streams show some, by about a microsecond) go to a track beside it.
Figures that are not known are left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from undertorch.records import Idle, Step
from undertorch.records.files import write_whole
from undertorch.records.totals import source_line
from undertorch.reports.terminal.bounds import IDLES
from undertorch.reports.terminal.runs import Run, runs
from undertorch.reports.when import op_starts, segments

Event = dict[str, object]

DEVICE = 1000
"""Process numbers go up by this from GPU to GPU; a track's number is its process' and its place in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Something that lasts. Whole nanoseconds, so that what follows it without a gap does not overlap it."""

    name: str
    start_ns: int
    end_ns: int
    figures: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A named row of slices that do not overlap."""

    name: str
    slices: tuple[Slice, ...]


def write_perfetto(path: Path, step: Step) -> None:
    """Writes the trace, whole or not at all. Raises OSError where the file cannot be written."""
    write_whole(path, msgspec.json.encode(trace(step)))


def trace(step: Step) -> Event:
    """The content of the file. Times count from the step's start, or from its first event if that is earlier."""
    all_runs = runs(step)
    starts = [run.launch.start_us for run in all_runs] + [idle.start_us for idle in step.idle]
    clock = _clock(min([0.0, *starts]))
    devices = sorted({run.launch.device for run in all_runs}) or [0]
    events: list[Event] = []
    for number, device in enumerate(devices):
        process = DEVICE * (number + 1)
        title = f"GPU {device}: {step.gpu}, times {step.time_origin}"
        events.append(_named("process", process, process, title))
        for place, track in enumerate(_tracks(step, all_runs, device, device == devices[0], clock), start=1):
            events.append(_named("thread", process, process + place, track.name))
            events.append(_meta("thread_sort_index", process, process + place, {"sort_index": place}))
            events.extend(_event(one, process, process + place) for one in track.slices)
    events.extend(_memory(step, DEVICE, clock))
    environment = step.environment
    about = {"gpu": step.gpu, "times": step.time_origin, "script": _text(environment.script), "step": environment.step}
    return {
        "displayTimeUnit": "ns",
        "otherData": {**about, **environment.versions},
        "traceEvents": events,
    }


def _clock(earliest: float) -> Callable[[float], int]:
    """From microseconds of the step to nanoseconds of the trace, which has no negative ones."""
    return lambda us: round((us - earliest) * 1000)


def _tracks(
    step: Step, all_runs: Sequence[Run], device: int, first: bool, clock: Callable[[float], int]
) -> Iterator[Track]:
    """Phases, lines, streams; the idle time, which names no GPU, with the first one."""
    own = [run for run in all_runs if run.launch.device == device]
    yield Track(name="phases", slices=tuple(_stretches(own, [run.launch.phase for run in own], clock)))
    yield Track(name="lines", slices=tuple(_stretches(own, [_line(step, run) for run in own], clock)))
    for stream in sorted({run.launch.stream for run in own}):
        slices = [_launch(run, clock) for run in own if run.launch.stream == stream]
        for number, row in enumerate(apart(slices)):
            yield Track(name=f"stream {stream}" + (f" (overlapping, {number})" if number else ""), slices=row)
    if first:
        yield from (Track(name="idle", slices=row) for row in apart([_idle(one, clock) for one in step.idle]))


def apart(slices: Iterable[Slice]) -> tuple[tuple[Slice, ...], ...]:
    """The slices in as few rows as it takes for none to overlap another of its row."""
    rows: list[list[Slice]] = []
    for one in sorted(slices, key=lambda one: (one.start_ns, one.end_ns)):
        free = next((row for row in rows if row[-1].end_ns <= one.start_ns), None)
        if free is None:
            rows.append([one])
        else:
            free.append(one)
    return tuple(tuple(row) for row in rows)


def _stretches(own: Sequence[Run], names: Sequence[str], clock: Callable[[float], int]) -> Iterator[Slice]:
    for one in segments([run.launch for run in own], lambda index: names[index]):
        figures: Event = {"launches": one.launches}
        yield Slice(name=one.key, start_ns=clock(one.start_us), end_ns=clock(one.end_us), figures=figures)


def _line(step: Step, run: Run) -> str:
    """Such as `train.py:31  loss.backward()`."""
    if run.where is None:
        return "no source line known"
    source = source_line(step.environment.sources, run.where.file, run.where.line)
    return _text(f"{run.where.file}:{run.where.line}  {source or ''}".rstrip())


def _launch(run: Run, clock: Callable[[float], int]) -> Slice:
    launch, kernel = run.launch, run.launch.kernel
    figures: Event = {
        "line": None if run.where is None else _text(f"{run.where.file}:{run.where.line}"),
        "op": None if run.op is None else run.op.name,
        "module": None if run.op is None or run.op.module is None else _text(run.op.module),
        "phase": launch.phase,
        "kind": kernel.kind,
        "library": kernel.library,
        "grid": kernel.grid,
        "block": kernel.block,
        "grid and block are": kernel.geometry_origin,
        "registers per thread": kernel.registers,
        "shared memory per block (bytes)": kernel.shared_bytes,
        "registers and shared memory are": kernel.resources_origin,
        "occupancy": launch.occupancy,
        "occupancy is limited by": launch.limiter,
        "occupancy is": launch.occupancy_origin,
        "least bytes read": kernel.min_bytes_read,
        "least bytes written": kernel.min_bytes_written,
        "FLOPs": kernel.flops,
        "bytes and FLOPs are": kernel.bytes_origin,
        "traffic (bytes, predicted)": kernel.traffic_bytes,
        "bound": launch.bound,
        "time is": launch.time_origin,
    }
    return Slice(
        name=_text(kernel.name),
        start_ns=clock(launch.start_us),
        end_ns=clock(launch.end_us),
        figures={name: figure for name, figure in figures.items() if figure is not None},
    )


def _idle(idle: Idle, clock: Callable[[float], int]) -> Slice:
    figures: Event = {"because": IDLES[idle.cause]}
    if idle.where is not None:
        figures["line"] = _text(f"{idle.where.file}:{idle.where.line}")
    return Slice(
        name=f"idle: {idle.cause}",
        start_ns=clock(idle.start_us),
        end_ns=clock(idle.start_us + idle.time_us),
        figures=figures,
    )


def _memory(step: Step, process: int, clock: Callable[[float], int]) -> Iterator[Event]:
    """Bytes alive, each where its Op's first launch starts; nothing where no launch says when."""
    memory, starts = step.memory, op_starts(step)
    name = f"memory alive ({memory.origin})"
    if starts and memory.start_bytes is not None:
        yield _counter(name, process, clock(0.0), memory.start_bytes)
    for sample in memory.samples:
        if sample.op in starts:
            yield _counter(name, process, clock(starts[sample.op]), sample.live_bytes)


def _event(one: Slice, process: int, track: int) -> Event:
    return {
        "ph": "X",
        "name": one.name,
        "pid": process,
        "tid": track,
        "ts": one.start_ns / 1000,
        "dur": (one.end_ns - one.start_ns) / 1000,
        "args": one.figures,
    }


def _counter(name: str, process: int, at_ns: int, alive: int) -> Event:
    return {"ph": "C", "name": name, "pid": process, "ts": at_ns / 1000, "args": {"bytes": alive}}


def _named(what: str, process: int, track: int, name: str) -> Event:
    return _meta(f"{what}_name", process, track, {"name": name})


def _meta(name: str, process: int, track: int, figures: Event) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": track, "args": figures}


def _text(text: str) -> str:
    """JSON is UTF-8: what cannot be encoded (a file name that is not) is replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
