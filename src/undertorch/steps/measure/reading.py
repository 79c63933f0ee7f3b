"""From what the script's process handed over to a Step."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from undertorch import gpus
from undertorch.records import (
    Accounting,
    Argument,
    Assumption,
    Bound,
    Environment,
    Gpu,
    Idle,
    IdleCause,
    Kernel,
    Launch,
    Memory,
    Op,
    Origin,
    Phase,
    Step,
    TensorRef,
)
from undertorch.records.ranks import RankedStep
from undertorch.records.totals import busy_us, shares_us
from undertorch.steps.measure import exchange
from undertorch.steps.measure.exchange import Measured
from undertorch.steps.measure.layout import Layout, alone, as_alone, as_profiled
from undertorch.steps.measure.lines import Lines, Source
from undertorch.steps.measure.plan import GPU_ONLY
from undertorch.steps.measure.replays import captured, replay_places
from undertorch.steps.measure.timeline import unstretched
from undertorch.steps.measure.tracefile import joined, lost, windows
from undertorch.steps.record.errors import NoStep, RecordError
from undertorch.steps.traces import kernels
from undertorch.steps.traces.bounds import bound
from undertorch.steps.traces.collectives import collectives
from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.fields import number
from undertorch.steps.traces.figures import with_costs
from undertorch.steps.traces.joining import Joined
from undertorch.steps.traces.reading import Seen
from undertorch.steps.traces.shapes import described
from undertorch.steps.traces.windows import Window
from undertorch.steps.traces.windows import median as median_window


def read_measured(folder: Path, measured: Measured, gpu: Gpu | None = None) -> tuple[Step, Gpu]:
    """A step of a measurement, and the sheet of its GPU: `gpu`, or the one of the name that the driver gave.

    The step is the profiled one of median length. Raises RecordError and BadTrace.
    """
    if measured.gpu_name is None:
        raise NoStep(
            f"{measured.script} ran on the CPU alone, so there are no launches to show; pass --gpu NAME to predict."
        )
    sheet = sheet_of(measured.gpu_name) if gpu is None else gpu
    lines, every = _opened(folder, measured)
    window = median_window(every)
    step_us = median(measured.timed_us) if measured.timed_us else window.lasts
    said = tuple(_spread(measured.timed_us, window, every))
    return _step(measured, lines, as_profiled(lines, window), sheet, step_us, said), sheet


def read_ranks(parts: Sequence[tuple[Path, Measured]]) -> tuple[tuple[RankedStep, ...], Gpu]:
    """The same step of each rank, by what each left in its folder, laid out as it was profiled: the ranks' clocks are
    told by when their collectives end. Beside it stand the times of its unprofiled steps. The step is that of the
    first. Its times are those of a step in which the profiler followed the GPU alone, where all ranks have one that
    launched the same; otherwise those under the whole profiler. Raises RecordError and BadTrace.
    """
    opened: list[_Rank] = []
    sheet: Gpu | None = None
    for folder, measured in parts:
        if measured.gpu_name is None:
            raise NoStep(f"rank {measured.rank} of {measured.script} ran on the CPU alone: there is nothing to show.")
        sheet = sheet or sheet_of(measured.gpu_name)
        lines, every = _opened(folder, measured)
        number_ = opened[0].window.number if opened else median_window(every).number
        window = next((one for one in every if one.number == number_), None)
        if window is None:
            raise RecordError(f"Rank {measured.rank} did nothing on the GPU in step {number_}, which others show.")
        trace = joined(folder / exchange.GPU_ONLY) if measured.gpu_only else None
        opened.append(
            _Rank(
                measured=measured,
                lines=lines,
                every=every,
                window=window,
                trace=trace,
                alone=() if trace is None else alone(window, trace, measured.gpu_only),
            )
        )
    if sheet is None:
        raise RecordError("No rank handed anything over.")
    common = set.intersection(*({one.number for one in rank.alone} for rank in opened))
    chosen = median_window([one for one in opened[0].alone if one.number in common]).number if common else None
    return tuple(_ranked(rank, chosen, _why_whole(opened), sheet) for rank in opened), sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What one of several left."""

    measured: Measured
    lines: Lines
    every: Sequence[Window]
    window: Window
    trace: Joined | None
    """Of the steps in which the profiler followed the GPU alone."""
    alone: tuple[Window, ...]
    """Those of them that launched what the window holds."""


def _ranked(rank: _Rank, chosen: int | None, why_whole: str, sheet: Gpu) -> RankedStep:
    """`chosen`: the step in which the profiler followed the GPU alone; None: there is none, for a reason."""
    other = next((one for one in rank.alone if one.number == chosen), None)
    if rank.trace is None or other is None:
        layout = as_profiled(rank.lines, rank.window)
    else:
        layout = as_alone(rank.window, rank.trace, other)
    lasted = sorted(one.lasts for one in rank.alone)
    return RankedStep(
        rank=rank.measured.rank,
        step=_step(
            rank.measured,
            rank.lines,
            layout,
            sheet,
            layout.lasts,
            tuple(_said_of_ranks(layout, lasted, why_whole)),
        ),
        clock_us=layout.start,
        origin_ns=layout.origin_ns,
        collectives=collectives(rank.lines.joined, layout.on_gpu),
        world_size=rank.measured.world_size,
        unprofiled_us=rank.measured.timed_us,
        gpu_only=layout.alone is not None,
    )


def _why_whole(ranks: Sequence[_Rank]) -> str:
    """Why there is no step to take the times of in which the profiler followed the GPU alone, if there is none."""
    without = next((rank.measured for rank in ranks if not rank.measured.gpu_only), None)
    if without is not None and without.ended_early:
        return f"rank {without.rank} ended before it made {1 + GPU_ONLY} steps more, in which it follows the GPU alone"
    if without is not None:
        return "one step was asked for"
    other = next((rank.measured for rank in ranks if not rank.alone), None)
    if other is None:
        return "no later step was seen on all ranks"
    return f"rank {other.rank} launches other kernels from step to step"


def _said_of_ranks(layout: Layout, lasted: Sequence[float], why_whole: str) -> Iterable[str]:
    """How the step's time was come by."""
    if layout.alone is None:
        yield f"The step's time is that under the whole profiler, {_ms(layout.lasts)} ms, since {why_whole}."
    else:
        yield (
            f"Times are those of step {layout.number}, in which the profiler followed the GPU alone: such steps took "
            f"{_ms(lasted[0])} to {_ms(lasted[-1])} ms. Lines and shapes are those of step {layout.whole.number}, which"
            f" launched the same kernels in the same order, and took {_ms(layout.whole.lasts)} ms under the whole"
            " profiler."
        )


def _opened(folder: Path, measured: Measured) -> tuple[Lines, list[Window]]:
    """The joins of a measurement, and its profiled steps."""
    trace = joined(folder / exchange.TRACE)
    lines = Lines(joined=trace, measured=measured, captured=captured(folder, measured), replayed=replay_places(trace))
    every = [window for window in windows(trace) if window.number in measured.steps]
    if not every:
        raise BadTrace(f"{measured.script}: nothing ran on the GPU in the steps that were profiled.")
    return lines, every


def sheet_of(name: str) -> Gpu:
    """Of the GPU that the driver calls so. Raises RecordError."""
    try:
        return gpus.find(name)
    except gpus.UnknownGpu as error:
        raise RecordError(
            f"The GPU of this machine calls itself {name!r}, of which there is no sheet to hold its kernels against;"
            " pass --gpu NAME to predict the step for one that has a sheet (`undertorch gpus` lists them)."
        ) from error


Described = tuple[str, tuple[Argument, ...], tuple[TensorRef | None, ...]]
"""Overload, arguments and results of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ops:
    """What launched something becomes Ops."""

    ops: tuple[Op, ...]
    of: dict[int, tuple[int, ...]]
    """By identity of what ran on the GPU: the ids of its Ops."""
    sources: dict[int, tuple[Source, ...]]


def _step(
    measured: Measured,
    lines: Lines,
    layout: Layout,
    gpu: Gpu,
    step_us: float,
    said: Sequence[str],
) -> Step:
    """`said`: how the step's time was come by, a sentence each."""
    ops = _ops(measured, lines, layout.on_gpu)
    ran = _kernels(lines, layout, ops, gpu)
    idle = layout.idle(lines)
    launches = tuple(
        _launch(event, kernel, layout, gpu, idle.get(id(event)), ops)
        for event, kernel in zip(layout.on_gpu, ran, strict=True)
    )
    launches = tuple(sorted(launches, key=lambda launch: launch.start_us))
    launches, idles = unstretched(launches, tuple(idle.values()), step_us)
    place = measured.steps.index(layout.whole.number)
    return Step(
        gpu=gpu.name,
        step_us=step_us,
        time_origin=Origin.MEASURED,
        samples=measured.samples[place] if place < len(measured.samples) else None,
        ops=ops.ops,
        launches=launches,
        idle=idles,
        memory=Memory(
            peak_bytes=measured.peak_bytes,
            peak_op=None,
            start_bytes=measured.start_bytes,
            origin=Origin.MEASURED,
        ),
        accounting=Accounting(
            launches=len(launches),
            lost_launches=lost(lines.joined, layout.whole),
            time_with_line=_time_with_line(ops.ops, launches),
            assumed=tuple(Assumption(where=None, what=what) for what in _said(measured, said, launches, ops)),
        ),
        environment=Environment(
            gpu_name=measured.gpu_name,
            driver=measured.driver,
            versions=measured.versions,
            script=measured.script,
            arguments=measured.arguments,
            step=layout.number,
            sources=measured.sources,
        ),
    )


def _ops(measured: Measured, lines: Lines, on_gpu: Iterable[Seen]) -> _Ops:
    """In order of time, forward calls of what launched in backward among them."""
    sources = {id(event): lines.sources(event) for event in on_gpu}
    wanted: dict[tuple[int, int], Source] = {}
    for some in sources.values():
        for source in some:
            wanted.setdefault(source.key, source)
            if source.forward is not None:
                wanted.setdefault(source.forward.key, source.forward)
    ordered = sorted(wanted.values(), key=lambda source: source.start)
    ids = {source.key: place for place, source in enumerate(ordered)}
    first = min((source.microbatch for source in ordered if source.microbatch is not None), default=0)
    torch_version = measured.versions.get("torch")
    return _Ops(
        ops=tuple(_op(source, ids, first, measured.rank, torch_version) for source in ordered),
        of={event: tuple(ids[source.key] for source in some) for event, some in sources.items()},
        sources=sources,
    )


def _op(source: Source, ids: dict[tuple[int, int], int], first: int, rank: int, torch_version: str | None) -> Op:
    known: Described | None = None
    if source.own is not None:
        known = ("default", source.own.arguments, source.own.outputs)
    elif source.call is not None:
        known = described(source.call, source.lists, source.memories)
    overload, arguments, outputs = ("default", (), ()) if known is None else known
    forward = source.forward
    return Op(
        id=ids[source.key],
        name=source.name,
        overload=overload,
        where=source.where,
        chain=source.chain,
        module=source.module,
        phase=source.phase,
        microbatch=None if source.microbatch is None else max(0, source.microbatch - first),
        rank=rank,
        arguments=arguments,
        outputs=outputs,
        forward=None if forward is None else ids.get(forward.key),
        node=source.node,
        torch=torch_version,
    )


def _kernels(lines: Lines, layout: Layout, ops: _Ops, gpu: Gpu) -> list[Kernel]:
    """Of each event its kernel, with figures where its call's cost has them."""
    on_gpu = layout.on_gpu
    ran = [kernels.plain(event, lines.joined.launch_of(event), ops.sources[id(event)][0].call) for event in on_gpu]
    of_call: dict[int, list[int]] = defaultdict(list)
    for place, event in enumerate(on_gpu):
        first = ops.of[id(event)][:1]
        if first:
            of_call[first[0]].append(place)
    for op, places in of_call.items():
        times = [layout.times[id(on_gpu[place])][1] for place in places]
        figured = with_costs(ops.ops[op], [ran[place] for place in places], times, gpu)
        for place, kernel in zip(places, figured, strict=True):
            ran[place] = kernel
    return ran


def _launch(event: Seen, kernel: Kernel, layout: Layout, gpu: Gpu, idle: Idle | None, ops: _Ops) -> Launch:
    start_us, time_us = layout.times[id(event)]
    resident = kernels.resident(kernel, gpu)
    why = bound(kernel, time_us, gpu)
    late = idle is not None and idle.cause is IdleCause.LAUNCH and idle.time_us > time_us
    if late and why in (None, Bound.LATENCY):
        why = Bound.LAUNCH
    return Launch(
        kernel=kernel,
        ops=ops.of[id(event)],
        phase=ops.sources[id(event)][0].phase,
        device=number(event.args.device) or 0,
        stream=number(event.args.stream) or 0,
        start_us=start_us,
        time_us=time_us,
        time_origin=Origin.MEASURED,
        bound=why,
        occupancy=None if resident is None else resident[0],
        limiter=None if resident is None else resident[1],
        occupancy_origin=None if resident is None else Origin.COMPUTED,
    )


def _time_with_line(ops: tuple[Op, ...], launches: tuple[Launch, ...]) -> float | None:
    parts = shares_us(launches)
    total = sum(parts)
    if total == 0:
        return None
    known = (part for launch, part in zip(launches, parts, strict=True) if ops[launch.ops[0]].where is not None)
    return sum(known) / total


def _said(measured: Measured, how_timed: Sequence[str], launches: tuple[Launch, ...], ops: _Ops) -> Iterable[str]:
    """What the reader has to know of how the step was measured, a sentence each."""
    if measured.boundary is not None:
        yield f"{measured.boundary[0].upper()}{measured.boundary[1:]}"
    if measured.ended_early:
        yield f"The script ended by itself after step {measured.steps_made}."
    else:
        last = (*measured.steps, *measured.gpu_only)[-1]
        yield f"The script ran for real, writing what it writes; undertorch stopped it after step {last}."
    if measured.apart:
        yield (
            f"Rank {measured.rank} waited in vain for the others to begin the profiled steps with it: who waits for"
            " whom there says little of other steps."
        )
    yield from how_timed
    yield from _without_line(launches, ops)
    unknown = sum(launch.kernel.min_bytes is None for launch in launches)
    if unknown:
        yield (
            f"Of {unknown:,} of {len(launches):,} launches the least bytes are not known: the profiler does not"
            " describe lists of tensors in full, what compiled kernels move is not known, and some calls launch other"
            " kernels than undertorch knows of."
        )


def _spread(timed: Sequence[float], window: Window, every: Sequence[Window]) -> Iterable[str]:
    """How the step's time was come by, and how far the steps lie apart."""
    profiled = [one.lasts for one in every]
    busy = [sum(event.lasts for event in one.on_gpu) for one in every]
    if timed:
        text = (
            f"The step's time is the median of {len(timed)} steps without the profiler, {_ms(min(timed))} to"
            f" {_ms(max(timed))} ms"
        )
    else:
        text = "The step's time is that under the profiler: no step before it was timed"
    if len(every) > 1:
        text += (
            f"; the kernels are those of step {window.number}, of median length among {len(every)} under the profiler"
            f" ({_ms(min(profiled))} to {_ms(max(profiled))} ms, kernels' sum {_ms(min(busy))} to {_ms(max(busy))} ms)"
        )
    yield f"{text}."
    if timed and window.lasts > 1.02 * median(timed):
        yield (
            f"Under the profiler the step takes {_ms(window.lasts)} ms: idle times were shortened, all by the same"
            " share, to those that fill the step's time."
        )


def _without_line(launches: tuple[Launch, ...], ops: _Ops) -> Iterable[str]:
    """Why launches have no line: by reason, the longest first."""
    times: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    reasons = {
        number_: source.why
        for event, some in ops.sources.items()
        for number_, source in zip(ops.of[event], some, strict=True)
    }
    for launch in launches:
        op = ops.ops[launch.ops[0]]
        if op.where is None:
            why = reasons.get(op.id) or "no reason is known"
            times[why] += launch.time_us
            counts[why] += 1
    total = busy_us(launches) or 1.0
    for why, spent in sorted(times.items(), key=lambda one: -one[1]):
        noun = "launch has" if counts[why] == 1 else "launches have"
        yield f"{counts[why]:,} {noun} no line ({spent / total:.2%} of busy): {why}."


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.4g}"


def phase_times(step: Step) -> dict[Phase, float]:
    """Microseconds of launches by phase, overlaps counted twice: what the profiler's own total sums."""
    sums: dict[Phase, float] = defaultdict(float)
    for launch in step.launches:
        sums[launch.phase] += launch.time_us
    return dict(sums)
