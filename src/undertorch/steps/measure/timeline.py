"""A profiled step laid out as long as an unprofiled one: kernels keep their time, and what lies between them gives way.

The profiler slows the CPU (some microseconds a call and a launch), so that under it the GPU waits longer for launches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from undertorch.records import Idle, Launch
from undertorch.records.totals import busy_us


def unstretched(
    launches: Sequence[Launch], idle: Iterable[Idle], step_us: float
) -> tuple[tuple[Launch, ...], tuple[Idle, ...]]:
    """The launches and the idle intervals between them, each of these made shorter by one share so that together they
    fill the step. Where they are shorter already, or kernels alone take longer, all stays.
    """
    idles = sorted(idle, key=lambda one: one.start_us)
    whole = sum(one.time_us for one in idles)
    left = step_us - busy_us(launches)
    if whole <= 0 or left < 0 or left >= whole:
        return tuple(launches), tuple(idles)
    kept = left / whole
    moved = _Moved(idles, kept)
    return (
        tuple(replace(launch, start_us=moved.at(launch.start_us)) for launch in launches),
        tuple(replace(one, start_us=moved.at(one.start_us), time_us=one.time_us * kept) for one in idles),
    )


class _Moved:
    """Where a moment of the profiled step comes to lie. Asked for moments in order it is quick."""

    def __init__(self, idles: Sequence[Idle], kept: float) -> None:
        self._idles = idles
        self._kept = kept
        self._place = 0
        self._gone = 0.0
        self._last = float("-inf")

    def at(self, moment: float) -> float:
        """Moments within an idle interval do not occur: nothing begins there."""
        if moment < self._last:
            self._place, self._gone = 0, 0.0
        self._last = moment
        while self._place < len(self._idles):
            one = self._idles[self._place]
            if one.start_us + one.time_us > moment + 1e-6:
                break
            self._gone += one.time_us * (1 - self._kept)
            self._place += 1
        return moment - self._gone
