"""Other people's traces: what torch.profiler wrote down of a run, read as a Step."""

from undertorch.steps.traces.ahead import look_over_ahead
from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.overview import look_over
from undertorch.steps.traces.reading import is_trace
from undertorch.steps.traces.step import SeenTrace, see_rank, see_trace, steady_on_all

__all__ = [
    "BadTrace",
    "SeenTrace",
    "is_trace",
    "look_over",
    "look_over_ahead",
    "see_rank",
    "see_trace",
    "steady_on_all",
]
