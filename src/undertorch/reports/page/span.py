"""The time that a step's pictures show, and where in it something lies."""

from collections.abc import Iterable
from dataclasses import dataclass

from undertorch.records import Phase, Step
from undertorch.reports.terminal.runs import Run

WIDTH = 1000
"""Units of a strip's viewBox, from the span's start to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From the start of the step, or of its first launch if that is earlier, to the end of both."""

    start_us: float
    end_us: float

    @property
    def time_us(self) -> float:
        """Never 0, so that it can be divided by."""
        return (self.end_us - self.start_us) or 1.0

    def share(self, at_us: float) -> float:
        """0 at the start, 1 at the end."""
        return (at_us - self.start_us) / self.time_us


def span(step: Step) -> Span:
    """Of the step, its launches and its idle intervals."""
    starts = [launch.start_us for launch in step.launches]
    ends = [launch.end_us for launch in step.launches] + [idle.start_us + idle.time_us for idle in step.idle]
    return Span(start_us=min([0.0, *starts]), end_us=max([step.step_us or 0.0, *ends]))


def strip(runs: Iterable[Run], whole: Span) -> tuple[tuple[Phase, str], ...]:
    """When in the step the runs ran: an SVG path a phase, of rectangles 10 high in a viewBox of WIDTH × 10."""
    paths: dict[Phase, list[str]] = {}
    for run in runs:
        left = whole.share(run.launch.start_us) * WIDTH
        wide = max(run.launch.time_us / whole.time_us * WIDTH, 0.4)
        paths.setdefault(run.launch.phase, []).append(f"M{left:.1f} 0h{wide:.1f}v10h-{wide:.1f}z")
    return tuple((phase, "".join(parts)) for phase, parts in paths.items())
