"""Which of a trace's steps is shown: the one of median length."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.fields import Is

if TYPE_CHECKING:
    from undertorch.steps.traces.joining import Joined
    from undertorch.steps.traces.reading import Seen

Array = np.ndarray[Any, Any]

STEP = re.compile(r"ProfilerStep#?\s*(\d+)")

OVERRUN_US = 10.0
"""Of two launches on a stream that overlap. A microsecond is real on Hopper and newer (a kernel may begin while the one
before it drains), some microseconds where a program asks for that (programmatic dependent launch)."""

Range = tuple[float, float, str]
"""One of profiler.step()'s: start, end and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """One step: from when to when."""

    place: int
    """Of its range among the ranges."""
    number: int
    start: float
    """The end of what the GPU did for the step before; of the first, the start of its own."""
    end: float
    steady: bool
    """Whether there is a step before."""
    since: float
    until: float
    """What the CPU and the GPU did for it lies between: its range, its launches, and what they launched."""

    @property
    def lasts(self) -> float:
        """Microseconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One step: what the GPU did for it, and from when to when."""

    number: int
    on_gpu: "tuple[Seen, ...]"
    start: float
    """The end of what the GPU did for the step before; of the first, the start of its own."""
    end: float
    steady: bool
    """Whether there is a step before."""

    @property
    def lasts(self) -> float:
        """Microseconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Of everything that ran on the GPU."""

    starts: Array
    ends: Array
    launched: Array
    """When its launch began; NaN where that is not known."""
    streams: Array
    """A number for each stream."""

    def where(self, some: Array) -> "Moments":
        """Of some of it."""
        return Moments(
            starts=self.starts[some],
            ends=self.ends[some],
            launched=self.launched[some],
            streams=self.streams[some],
        )


def stream_of(said: object, thread: object) -> object:
    """Of something on the GPU; its line in the trace where it does not say."""
    return thread if said is None else said


def numbered_streams(streams: Iterable[object]) -> Array:
    """A number for each, the same for the same."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(stream, len(numbers)) for stream in streams], int)


class _Step(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def steady(self) -> bool: ...
    @property
    def lasts(self) -> float: ...


Step = TypeVar("Step", bound=_Step)


def belongs(moments: Moments, ranges: Sequence[Range]) -> Array:
    """Which range each belongs to, by its place; -1: none. Without ranges all is one.

    What was launched in a range belongs to it, whenever it ran. What has no launch belongs where its neighbours on its
    stream do, since a stream runs in the order of the launches and the CPU may be steps ahead of the GPU; what ran
    before anything that was launched in a range belongs to none. Where nothing was launched in any, it is the range
    that began last before.
    """
    if not ranges:
        return np.zeros(len(moments.starts), int)
    without = np.isnan(moments.launched)
    begun = np.where(without, moments.starts, moments.launched)
    began = np.searchsorted(np.array([start for start, _, _ in ranges]), begun, side="right") - 1
    ends = np.array([end for _, end, _ in ranges])
    places = np.where(~without & (begun > ends[began]), -1, began)
    if (places[~without] >= 0).any():
        places[without] = _by_neighbours(moments, places, without, len(ranges))
    return np.asarray(places)


def _by_neighbours(moments: Moments, places: Array, without: Array, ranges: int) -> Array:
    """Places of those without a launch: that of the launched one that began last before, on whichever stream, but
    neither before that of the one before on the same stream nor after that of the one behind; and no range that had not
    begun yet, which `places` has for them."""
    launched, wanted = np.flatnonzero(~without), np.flatnonzero(without)
    found = _before(moments.starts, places, launched, wanted, -1)
    for stream in np.unique(moments.streams[wanted]).tolist():
        of_stream = launched[moments.streams[launched] == stream]
        mine = np.flatnonzero(moments.streams[wanted] == stream)
        before = _before(moments.starts, places, of_stream, wanted[mine], -1)
        behind = _before(-moments.starts, places, of_stream, wanted[mine], ranges)
        # Between what was launched in a range and what was launched in none, a place of -1 is no bound.
        found[mine] = np.maximum(np.minimum(found[mine], np.where(behind < 0, ranges, behind)), before)
    return np.minimum(found, places[wanted])


def _before(starts: Array, places: Array, among: Array, wanted: Array, nothing: int) -> Array:
    """Of each wanted the place of the last among others that started before it, `nothing` where there is none."""
    if not len(among):
        return np.full(len(wanted), nothing)
    ordered = among[np.argsort(starts[among], kind="stable")]
    at = np.searchsorted(starts[ordered], starts[wanted], side="right") - 1
    return np.where(at < 0, nothing, places[ordered][at])


def misplaced(moments: Moments, places: Array) -> Array:
    """Whether something is further from everything else of its step than all that lasts, where it cannot have run:
    after what was launched later on the same stream, or before its own launch."""
    found = np.zeros(len(places), bool)
    for place in np.unique(places).tolist():
        own = np.flatnonzero((places == place) & ~np.isnan(moments.launched))
        if len(own) < 3:
            continue
        own = own[np.argsort(moments.starts[own], kind="stable")]
        starts, ends = moments.starts[own], moments.ends[own]
        last, first = int(own[-1]), int(own[0])
        until = ends[:-1].max()
        behind = own[:-1][moments.streams[own[:-1]] == moments.streams[last]]
        later = (moments.launched[behind] > moments.launched[last]).any()
        found[last] = starts[-1] - until > until - starts[0] and later
        # By as much, since the clocks of CPU and GPU may differ a little.
        early = min(starts[1], moments.launched[first]) - ends[0]
        found[first] = early > ends[1:].max() - starts[1]
    return found


def cut(moments: Moments, places: Array, correlations: Array) -> dict[int, float]:
    """What lasts longer than everything else in its step together, and runs over what followed it on its stream: its
    end is wrong. By its place, how long it lasts up to the next on its stream, in microseconds.

    What a graph launched (several of one correlation) may run beside each other, though a stream is written with it.
    """
    lasts = moments.ends - moments.starts
    found: dict[int, float] = {}
    for place in np.unique(places).tolist():
        own = np.flatnonzero(places == place)
        longest = int(own[np.argmax(lasts[own])])
        if 2 * lasts[longest] <= lasts[own].sum() or (correlations == correlations[longest]).sum() > 1:
            continue
        beside = moments.starts[
            (moments.streams == moments.streams[longest]) & (moments.starts > moments.starts[longest])
        ]
        if len(beside) and beside.min() + OVERRUN_US < moments.ends[longest]:
            found[longest] = float(beside.min() - moments.starts[longest])
    return found


def extents(moments: Moments, ranges: Sequence[Range], places: Array, name: str) -> tuple[Extent, ...]:
    """Every step that did something on the GPU, in order; without ranges, all is one step. `places` tell what `belongs`
    to which range. Raises BadTrace, naming the file, where no range did anything."""
    if not ranges:
        first, last = float(moments.starts.min()), float(moments.ends.max())
        return (Extent(place=0, number=1, start=first, end=last, steady=False, since=-inf, until=inf),)
    found: list[Extent] = []
    for place, (begin, end, said) in enumerate(ranges):
        own = places == place
        match = STEP.fullmatch(said)
        if match is None or not own.any():
            continue
        launched = moments.launched[own]
        known = ~np.isnan(launched)
        starts, last = moments.starts[own], float(moments.ends[own].max())
        # What has no launch is placed by its neighbours, and does not tell when the GPU began with a step.
        first = float((starts[known] if found and known.any() else starts).min())
        start = min(found[-1].end, first) if found else first
        early = float(launched[known].min()) if known.any() else begin
        found.append(
            Extent(
                place=place,
                number=int(match[1]),
                start=start,
                end=last,
                steady=bool(found),
                since=min(begin, start, early),
                until=max(end, last),
            )
        )
    if not found:
        raise BadTrace(f"{name}: nothing ran on the GPU in any of its {len(ranges)} steps.")
    return tuple(found)


def median(found: Sequence[Step]) -> Step:
    """Of the steps that follow another, the one of median length; of an even number, the shorter of the two."""
    steady = [step for step in found if step.steady] or list(found)
    return sorted(steady, key=lambda step: step.lasts)[(len(steady) - 1) // 2]


def numbered(found: Sequence[Step], number: int, name: str) -> Step:
    """The step of that number. Raises BadTrace."""
    chosen = next((step for step in found if step.number == number), None)
    if chosen is None:
        there = ", ".join(str(step.number) for step in found)
        raise BadTrace(f"{name} holds no step {number} with work on the GPU; its steps are: {there}.")
    return chosen


def windows(joined: "Joined") -> tuple[Window, ...]:
    """Every step of a trace that was read whole. Raises BadTrace."""
    trace = joined.trace
    ranges = [
        (one.start, one.end, one.name) for one in trace.on_cpu if one.kind is Is.RANGE and STEP.fullmatch(one.name)
    ]
    launches = [joined.launch_of(event) for event in trace.on_gpu]
    moments = Moments(
        starts=np.array([event.start for event in trace.on_gpu]),
        ends=np.array([event.end for event in trace.on_gpu]),
        launched=np.array([nan if launch is None else launch.start for launch in launches]),
        streams=numbered_streams(stream_of(event.args.stream, event.thread[1]) for event in trace.on_gpu),
    )
    places = belongs(moments, ranges)
    own: dict[int, list[Seen]] = defaultdict(list)
    for event, place in zip(trace.on_gpu, places.tolist(), strict=True):
        own[place].append(event)
    return tuple(window(step, tuple(own[step.place])) for step in extents(moments, ranges, places, trace.name))


def window(extent: Extent, on_gpu: "tuple[Seen, ...]") -> Window:
    """A step with what ran on the GPU for it."""
    return Window(number=extent.number, on_gpu=on_gpu, start=extent.start, end=extent.end, steady=extent.steady)
