"""What a call of an op costs the CPU beside torch's own, and how torch.compile takes them.

    PYTHONPATH=src python3 benchmarks/ops_overhead.py OUT [--limit SECONDS] [--on cpu]

OUT/ops_overhead.json: of each op the µs of CPU time of a call and of its backward, in eager and compiled, ours and
torch's in eager, on tensors so small that the GPU is never waited for; graph breaks; compilations over 20 batch sizes
(what is traced is counted, so the backend is the quickest). Eager first, for all ops, then what is compiled.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch._dynamo.testing

import undertorch.ops
from ops_cases import Case, data
from ops_peers import INPUTS, plain

OPS = (
    "rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "swiglu", "geglu", "softmax", "cross_entropy",
    "linear_cross_entropy", "linear_act", "rope",
)  # fmt: skip
CALLS, TURNS = 50, 9
SIZES = range(8, 28)


def case_of(op: str, rows: int) -> Case:
    """A small one."""
    features = 64 if op.startswith("linear") else 16 if op == "rope" else 0
    return Case(op=op, rows=rows, width=80 if op == "rope" else 64, features=features, dtype=torch.float32)


def arguments(op: str, rows: int, device: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What the op is differentiable in, and the rest."""
    made = data(case_of(op, rows), device)
    names = INPUTS.get(op, ("x", "residual", "weight", "bias"))
    given = [made[name].detach().requires_grad_() for name in names if made.get(name) is not None]
    return given, [made[name] for name in ("labels", "cos", "sin") if name in made]


def ours(op: str) -> Callable[..., Any]:
    """The op."""
    found: Callable[..., Any] = getattr(undertorch.ops, op)
    return found


def total(result: Any) -> torch.Tensor:
    """A loss of it."""
    parts = result if isinstance(result, tuple) else (result,)
    return torch.stack([part.sum() for part in parts]).sum()


def microseconds(call: Callable[..., Any], op: str, device: str) -> tuple[float, float]:
    """Of the CPU: a call, and its backward. What the first turn compiles, chooses and allocates is not counted."""
    given, rest = arguments(op, 8, device)
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    forward, backward = [], []
    for turn in range(TURNS + 1):
        wait()
        begin = time.perf_counter()
        results = [call(*given, *rest) for _ in range(CALLS)]
        took = time.perf_counter() - begin
        outs = [result if isinstance(result, tuple) else (result,) for result in results]
        incoming = [torch.ones_like(part) for part in outs[0]]
        wait()
        begin = time.perf_counter()
        for out in outs:
            torch.autograd.grad(out, given, incoming)
        if turn:
            forward.append(took / CALLS)
            backward.append((time.perf_counter() - begin) / CALLS)
    return round(median(forward) * 1e6, 1), round(median(backward) * 1e6, 1)


def compiled(op: str, device: str) -> dict[str, Any]:
    """Graph breaks; compilations over twenty batch sizes, with a backward each; a call's µs in compiled code."""
    torch._dynamo.reset()
    given, rest = arguments(op, 8, device)
    breaks = torch._dynamo.explain(lambda *a: total(ours(op)(*a)))(*given, *rest).graph_break_count
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    call = torch.compile(lambda *a: total(ours(op)(*a)), fullgraph=True, backend=counter)
    for rows in SIZES:
        given, rest = arguments(op, rows, device)
        torch.autograd.grad(call(*given, *rest), given)
    torch._dynamo.reset()
    forward, backward = microseconds(torch.compile(ours(op), fullgraph=True, dynamic=False), op, device)
    return {
        "graph_breaks": breaks,
        "compilations": counter.frame_count,
        "compiled_forward_us": forward,
        "compiled_backward_us": backward,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds: nothing is begun after that")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ["UNDERTORCH_OPS"] = "own"
    began = time.monotonic()
    rows: dict[str, dict[str, Any]] = {}
    for what in ("eager", "compiled"):
        for op in OPS:
            if time.monotonic() - began > asked.limit:
                continue
            row = rows.setdefault(op, {"op": op})
            try:
                if what == "eager":
                    row["forward_us"], row["backward_us"] = microseconds(ours(op), op, asked.on)
                    torchs = plain(case_of(op, 8))
                    row["torch_forward_us"], row["torch_backward_us"] = microseconds(torchs, op, asked.on)
                else:
                    row |= compiled(op, asked.on)
            except Exception as error:  # said, and the others go on
                row["failed"] = repr(error)[:300]
            print(row, flush=True)
            (asked.out / "ops_overhead.json").write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    # Not by returning: torch.compile's workers keep a process for tens of seconds.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
