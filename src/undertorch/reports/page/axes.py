"""Axes of the charts: from figures to percent of the plot, and where the ticks stand."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log10

LINEAR_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A figure on an axis."""

    at: float
    """Percent of the plot, from the axis' start."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAxis:
    """From 10^low to 10^high."""

    low: int
    high: int

    def at(self, value: float) -> float:
        """Percent of the plot, 0 to 100; what lies outside stands at the edge. Raises ValueError for 0 and below."""
        return min(max((log10(value) - self.low) / (self.high - self.low), 0.0), 1.0) * 100

    def holds(self, value: float) -> bool:
        """Whether the value lies on the axis and not beyond it."""
        return 10.0**self.low <= value <= 10.0**self.high

    @property
    def decades(self) -> tuple[float, ...]:
        """Powers of ten on the axis."""
        return tuple(10.0**power for power in range(self.low, self.high + 1))


def log_axis(values: Iterable[float]) -> LogAxis:
    """Whole decades that hold the values with a tenth of a decade to spare. Raises ValueError where there are none."""
    logs = [log10(value) for value in values]
    low, high = floor(min(logs) - 0.1), ceil(max(logs) + 0.1)
    return LogAxis(low=low, high=high)


def linear_ticks(most: float, about: int = 4) -> tuple[float, ...]:
    """Round figures from 0 up to `most`, about that many."""
    raw = most / about
    power = 10.0 ** floor(log10(raw))
    step = next(step * power for step in LINEAR_STEPS if step * power >= raw * 0.999)
    return tuple(step * number for number in range(int(most / step * 1.0001) + 1))


def tidy(text: str) -> str:
    """A tick's figure without zeros behind the point: `1.00 TB` as `1 TB`."""
    return re.sub(r"(\.\d*?)0+(?= )", lambda found: found[1].rstrip("."), text)
