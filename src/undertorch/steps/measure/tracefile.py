"""The trace that the script's process wrote: whole, of one process, by a torch that is known to write it soundly.

(A trace of somebody else's is looked over and mended first: steps/traces.)
"""

import gzip
from bisect import bisect_right
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.fields import CATEGORIES, ON_GPU, Args, File, Is, number
from undertorch.steps.traces.joining import Joined, join
from undertorch.steps.traces.mending import mended
from undertorch.steps.traces.nesting import nest
from undertorch.steps.traces.reading import Seen, Trace
from undertorch.steps.traces.windows import STEP, Window

LAUNCHES = ("LaunchKernel", "LaunchCooperative")
"""Are in the names of the runtime's and the driver's calls that launch one kernel each."""


def joined(path: Path) -> Joined:
    """Its events, each with what it lies in, and which launched what; of several GPUs, those of the busiest.
    Raises BadTrace.
    """
    file = _file(path)
    seen = [
        Seen(
            kind=kind,
            name=event.name,
            start=event.ts,
            end=event.ts + event.dur,
            lasts=event.dur,
            thread=(event.pid, event.tid),
            args=event.args or Args(),
        )
        for event in file.events or ()
        if event.ph == "X"
        and event.ts is not None
        and event.dur is not None
        and (kind := CATEGORIES.get(event.cat or "")) is not None
    ]
    on_gpu = sorted((one for one in seen if one.kind in ON_GPU), key=lambda one: one.start)
    on_cpu = sorted((one for one in seen if one.kind not in ON_GPU), key=lambda one: (one.start, -one.end))
    devices = Counter(number(one.args.device) for one in on_gpu)
    device = devices.most_common(1)[0][0] if devices else None
    nest(on_cpu)
    return join(
        Trace(
            name=str(path),
            on_gpu=tuple(one for one in on_gpu if number(one.args.device) == device),
            on_cpu=tuple(on_cpu),
            allocations=(),
            device=device or 0,
            gpu_name=next((each.name for each in file.devices or () if each.id == device and each.name), None),
            versions={},
            origin_ns=number(file.base) or 0,
            repaired=0,
            damaged=(),
            rank=None,
            world_size=None,
        )
    )


def lost(trace: Joined, window: Window) -> int:
    """Launches of a step of which the profiler saw nothing on the GPU."""
    there = {event.correlation for event in trace.trace.on_gpu}
    begun = [launch for event in window.on_gpu if (launch := trace.launch_of(event)) is not None]
    if not begun:
        return 0
    first, last = min(one.start for one in begun), max(one.start for one in begun)
    return sum(
        first <= launch.start <= last and correlation not in there and any(word in launch.name for word in LAUNCHES)
        for correlation, launch in trace.launches.items()
    )


def _file(path: Path) -> File:
    try:
        data = gzip.decompress(path.read_bytes())
        try:
            return msgspec.json.decode(data, type=File, strict=False)
        except msgspec.DecodeError:
            return msgspec.json.decode(mended(data)[0], type=File, strict=False)  # an infinite figure of a kernel's
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise BadTrace(f"{path}, which the profiler wrote, cannot be read: {error}.") from error


def windows(trace: Joined) -> tuple[Window, ...]:
    """Every step that did something on the GPU: what was launched within its range, whenever that ran."""
    ranges = [one for one in trace.trace.on_cpu if one.kind is Is.RANGE and STEP.fullmatch(one.name)]
    begins = [one.start for one in ranges]
    groups: dict[int, list[Seen]] = defaultdict(list)
    for event in trace.trace.on_gpu:
        begun = trace.launch_of(event) or event
        place = bisect_right(begins, begun.start) - 1
        if place >= 0 and begun.start <= ranges[place].end:
            groups[place].append(event)
    found: list[Window] = []
    for place, group in sorted(groups.items()):
        match = STEP.fullmatch(ranges[place].name)
        first = min(event.start for event in group)
        start = min(found[-1].end, first) if found else first
        found.append(
            Window(
                number=int(match[1]) if match else 0,
                on_gpu=tuple(group),
                start=start,
                end=max(event.end for event in group),
                steady=bool(found),
            )
        )
    return tuple(found)
