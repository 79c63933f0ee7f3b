"""Which of a script's steps are left alone, timed, profiled."""

from dataclasses import dataclass

WARM_UP = 3
"""Steps that nothing is read from: libraries load, the allocator grows, code is compiled in the first, and in the
second and third what torch.compile records as CUDA graphs (torch/_inductor/cudagraph_trees.py)."""
TIMED = 5
SETTLING = 1
"""The first step under the profiler, which starts CUPTI and fills its buffers: it is profiled and not shown."""
PROFILED = 3
GPU_ONLY = 3
"""Steps of several ranks in which the profiler follows the GPU alone, after one more in which it settles. The whole
profiler slows each CPU two or three times, and not all alike, so that ranks wait for each other as they do not without
it; so that one tells lines and shapes, and these steps tell when kernels ran."""


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
    """Ended: the profiler stops."""
    end: int
    """Ended: all is measured. Between `last` and this one the GPU alone is profiled."""


def plan(step: int | None, ranks: bool = False) -> Plan:
    """For the one step that is to be shown (2 or later); None: the ordinary plan. `ranks`: of one of several ranks."""
    if step is None:
        profiler = WARM_UP + TIMED
        last = profiler + SETTLING + PROFILED
        return Plan(
            clock=WARM_UP,
            profiler=profiler,
            shown=profiler + SETTLING + 1,
            last=last,
            end=last + SETTLING + GPU_ONLY if ranks else last,
        )
    profiler = max(1, step - 1 - SETTLING)
    # At least one step warms up before the clock starts.
    return Plan(clock=max(1, profiler - TIMED), profiler=profiler, shown=step, last=step, end=step)
