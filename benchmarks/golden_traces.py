"""Cuts down traces that others recorded, for tests/golden/traces: what `see` has no use for is left out.

    python benchmarks/golden_traces.py FOLDER_OF_TRACES tests/golden/traces

Events stay as they are, but for fields that say nothing of the GPU's work. Flows, built-in functions, what describes
the machine and the person, and all but three steps of a long trace are left out. tests/golden/traces/README.md names
the sources and their licences.
"""

import gzip
import json
import re
import sys
from pathlib import Path

CATEGORIES = {
    *("kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "cuda_runtime", "cuda_driver"),
    *("user_annotation", "python_function", "cpu_instant_event"),
}
LEFT_OUT = {
    *("Ev Idx", "Record function id", "Python id", "Python parent id", "cbid", "cid", "context", "queued", "kernel"),
    *("memory bandwidth (GB/s)", "Addr", "Total Reserved", "kind", "blocks per SM", "warps per SM"),
}
KEPT = ("schemaVersion", "deviceProperties", "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version")
KEPT += ("distributedInfo",)
STEPS = 3
TORCHS = re.compile(r"<built-in|torch/(?!nn/modules/module.py|utils/checkpoint.py)")
"""Python functions that no test needs."""


def main(source: Path, target: Path) -> None:
    for path in sorted(source.glob("*.json.gz")):
        whole = json.loads(gzip.decompress(path.read_bytes()))
        events = [smaller(event) for event in whole["traceEvents"] if wanted(event)]
        content = {key: whole[key] for key in KEPT if key in whole} | {"traceEvents": first_steps(events)}
        packed = gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)
        (target / path.name).write_bytes(packed)
        print(path.name, len(packed), len(whole["traceEvents"]), len(content["traceEvents"]))


def wanted(event: dict) -> bool:
    if event.get("cat") not in CATEGORIES:
        return False
    return not (event["cat"] == "python_function" and TORCHS.match(event["name"]))


def smaller(event: dict) -> dict:
    args = {key: value for key, value in event.get("args", {}).items() if key not in LEFT_OUT}
    return {key: value for key, value in event.items() if key != "args"} | ({"args": args} if args else {})


def first_steps(events: list[dict]) -> list[dict]:
    """All up to the end of the third step, by the CPU's clock; of the GPU, what was launched by then."""
    steps = sorted((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    if len(steps) <= STEPS:
        return events
    end = steps[STEPS - 1]["ts"] + steps[STEPS - 1]["dur"]
    on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
    on_cpu = [e for e in events if e["cat"] not in on_gpu and e["ts"] < end]
    launched = {e["args"].get("correlation") for e in on_cpu if e["cat"].startswith("cuda_")}
    return on_cpu + [e for e in events if e["cat"] in on_gpu and e["args"].get("correlation") in launched]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
