"""The cases that benchmarks/ops.py times: ops at shapes, what they are called on, and the least that they move."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

BF16, FP32 = torch.bfloat16, torch.float32

NORMS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")
GATED = ("swiglu", "geglu")
MANY_TENSORS = ("adamw", "grad_norm")
LINEAR = ("linear_cross_entropy", "linear_act")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One op at one shape. Of `adamw` and `grad_norm`, rows are tensors and width their elements altogether."""

    op: str
    rows: int
    width: int
    features: int = 0
    """What a linear layer reads of a row; what a head has of one."""
    batch: int = 1
    """Of attention and rope, whose rows are the tokens of a sample, all its heads side by side."""
    variant: str = ""
    dtype: torch.dtype = BF16

    @property
    def label(self) -> str:
        """The op, with what tells it apart from others of the same size."""
        return f"{self.op}, {self.variant}" if self.variant else self.op

    def __str__(self) -> str:
        inner = f"{self.features}x" if self.features else ""
        return f"{self.label} {self.rows}x{inner}{self.width} {str(self.dtype).removeprefix('torch.')}"


CASES = (
    # The shapes that the aims are about, the most important first.
    Case(op="cross_entropy", rows=32768, width=50304),
    Case(op="rms_norm", rows=16384, width=8192),
    Case(op="adamw", rows=148, width=403_000_000, dtype=FP32),
    Case(op="rms_norm", rows=16384, width=4096),
    Case(op="layer_norm", rows=16384, width=8192),
    Case(op="add_rms_norm", rows=16384, width=8192),
    Case(op="cross_entropy", rows=8192, width=128256),
    Case(op="linear_cross_entropy", rows=16384, features=4096, width=128256),
    Case(op="swiglu", rows=16384, width=14336),
    Case(op="linear_cross_entropy", rows=32768, features=768, width=50304),
    Case(op="add_layer_norm", rows=16384, width=8192),
    Case(op="layer_norm", rows=32768, width=768),
    Case(op="grad_norm", rows=148, width=403_000_000, dtype=FP32),
    Case(op="add_rms_norm", rows=16384, width=4096),
    Case(op="layer_norm", rows=16384, width=4096),
    Case(op="geglu", rows=32768, width=3072),
    Case(op="softmax", rows=4096, width=32768),
    Case(op="rope", batch=4, rows=4096, width=(32 + 8) * 128, features=128, variant="4 samples"),
    Case(op="linear_act", rows=32768, features=768, width=3072),
    Case(op="attention", batch=4, rows=4096, width=4096, features=128, variant="4 samples"),
    Case(op="attention", batch=8, rows=1024, width=1024, features=64, variant="8 samples"),
    Case(op="linear_act", rows=16384, features=4096, width=14336),
    Case(op="attention", batch=4, rows=4096, width=4096, features=128, variant="4 samples, softcap 30"),
    Case(op="attention", batch=4, rows=4096, width=4096, features=128, variant="4 samples, window 1024"),
    # The sweep.
    Case(op="softmax", rows=65536, width=1024),
    Case(op="softmax", rows=2048, width=131072),
    Case(op="rms_norm", rows=65536, width=2048),
    Case(op="rms_norm", rows=65536, width=1024),
    Case(op="rms_norm", rows=65536, width=128),
    Case(op="rms_norm", rows=2048, width=4096),
    Case(op="rms_norm", rows=256, width=4096),
    Case(op="rms_norm", rows=8192, width=5120),
    Case(op="rms_norm", rows=8192, width=16384),
    Case(op="rms_norm", rows=8192, width=32768),
    Case(op="rms_norm", rows=16384, width=4096, dtype=FP32),
    Case(op="layer_norm", rows=32768, width=1600),
    Case(op="layer_norm", rows=4096, width=768),
    Case(op="layer_norm", rows=32768, width=768, dtype=FP32),
    Case(op="layer_norm", rows=8192, width=12288),
    Case(op="add_rms_norm", rows=2048, width=4096),
    Case(op="add_layer_norm", rows=32768, width=768),
    Case(op="cross_entropy", rows=8192, width=50257),
    Case(op="cross_entropy", rows=8192, width=32000),
    Case(op="cross_entropy", rows=16384, width=32000, dtype=FP32),
    Case(op="cross_entropy", rows=4096, width=151936),
    Case(op="cross_entropy", rows=512, width=128256),
    Case(op="cross_entropy", rows=65536, width=1024),
    Case(op="swiglu", rows=4096, width=11008),
    Case(op="adamw", rows=148, width=124_000_000, dtype=FP32),
    Case(op="adamw", rows=148, width=124_000_000),
    Case(op="adamw", rows=600, width=30_000_000, dtype=FP32),
)
"""At most 60: what is compiled for them has to be ready within the run."""

Data = dict[str, Any]
"""What one call of a case takes, by name."""


def norm_data(case: Case, rows: int, device: str) -> Data:
    """Rows, their incoming gradients, weights."""
    generator = torch.Generator(device).manual_seed(rows + case.width)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=case.dtype, generator=generator)

    adds = case.op.startswith("add")
    return {
        "x": normal(rows, case.width),
        "residual": normal(rows, case.width) if adds else None,
        "weight": normal(case.width),
        "bias": normal(case.width) if "layer" in case.op else None,
        "incoming": [normal(rows, case.width) for _ in range(1 + adds)],
    }


def entropy_data(case: Case, rows: int, device: str) -> Data:
    """Logits and labels."""
    return {
        "logits": torch.randn(rows, case.width, device=device, dtype=case.dtype),
        "labels": torch.randint(0, case.width, (rows,), device=device),
        "one": torch.ones((), device=device),
        "other": torch.full((), 0.5, device=device),
    }


def linear_data(case: Case, rows: int, device: str) -> Data:
    """Rows before the last layer, its weight, labels."""
    return {
        "x": torch.randn(rows, case.features, device=device, dtype=case.dtype),
        "weight": torch.randn(case.width, case.features, device=device, dtype=case.dtype) * case.features**-0.5,
        "labels": torch.randint(0, case.width, (rows,), device=device),
        "one": torch.ones((), device=device),
    }


def gated_data(case: Case, rows: int, device: str) -> Data:
    """Gate, up and the incoming gradient."""
    gate, up, dy = (torch.randn(rows, case.width, device=device, dtype=case.dtype) for _ in range(3))
    return {"x": gate, "residual": up, "incoming": [dy]}


def softmax_data(case: Case, rows: int, device: str) -> Data:
    """Rows and their incoming gradients."""
    x, dy = (torch.randn(rows, case.width, device=device).to(case.dtype) for _ in range(2))
    return {"x": x, "incoming": [dy]}


def heads_data(case: Case, rows: int, device: str) -> Data:
    """Queries and keys of (batch, heads, tokens, features) as projections leave them: heads beside each other.

    Of rope a fifth of the heads are keys'; attention has as many of each, and values.
    """

    def normal(heads: int) -> torch.Tensor:
        made = torch.randn(case.batch, rows, heads, case.features, device=device).to(case.dtype)
        return made.transpose(1, 2)

    heads = case.width // case.features
    if case.op == "attention":
        q, k, v, dy = (normal(heads) for _ in range(4))
        return {"q": q, "k": k, "v": v, "incoming": [dy]}
    angles = torch.rand(rows, case.features // 2, device=device) * 6.28
    q, dq = (normal(heads * 4 // 5) for _ in range(2))
    k, dk = (normal(heads // 5) for _ in range(2))
    cos, sin = (f(angles).to(case.dtype) for f in (torch.cos, torch.sin))
    return {"q": q, "k": k, "cos": cos, "sin": sin, "incoming": [dq, dk]}


def layer_data(case: Case, rows: int, device: str) -> Data:
    """Rows, a layer's weight and bias, and the incoming gradient."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(case.dtype)

    weight = normal(case.width, case.features) * case.features**-0.5
    return {
        "x": normal(rows, case.features),
        "weight": weight,
        "bias": normal(case.width),
        "incoming": [normal(rows, case.width)],
    }


def optimizer_data(case: Case, total: int, device: str) -> Data:
    """Sizes as of a transformer: a big one, and many in turn large and small."""
    tensors = case.rows
    small = 1024
    large = max((total * 9 // 10 - tensors // 2 * small) // (tensors - tensors // 2), 16)
    sizes = [total - large * (tensors - tensors // 2 - 1) - small * (tensors // 2)]
    sizes += [large if place % 2 else small for place in range(1, tensors)]
    sizes = [max(size, 16) for size in sizes]

    def each(dtype: torch.dtype) -> list[torch.Tensor]:
        return [torch.randn(size, device=device).mul_(0.02).to(dtype) for size in sizes]

    only_gradients = case.op == "grad_norm"
    return {"g": each(case.dtype)} | (
        {}
        if only_gradients
        else {
            "p": each(case.dtype),
            "m": each(FP32),
            "v": [tensor.square() for tensor in each(FP32)],
            "steps": [torch.zeros((), device=device) for _ in sizes],
            "masters": each(FP32) if case.dtype != FP32 else None,
            "norm": torch.full((), 2.0, device=device),
        }
    )


MAKERS: dict[str, Callable[[Case, int, str], Data]] = {
    **dict.fromkeys(NORMS, norm_data),
    **dict.fromkeys(GATED, gated_data),
    **dict.fromkeys(MANY_TENSORS, optimizer_data),
    "cross_entropy": entropy_data,
    "linear_cross_entropy": linear_data,
    "softmax": softmax_data,
    "rope": heads_data,
    "attention": heads_data,
    "linear_act": layer_data,
}


def data(case: Case, device: str, size: int | None = None) -> Data:
    """What a call takes: at the case's size, or with so many rows (elements, of many tensors)."""
    whole = case.width if case.op in MANY_TENSORS else case.rows
    return MAKERS[case.op](case, whole if size is None else min(size, whole), device)


def least_bytes(case: Case) -> dict[str, int]:
    """Of a pass: each input once and each output once. A loss whose gradient comes with it writes that once."""
    elements, size = case.batch * case.rows * case.width, case.dtype.itemsize
    if case.op in NORMS:
        ahead, back = (4, 4) if case.op.startswith("add") else (2, 3)
    elif case.op in GATED:
        ahead, back = 3, 5
    elif case.op in ("softmax", "rope"):
        ahead, back = 2, 3 if case.op == "softmax" else 2
    elif case.op == "attention":  # q, k, v in, y out; those four and dy in, three out
        ahead, back = 4, 8
    elif case.op == "linear_act":
        moved = (case.rows * (case.features + case.width) + case.features * case.width) * size
        return {"forward": moved, "backward": 2 * moved, "both": 3 * moved}
    elif case.op == "cross_entropy":
        return {"forward": elements * size, "both": 2 * elements * size, "both, gradient not 1": 3 * elements * size}
    elif case.op == "linear_cross_entropy":
        moved = (case.rows + case.width) * case.features * size
        return {"forward": moved, "both": 2 * moved}
    elif case.op == "adamw":  # p, g, m, v read; p, m, v written; the norm reads g once more; masters beside halves
        update = case.width * (28 if size == 4 else 4 * 6 + 2 * size)
        return {"update": update, "step": update + case.width * size}
    else:
        return {"norm": case.width * size}
    return {
        "forward": ahead * elements * size,
        "backward": back * elements * size,
        "both": (ahead + back) * elements * size,
    }


def arithmetic(case: Case) -> dict[str, int]:
    """FLOPs of a pass of what is bound by its matmuls: 2 a multiply-add.

    A linear layer has two products of the same size in its backward; attention, of which half is seen, two and five.
    """
    if case.op == "attention":
        pairs = case.rows * case.rows // 2
        if "window" in case.variant:
            wide = int(case.variant.rsplit(" ", 1)[1])
            pairs = wide * case.rows - wide * wide // 2
        product = 2 * case.batch * pairs * case.width
        return {"forward": 2 * product, "backward": 5 * product, "both": 7 * product}
    if case.op in LINEAR:
        product = 2 * case.rows * case.features * case.width
        return {"forward": product, "backward": 2 * product, "both": 3 * product}
    return {}
