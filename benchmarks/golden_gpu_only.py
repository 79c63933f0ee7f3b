"""Measures a model as one of several ranks is measured, on one GPU: under the whole profiler, then with the profiler on
the GPU alone. What the second costs a step that waits for the CPU is told beside unprofiled steps.

    python benchmarks/golden_gpu_only.py OUT [--only NAME…] [--limit SECONDS]      (needs CUDA; 20 s a model on an H200)
    python benchmarks/golden_gpu_only.py OUT --result                              (no GPU)

Leaves `OUT/NAME/`: the two traces and what undertorch keeps beside them. `--result` makes of what was left
benchmarks/results/gpu_only.json, and of the LSTM's the golden tests/golden/measured/gpu_only.json.gz.
"""

import argparse
import gzip
import json
import os
import signal
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from measured_goldens import LAUNCHES, ON_GPU, opened, small, trimmed
from results_file import Aim, write
from undertorch.steps.measure import exchange
from undertorch.steps.measure.reading import read_ranks
from undertorch.steps.measure.spawn import run_measured

MODELS = Path(__file__).parent / "models"
GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "measured" / "gpu_only.json.gz"
IN_GOLDEN = "lstm"
"""Its kernels run on several streams."""
STEPS = 30
"""More than are measured: undertorch stops the script."""
NAMES = ("dlrm", "lstm")
"""Steps that wait for the CPU."""
RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
"""As torchrun sets them. The models do not look; undertorch takes the process for one of two, and since its folder is
none of torchrun's, waits for nobody."""


def record(out: Path, names: list[str], limit: float) -> None:
    """Each model in a process of its own."""

    def ended(*_: object) -> None:
        raise TimeoutError(f"it took longer than {limit:.0f} s")

    signal.signal(signal.SIGALRM, ended)
    signal.alarm(max(1, int(limit)))
    os.environ.update(RANK)
    for name in names:
        begun = time.monotonic()
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        run_measured(MODELS / f"{name}.py", ["--steps", str(STEPS)], folder)
        print(row(folder), f"{time.monotonic() - begun:.1f} s", flush=True)


def row(folder: Path) -> dict[str, Any]:
    """How long steps took: unprofiled, with the profiler on the GPU alone, under the whole profiler. Microseconds."""
    measured = exchange.read(folder)
    assert measured is not None
    (alone,), _ = read_ranks([(folder, measured)])
    (whole,), _ = read_ranks([(folder, replace(measured, gpu_only=()))])
    return {
        "model": folder.name,
        "launches": len(alone.step.launches),
        "matched": alone.gpu_only,
        "unprofiled_us": statistics.median(measured.timed_us),
        "gpu_only_us": alone.step.step_us,
        "whole_us": whole.step.step_us,
        "kernels_us": [sum(one.time_us for one in each.step.launches) for each in (alone, whole)],
        "driver": measured.driver,
        "versions": measured.versions,
    }


def result(out: Path) -> None:
    """Writes the result and the golden."""
    rows = [row(out / name) for name in NAMES if (out / name / exchange.GPU_ONLY).exists()]
    versions = rows[0]["versions"] | {"driver": rows[0]["driver"]}
    slower = [(one["gpu_only_us"] / one["unprofiled_us"], one["whole_us"] / one["unprofiled_us"]) for one in rows]
    aims = [
        Aim(
            what="steps whose launches are told by the profiler on the GPU alone, name by name",
            aim="all",
            got=f"{sum(one['matched'] for one in rows)} of {len(rows)}",
            holds=all(one["matched"] for one in rows),
        ),
        Aim(
            what="a step that waits for the CPU, with the profiler on the GPU alone",
            aim="at most half of what the whole profiler adds",
            got="; ".join(f"{a:.2f} times unprofiled, whole {b:.2f} ({one['model']})"
                          for (a, b), one in zip(slower, rows, strict=True)),
            holds=all(a - 1 <= (b - 1) / 2 for a, b in slower),
        ),
    ]  # fmt: skip
    kept = [{key: value for key, value in one.items() if key not in ("versions", "driver")} for one in rows]
    write("gpu_only", kept, aims, versions, machine="NVIDIA H200")
    content = json.dumps(golden(out / IN_GOLDEN), separators=(",", ":"))
    GOLDEN.write_bytes(gzip.compress(content.encode(), 9, mtime=0))
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size:,} bytes")


def golden(folder: Path) -> dict[str, Any]:
    """One step under the whole profiler; of the others what ran on the GPU, and its launches."""
    measured = json.loads((folder / exchange.MEASURED).read_text())
    place = len(measured["steps"]) // 2
    alone = small(opened(folder / exchange.GPU_ONLY))
    ran = {event["args"].get("correlation") for event in alone["traceEvents"] if event["cat"] in ON_GPU}
    alone["traceEvents"] = [
        event
        | {"args": {key: event["args"][key] for key in ("correlation", "stream", "device") if key in event["args"]}}
        for event in alone["traceEvents"]
        if event["cat"] in ON_GPU or (event["cat"] in LAUNCHES and event["args"].get("correlation") in ran)
    ]
    measured |= {
        "script": Path(measured["script"]).name,
        "steps": measured["steps"][place : place + 1],
        "samples": measured["samples"][place : place + 1],
    }
    files = {
        exchange.TRACE: trimmed(opened(folder / exchange.TRACE), measured["steps"][0]),
        exchange.GPU_ONLY: alone,
    }
    return {"measured": measured, "files": files}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--result", action="store_true")
    given = parser.parse_args()
    if given.result:
        result(given.out)
    else:
        record(given.out, given.only, given.limit)
