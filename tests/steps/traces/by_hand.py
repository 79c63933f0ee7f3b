"""Traces written down in a test, and traces that others recorded, as the events that stand in them."""

import gzip
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden"
OTHERS = GOLDEN / "traces"

PROCESS, FORWARD, BACKWARD = 100, 100, 101
"""A process and its two threads."""


def events(name: str) -> list[dict[str, Any]]:
    """All events of a recorded trace, read as plain JSON."""
    return json.loads(gzip.decompress(path(name).read_bytes()))["traceEvents"]


def path(name: str) -> Path:
    return (GOLDEN if name == "h200_gpt2_train" else OTHERS) / f"{name}.json.gz"


def of(found: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [event for event in found if event.get("cat") in categories]


def on_gpu(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return of(found, "kernel", "gpu_memcpy", "gpu_memset")


class Script:
    """Writes a trace event by event. Everything runs on one stream; times are microseconds."""

    def __init__(self, gpu: str = "NVIDIA H200") -> None:
        self.events: list[dict[str, Any]] = []
        self.gpu = gpu
        self.correlation = 0

    def range(self, name: str, ts: float, dur: float, cat: str = "user_annotation", tid: int = FORWARD, **args: Any):
        event = {"ph": "X", "cat": cat, "name": name, "pid": PROCESS, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)
        return event

    def call(self, name: str, ts: float, dur: float, tid: int = FORWARD, **args: Any):
        return self.range(name, ts, dur, "cpu_op", tid, **{"External id": len(self.events), **args})

    def kernel(
        self, name: str, launched: float, starts: float, lasts: float, tid: int = FORWARD, device: int = 0, **args: Any
    ):
        """Its launch, 2 µs on the CPU, and the kernel."""
        self.correlation += 1
        self.range("cudaLaunchKernel", launched, 2, "cuda_runtime", tid, correlation=self.correlation)
        described = {"grid": [132, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
        self.events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": device,
                "tid": 7,
                "ts": starts,
                "dur": lasts,
                "args": {"device": device, "stream": 7, "correlation": self.correlation, **described, **args},
            }
        )

    def content(self) -> dict[str, Any]:
        return {"deviceProperties": [{"id": 0, "name": self.gpu}], "traceEvents": self.events}

    def write(self, folder: Path) -> Path:
        file = folder / "trace.json"
        file.write_text(json.dumps(self.content()))
        return file
