"""Asks a real GPU which ATen ops a training step makes, what memory it needs, and which attention kernels torch takes.

    python benchmarks/golden_steps.py OUT.json.gz          (needs CUDA; a minute on an H200)

Each script of tests/steps/record/scripts runs unchanged in a process of its own; its second step runs under torch's
profiler, without any dispatch mode. Written down is each op that launched something, by the name under which a dispatch
mode would meet it: the outermost one that is not composed of others before it reaches the device. cuBLAS gets no
workspace, so that the allocator holds the script's tensors alone.
"""

import bisect
import contextlib
import gzip
import itertools
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

from golden_ops import machine

SCRIPTS = Path(__file__).parent.parent / "tests/steps/record/scripts"
RUNS = (
    ("gpt2.py",),
    ("accumulate.py",),
    ("checkpointed.py",),
    ("checkpointed.py", "reentrant"),
    ("formulas.py",),
    ("scaler.py",),
    ("memory.py",),
    ("adversaries.py",),
)
WITHOUT_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"}


class SecondStep(BaseException):
    """The step is over, and with it the script."""


class Watch:
    """Profiles what lies between the first optimizer's first and second step, as the recorder cuts it."""

    def __init__(self) -> None:
        self.profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True)
        self.optimizer: object = None
        self.memory: dict[str, int] = {}

    def __call__(self, optimizer: object, *_: object) -> None:
        torch.cuda.synchronize()
        if self.optimizer is None:
            self.optimizer = optimizer
            self.memory["start_bytes"] = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.profiler.__enter__()
        elif optimizer is self.optimizer:
            self.profiler.__exit__(None, None, None)
            self.memory["peak_bytes"] = torch.cuda.max_memory_allocated()
            raise SecondStep


def composed(name: str) -> bool:
    """Whether an op is taken apart before it reaches a device.

    A trace tells no overload: the plain one stands for all where there is one. Forms that write into `out` do not
    count, nor do those that TorchScript made for itself.
    """
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    overloads = [] if packet is None else [o for o in packet.overloads() if not o.endswith("out") and "prim" not in o]
    names = [name] if "default" in overloads else [f"{name}.{overload}" for overload in overloads]
    return bool(names) and all(has_kernel(n, "CompositeImplicitAutograd") and not has_kernel(n, "CUDA") for n in names)


def has_kernel(name: str, key: str) -> bool:
    """Whether an op has a kernel for a dispatch key; one that TorchScript made for itself has none."""
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    except RuntimeError:
        return False


def ops_that_launched(events: list[dict]) -> list[list]:
    """Names and input shapes, in the order the ops began."""
    ranges = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op" and event["name"].startswith("aten::"):
            ranges[event["pid"], event["tid"]].append(event)
    for found in ranges.values():
        found.sort(key=lambda event: (event["ts"], -event["dur"]))
    launches = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    ops: dict[int, dict] = {}
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        launch = launches[event["args"]["correlation"]]
        around = ranges[launch["pid"], launch["tid"]]
        last = bisect.bisect_right([op["ts"] for op in around], launch["ts"])
        stack = [op for op in around[:last] if op["ts"] + op["dur"] >= launch["ts"]]
        op = next((op for op in stack if not composed(op["name"])), stack[-1])
        ops[id(op)] = op
    return [[op["name"], op["args"].get("Input Dims")] for op in sorted(ops.values(), key=lambda op: op["ts"])]


def step(script: str, *arguments: str) -> dict:
    """The second step of a script."""
    watch = Watch()
    register_optimizer_step_post_hook(watch)
    sys.argv = [script, *arguments]
    with contextlib.suppress(SecondStep):
        runpy.run_path(str(SCRIPTS / script), run_name="__main__")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        watch.profiler.export_chrome_trace(str(path))
        events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    return {"script": script, "arguments": arguments, "ops": ops_that_launched(events), "memory": watch.memory}


def attention() -> list[dict]:
    """The kernel torch takes for an attention: 0 math, 1 flash, 2 efficient, 3 cuDNN, -1 none may serve."""
    answers = []
    dtypes = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    heads = ((64, 64), (20, 20), (128, 128), (136, 136), (192, 128), (256, 256), (264, 264), (64, 96))
    shapes = ((4, 4, 128, 128), (8, 2, 128, 128), (4, 4, 128, 64), (4, 4, 1, 128), (4, 4, 128, 1), (4, 4, 100, 100))
    for dtype, (head, value_head), (queries, keys, length, key_length) in itertools.product(dtypes, heads, shapes):
        for mask, causal, dropout in (
            (None, False, 0.0),
            (None, True, 0.0),
            (None, False, 0.1),
            (None, False, 0.125),
            ("bool", False, 0.0),
            ("full", False, 0.0),
        ):
            q = torch.empty(2, queries, length, head, device="cuda", dtype=dtype, requires_grad=True)
            k = torch.empty(2, keys, key_length, head, device="cuda", dtype=dtype, requires_grad=True)
            v = torch.empty(2, keys, key_length, value_head, device="cuda", dtype=dtype, requires_grad=True)
            given = {
                None: None,
                "bool": torch.ones(length, key_length, device="cuda", dtype=torch.bool),
                "full": torch.zeros(2, queries, length, key_length, device="cuda", dtype=dtype),
            }[mask]
            try:
                choice = torch._fused_sdp_choice(q, k, v, given, dropout, causal, enable_gqa=queries != keys)
            except RuntimeError:
                choice = -1
            answers.append(
                {
                    "dtype": str(dtype).removeprefix("torch."),
                    "query": list(q.shape),
                    "key": list(k.shape),
                    "value": list(v.shape),
                    "mask": mask,
                    "causal": causal,
                    "dropout": dropout,
                    "grouped": queries != keys,
                    "choice": choice,
                }
            )
    return answers


def own_kernels_of_composed_ops() -> list[str]:
    """Ops that CUDA serves by a kernel of its own and other devices take apart."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        own_and_composed = all(has_kernel(name, key) for key in ("CUDA", "CompositeImplicitAutograd"))
        if name.startswith("aten::") and own_and_composed:
            found.append(name)
    return found


def main(out: str) -> None:
    """Runs each script in a process of its own and writes everything down."""
    steps = []
    for run in RUNS:
        done = subprocess.run(
            [sys.executable, __file__, "--step", *run],
            env=os.environ | WITHOUT_WORKSPACE,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        steps.append(json.loads(done.stdout.splitlines()[-1]))
        print(run, len(steps[-1]["ops"]), steps[-1]["memory"], flush=True)
    answers = {
        "machine": machine(),
        "steps": steps,
        "attention": attention(),
        "own_kernels_of_composed_ops": own_kernels_of_composed_ops(),
    }
    with gzip.open(out, "wt") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    if sys.argv[1] == "--step":
        print(json.dumps(step(*sys.argv[2:])))
    else:
        main(sys.argv[1])
