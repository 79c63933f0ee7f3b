"""What a replayed CUDA graph runs, from the trace of its capture: the same kernels in the same order."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from undertorch.steps.measure.exchange import Measured, capture_name
from undertorch.steps.measure.lines import Lines
from undertorch.steps.measure.tracefile import joined
from undertorch.steps.traces.fields import Is
from undertorch.steps.traces.joining import Joined
from undertorch.steps.traces.reading import Seen

CAPTURED = ("LaunchKernel", "MemsetAsync", "MemcpyAsync", "Memcpy2DAsync", "Memcpy3DAsync", "LaunchCooperative")
"""Are in the names of the calls that become a node of a graph which runs something."""


def captured(folder: Path, measured: Measured) -> dict[int, tuple[Lines, tuple[Seen, ...]]]:
    """Of each captured graph that was replayed: its calls in order, and the joins that tell their lines."""
    wanted = {int(mark.what.split()[1]) for mark in measured.marks if mark.what.startswith("replay ")}
    found = {}
    for number in sorted(wanted):
        path = folder / capture_name(number)
        if not path.exists():
            continue
        trace_of = joined(path)
        trace = trace_of.trace
        lines = Lines(joined=trace_of, measured=measured)
        begun = [one for one in trace.on_cpu if one.kind is Is.LAUNCH and any(word in one.name for word in CAPTURED)]
        # What the profiler saw on the GPU ran beside the capture.
        ran = {one.correlation for one in trace.on_gpu}
        found[number] = lines, tuple(one for one in begun if one.correlation not in ran)
    return found


def replay_places(trace: Joined) -> dict[int, tuple[int, int]]:
    """By identity of what a replay ran: its place in it, and how many it ran."""
    of_launch: dict[int, list[Seen]] = defaultdict(list)
    for event in trace.trace.on_gpu:
        launch = trace.launch_of(event)
        if launch is not None and "GraphLaunch" in launch.name:
            of_launch[id(launch)].append(event)
    return {id(event): place for ran in of_launch.values() for event, place in _numbered(ran)}


def _numbered(ran: list[Seen]) -> Iterable[tuple[Seen, tuple[int, int]]]:
    for place, event in enumerate(sorted(ran, key=lambda one: one.start)):
        yield event, (place, len(ran))
