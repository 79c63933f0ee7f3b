"""Traces that others recorded: what of each kernel can be told, one kernel followed by hand, and the speed of reading.

    python benchmarks/traces.py                     writes benchmarks/results/traces.json (minutes, 1 GB of disk)
    python benchmarks/traces.py --follow [TRACE…]   prints one kernel of each with the events that it is joined to

The traces are those of tests/golden. Speed is that of the whole command, on a trace of 500 MB that repeats a real one,
and on one of 1.1 GB.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from results_file import Aim, write
from undertorch import gpus
from undertorch.steps.traces.fields import number
from undertorch.steps.traces.joining import Joined, join, node_of
from undertorch.steps.traces.nesting import nest
from undertorch.steps.traces.overview import look_over
from undertorch.steps.traces.reading import Seen, read
from undertorch.steps.traces.step import see_rank

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
TRACES = (GOLDEN / "h200_gpt2_train.json.gz", *sorted((GOLDEN / "traces").glob("*.json.gz")))
WITHOUT_SHEET = "MI250X"
"""The sheet for the one trace whose driver names no GPU that there is a sheet of."""

REPEATED = GOLDEN / "traces" / "v100_resnet_train.json.gz"
"""The one with the most events a byte of JSON that launch something, and so the slowest to read."""
SIZES = (500, 1100)
AIM_MB_A_SECOND = 80
NUMBERS = re.compile(r'("ts": |"(?:correlation|External id|Sequence number)": |ProfilerStep#)([0-9.]+)')
"""What is one event's own, and so another in each repetition."""


def joined(path: Path) -> Joined:
    """The whole trace."""
    trace = read(path)
    nest(trace.on_cpu)
    return join(trace)


def counted(path: Path) -> dict[str, object]:
    """Of everything that ran on the GPU: what has a launch, a call, a forward call; of the step shown: idle, lost."""
    found = joined(path)
    on_gpu = found.trace.on_gpu
    calls = [call for event in on_gpu if (call := found.call_of(event)) is not None]
    nodes = [(call, node) for call in calls if (node := node_of(call)) is not None]
    forward = [found.forward_of(call) for call, node in nodes if number(node.args.sequence) is not None]
    step = see_rank(path, gpus.find(WITHOUT_SHEET) if path.name.startswith("mi250") else None).step
    idle = sum(one.time_us for one in step.idle)
    launched = {event.correlation for event in on_gpu}
    return {
        "trace": path.name.removesuffix(".json.gz"),
        "gpu": step.gpu,
        "on the GPU": len(on_gpu),
        "with launch": sum(found.launch_of(event) is not None for event in on_gpu),
        "with call": len(calls),
        "in backward": len(nodes),
        "accumulation": sum("AccumulateGrad" in node.name for _, node in nodes),
        "with number": len(forward),
        "with forward": sum(one is not None for one in forward),
        "lost": sum(
            correlation not in launched and "LaunchKernel" in launch.name
            for correlation, launch in found.launches.items()
        ),
        "steps": len(look_over(path).steps),
        "step_us": step.step_us,
        "idle_us": idle,
        "repaired": step.accounting.repaired,
    }


def followed(path: Path) -> Iterator[str]:
    """The longest kernel that has a forward call (otherwise a call, or a launch), and the raw events on its way."""
    found = joined(path)
    raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]

    def known(event: Seen) -> tuple[bool, bool, bool, float]:
        call = found.call_of(event)
        forward = None if call is None else found.forward_of(call)
        return forward is not None, call is not None, found.launch_of(event) is not None, event.lasts

    kernel = max(found.trace.on_gpu, key=known)
    launch, call = found.launch_of(kernel), found.call_of(kernel)
    node = None if call is None else node_of(call)
    forward = None if call is None else found.forward_of(call)
    yield f"\n{path.name}"
    for what, event in (("kernel", kernel), ("launch", launch), ("call", call), ("node", node), ("forward", forward)):
        yield f"  {what}: {'–' if event is None else json.dumps(_raw(raw, event))[:600]}"


def _raw(events: list[dict[str, Any]], seen: Seen) -> dict[str, Any]:
    return next(e for e in events if e.get("ts") == seen.start and e.get("name") == seen.name and e.get("ph") == "X")


def repeat(source: Path, target: Path, megabytes: int) -> int:
    """Writes a trace that repeats another until it is that long; answers how often. Each time starts where the last
    ended, with numbers and steps of its own."""
    content = json.loads(gzip.decompress(source.read_bytes()))
    events = content.pop("traceEvents")
    lasting = [event for event in events if event.get("ph") == "X"]
    span = max(event["ts"] + event["dur"] for event in lasting) - min(event["ts"] for event in lasting) + 1000
    steps = len({event["name"] for event in lasting if event["name"].startswith("ProfilerStep#")})
    text = ",\n".join(json.dumps(event, indent=2) for event in events)
    times = written = 0
    with target.open("w") as file:
        written += file.write(json.dumps(content)[:-1] + ', "traceEvents": [')
        while written < megabytes * 1e6:
            moved = NUMBERS.sub(lambda match, times=times: _moved(match, times, span, steps), text)
            written += file.write(f"{',' if times else ''}\n{moved}")
            times += 1
        file.write("\n]}\n")
    return times


def _moved(match: re.Match[str], times: int, span: float, steps: int) -> str:
    """A number of one repetition in the place of the first one's."""
    before, number_ = match[1], match[2]
    if before.startswith('"ts"'):
        return f"{before}{float(number_) + times * span!r}"
    return f"{before}{int(number_) + times * (steps if before.startswith('ProfilerStep') else 10**7)}"


def timed(trace: Path) -> dict[str, float]:
    """The whole command, imports and all: seconds, processor seconds, and MB of its largest process."""
    command = [sys.executable, "-m", "undertorch", "see", "--json", str(trace.with_suffix(".step")), str(trace)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {
        "seconds": round(seconds, 2),
        "processor seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak MB": round(used.ru_maxrss / 1e3),
    }


def speeds() -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.json"
        small.write_bytes(gzip.decompress(REPEATED.read_bytes()))
        yield {"what": "trace", "MB": round(small.stat().st_size / 1e6), **timed(small)}
        for size in SIZES:
            trace = Path(folder) / f"{size}.json"
            times = repeat(REPEATED, trace, size)
            row = {"MB": round(trace.stat().st_size / 1e6), "repeated": times, "load": round(os.getloadavg()[0], 1)}
            yield {"what": "trace", **row, **timed(trace)}
            if size == SIZES[0]:
                packed = trace.with_suffix(".json.gz")
                with gzip.open(packed, "wb", compresslevel=6) as target, trace.open("rb") as source:
                    while block := source.read(1 << 24):
                        target.write(block)
                yield {"what": "gzip", **row, "packed MB": round(packed.stat().st_size / 1e6), **timed(packed)}
                packed.unlink()
            trace.unlink()


def aims(rows: list[dict[str, Any]]) -> list[Aim]:
    small, large = (row for row in rows if row.get("what") == "trace" and "repeated" in row)
    rate = small["MB"] / small["seconds"]
    processor = small["MB"] / small["processor seconds"]
    joins = Counter()
    for row in rows:
        if "trace" in row:
            joins.update({key: row[key] for key in ("with number", "with forward")})
    return [
        Aim(
            what=f"{small['MB']} MB of JSON, the whole command",
            aim=f"{AIM_MB_A_SECOND} MB/s",
            got=f"{rate:.0f} MB/s at a load of {small['load']}; {processor:.0f} MB per second of processor time",
            holds=rate >= AIM_MB_A_SECOND,
        ),
        Aim(
            what=f"peak memory for {large['MB']} MB",
            aim="about the file's size",
            got=f"{large['peak MB']} MB",
            holds=large["peak MB"] <= 1.2 * large["MB"],
        ),
        Aim(
            what="backward kernels whose node has a number, with their forward call",
            aim="all",
            got=f"{joins['with forward']:,} of {joins['with number']:,}",
            holds=joins["with forward"] == joins["with number"],
        ),
    ]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--follow"]:
        for path in map(Path, arguments[1:]) if arguments[1:] else TRACES:
            print("\n".join(followed(path)))
        return
    rows = [*map(counted, TRACES), *speeds()]
    write(
        "traces",
        rows,
        aims(rows),
        {name: version(name) for name in ("undertorch", "torch")} | {"python": sys.version.split()[0]},
        f"{os.cpu_count()} cores, no GPU",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
