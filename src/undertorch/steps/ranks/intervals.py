"""Unions of intervals of time, as sorted lists of disjoint ones."""

from bisect import bisect_left
from collections.abc import Iterable

Interval = tuple[float, float]
"""Start and end, in microseconds."""


class Union:
    """What any of some intervals covers."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(intervals):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            elif end > start:
                self._starts.append(start)
                self._ends.append(end)

    @property
    def length(self) -> float:
        """Microseconds in all."""
        return sum(self._ends) - sum(self._starts)

    def covers(self, start: float, end: float) -> float:
        """Microseconds of an interval that are covered."""
        found = 0.0
        for place in range(bisect_left(self._ends, start), len(self._starts)):
            if self._starts[place] >= end:
                break
            found += max(0.0, min(end, self._ends[place]) - max(start, self._starts[place]))
        return found
