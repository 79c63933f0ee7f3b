"""Other people's traces: what torch.profiler wrote down of a run, read as a Step."""

from undertorch.steps.traces.reading import BadTrace, is_trace
from undertorch.steps.traces.step import see_trace

__all__ = ["BadTrace", "is_trace", "see_trace"]
