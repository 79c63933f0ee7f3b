"""A Step from somebody's trace: one of its steps, measured, with what the file tells of it and what it does not."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import undertorch
from undertorch import gpus
from undertorch.records import (
    Accounting,
    Assumption,
    Bound,
    Environment,
    Gpu,
    Idle,
    IdleCause,
    Kernel,
    Kind,
    Launch,
    Memory,
    Op,
    Origin,
    Phase,
    Step,
)
from undertorch.records.ranks import RankedStep
from undertorch.records.totals import shares_us
from undertorch.steps.ranks.intervals import Union
from undertorch.steps.traces import kernels
from undertorch.steps.traces.bounds import bound
from undertorch.steps.traces.collectives import collectives, is_of_collective
from undertorch.steps.traces.damage import left_out
from undertorch.steps.traces.fields import Is, number
from undertorch.steps.traces.figures import with_costs
from undertorch.steps.traces.idle import idle_times
from undertorch.steps.traces.joining import NODE, Joined, Place, backward_place, join, node_of
from undertorch.steps.traces.nesting import nest
from undertorch.steps.traces.overview import Overview, look_over
from undertorch.steps.traces.phases import Landmarks, landmarks, phase_of
from undertorch.steps.traces.reading import BadTrace, Seen, Trace, read
from undertorch.steps.traces.shapes import described
from undertorch.steps.traces.windows import OVERRUN_US, Extent, Window, median, numbered, window

LAUNCHES = ("LaunchKernel", "ModuleLaunch", "LaunchCooperative")
"""Are in the names of the runtime's and the driver's calls that launch one kernel each."""

WORTH_A_CAUTION = 0.05
"""Share of the step that the GPU waits for launches, from which on it is worth a word that the profiler slows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTrace:
    """A step of a trace."""

    step: Step
    gpu: Gpu
    """Its sheet."""
    ranked: RankedStep | None
    """The same as one of several ranks'; None where the trace does not say which rank it is of."""


def see_trace(path: Path, gpu: Gpu | None = None, step: int | None = None) -> tuple[Step, Gpu]:
    """A step of a trace, and the sheet of its GPU: `gpu`, or the one that the trace names.

    `step` is the number that profiler.step() gave it; without one it is the step of median length. Raises BadTrace.
    """
    seen = see_rank(path, gpu, step)
    return seen.step, seen.gpu


def see_rank(
    path: Path,
    gpu: Gpu | None = None,
    step: int | None = None,
    beside: RankedStep | None = None,
    overview: Overview | None = None,
    among: Collection[int] = (),
) -> SeenTrace:
    """The same, with what joins it to other ranks' steps.

    `beside` is the step of another rank: of a trace of the same run it is this step that is shown, where it is there
    and no other is asked for. `overview` is that of the file, where it was looked over already; `among` are the numbers
    of the steps of which the one of median length is shown, of all where it has none of them. Raises BadTrace.
    """
    overview = look_over(path) if overview is None else overview
    chosen = _chosen(overview, step, beside, among)
    trace = read(path, chosen, overview)
    sheet = _sheet(trace) if gpu is None else gpu
    nest(trace.on_cpu)
    joined = join(trace)
    shown = window(chosen, trace.on_gpu)
    found = _step(joined, shown, overview.steps, step is None and beside is None, sheet)
    ranked = None
    if trace.rank is not None:
        ranked = RankedStep(
            rank=trace.rank,
            step=found,
            clock_us=shown.start,
            origin_ns=trace.origin_ns,
            collectives=collectives(joined, shown.on_gpu),
            world_size=trace.world_size,
            lost_collectives=sum(is_of_collective(launch) for launch in _without_kernel(joined, shown)),
            steady=shown.steady,
        )
    return SeenTrace(step=found, gpu=sheet, ranked=ranked)


def steady_on_all(overviews: Sequence[Overview]) -> frozenset[int]:
    """Numbers of the steps that follow another one in each of the files; none where these are no ranks of one run."""
    ranks = {one.rank for one in overviews}
    if len(overviews) < 2 or None in ranks or len(ranks) < len(overviews):
        return frozenset()
    steady = [{step.number for step in one.steps if step.steady} for one in overviews]
    return frozenset(set.intersection(*steady))


def _chosen(overview: Overview, step: int | None, beside: RankedStep | None, among: Collection[int]) -> Extent:
    if step is not None:
        return numbered(overview.steps, step, overview.name)
    if beside is not None and overview.rank not in (None, beside.rank):
        same = [one for one in overview.steps if one.number == beside.step.environment.step]
        if same:
            return same[0]
    return median([one for one in overview.steps if one.number in among] or overview.steps)


def _sheet(trace: Trace) -> Gpu:
    if trace.gpu_name is None:
        raise BadTrace(f"{trace.name} does not name its GPU; pass --gpu NAME (`undertorch gpus` lists them).")
    try:
        return gpus.find(trace.gpu_name)
    except gpus.UnknownGpu as error:
        raise BadTrace(
            f"{trace.name} was recorded on a GPU called {trace.gpu_name!r}, of which there is no sheet; pass --gpu "
            "with the name of the GPU that it is, or with a sheet of your own."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """The calls of a step that become Ops, with their ids."""

    ids: dict[int, int]
    """By identity of the event."""
    ops: tuple[Op, ...]
    exact: bool
    """Whether every known line is the one that ran."""


def _step(joined: Joined, window: Window, every: tuple[Extent, ...], of_median_length: bool, gpu: Gpu) -> Step:
    trace = joined.trace
    called = [joined.call_of(event) for event in window.on_gpu]
    marks = landmarks(joined, [call for call in called if call is not None])
    calls = _calls(joined, window.on_gpu, called, marks)
    ran = _kernels(joined, window.on_gpu, called, calls, gpu)
    idle = idle_times(joined, window)
    launches = tuple(
        replace(
            _launch(event, kernel, window, gpu, idle.get(id(event))),
            ops=() if call is None else (calls.ids[id(call)],),
            phase=phase_of(call, event, marks),
        )
        for event, kernel, call in zip(window.on_gpu, ran, called, strict=True)
    )
    return Step(
        gpu=gpu.name,
        step_us=window.lasts,
        time_origin=Origin.MEASURED,
        samples=None,
        ops=calls.ops,
        launches=launches,
        idle=tuple(idle.values()),
        memory=_memory(trace, called),
        accounting=Accounting(
            launches=len(launches),
            time_with_line=_time_with_line(calls.ops, launches),
            assumed=tuple(
                _note(what)
                for what in (
                    *_said(trace, window, every, of_median_length, calls, launches),
                    *_slowed(trace, window, idle.values()),
                )
            ),
            lost_launches=_lost(joined, window),
            repaired=trace.repaired,
        ),
        environment=Environment(
            gpu_name=trace.gpu_name,
            versions={"undertorch": undertorch.__version__, **trace.versions},
            script=trace.name,
            step=window.number,
        ),
    )


def _calls(joined: Joined, on_gpu: Iterable[Seen], called: list[Seen | None], marks: Landmarks) -> _Calls:
    """Calls that launched something, and their forward calls, in order of time."""
    phases: dict[int, Phase] = {}
    events: dict[int, Seen] = {}
    for event, call in zip(on_gpu, called, strict=True):
        if call is not None:
            events[id(call)] = call
            phases.setdefault(id(call), phase_of(call, event, marks))
    forwards: dict[int, Seen] = {}
    for key, call in list(events.items()):
        forward = joined.forward_of(call) if phases[key] is Phase.BACKWARD else None
        if forward is not None:
            forwards[key] = forward
            events.setdefault(id(forward), forward)
            phases.setdefault(id(forward), Phase.FORWARD)
    ordered = sorted(events.items(), key=lambda item: item[1].start)
    ids = {key: number for number, (key, _) in enumerate(ordered)}
    after_backward = backward_place(joined, marks.backward)
    ops, exact = [], True
    for key, call in ordered:
        where = joined.place_of(call)
        if where.where is None and phases[key] in (Phase.BACKWARD, Phase.ACCUMULATE, Phase.COMMUNICATE):
            where = replace(after_backward, module=where.module)
        exact &= where.exact or where.where is None
        forward = forwards.get(key)
        ops.append(_op(call, ids[key], phases[key], where, None if forward is None else ids[id(forward)]))
    return _Calls(ids=ids, ops=tuple(ops), exact=exact)


def _op(call: Seen, number_: int, phase: Phase, where: Place, forward: int | None) -> Op:
    known = described(call)
    overload, arguments, outputs = ("default", (), ()) if known is None else known
    node = node_of(call)
    return Op(
        id=number_,
        name=call.name,
        overload=overload,
        where=where.where,
        chain=where.chain,
        module=where.module,
        phase=phase,
        arguments=arguments,
        outputs=outputs,
        forward=forward,
        node=None if node is None else node.name.removeprefix(NODE),
    )


def _kernels(
    joined: Joined, on_gpu: tuple[Seen, ...], called: list[Seen | None], calls: _Calls, gpu: Gpu
) -> list[Kernel]:
    """Of each event its kernel, with figures where its call's cost has them."""
    ran = [kernels.plain(event, joined.launch_of(event)) for event in on_gpu]
    of_call: dict[int, list[int]] = defaultdict(list)
    for place, call in enumerate(called):
        if call is not None:
            of_call[calls.ids[id(call)]].append(place)
    for op, places in of_call.items():
        times = [on_gpu[place].lasts for place in places]
        figured = with_costs(calls.ops[op], [ran[place] for place in places], times, gpu)
        for place, kernel in zip(places, figured, strict=True):
            ran[place] = kernel
    return ran


def _launch(event: Seen, kernel: Kernel, window: Window, gpu: Gpu, idle: Idle | None) -> Launch:
    """A launch without its call and its phase."""
    resident = kernels.resident(kernel, gpu)
    time_us = event.lasts
    why = bound(kernel, time_us, gpu)
    if idle is not None and idle.cause is IdleCause.LAUNCH and idle.time_us > time_us and why in (None, Bound.LATENCY):
        why = Bound.LAUNCH
    return Launch(
        kernel=kernel,
        ops=(),
        phase=Phase.OTHER,
        device=number(event.args.device) or 0,
        stream=number(event.args.stream) or 0,
        start_us=event.start - window.start,
        time_us=time_us,
        time_origin=Origin.MEASURED,
        bound=why,
        occupancy=None if resident is None else resident[0],
        limiter=None if resident is None else resident[1],
        occupancy_origin=None if resident is None else Origin.COMPUTED,
    )


def _memory(trace: Trace, called: list[Seen | None]) -> Memory:
    """By the allocator's own events (profile_memory), which a file holds in any order, from the step's first call to
    its last."""
    begun = [call for call in called if call is not None]
    first = min((call.start for call in begun), default=0.0)
    last = max((call.end for call in begun), default=0.0)
    events = sorted(trace.allocations, key=lambda event: event[0])
    inside = [alive for moment, alive in events if first <= moment <= last]
    return Memory(
        peak_bytes=max(inside, default=None),
        peak_op=None,
        start_bytes=inside[0] if inside else None,
        origin=Origin.MEASURED,
    )


def _time_with_line(ops: tuple[Op, ...], launches: tuple[Launch, ...]) -> float | None:
    parts = shares_us(launches)
    total = sum(parts)
    if total == 0:
        return None
    with_line = (
        part
        for launch, part in zip(launches, parts, strict=True)
        if launch.ops and ops[launch.ops[0]].where is not None
    )
    return sum(with_line) / total


def _lost(joined: Joined, window: Window) -> int:
    """How many launches of the step have no kernel."""
    return len(_without_kernel(joined, window))


def _without_kernel(joined: Joined, window: Window) -> list[Seen]:
    """Launches of the step whose kernels are not there, neither whole nor damaged."""
    there = {event.correlation for event in joined.trace.on_gpu}
    there |= {number(event.args.correlation) for event in joined.trace.damaged if event.args is not None}
    begun = [launch for event in window.on_gpu if (launch := joined.launch_of(event)) is not None]
    if not begun:
        return []
    first, last = min(one.start for one in begun), max(one.start for one in begun)
    return [
        launch
        for correlation, launch in joined.launches.items()
        if first <= launch.start <= last and correlation not in there and any(word in launch.name for word in LAUNCHES)
    ]


def _said(
    trace: Trace,
    window: Window,
    every: tuple[Extent, ...],
    of_median_length: bool,
    calls: _Calls,
    launches: tuple[Launch, ...],
) -> Iterable[str]:
    """What the reader has to know of how the trace was read, a sentence each."""
    yield from left_out(trace.damaged)
    if trace.twice:
        yield f"{_launches(trace.twice)} stood in the trace twice, the same in all: counted once."
    if trace.cut:
        yield (
            f"Damaged: {_launches(trace.cut)} would last longer than all others of the step together and run over the "
            "next on the same stream; counted up to where that begins."
        )
    if len(every) > 1:
        numbers = f"{every[0].number} to {every[-1].number}"
        which = "the one of median length is shown; --step shows another" if of_median_length else "this is one of them"
        yield f"The trace holds {len(every)} steps with work on the GPU, {numbers}; {which}."
    if not window.steady:
        yield "The step's time is from its first to its last event on the GPU: no step before it is in the trace."
    if not calls.exact:
        yield "A profiler writes the line of a function's `def`, not the one that ran: functions are told apart."
    yield from _not_recorded(trace, calls, launches)
    yield from _without_registers(launches)
    yield from _backward(calls, launches)
    yield from _communication(launches)
    yield from _overruns(launches)
    instant = sum(launch.time_us == 0 for launch in launches)
    if instant:
        yield f"{_launches(instant)} of 0 µs: shorter than the profiler's clock tells, or damaged; counted as that."
    unknown = Counter(bool(launch.ops) for launch in launches if launch.kernel.min_bytes is None)
    if unknown[False]:
        have, their = ("has", "its") if unknown[False] == 1 else ("have", "their")
        number_of = _launches(unknown[False])
        yield f"{number_of} {have} no call in the trace, so {their} bytes and FLOPs are not known."
    if unknown[True] and any(op.arguments for op in calls.ops):
        yield (
            f"Of {_launches(unknown[True])} the bytes and FLOPs are not known: the profiler does not describe lists of "
            "tensors in full, and some calls launch other kernels than undertorch knows of."
        )


def _without_registers(launches: tuple[Launch, ...]) -> Iterable[str]:
    """A sentence of launches whose occupancy cannot be told."""
    number_of = sum(one.kernel.threads is not None and one.kernel.registers is None for one in launches)
    if number_of:
        yield (
            f"The occupancy of {_launches(number_of)} is not known: the trace does not say how many registers they use "
            "(AMD's profiler never does)."
        )


def _backward(calls: _Calls, launches: tuple[Launch, ...]) -> Iterable[str]:
    """A sentence of how many launches of the backward have the forward call that they belong to."""
    ran = [launch for launch in launches if launch.phase is Phase.BACKWARD and launch.ops]
    known = sum(calls.ops[launch.ops[0]].forward is not None for launch in ran)
    if ran:
        have = "all have" if known == len(ran) else f"{known:,} {'has' if known == 1 else 'have'}"
        yield f"Of {_launches(len(ran))} in backward {have} the forward call that they belong to."


def _communication(launches: tuple[Launch, ...]) -> Iterable[str]:
    """A sentence of what the collectives take, and what of it other kernels hide."""
    theirs = [(one.start_us, one.end_us) for one in launches if one.kernel.kind is Kind.COLLECTIVE]
    others = Union((one.start_us, one.end_us) for one in launches if one.kernel.kind is not Kind.COLLECTIVE)
    whole = Union(theirs)
    if theirs:
        every = Union((one.start_us, one.end_us) for one in launches)
        hidden = max(0.0, others.length + whole.length - every.length)  # sums of floats: none may come out as -0.00
        yield (
            f"Communication takes {whole.length / 1e3:,.2f} ms of the step, of which other kernels hide "
            f"{hidden / 1e3:,.2f} ms."
        )


def _overruns(launches: tuple[Launch, ...]) -> Iterable[str]:
    """A sentence where launches run into the next one on their stream by more than can be."""
    begun: dict[tuple[int, int], Launch] = {}
    over = []
    for launch in launches:
        before = begun.get((launch.device, launch.stream))
        begun[launch.device, launch.stream] = launch
        if before is not None and before.end_us - launch.start_us > OVERRUN_US:
            over.append(before.end_us - launch.start_us)
    if over:
        yield (
            f"{_launches(len(over))} ended after the next on the same stream began, by up to {max(over):,.0f} µs: what "
            "overlaps is counted once."
        )


def _slowed(trace: Trace, window: Window, idle: Iterable[Idle]) -> Iterable[str]:
    """A caution where the CPU was late and the profiler had a share in that."""
    late = sum(one.time_us for one in idle if one.cause is IdleCause.LAUNCH)
    if late > WORTH_A_CAUTION * window.lasts and any(one.kind is Is.PYTHON for one in trace.on_cpu):
        yield "The profiler wrote stacks, which slows the CPU: without it the GPU waits less for launches."


def _not_recorded(trace: Trace, calls: _Calls, launches: tuple[Launch, ...]) -> Iterable[str]:
    """What the profiler was not asked for, in one sentence."""
    wanted: list[tuple[str, list[str]]] = []
    if calls.ops and not any(op.arguments for op in calls.ops):
        wanted.append(("no shapes (record_shapes=True)", ["bytes", "FLOPs", "bounds"]))
    if calls.ops and all(op.where is None for op in calls.ops):
        wanted.append(("no stacks (with_stack=True)", ["lines"]))
    if not trace.allocations:
        wanted.append(("no allocations (profile_memory=True)", ["peak memory"]))
    if wanted:
        unknown = [one for _, some in wanted for one in some]
        verb = "is" if unknown == ["peak memory"] else "are"
        yield f"The trace has {_listed([lacks for lacks, _ in wanted])}, so {_listed(unknown)} {verb} not known."


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _launches(number_of: int) -> str:
    return f"{number_of:,} launch" if number_of == 1 else f"{number_of:,} launches"


def _note(what: str) -> Assumption:
    return Assumption(where=None, what=what)
