"""What each fused op saves, in bytes and in arithmetic: `undertorch see` of both ways, without a GPU.

    python benchmarks/ops_savings.py

Forward and backward of the op, and of the same in plain torch, as an H200 would run them: the bytes that their launches
read and write at least, their FLOPs, their number, and the memory that the step takes at its peak.
"""

import warnings
from typing import Any

import torch
import triton
from torch.nn import functional

from results_file import Aim, write
from undertorch import ops, seeing

MARK = 1_000_003
"""Elements that are filled before and after what is counted, which tells its launches from the others."""


def rand(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """An input that wants a gradient."""
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True)


ROWS = "x, r, w, b = rand(16384, 4096), rand(16384, 4096), rand(4096), rand(4096); dy = torch.ones_like(x)"
LABELS = "labels = torch.zeros({rows}, dtype=torch.long, device='cuda')"
GATES = "g, u = rand(16384, 14336), rand(16384, 14336); dy = torch.ones_like(g)"
WEIGHTS = "ws = [rand(1600, 1600, dtype=torch.float32) for _ in range(48)]; optimizer = {optimizer}"
GRADIENTS = "for w in ws: w.grad = torch.empty_like(w)\n"
CASES: dict[str, tuple[str, str, str]] = {
    "rms_norm 16384 x 4096": (ROWS, "F.rms_norm(x, (4096,), w, 1e-6).backward(dy)", "ops.rms_norm(x, w).backward(dy)"),
    "layer_norm 16384 x 4096": (
        ROWS, "F.layer_norm(x, (4096,), w, b).backward(dy)", "ops.layer_norm(x, w, b).backward(dy)",
    ),
    "add_rms_norm 16384 x 4096": (
        ROWS,
        "t = x + r; torch.autograd.backward([F.rms_norm(t, (4096,), w, 1e-6), t], [dy, dy])",
        "torch.autograd.backward(ops.add_rms_norm(x, r, w), [dy, dy])",
    ),
    "add_layer_norm 16384 x 4096": (
        ROWS,
        "t = x + r; torch.autograd.backward([F.layer_norm(t, (4096,), w, b), t], [dy, dy])",
        "torch.autograd.backward(ops.add_layer_norm(x, r, w, b), [dy, dy])",
    ),
    "swiglu 16384 x 14336": (GATES, "(F.silu(g) * u).backward(dy)", "ops.swiglu(g, u).backward(dy)"),
    "geglu 16384 x 14336": (GATES, "(F.gelu(g) * u).backward(dy)", "ops.geglu(g, u).backward(dy)"),
    "cross_entropy 32768 x 50304": (
        "z = rand(32768, 50304); " + LABELS.format(rows=32768),
        "F.cross_entropy(z, labels).backward()", "ops.cross_entropy(z, labels).backward()",
    ),
    "linear_cross_entropy 32768 x 768 x 50304": (
        "x, w = rand(32768, 768), rand(50304, 768); " + LABELS.format(rows=32768),
        "F.cross_entropy(x @ w.t(), labels).backward()", "ops.linear_cross_entropy(x, w, labels).backward()",
    ),
    "AdamW with clipping, 123 M": (
        WEIGHTS,
        f"{GRADIENTS}torch.nn.utils.clip_grad_norm_(ws, 1.0); optimizer.step()",
        f"{GRADIENTS}optimizer.step()",
    ),
    "softmax 4096 x 32768": (
        "x = rand(4096, 32768); dy = torch.ones_like(x)",
        "torch.softmax(x, -1).backward(dy)", "ops.softmax(x).backward(dy)",
    ),
    "rope 4 x 4096 x (32 + 8) x 128": (
        "q, k = rand(4, 32, 4096, 128), rand(4, 8, 4096, 128); c, s = (torch.ones(4096, 64, device='cuda',"
        " dtype=torch.bfloat16) for _ in range(2)); cs, sn = torch.cat([c, c], -1), torch.cat([s, s], -1);"
        " turned = lambda x: x * cs + torch.cat([-x[..., 64:], x[..., :64]], -1) * sn;"
        " dy = [torch.ones_like(q), torch.ones_like(k)]",
        "torch.autograd.backward([turned(q), turned(k)], dy)", "torch.autograd.backward(ops.rope(q, k, c, s), dy)",
    ),
    "linear_act 32768 x 768 to 3072": (
        "x, w, b = rand(32768, 768), rand(3072, 768), rand(3072); dy = torch.ones(32768, 3072, device='cuda',"
        " dtype=torch.bfloat16)",
        "F.gelu(F.linear(x, w, b)).backward(dy)", "ops.linear_act(x, w, b).backward(dy)",
    ),
    "attention 4 x 32 x 1024 x 128, softcap": (
        "q, k, v = (rand(4, 32, 1024, 128) for _ in range(3)); dy = torch.ones_like(q);"
        " seen = torch.ones(1024, 1024, device='cuda', dtype=torch.bool).tril()",
        "(torch.softmax((30.0 * torch.tanh(q @ k.mT * 128**-0.5 / 30.0)).masked_fill(~seen, -torch.inf), -1)"
        " @ v).backward(dy)",
        "ops.attention(q, k, v, causal=True, softcap=30.0).backward(dy)",
    ),
}  # fmt: skip
"""What is made, a step of plain torch, and one of ours."""

OPTIMIZERS = ("torch.optim.AdamW(ws, fused=True)", "ops.AdamW(ws, max_norm=1.0)")


def moved(made: str, step: str) -> dict[str, int]:
    """What the launches of a case move and compute, in its second step."""
    names: dict[str, Any] = {"torch": torch, "F": functional, "ops": ops, "rand": rand}
    with warnings.catch_warnings(), seeing("H200") as seen:
        warnings.simplefilter("ignore")
        exec(made, names)
        end = torch.optim.SGD([rand(1)])
        for _ in range(3):
            for tensor in names.values():
                if isinstance(tensor, torch.Tensor):
                    tensor.grad = None
            torch.empty(MARK, device="cuda").fill_(0)
            exec(step, names)
            torch.empty(MARK, device="cuda").fill_(0)
            end.step()
    if seen.step.accounting.ops_without_cost:
        raise SystemExit(f"no cost is known of {seen.step.accounting.ops_without_cost}, in {step}")
    found = {"launches": 0, "bytes": 0, "flops": 0}
    marks = 0
    for launch in seen.step.launches:
        kernel = launch.kernel
        if kernel.min_bytes_written == MARK * 4:
            marks += 1
        elif marks == 1 or "optimizer" in step:
            found["launches"] += 1
            found["bytes"] += kernel.min_bytes or 0
            found["flops"] += kernel.flops or 0
    return found


def main() -> None:
    rows: list[dict[str, Any]] = []
    for name, (made, *steps) in CASES.items():
        row: dict[str, Any] = {"op": name}
        for who, step, optimizer in zip(("torch", "undertorch"), steps, OPTIMIZERS, strict=True):
            row |= {f"{what} {who}": value for what, value in moved(made.format(optimizer=optimizer), step).items()}
        rows.append(row)
        print(row)
    less = [row for row in rows if row["bytes undertorch"] < row["bytes torch"]]
    aim = Aim(
        what="ops that move fewer bytes than plain torch",
        aim=f"all {len(rows)}",
        got=f"{len(less)}",
        holds=len(less) == len(rows),
    )
    write("ops_savings", rows, [aim], {"torch": torch.__version__, "triton": triton.__version__})


if __name__ == "__main__":
    main()
