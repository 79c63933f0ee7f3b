"""Which of a trace's steps is shown: the one of median length."""

import re
from bisect import bisect_right
from dataclasses import dataclass

from undertorch.steps.traces.fields import Is
from undertorch.steps.traces.joining import Joined
from undertorch.steps.traces.reading import BadTrace, Seen

STEP = re.compile(r"ProfilerStep#?\s*(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One step: what the GPU did for it, and from when to when."""

    number: int
    on_gpu: tuple[Seen, ...]
    start: float
    """The end of what the GPU did for the step before; of the first, the start of its own."""
    end: float
    steady: bool
    """Whether there is a step before."""

    @property
    def lasts(self) -> float:
        """Microseconds."""
        return self.end - self.start


def windows(joined: Joined) -> tuple[Window, ...]:
    """Every step that did something on the GPU, by the ranges of profiler.step(); without those, all is one step.

    What was launched in a range belongs to it, whenever it ran; what has no launch belongs where it ran.
    """
    trace = joined.trace
    ranges = [one for one in trace.on_cpu if one.kind is Is.RANGE and STEP.fullmatch(one.name)]
    if not ranges:
        return (_window(1, trace.on_gpu, None),)
    begins = [one.start for one in ranges]
    groups: list[list[Seen]] = [[] for _ in ranges]
    for event in trace.on_gpu:
        launch = joined.launch_of(event)
        index = bisect_right(begins, (event if launch is None else launch).start) - 1
        if index >= 0 and (launch is None or launch.start <= ranges[index].end):
            groups[index].append(event)
    found: list[Window] = []
    for one, group in zip(ranges, groups, strict=True):
        match = STEP.fullmatch(one.name)
        if group and match is not None:
            before = found[-1].end if found else None
            found.append(_window(int(match[1]), tuple(group), before))
    if not found:
        raise BadTrace(f"{trace.name}: nothing ran on the GPU in any of its {len(ranges)} steps.")
    return tuple(found)


def median(found: tuple[Window, ...]) -> Window:
    """Of the steps that follow another, the one of median length; of an even number, the shorter of the two."""
    steady = [window for window in found if window.steady] or list(found)
    return sorted(steady, key=lambda window: window.lasts)[(len(steady) - 1) // 2]


def numbered(found: tuple[Window, ...], number: int, name: str) -> Window:
    """The step of that number. Raises BadTrace."""
    window = next((window for window in found if window.number == number), None)
    if window is None:
        there = ", ".join(str(window.number) for window in found)
        raise BadTrace(f"{name} holds no step {number} with work on the GPU; its steps are: {there}.")
    return window


def _window(number: int, on_gpu: tuple[Seen, ...], before: float | None) -> Window:
    first = min(event.start for event in on_gpu)
    start = first if before is None else min(before, first)
    return Window(
        number=number,
        on_gpu=on_gpu,
        start=start,
        end=max(event.end for event in on_gpu),
        steady=before is not None,
    )
