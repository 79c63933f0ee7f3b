"""Makes goldens of measurements that `golden_models.py --quick` and `golden_train.py` left: of each one step, in one
small file.

    python benchmarks/measured_goldens.py OUT tests/golden/measured          (no GPU)

Left out of a trace: all but the step that is shown and the last thing that the GPU did before it; of each event what
undertorch does not read; captures of CUDA graphs that the step does not replay; and where the script lay. Nothing is
changed.
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

NAMES = ("gpt2", "gpt2-compile", "gpt2-graphs", "gpt2-captured", "train")
BARREN = frozenset(
    {
        "kernel_file",
        "kernel_hash",
        "Record function id",
        "Ev Idx",
        "queued",
        "context",
        "blocks per SM",
        "warps per SM",
        "cbid",
    }
)
"""Arguments of events that nobody reads."""
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
STEP = "ProfilerStep#"


def main(out: Path, goldens: Path) -> None:
    """Writes a golden of each measurement that is there."""
    goldens.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        folder = out / name
        if not folder.exists():
            continue
        measured = json.loads((folder / "measured.json").read_text())
        shown = shown_step(folder)
        trace = trimmed(opened(folder / "trace.json.gz"), shown)
        keys = {event["name"].split()[3] for event in trace["traceEvents"] if "CompiledFxGraph" in event["name"]}
        place = measured["steps"].index(shown)
        measured |= {
            "script": Path(measured["script"]).name,
            "arguments": [],
            "steps": [shown],
            "samples": [measured["samples"][place]],
            "compiled": {key: calls for key, calls in measured["compiled"].items() if key in keys},
        }
        replayed = replays(trace, measured["marks"])
        captures = {path.name: small(opened(path)) for path in sorted(folder.glob("capture_*.json.gz"))
                    if path.name in replayed}  # fmt: skip
        content = {"measured": measured, "files": {"trace.json.gz": trace, **captures}}
        data = gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)
        (goldens / f"{name}.json.gz").write_bytes(data)
        print(f"{name}: {len(data):,} bytes")


def replays(trace: dict[str, Any], marks: list[dict[str, Any]]) -> set[str]:
    """Names of the captures of the CUDA graphs that are replayed in a trace."""
    from undertorch.steps.measure.exchange import capture_name
    from undertorch.steps.measure.naming import mark_number

    numbers = {mark_number(event["name"]) for event in trace["traceEvents"]}
    said = [marks[number]["what"].split() for number in numbers if number is not None]
    return {capture_name(int(words[1])) for words in said if words[0] == "replay" and len(words) > 1}


def shown_step(folder: Path) -> int:
    """The step of median length among those that were profiled."""
    from undertorch.steps.measure import exchange
    from undertorch.steps.measure.reading import read_measured

    measured = exchange.read(folder)
    assert measured is not None
    return read_measured(folder, measured)[0].environment.step


def opened(path: Path) -> dict[str, Any]:
    """A trace as it was written."""
    return json.loads(gzip.decompress(path.read_bytes()))


def trimmed(trace: dict[str, Any], shown: int) -> dict[str, Any]:
    """One step, and of the one before it the range, and what ran last."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    ranges = {e["name"]: e for e in events if e["cat"] == "user_annotation" and e["name"].startswith(STEP)}
    step, before = ranges[f"{STEP}{shown}"], ranges[f"{STEP}{shown - 1}"]
    kept = [e for e in events if e["cat"] not in ON_GPU and step["ts"] <= e["ts"] <= step["ts"] + step["dur"]]
    earlier = {
        e["args"].get("correlation"): e for e in events if e["cat"] in LAUNCHES and before["ts"] <= e["ts"] < step["ts"]
    }
    ran = [e for e in events if e["cat"] in ON_GPU]
    last = max((e for e in ran if e["args"].get("correlation") in earlier), key=lambda e: e["ts"] + e["dur"])
    begun = {e["args"].get("correlation") for e in kept if e["cat"] in LAUNCHES}
    on_gpu = [e for e in ran if e["args"].get("correlation") in begun]
    launch = earlier[last["args"]["correlation"]]
    return small({**trace, "traceEvents": [before, launch, last, *kept, *on_gpu]})


def small(trace: dict[str, Any]) -> dict[str, Any]:
    """Without what is not read."""
    events = []
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and event["cat"] in {"cpu_op", "user_annotation"} | LAUNCHES | ON_GPU:
            args = {key: value for key, value in event.get("args", {}).items() if key not in BARREN}
            events.append({**event, "args": args})
    devices = [{"id": device["id"], "name": device["name"]} for device in trace["deviceProperties"]]
    return {"traceEvents": events, "deviceProperties": devices}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("goldens", type=Path)
    main(**vars(parser.parse_args()))
