"""When each kernel of a profiled step ran: as the whole profiler saw it, or as it saw a later step, following the GPU
alone.

The whole profiler (each call into ATen, with shapes, and a marker around it) takes some microseconds of the CPU a call.
Where the GPU waits for the CPU, and ranks wait for each other's CPUs, its step is another one than the script's: twice
and three times as long on an H200, for an LSTM and an embedding model. CUPTI alone, which writes down what runs on the
GPU but not for which line, makes it 1.4 and 1.5 times as long (benchmarks/results/gpu_only.json). A training step
launches the same kernels in the same order each time; so the two are held against each other, name by name on each
stream, and where all agree the lines are of the one and the times of the other.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from undertorch.records import Idle, IdleCause
from undertorch.steps.measure.lines import Lines
from undertorch.steps.traces.fields import number
from undertorch.steps.traces.idle import idle_times
from undertorch.steps.traces.joining import Joined
from undertorch.steps.traces.reading import Seen
from undertorch.steps.traces.windows import Window

OF_THE_CALL = frozenset({IdleCause.LAUNCH, IdleCause.GAP})
"""Causes of waiting whose line is that of the call which launched what came next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """A step in which the profiler followed the GPU alone, and launched what another did under the whole profiler."""

    trace: Joined
    window: Window
    same: dict[int, Seen]
    """By identity of what ran in it: the same launch under the whole profiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The launches of a step in time."""

    whole: Window
    """The step under the whole profiler."""
    number: int
    """Of the step whose times these are."""
    start: float
    """Its beginning, on the clock of its trace."""
    lasts: float
    origin_ns: int
    """What that clock counts from."""
    on_gpu: tuple[Seen, ...]
    """What ran, as the whole profiler saw it, in the order in which it began here."""
    times: dict[int, tuple[float, float]]
    """By identity of these: when each began, from the beginning of the step, and how long it took."""
    alone: Alone | None = None
    """Whose times these are; None: those under the whole profiler."""

    def idle(self, lines: Lines) -> dict[int, Idle]:
        """By identity of what came next: why nothing ran before it. To be asked after the lines of what ran
        (`Lines.sources`), which tell those of compiled code."""
        before = idle_times(lines.joined, self.whole, lines.line_of)
        if self.alone is None:
            return before
        found = {}
        for following, one in idle_times(self.alone.trace, self.alone.window).items():
            event = self.alone.same[following]
            found[id(event)] = _owed(one, before.get(id(event)), lines, event)
        return found


def as_profiled(lines: Lines, window: Window) -> Layout:
    """The step as the whole profiler saw it."""
    return Layout(
        whole=window,
        number=window.number,
        start=window.start,
        lasts=window.lasts,
        origin_ns=lines.joined.trace.origin_ns,
        on_gpu=window.on_gpu,
        times={id(one): (one.start - window.start, one.lasts) for one in window.on_gpu},
    )


def alone(window: Window, trace: Joined, numbers: Sequence[int]) -> tuple[Window, ...]:
    """Of the steps of a trace in which the profiler followed the GPU alone, those that come after another; none where
    one of them did not launch what the window holds. `numbers`: of the trace's steps.
    """
    wanted, there = _streams(window.on_gpu), _streams(trace.trace.on_gpu)
    steps = len(numbers)
    if set(wanted) != set(there) or any(len(there[one]) < (steps - 1) * len(some) for one, some in wanted.items()):
        return ()
    # Counted from the end, since CUPTI may miss what is launched in the first step, in which it starts.
    chunks: list[list[Seen]] = [[] for _ in range(steps)]
    for stream, some in there.items():
        each = len(wanted[stream])
        for place, event in enumerate(reversed(some)):
            if place < steps * each:
                chunks[steps - 1 - place // each].append(event)
    if any(_names(chunk) != _names(window.on_gpu) for chunk in chunks[1:]):
        return ()
    found = []
    for number_, (earlier, chunk) in zip(numbers[1:], pairwise(chunks), strict=True):
        if earlier:
            first = min(one.start for one in chunk)
            found.append(
                Window(
                    number=number_,
                    on_gpu=tuple(sorted(chunk, key=attrgetter("start"))),
                    start=min(max(one.end for one in earlier), first),
                    end=max(one.end for one in chunk),
                    steady=True,
                )
            )
    return tuple(found)


def as_alone(window: Window, trace: Joined, other: Window) -> Layout:
    """The window's launches with the times of another step, one of `alone`."""
    here = _streams(window.on_gpu)
    same = {
        id(one): event
        for stream, some in _streams(other.on_gpu).items()
        for one, event in zip(some, here[stream], strict=True)
    }
    return Layout(
        whole=window,
        number=other.number,
        start=other.start,
        lasts=other.lasts,
        origin_ns=trace.trace.origin_ns,
        on_gpu=tuple(same[id(one)] for one in other.on_gpu),
        times={id(same[id(one)]): (one.start - other.start, one.lasts) for one in other.on_gpu},
        alone=Alone(trace=trace, window=other, same=same),
    )


def _owed(idle: Idle, before: Idle | None, lines: Lines, following: Seen) -> Idle:
    """With its line, which only the whole profiler saw, as it did a DataLoader's ranges."""
    if before is not None and before.cause is IdleCause.DATA and idle.cause is not IdleCause.GAP:
        return replace(idle, cause=IdleCause.DATA, where=before.where)
    if idle.cause in OF_THE_CALL:
        call = lines.joined.call_of(following)
        return replace(idle, where=None if call is None else lines.line_of(call))
    return replace(idle, where=before.where if before is not None and before.cause is idle.cause else None)


def _streams(on_gpu: Iterable[Seen]) -> dict[int | None, list[Seen]]:
    """What ran on each, in order. What stands at one place of a stream in two steps is one launch."""
    streams: dict[int | None, list[Seen]] = defaultdict(list)
    for event in sorted(on_gpu, key=attrgetter("start")):
        streams[number(event.args.stream)].append(event)
    return dict(streams)


def _names(on_gpu: Iterable[Seen]) -> dict[int | None, list[str]]:
    return {stream: [one.name for one in some] for stream, some in _streams(on_gpu).items()}
