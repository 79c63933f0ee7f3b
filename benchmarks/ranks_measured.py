"""What `undertorch see` says of several ranks, held against their raw traces.

    python benchmarks/ranks_measured.py OUT… [--golden]          (no GPU)

OUT: as `golden_models.py OUT --ranks` leaves it, of each run (`ddp_gpt_4`) the report as JSON and the ranks' traces; of
a run that several hold the last counts. The sum of NCCL's kernels is made here from the trace as torch.profiler wrote
it, by gzip and json alone: none of undertorch reads it. Writes benchmarks/results/ranks_measured.json.
`--golden`: writes tests/golden/measured/ranks.json.gz too: of the runs on four GPUs each rank's collectives under the
whole profiler, as the raw traces have them, and when anything else ran.
"""

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

from results_file import Aim, write

RUN = re.compile(r"(\w+)_gpt_(\d+)")
NAMES = {"ddp": "DDP", "fsdp": "FSDP2"}
LAUNCHES = ("cuda_runtime", "cuda_driver")
GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "measured" / "ranks.json.gz"
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
IN_GOLDEN = 4
"""GPUs of the runs that the golden holds."""
CLOCK_US = 1.0
"""Two sums of the same figures, each rounded on its way, differ by no more."""


def opened(path: Path) -> Any:
    """A trace or a report."""
    return json.loads(gzip.decompress(path.read_bytes()))


def of_range(trace: Any, step: int) -> list[Any]:
    """Of a step that a range stands for: what was launched within it, in the order in which it ran."""
    events = trace["traceEvents"]
    (around,) = (
        event for event in events if event.get("cat") == "user_annotation" and event["name"] == f"ProfilerStep#{step}"
    )
    within = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") in LAUNCHES
        and "correlation" in event["args"]
        and around["ts"] <= event["ts"] <= around["ts"] + around["dur"]
    }
    ran = (event for event in events if event.get("cat") in ON_GPU and event["args"]["correlation"] in within)
    return sorted(ran, key=lambda event: float(event["ts"]))


def nccl(events: list[Any]) -> list[Any]:
    """NCCL's kernels, in the order in which they ran."""
    kernels = (event for event in events if event.get("cat") == "kernel" and "nccl" in event["name"])
    return sorted(kernels, key=lambda event: float(event["ts"]))


def raw(folder: Path, step: int, many: int) -> list[float]:
    """Times of NCCL's kernels in the step that the report shows. `many`: how many a step has, by which the steps of a
    trace without ranges are told apart, from its end."""
    kept = json.loads((folder / "measured.json").read_text()) if (folder / "measured.json").exists() else {}
    numbers = kept.get("gpu_only", [])
    if step not in numbers:
        return [event["dur"] for event in nccl(of_range(opened(folder / "trace.json.gz"), step))]
    times = [event["dur"] for event in nccl(opened(folder / "gpu_only.json.gz")["traceEvents"])]
    after = (numbers[-1] - step) * many
    return times[len(times) - after - many : len(times) - after]


def rank(folder: Path, step: dict[str, Any], figures: dict[str, Any]) -> dict[str, object]:
    """What the report says of one rank, and what its raw trace does."""
    launches = step["launches"]
    lines = {op["id"]: op["where"] for op in step["ops"]}
    many = sum("nccl" in launch["kernel"] for launch in launches)
    times = raw(folder / f"rank_{figures['rank']}", step["environment"]["step"], many)
    waiting = figures["waited_us"]
    return {
        "rank": figures["rank"],
        "launches": len(launches),
        "without_line": sum(lines[launch["ops"][0]] is None for launch in launches),
        "unprofiled_us": figures["unprofiled_us"],
        "step_us": figures["step_us"],
        "compute_us": figures["compute_us"],
        "communication_us": figures["communication_us"],
        "nccl_us": sum(times),
        "nccl_kernels": len(times),
        "waited_us": waiting,
        "moving_us": None if waiting is None else figures["communication_us"] - waiting,
        "exposed_us": figures["exposed_us"],
        "exposed_waiting_us": figures["exposed_waiting_us"],
        "clock_error_us": figures["clock_error_us"],
    }


def run(folder: Path) -> dict[str, object]:
    """One run."""
    steps = opened(folder / "step.json.gz")
    report = steps[0]["ranks"]
    kind, number = RUN.fullmatch(folder.name).groups()  # type: ignore[union-attr]
    return {
        "run": f"{NAMES[kind]}, {number} GPUs",
        "gpu_only": bool(report["ranks"][0].get("gpu_only")),
        "ranks": [rank(folder, step, figures) for step, figures in zip(steps, report["ranks"], strict=True)],
        "waits": report["waits"],
        "notes": report["notes"],
        "versions": steps[0]["environment"]["versions"],
        "driver": steps[0]["environment"]["driver"],
    }


def golden(folder: Path) -> dict[str, object]:
    """Of a run, each rank on its own clock, in microseconds from the first rank's first collective: collectives as
    (name, start, time), and when anything else ran as (start, end)."""
    step = opened(folder / "step.json.gz")[0]["environment"]["step"]
    traces = [opened(rank_ / "trace.json.gz") for rank_ in sorted(folder.glob("rank_*"))]
    numbers = [range_number(trace, step) for trace in traces]
    ran = [of_range(trace, number) for trace, number in zip(traces, numbers, strict=True)]
    origins = [trace["baseTimeNanoseconds"] for trace in traces]
    zero = nccl(ran[0])[0]["ts"]

    def at(moment: float, origin: int) -> float:
        return round(moment - zero + (origin - origins[0]) / 1e3, 3)

    ranks = []
    for events, origin in zip(ran, origins, strict=True):
        theirs = [[one["args"]["Collective name"], at(one["ts"], origin), one["dur"]] for one in nccl(events)]
        others: list[list[float]] = []
        for one in events:
            start = at(one["ts"], origin)
            if "nccl" in one["name"]:
                continue
            if others and start <= others[-1][1]:
                others[-1][1] = max(others[-1][1], round(start + one["dur"], 3))
            else:
                others.append([start, round(start + one["dur"], 3)])
        ranks.append({"collectives": theirs, "others": others})
    return {"step": numbers[0], "ranks": ranks}


def range_number(trace: Any, step: int) -> int:
    """Of the step that is shown, where a range stands for it; otherwise of the first that was profiled whole."""
    names = {event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"}
    numbers = sorted(int(name.partition("#")[2]) for name in names if name.startswith("ProfilerStep#"))
    return step if step in numbers else numbers[1]


def aims(rows: list[dict[str, Any]]) -> list[Aim]:
    each = [(f"{row['run']}, rank {one['rank']}", one) for row in rows for one in row["ranks"]]
    name, apart = max(((n, abs(one["communication_us"] - one["nccl_us"])) for n, one in each), key=lambda pair: pair[1])
    lost = sum(one["without_line"] for _, one in each)
    counts = sorted({len(row["ranks"]) for row in rows})
    kinds = sorted({row["run"].split(",")[0] for row in rows})
    return [
        Aim(
            what="communication in the report against the sum of NCCL's kernels in the raw trace, furthest apart",
            aim=f"equal, to {CLOCK_US:.0f} µs",
            got=f"{apart:.2f} µs ({name})",
            holds=apart <= CLOCK_US,
        ),
        Aim(what="launches without a line", aim="none", got=f"{lost} of {sum(one['launches'] for _, one in each):,}",
            holds=lost == 0),
        Aim(
            what="runs",
            aim="DDP and FSDP2, each on 2 and on 4 GPUs",
            got=f"{', '.join(kinds)}; {' and '.join(map(str, counts))} GPUs; {len(rows)} runs",
            holds=len(rows) >= 4 and counts == [2, 4],
        ),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--golden", action="store_true")
    given = parser.parse_args()
    folders = {
        folder.name: folder
        for out in given.out
        for folder in sorted(out.iterdir())
        if RUN.fullmatch(folder.name) and (folder / "step.json.gz").exists()
    }
    rows = [run(folder) for folder in sorted(folders.values(), key=lambda one: (one.name[:3], one.name))]
    versions = rows[0]["versions"]
    assert isinstance(versions, dict)
    gpus = f"H200s of one host, driver {rows[0]['driver']}"
    write("ranks_measured", rows, aims(rows), {name: str(one) for name, one in versions.items()}, gpus)
    if given.golden:
        runs = {name: golden(folder) for name, folder in folders.items() if name.endswith(f"_{IN_GOLDEN}")}
        content = json.dumps({"gpu": gpus, "versions": versions, "runs": runs}, separators=(",", ":"))
        GOLDEN.write_bytes(gzip.compress(content.encode(), 9, mtime=0))
        print(f"{GOLDEN.name}: {GOLDEN.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
