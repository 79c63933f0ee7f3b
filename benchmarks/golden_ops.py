"""Asks a real GPU which kernels single ATen ops launch: name, grid, block, registers, shared memory, microseconds.

    python benchmarks/golden_ops.py OUT.json.gz          (needs CUDA; half a minute on an H200)

Each case runs once under a dispatch mode that writes down its Ops, and then, clean, `REPEATS` times under torch's
profiler; between repeats a buffer larger than L2 is written, so that times are of data from global memory.
"""

import datetime
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from golden_op_cases import FAMILIES, Case
from undertorch.records import Argument, Op, Phase, TensorRef

REPEATS = 4
FLUSH_BYTES = 256 << 20
BATCH = 12
BATCH_BYTES = 60 << 30
"""A batch ends when its cases hold this much."""
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


class Calls(TorchDispatchMode):
    """Writes down each ATen call as an Op."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.storages: dict[int, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = dict(zip((a.name for a in function._schema.arguments), args, strict=False)) | kwargs
        arguments = tuple(
            Argument(name=a.name, value=self.value(given.get(a.name, a.default_value)))
            for a in function._schema.arguments
        )
        result = function(*args, **kwargs)
        flat = result if isinstance(result, (tuple, list)) else (result,)
        outputs = tuple(self.value(v) if isinstance(v, torch.Tensor) else None for v in flat)
        name, _, overload = function._name.partition(".")
        self.ops.append(
            Op(
                id=len(self.ops),
                name=name,
                overload=overload or "default",
                where=None,
                phase=Phase.OTHER,
                arguments=arguments,
                outputs=outputs,
            )
        )
        return result

    def value(self, value: object) -> object:
        if isinstance(value, torch.Tensor):
            storage = self.storages.setdefault(value.untyped_storage().data_ptr(), len(self.storages))
            return TensorRef(
                shape=tuple(value.shape),
                strides=tuple(value.stride()),
                dtype=str(value.dtype).removeprefix("torch."),
                device=str(value.device),
                storage=storage,
                offset=value.storage_offset(),
                version=value._version,
            )
        if isinstance(value, (tuple, list)):
            return tuple(self.value(v) for v in value)
        if isinstance(value, float) and not abs(value) < float("inf"):
            return str(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return str(value).removeprefix("torch.")


def run_batch(cases: list[Case]) -> dict[str, list[list[dict]]]:
    """Kernels of each case and repeat, in order of their start."""
    flush = torch.empty(FLUSH_BYTES // 4, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for number, case in enumerate(cases):
            for repeat in range(REPEATS):
                flush.fill_(repeat)
                torch.cuda.synchronize()
                with record_function(f"case:{number}:{repeat}"):
                    case.call()
                torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = [e for e in json.loads(Path(file.name).read_text())["traceEvents"] if e.get("ph") == "X"]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    ranges = sorted(
        (e["ts"], e["ts"] + e["dur"], e["name"])
        for e in events
        if e["name"].startswith("case:") and e.get("cat") == "user_annotation"
    )
    found: dict[str, list[list[dict]]] = {case.name: [[] for _ in range(REPEATS)] for case in cases}
    for event in sorted((e for e in events if e.get("cat") in GPU_WORK), key=lambda e: e["ts"]):
        launch = launches.get(event["args"].get("correlation"))
        inside = [name for begin, end, name in ranges if launch and begin <= launch["ts"] <= end]
        if inside:
            _, number, repeat = inside[0].split(":")
            found[cases[int(number)].name][int(repeat)].append(event)
    return found


def golden(case: Case, ops: list[Op], repeats: list[list[dict]]) -> dict:
    counts = {len(r) for r in repeats}
    last = repeats[-1]
    kernels = [
        {
            "name": event["name"][:400],
            "category": event["cat"],
            "grid": event["args"].get("grid"),
            "block": event["args"].get("block"),
            "registers": event["args"].get("registers per thread"),
            "shared": event["args"].get("shared memory"),
            "bytes": event["args"].get("bytes"),
            "us": round(statistics.median(r[i]["dur"] for r in repeats if len(r) == len(last)), 3),
        }
        for i, event in enumerate(last)
    ]
    return {"name": case.name, "ops": msgspec.to_builtins(ops), "kernels": kernels, "steady": len(counts) == 1}


@dataclass
class Answers:
    """What has come back so far."""

    cases: list[dict] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def made(family: Callable[[], Iterator[Case]], answers: Answers) -> Iterator[Case]:
    """The cases of a family; one that cannot be made ends it, and is written down."""
    iterator = family()
    while True:
        try:
            case = next(iterator, None)
        except RuntimeError as error:
            answers.failed[f"{family.__name__}: making a case"] = str(error)[:200]
            return
        if case is None:
            return
        yield case


def ask(family: Callable[[], Iterator[Case]], answers: Answers) -> None:
    """Runs a family, some cases at a time, since each case holds its tensors."""
    batch: list[tuple[Case, list[Op]]] = []

    def finish() -> None:
        found = run_batch([case for case, _ in batch])
        for case, ops in batch:
            answers.cases.append(golden(case, ops, found[case.name]) | {"family": family.__name__})
        batch.clear()
        torch.cuda.empty_cache()

    for case in made(family, answers):
        try:
            with Calls() as calls:
                case.call()
            torch.cuda.synchronize()
        except (RuntimeError, TypeError, AttributeError) as error:
            answers.failed[case.name] = str(error)[:200]
            continue
        batch.append((case, calls.ops))
        if len(batch) == BATCH or torch.cuda.memory_allocated() > BATCH_BYTES:
            finish()
    if batch:
        finish()
    print(family.__name__, len(answers.cases), "cases", flush=True)


def main(out: str) -> None:
    torch.manual_seed(0)
    answers = Answers()
    with torch.no_grad():
        for family in FAMILIES:
            ask(family, answers)
    with gzip.open(out, "wt") as file:
        json.dump(
            {"machine": machine(), "repeats": REPEATS, "cases": answers.cases, "failed": answers.failed},
            file,
            separators=(",", ":"),
        )
    print(len(answers.cases), "cases,", len(answers.failed), "failed:", answers.failed)


def machine() -> dict[str, object]:
    """What the answers hold for."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "driver": driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "total_memory": properties.total_memory,
    }


def driver() -> str | None:
    """Of the first GPU, as nvidia-smi says."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


if __name__ == "__main__":
    main(sys.argv[1])
