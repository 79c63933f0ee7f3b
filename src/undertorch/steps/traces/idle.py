"""Why the GPU waited, where the CPU's timeline tells."""

import re
from collections.abc import Callable, Iterable, Iterator

from undertorch.records import Idle, IdleCause, Where
from undertorch.steps.traces.fields import Is
from undertorch.steps.traces.joining import Joined, place
from undertorch.steps.traces.reading import Seen
from undertorch.steps.traces.windows import Window

WAITS = re.compile(r"(cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize|(cuda|hip)(Memcpy|MemcpyAsync|Free|HostFree)$")
"""Calls in which the CPU waits for the GPU: an asynchronous copy does where its memory is not pinned."""

LOADER = "enumerate(DataLoader)"
"""Begins the name of the range around a DataLoader's `__next__` (torch/utils/data/dataloader.py)."""

AT_ONCE_US = 1.0
"""A launch that returned no later than this before the GPU fell idle was not waited for."""


def idle_times(
    joined: Joined, window: Window, line_of: Callable[[Seen], Where | None] = lambda one: place(one).where
) -> dict[int, Idle]:
    """Each interval of the window in which nothing ran, with its cause and the line that caused it, in order.

    By the identity of the event that came next. `line_of` tells the line of an event on the CPU.
    """
    waits = [one for one in joined.trace.on_cpu if one.kind is Is.LAUNCH and WAITS.match(one.name)]
    loads = [one for one in joined.trace.on_cpu if one.name.startswith(LOADER)]
    return {
        id(following): _idle(joined, window, begin, following, waits, loads, line_of)
        for begin, following in _gaps(window.on_gpu, window.start)
    }


def _gaps(on_gpu: Iterable[Seen], start: float) -> Iterator[tuple[float, Seen]]:
    """When nothing began to run, and what ran next."""
    covered = start
    for event in sorted(on_gpu, key=lambda one: one.start):
        if event.start > covered:
            yield covered, event
        covered = max(covered, event.end)


def _idle(
    joined: Joined,
    window: Window,
    begin: float,
    following: Seen,
    waits: list[Seen],
    loads: list[Seen],
    line_of: Callable[[Seen], Where | None],
) -> Idle:
    cause, owed = _cause(joined, begin, following, waits, loads)
    return Idle(
        start_us=begin - window.start,
        time_us=following.start - begin,
        cause=cause,
        where=None if owed is None else line_of(owed),
    )


def _cause(
    joined: Joined, begin: float, following: Seen, waits: list[Seen], loads: list[Seen]
) -> tuple[IdleCause, Seen | None]:
    """The launch came before the GPU fell idle: the GPU's own gap. Otherwise what the CPU did in between."""
    launch = joined.launch_of(following)
    if launch is None:
        return IdleCause.UNKNOWN, None
    if launch.end <= begin + AT_ONCE_US:
        return IdleCause.GAP, joined.call_of(following)
    if any(load.start < launch.start and load.end > begin for load in loads):
        return IdleCause.DATA, next(load for load in loads if load.start < launch.start and load.end > begin)
    ended = [
        wait for wait in waits if wait.thread[0] == launch.thread[0] and wait.start < launch.start and wait.end > begin
    ]
    if ended:
        return IdleCause.SYNC, ended[-1]
    return IdleCause.LAUNCH, joined.call_of(following)
