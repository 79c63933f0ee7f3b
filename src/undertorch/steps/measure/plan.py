"""Which of a script's steps are left alone, timed, profiled."""

from dataclasses import dataclass

WARM_UP = 3
"""Steps that nothing is read from: libraries load, the allocator grows, code is compiled in the first, and in the
second and third what torch.compile records as CUDA graphs (torch/_inductor/cudagraph_trees.py)."""
TIMED = 5
SETTLING = 1
"""The first step under the profiler, which starts CUPTI and fills its buffers: it is profiled and not shown."""
PROFILED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Numbers of steps, counted from 1; something begins when the step of that number has ended."""

    clock: int
    """Ended: the timed steps begin."""
    profiler: int
    """Ended: the clock stops, the profiler starts."""
    shown: int
    """The first step that can be shown."""
    last: int
    """Ended: all is measured."""


def plan(step: int | None) -> Plan:
    """For the one step that is to be shown (2 or later); None: the ordinary plan."""
    if step is None:
        profiler = WARM_UP + TIMED
        return Plan(
            clock=WARM_UP,
            profiler=profiler,
            shown=profiler + SETTLING + 1,
            last=profiler + SETTLING + PROFILED,
        )
    profiler = max(1, step - 1 - SETTLING)
    # At least one step warms up before the clock starts.
    return Plan(clock=max(1, profiler - TIMED), profiler=profiler, shown=step, last=step)
