"""The time that a step's pictures show, and where in it something lies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from undertorch.records import Phase, Step
from undertorch.reports.terminal.runs import Run
from undertorch.reports.when import segments

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


Strip = tuple[tuple[Phase, str], ...]
"""An SVG path a phase, of rectangles 10 high in a viewBox of WIDTH × 10."""


def strip(runs: Iterable[Run], whole: Span) -> Strip:
    """When in the step the runs ran."""
    return _strip(((run.launch.phase, run.launch.start_us, run.launch.end_us) for run in runs), whole)


def phase_strip(runs: Sequence[Run], whole: Span) -> Strip:
    """The phases of the whole step, each in stretches."""
    launches = [run.launch for run in runs]
    parts = segments(launches, lambda index: launches[index].phase)
    return _strip(((part.key, part.start_us, part.end_us) for part in parts), whole)


def _strip(parts: Iterable[tuple[Phase, float, float]], whole: Span) -> Strip:
    paths: dict[Phase, list[str]] = {}
    for phase, start_us, end_us in parts:
        left = whole.share(start_us) * WIDTH
        wide = max(whole.share(end_us) * WIDTH - left, 0.4)
        paths.setdefault(phase, []).append(f"M{left:.1f} 0h{wide:.1f}v10h-{wide:.1f}z")
    return tuple((phase, "".join(parts)) for phase, parts in paths.items())
