"""What the training ops promise, as one table: each row is a call, the exact answer in float64, and torch's own.

A call is right where its error, as ‖ours - exact‖ / ‖exact‖, is at most twice that of torch's own op at the same dtype
(or FLOOR, where torch happens to be exact). That is asked of the result and of every gradient.
Run by test_contract.py, and by benchmarks/ops_contract.py on a GPU.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from math import isnan
from typing import Any
from zlib import crc32

import torch
from torch import Tensor
from torch.nn import functional

import undertorch.ops

FP32, BF16, FP16, FP64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
FLOOR = {dtype: torch.finfo(dtype).eps * (2.0 if dtype is FP32 else 0.5) for dtype in (FP32, BF16, FP16, FP64)}
"""What is always allowed: a rounding of the result, and in float32 some before it: few elements average nothing out."""

NORMS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")
adamw, cross_entropy = (import_module(f"undertorch.ops.{name}") for name in ("adamw", "cross_entropy"))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One promise: what is called, on what."""

    op: str
    name: str
    check: Callable[[str], list[str]] = field(repr=False)
    """(device) -> what is wrong."""
    on_gpu_only: bool = False
    large: bool = False
    """Too large for a GPU in software."""

    def __str__(self) -> str:
        return f"{self.op}: {self.name}"


# Layouts

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t.contiguous(),
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "sliced": lambda t: torch.cat([t, t, t], -1)[..., t.shape[-1] : 2 * t.shape[-1]],
    "every other row": lambda t: torch.stack([t, t], 1).flatten(0, 1)[::2],
    "every other element": lambda t: torch.stack([t, t], -1).flatten(-2)[..., ::2],
    "offset by one": lambda t: torch.cat([t.flatten(), t.flatten()[:1]])[1:].roll(1).view(t.shape),
    "one row, expanded": lambda t: t[:1].expand(t.shape),
    "one element, expanded": lambda t: t.flatten()[0].expand(t.shape),
    "zero columns stride": lambda t: t[..., :1].expand(t.shape),
}


def offset(tensor: Tensor) -> Tensor:
    """The same values, beginning one element after a multiple of 16 bytes."""
    buffer = tensor.new_empty(tensor.numel() + 1)
    buffer[1:] = tensor.flatten()
    return buffer[1:].view(tensor.shape)


LAYOUTS["offset by one"] = offset


def seed_of(*what: object) -> int:
    """The same in every process, which hash() is not."""
    return crc32(repr(what).encode())


def far(ours: Tensor, exact: Tensor) -> float:
    """Relative error; where the answer is all zeros, the absolute one. Not a number where only one is."""
    ours, exact = ours.double(), exact.double()
    same = (ours == exact) | (ours.isnan() & exact.isnan())
    apart = torch.where(same, 0.0, ours - exact)
    size = torch.where(exact.isfinite(), exact, 0.0).norm()
    return float(apart.norm() / size) if size > 0 else float(apart.norm())


def compare(names: list[str], ours: list[Tensor], exact: list[Tensor], torchs: list[Tensor]) -> list[str]:
    """What is further off than twice torch's own error."""
    wrong = []
    for name, mine, right, theirs in zip(names, ours, exact, torchs, strict=True):
        if mine.shape != right.shape:
            wrong.append(f"{name} has shape {tuple(mine.shape)} and not {tuple(right.shape)}")
            continue
        error, allowed = far(mine, right), 2 * far(theirs, right)
        allowed = max(0.0 if isnan(allowed) else allowed, FLOOR[mine.dtype])
        if not error <= allowed:
            wrong.append(f"{name} is off by {error:.1e}, allowed is {allowed:.1e}")
    return wrong


# Norms


def torch_norm(op: str, x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Any:
    """torch's own op; with a residual two of them."""
    total = x if residual is None else x + residual
    shape = total.shape[-1:]
    weight, bias = (None if t is None else t.to(total.dtype) for t in (weight, bias))
    if "layer" in op:
        y = functional.layer_norm(total, shape, weight, bias, 1e-5)
    else:
        y = functional.rms_norm(total, shape, weight, 1e-5)
    return y if residual is None else (y, total)


def ours_norm(op: str, x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Any:
    function = getattr(undertorch.ops, op)
    given = [x] if residual is None else [x, residual]
    return function(*given, weight, bias, eps=1e-5) if "layer" in op else function(*given, weight, eps=1e-5)


def check_norm(
    device: str,
    op: str,
    shape: tuple[int, ...],
    dtype: torch.dtype = FP32,
    weight_dtype: torch.dtype | None = None,
    layout: str = "contiguous",
    gradient_layout: str = "contiguous",
    mean: float = 0.0,
    scale: float = 1.0,
    affine: bool = True,
    frozen: tuple[str, ...] = (),
    gradient_scale: float = 1.0,
) -> list[str]:
    """One norm at one shape, dtype and layout."""
    generator = torch.Generator().manual_seed(seed_of(op, shape))

    def normal(*size: int, to: torch.dtype = dtype) -> Tensor:
        return torch.randn(*size, generator=generator).to(device, to)

    x = LAYOUTS[layout]((normal(*shape, to=FP32) * scale + mean).to(dtype))
    names, tensors = ["x"], [x]
    if op.startswith("add"):
        names, tensors = [*names, "residual"], [*tensors, LAYOUTS[layout](normal(*shape))]
    if affine:
        for name in ("weight", "bias") if "layer" in op else ("weight",):
            names, tensors = [*names, name], [*tensors, normal(shape[-1], to=weight_dtype or dtype)]
    incoming = [LAYOUTS[gradient_layout](normal(*shape) * gradient_scale) for _ in range(1 + op.startswith("add"))]

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        given = {name: (t if to is None else t.to(to)).detach() for name, t in zip(names, tensors, strict=True)}
        wanted = [given[name].requires_grad_() for name in names if name not in frozen]
        out = function(op, given["x"], given.get("residual"), given.get("weight"), given.get("bias"))
        out = out if isinstance(out, tuple) else (out,)
        reached = [(o, g if to is None else g.to(to)) for o, g in zip(out, incoming, strict=True) if o.requires_grad]
        grads = torch.autograd.grad([o for o, _ in reached], wanted, [g for _, g in reached]) if wanted else ()
        return [*(o.detach() for o in out), *grads]

    called = ["y", "total"][: len(incoming)] + [f"gradient of {name}" for name in names if name not in frozen]
    before = [t.clone() for t in tensors]
    ours, exact = run(ours_norm, None), run(torch_norm, FP64)
    wrong = compare(called, ours, exact, run(torch_norm, None))
    if ours[0].dtype != dtype:
        wrong.append(f"y is {ours[0].dtype}")
    if any(not torch.equal(a, b) for a, b in zip(before, tensors, strict=True)):
        wrong.append("an input was written to")
    again = run(ours_norm, None)
    if any(not torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(ours, again, strict=True)):
        wrong.append("a second call gave another result")
    return wrong


def norm_rows() -> Iterator[Row]:
    """Every norm: ranks, widths, dtypes, layouts of input and gradient, hard values, what is frozen."""

    def row(op: str, name: str, large: bool = False, **settings: Any) -> Row:
        return Row(op=op, name=name, large=large, check=lambda device: check_norm(device, op, **settings))

    for op in NORMS:
        for shape in ((5,), (3, 40), (2, 3, 40), (2, 1, 3, 40), (1, 2, 2, 3, 40)):
            yield row(op, f"rank {len(shape)}", shape=shape)
        for shape in ((0, 40), (3, 0, 40)):
            yield row(op, f"zero rows {shape}", shape=shape)
        for width in (1, 2, 3, 7, 8, 33, 64, 127, 128, 257, 768, 1000, 1025, 4096, 4097, 8191):
            yield row(op, f"width {width}", shape=(11, width), dtype=BF16 if width % 3 else FP32)
        for width in (16384, 16385, 32768, 40001, 65536, 131071, 131072):
            for dtype in (FP32, BF16):
                yield row(op, f"width {width} {dtype}", large=True, shape=(5, width), dtype=dtype)
        for dtype, weight_dtype in itertools.product((FP32, BF16, FP16), (FP32, BF16, FP16)):
            yield row(
                op, f"{dtype} with weights of {weight_dtype}", shape=(64, 96), dtype=dtype, weight_dtype=weight_dtype
            )
        for layout in LAYOUTS:
            if layout not in ("one element, expanded", "zero columns stride") or "rms" in op:
                yield row(op, f"input {layout}", shape=(6, 48), layout=layout)
            yield row(op, f"gradient {layout}", shape=(6, 48), gradient_layout=layout, dtype=BF16)
            yield row(op, f"both {layout}, rank 3", shape=(3, 5, 48), layout="transposed", gradient_layout=layout)
        for mean, scale in ((1000.0, 1.0), (-30.0, 0.01), (0.0, 1e-4), (0.0, 1e4)):
            yield row(op, f"mean {mean}, deviation {scale}", shape=(32, 200), mean=mean, scale=scale)
            yield row(
                op, f"mean {mean}, deviation {scale}, bfloat16", shape=(32, 200), mean=mean, scale=scale, dtype=BF16
            )
        # Rows enough for the worst of torch's not to be luck: what is off is half the last place of the mean.
        yield row(op, "a large mean in a wide row", large=True, shape=(64, 40001), mean=1000.0)
        yield row(op, "without weights", shape=(9, 100), affine=False)
        yield row(op, "zero gradient", shape=(9, 100), gradient_scale=0.0)
        yield row(op, "many rows", large=True, shape=(5000, 96), dtype=BF16)
        names = ("x", *(("residual",) if op.startswith("add") else ()), "weight", *(("bias",) if "layer" in op else ()))
        for count in range(1, len(names)):
            for frozen in itertools.combinations(names, count):
                yield row(op, f"{' and '.join(frozen)} frozen", shape=(9, 100), frozen=frozen)


# Cross-entropy


def torch_entropy(
    logits: Tensor, labels: Tensor, weight: Tensor | None, to: torch.dtype | None, **settings: Any
) -> Tensor:
    """torch's own, with z-loss and softcap in plain torch."""
    gradient_free = {name: value for name, value in settings.items() if name != "gradient"}
    if "z_loss" in gradient_free or "softcap" in gradient_free or to is FP64:
        return cross_entropy.reference(logits, labels, weight, **gradient_free)
    classes = None if weight is None else weight.to(logits.dtype)
    rows, flat_labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).long()
    flat = functional.cross_entropy(rows, flat_labels, classes, **gradient_free)
    return flat.reshape(labels.shape) if gradient_free.get("reduction") == "none" else flat


def check_entropy(
    device: str,
    shape: tuple[int, ...],
    dtype: torch.dtype = FP32,
    layout: str = "contiguous",
    scale: float = 1.0,
    mean: float = 0.0,
    confident: float = 0.0,
    minus_infinity: str = "",
    ignored: str = "some",
    labels_dtype: torch.dtype = torch.int64,
    labels_layout: str = "contiguous",
    weighted: bool = False,
    incoming: str = "one",
    **settings: Any,
) -> list[str]:
    """One call: the loss, the logits' gradient, twice, and the logits untouched."""
    generator = torch.Generator().manual_seed(seed_of(shape))
    logits = torch.randn(*shape, generator=generator) * scale + mean
    labels = torch.randint(0, max(min(shape[-1], torch.iinfo(labels_dtype).max), 1), shape[:-1], generator=generator)
    if minus_infinity == "a third":
        logits[..., 1::3] = -float("inf")
        labels = labels - (labels % 3 == 1).long()
    elif minus_infinity == "a block":  # all that a kernel reads at first
        logits[..., :8192] = -float("inf")
        labels = labels.clamp_min(8192)
    elif minus_infinity == "a row":
        logits[1] = -float("inf")
    if confident:
        logits.scatter_add_(-1, labels.unsqueeze(-1), torch.full(labels.shape, confident).unsqueeze(-1))
    index = settings.get("ignore_index", -100)
    if ignored == "all":
        labels.fill_(index)
    elif ignored == "some" and labels.numel() > 2:
        labels.view(-1)[::3] = index
    logits = LAYOUTS[layout](logits.to(device, dtype))
    labels = LAYOUTS[labels_layout](labels.to(device, labels_dtype))
    weight = torch.rand(shape[-1], generator=generator).add(0.1).to(device) if weighted else None
    reduction = settings.get("reduction", "mean")
    given = torch.full((), {"one": 1.0, "three": 3.0, "zero": 0.0}.get(incoming, 1.0), device=device)
    if reduction == "none":
        values = torch.linspace(-1, 2, max(labels.numel(), 1), device=device)[: labels.numel()].view(labels.shape)
        given = {"zero": torch.zeros_like(values), "expanded": given.expand(labels.shape)}.get(incoming, values)

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        z = (logits if to is None else logits.to(to)).detach().requires_grad_()
        w = None if weight is None or to is None else weight.to(to)
        loss = function(z, labels, weight if to is None else w, to, **settings)
        (first,) = torch.autograd.grad(loss, z, given.to(loss.dtype), retain_graph=True)
        first = first.clone()
        (second,) = torch.autograd.grad(loss, z, (given * 0.5).to(loss.dtype))
        return [loss.detach(), first, second]

    def ours(z: Tensor, labels: Tensor, weight: Tensor | None, to: torch.dtype | None, **settings: Any) -> Tensor:
        return cross_entropy.cross_entropy(z, labels, weight, **settings)

    before = logits.clone()
    mine, exact = run(ours, None), run(torch_entropy, FP64)
    wrong = compare(["loss", "gradient", "second gradient"], mine, exact, run(torch_entropy, None))
    if dtype != FP64 and mine[0].dtype != FP32:
        wrong.append(f"the loss is {mine[0].dtype}")
    if not torch.equal(before, logits):
        wrong.append("the logits were written to")
    if any(not torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(mine, run(ours, None), strict=True)):
        wrong.append("a second call gave another result")
    return wrong


def check_wrong_label(device: str, label: int) -> list[str]:
    """A label that is no class: an IndexError at once on the CPU, nan and an IndexError later on a GPU."""
    logits = torch.randn(4, 10, device=device, requires_grad=True)
    labels = torch.tensor([1, label, 3, -100], device=device)
    try:
        loss = cross_entropy.cross_entropy(logits, labels, reduction="none")
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        bad = loss.isnan().tolist() != [False, True, False, False] or not gradient[1].isnan().all()
        wrong = ["its row is not nan, or another is"] if bad or gradient[[0, 2, 3]].isnan().any() else []
        undertorch.ops.check_labels()
    except IndexError:
        return []
    return [*wrong, "nothing was raised"]


def entropy_rows() -> Iterator[Row]:
    """Cross-entropy: options, reductions, widths, layouts, hard logits, labels of all kinds."""

    def row(name: str, large: bool = False, **settings: Any) -> Row:
        return Row(op="cross_entropy", name=name, large=large, check=lambda device: check_entropy(device, **settings))

    for reduction, incoming in itertools.product(("mean", "sum", "none"), ("one", "three", "zero", "expanded")):
        for gradient in ("auto", "backward", "forward") if reduction != "none" else ("auto",):
            for dtype in (FP32, BF16, FP16) if incoming == "three" else (BF16,):
                yield row(
                    f"{reduction}, incoming {incoming}, gradient {gradient}, {dtype}", shape=(13, 70), dtype=dtype,
                    reduction=reduction, incoming=incoming, gradient=gradient,
                )  # fmt: skip
    options: tuple[dict[str, Any], ...] = (
        {"label_smoothing": 0.1}, {"z_loss": 1e-2}, {"softcap": 3.0}, {"weighted": True}, {"ignore_index": 5},
        {"label_smoothing": 0.2, "weighted": True},
        {"label_smoothing": 0.2, "weighted": True, "z_loss": 1e-2, "softcap": 9.0},
        {"label_smoothing": 1.0}, {"ignore_index": -1},
    )  # fmt: skip
    for option, reduction, gradient in itertools.product(options, ("mean", "sum", "none"), ("forward", "backward")):
        if reduction != "none" or gradient == "backward":
            yield row(
                f"{option}, {reduction}, {gradient}", shape=(9, 130), reduction=reduction, gradient=gradient, **option
            )
    for width in (1, 2, 3, 7, 8, 9, 127, 1000, 1024, 5001, 8192, 8193):
        for dtype in (FP32, BF16):
            yield row(f"width {width} {dtype}", shape=(5, width), dtype=dtype)
    for width in (32000, 50257, 50304, 65536, 128256, 131072):
        for dtype, gradient in itertools.product((FP32, BF16), ("forward", "backward")):
            yield row(f"width {width} {dtype} {gradient}", large=True, shape=(4, width), dtype=dtype, gradient=gradient)
    for shape in ((7,), (3, 7), (2, 3, 7), (2, 2, 3, 7), (1, 2, 2, 3, 7)):
        yield row(f"rank {len(shape)}", shape=shape)
    for reduction in ("mean", "sum", "none"):
        yield row(f"zero rows, {reduction}", shape=(0, 7), reduction=reduction)
        yield row(f"all ignored, {reduction}", shape=(6, 7), ignored="all", reduction=reduction)
    for layout in LAYOUTS:
        for gradient in ("forward", "backward"):
            yield row(f"logits {layout}, {gradient}", shape=(6, 48), layout=layout, gradient=gradient)
    for dtype, gradient in itertools.product((FP32, BF16), ("forward", "backward")):
        for which, width in (("a third", 300), ("a block", 9000), ("a row", 300)):
            yield row(
                f"-inf, {which}, {dtype} {gradient}",
                shape=(6, width),
                minus_infinity=which,
                dtype=dtype,
                gradient=gradient,
            )
        yield row(f"large mean {dtype} {gradient}", shape=(6, 300), mean=1000.0, dtype=dtype, gradient=gradient)
        yield row(f"confident {dtype} {gradient}", shape=(6, 300), confident=15.0, dtype=dtype, gradient=gradient)
        yield row(f"wide spread {dtype} {gradient}", shape=(6, 300), scale=30.0, dtype=dtype, gradient=gradient)
    yield row("smoothed, large mean", shape=(6, 300), mean=300.0, label_smoothing=0.1)
    for labels_dtype in (torch.int32, torch.int16, torch.int8):
        yield row(f"labels {labels_dtype}", shape=(6, 100), labels_dtype=labels_dtype)
    for layout in LAYOUTS:
        for gradient in ("forward", "backward"):
            yield row(f"labels {layout}, {gradient}", shape=(6, 4, 100), labels_layout=layout, gradient=gradient)
    yield row("many rows", large=True, shape=(20000, 40))
    for label in (10, -1, 2**40, -(2**40)):
        yield Row(
            op="cross_entropy",
            name=f"label {label}",
            check=lambda device, label=label: check_wrong_label(device, label),
        )


# AdamW


def check_adamw(
    device: str,
    sizes: tuple[tuple[int, ...], ...] = ((3, 5), (1000,), (33, 70), (0,), (1,), (4097,)),
    dtype: torch.dtype = FP32,
    gradient_dtype: torch.dtype | None = None,
    masters: bool = False,
    max_norm: float | None = None,
    layout: str = "contiguous",
    gradient_layout: str = "contiguous",
    lr_tensor: bool = False,
    gradient_scale: float = 1.0,
    steps: int = 4,
) -> list[str]:
    """Some steps against the same in float64, and against torch's own in the masters' dtype."""
    generator = torch.Generator().manual_seed(len(sizes))
    made = [(torch.randn(size, generator=generator) * 0.1).to(dtype) for size in sizes]
    given = [
        [(torch.randn(s, generator=generator) * gradient_scale).to(gradient_dtype or dtype) for s in sizes]
        for _ in range(steps)
    ]

    def laid(tensor: Tensor, how: str) -> Tensor:
        return LAYOUTS[how](tensor.to(device)) if tensor.dim() > 1 or how == "offset by one" else tensor.to(device)

    def run(kind: str) -> list[Tensor]:
        wide = FP64 if kind == "exact" else FP32 if masters or kind == "torch" else dtype
        p = [
            laid(t, layout).clone(memory_format=torch.preserve_format) if layout != "offset by one" else laid(t, layout)
            for t in made
        ]
        p = [t.to(wide) for t in p] if kind != "ours" else p
        moments = FP64 if kind == "exact" else FP32
        m = [torch.zeros_like(t, dtype=moments) for t in p]
        v = [torch.zeros_like(t, dtype=moments) for t in p]
        count = [torch.zeros((), device=device) for _ in p]
        keep = [t.float() for t in p] if masters and kind == "ours" else None
        for gradients in given:
            g = [laid(t, gradient_layout) for t in gradients]
            norm = None
            if max_norm is not None:
                norm = torch.stack([t.to(FP64 if kind == "exact" else FP32).square().sum() for t in g]).sum().sqrt()
            lr: Any = torch.tensor(1e-2, device=device) if lr_tensor and kind == "ours" else 1e-2
            function = adamw.adamw if kind == "ours" else adamw.reference
            function(
                p,
                g if kind == "ours" else [t.to(wide) for t in g],
                m,
                v,
                count,
                lr=lr,
                masters=keep,
                norm=norm,
                max_norm=max_norm,
            )
        return [t for some in (keep or p, m, v) for t in some if t.numel()]

    ours, exact, torchs = run("ours"), run("exact"), run("torch")
    if not masters and dtype != FP32:
        torchs = [t.to(dtype) if place < len(torchs) // 3 else t for place, t in enumerate(torchs)]
    return compare([f"tensor {n}" for n in range(len(ours))], ours, exact, torchs)


def adamw_rows() -> Iterator[Row]:
    """Layouts, dtypes, masters, clipping, and what a step leaves alone."""

    def row(name: str, **settings: Any) -> Row:
        return Row(op="adamw", name=name, check=lambda device: check_adamw(device, **settings))

    yield row("float32")
    yield row("clipped", max_norm=0.5)
    yield row("not clipped, below the norm", max_norm=1e6)
    yield row("lr as a tensor", lr_tensor=True, max_norm=0.5)
    for dtype in (BF16, FP16):
        yield row(f"{dtype} with masters", dtype=dtype, masters=True, max_norm=1.0)
        yield row(f"float32, gradients {dtype}", gradient_dtype=dtype)
    for layout in ("transposed", "offset by one"):
        yield row(f"parameters {layout}", layout=layout)
    for layout in ("transposed", "one row, expanded", "every other element", "offset by one"):
        yield row(f"gradients {layout}", gradient_layout=layout, max_norm=1.0)
    yield row("zero gradients", gradient_scale=0.0)
    yield row("tiny gradients", gradient_scale=1e-12)
    yield row("many small tensors", sizes=tuple((n % 7 + 1, n % 5 + 1) for n in range(300)), max_norm=1.0)


# Gated activations


def check_gated(
    device: str,
    op: str,
    shape: tuple[int, ...],
    dtype: torch.dtype = FP32,
    layout: str = "contiguous",
    gradient_layout: str = "contiguous",
    halves: bool = False,
    scale: float = 2.0,
    frozen: str = "",
    **settings: Any,
) -> list[str]:
    """The result and both gradients."""
    generator = torch.Generator().manual_seed(seed_of(op, shape))
    gate, up, incoming = ((torch.randn(*shape, generator=generator) * scale).to(device, dtype) for _ in range(3))
    gate, up = (torch.cat([gate, up], -1).chunk(2, -1)) if halves else (LAYOUTS[layout](gate), LAYOUTS[layout](up))
    incoming = LAYOUTS[gradient_layout](incoming)
    activation = functional.silu if op == "swiglu" else functional.gelu

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        first, second = (
            (t if to is None else t.to(to)).detach().requires_grad_(name != frozen)
            for name, t in (("gate", gate), ("up", up))
        )
        given = [t for t in (first, second) if t.requires_grad]
        y = function(first, second, **settings)
        return [y.detach(), *torch.autograd.grad(y, given, incoming if to is None else incoming.to(to))]

    def theirs(first: Tensor, second: Tensor, **settings: Any) -> Tensor:
        return activation(first, **settings) * second

    ours = run(getattr(undertorch.ops, op), None)
    return compare(["y", "first", "second"][: len(ours)], ours, run(theirs, FP64), run(theirs, None))


def gated_rows() -> Iterator[Row]:
    """Ranks, sizes, dtypes, layouts, values far out, what is frozen."""

    def row(op: str, name: str, **settings: Any) -> Row:
        return Row(op=op, name=name, check=lambda device: check_gated(device, op, **settings))

    for op in ("swiglu", "geglu"):
        for shape in ((5,), (3, 40), (2, 3, 40), (1, 2, 2, 3, 40), (0, 40), (3, 4097), (2, 1), (70, 127)):
            yield row(op, f"shape {shape}", shape=shape)
        for dtype in (FP32, BF16, FP16):
            yield row(op, f"{dtype}", shape=(64, 96), dtype=dtype)
            yield row(op, f"halves of one tensor, {dtype}", shape=(64, 96), dtype=dtype, halves=True)
        for layout in LAYOUTS:
            yield row(op, f"inputs {layout}", shape=(6, 48), layout=layout)
            yield row(op, f"gradient {layout}", shape=(6, 48), gradient_layout=layout, dtype=BF16)
        for scale in (1e-3, 30.0, 1e4):
            yield row(op, f"values around {scale}", shape=(32, 200), scale=scale)
        for frozen in ("gate", "up"):
            yield row(op, f"{frozen} frozen", shape=(6, 48), frozen=frozen)
    for dtype in (FP32, BF16):
        yield row("geglu", f"by tanh, {dtype}", shape=(32, 200), dtype=dtype, approximate="tanh")
    yield row("geglu", "by tanh, far out", shape=(32, 200), scale=30.0, approximate="tanh")


# Linear layer and cross-entropy


def check_linear(
    device: str,
    rows: tuple[int, ...] = (37,),
    features: int = 24,
    classes: int = 300,
    dtype: torch.dtype = FP32,
    layout: str = "contiguous",
    incoming: float = 1.0,
    chunk_rows: int | None = None,
    frozen: str = "",
    ignored: str = "some",
    labels_layout: str = "contiguous",
    accumulation: torch.dtype | None = None,
    **settings: Any,
) -> list[str]:
    """The loss and both gradients, twice; chunks of few rows where those are asked for."""
    generator = torch.Generator().manual_seed(seed_of(rows, features, classes))
    x = LAYOUTS[layout](torch.randn(*rows, features, generator=generator).to(device, dtype))
    weight = (torch.randn(classes, features, generator=generator) * 0.3).to(device, dtype)
    # Were all classes alike, x's gradient would be zero, and whoever comes to it only rounding errors.
    weight = weight if "expanded" in layout else LAYOUTS[layout](weight)
    labels = torch.randint(0, classes, rows, generator=generator)
    if ignored == "all":
        labels.fill_(-100)
    elif labels.numel() > 2:
        labels.view(-1)[::3] = -100
    labels = LAYOUTS[labels_layout](labels.to(device))

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        first, second = (
            (t if to is None else t.to(to)).detach().requires_grad_(name != frozen)
            for name, t in (("x", x), ("weight", weight))
        )
        wanted = [t for t in (first, second) if t.requires_grad]
        loss = function(first, second, labels, **settings)
        given = torch.full_like(loss, incoming)
        kept = [g.clone() for g in torch.autograd.grad(loss, wanted, given, retain_graph=True)]
        return [loss.detach(), *kept, *torch.autograd.grad(loss, wanted, given * 2)]

    file = import_module("undertorch.ops.linear_cross_entropy")
    before = file.CHUNK_BYTES
    try:
        if chunk_rows is not None:
            file.CHUNK_BYTES = chunk_rows * classes * x.element_size()
        accumulate = {} if accumulation is None else {"accumulation": accumulation}
        ours = run(partial(undertorch.ops.linear_cross_entropy, **accumulate), None)
    finally:
        file.CHUNK_BYTES = before
    return compare(
        [f"result {n}" for n in range(len(ours))], ours, run(file.reference, FP64), run(file.reference, None)
    )


def linear_rows() -> Iterator[Row]:
    """Ranks, chunks, dtypes, layouts, reductions, what is frozen."""

    def row(name: str, **settings: Any) -> Row:
        return Row(op="linear_cross_entropy", name=name, check=lambda device: check_linear(device, **settings))

    for dtype in (FP32, BF16, FP16):
        yield row(f"{dtype}", dtype=dtype)
        yield row(f"{dtype}, chunks of 5 rows", dtype=dtype, chunk_rows=5, incoming=3.0)
        yield row(f"{dtype}, summed in it", dtype=dtype, chunk_rows=20, accumulation=dtype)
    for rows in ((), (2, 5), (2, 3, 4), (0,), (1,)):
        yield row(f"rows {rows}", rows=rows)
    for width in (7, 33, 257, 1025):
        yield row(f"width {width}, {BF16}", classes=width, dtype=BF16, chunk_rows=8, incoming=0.7)
    for reduction in ("mean", "sum"):
        yield row(f"{reduction}, all ignored", reduction=reduction, ignored="all")
        yield row(f"{reduction}, options", reduction=reduction, label_smoothing=0.1, z_loss=1e-2, softcap=5.0)
    for layout in ("transposed", "sliced", "every other element", "one row, expanded", "offset by one"):
        yield row(f"inputs {layout}", layout=layout)
    for layout in LAYOUTS:
        yield row(f"labels {layout}", rows=(6, 4), labels_layout=layout, chunk_rows=5)
    for frozen in ("x", "weight"):
        yield row(f"{frozen} frozen", frozen=frozen, chunk_rows=8)
    yield row("zero gradient", incoming=0.0)


# All of them


def calls(device: str) -> dict[str, tuple[Callable[..., Any], list[Tensor]]]:
    """A call of each differentiable op, on what it is differentiable in."""
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device).requires_grad_()

    labels = torch.randint(0, 90, (37,), generator=generator).to(device)
    angles = [torch.randn(7, 4, generator=generator).to(device) for _ in range(2)]
    x, residual, weight, bias, head = normal(37, 50), normal(37, 50), normal(50), normal(50), normal(90, 50)
    ops = undertorch.ops
    return {
        "rms_norm": (ops.rms_norm, [x, weight]),
        "layer_norm": (ops.layer_norm, [x, weight, bias]),
        "add_rms_norm": (ops.add_rms_norm, [x, residual, weight]),
        "add_layer_norm": (ops.add_layer_norm, [x, residual, weight, bias]),
        "swiglu": (ops.swiglu, [x, residual]),
        "geglu": (ops.geglu, [x, residual]),
        "cross_entropy": (lambda logits: ops.cross_entropy(logits, labels), [normal(37, 90)]),
        "linear_cross_entropy": (lambda x, head: ops.linear_cross_entropy(x, head, labels), [x, head]),
        "softmax": (ops.softmax, [x]),
        "rope": (lambda q, k: ops.rope(q, k, *angles), [normal(2, 3, 7, 8), normal(2, 1, 7, 8)]),
        "linear_act": (ops.linear_act, [x, head, normal(90)]),
        "attention": (
            lambda q, k, v: ops.attention(q, k, v, causal=True, softcap=3.0),
            [normal(2, 4, 9, 16), normal(2, 2, 9, 16), normal(2, 2, 9, 16)],
        ),
    }


def check_again(device: str, op: str) -> list[str]:
    """A graph that is kept can be gone through again, and whatever was computed stays: bit for bit."""
    call, given = calls(device)[op]
    wrong = []
    outputs: list[list[Tensor]] = []
    for _ in range(5):
        made = call(*given)
        out = made if isinstance(made, tuple) else (made,)
        incoming = [torch.full_like(o, 0.7) for o in out]
        first = torch.autograd.grad(out, given, incoming, retain_graph=True)
        kept = [t.clone() for t in (*out, *first)]
        second = torch.autograd.grad(out, given, incoming)
        outputs.append(kept)
        if any(not torch.equal(a, b) for a, b in zip(first, second, strict=True)):
            wrong.append("a second backward gave another gradient")
        if any(not torch.equal(a, b) for a, b in zip(kept, (*out, *first), strict=True)):
            wrong.append("a second backward wrote into what the first gave")
    if any(not torch.equal(a, b) for some in outputs[1:] for a, b in zip(outputs[0], some, strict=True)):
        wrong.append("five calls gave different results")
    return wrong


def check_used_twice(device: str, op: str) -> list[str]:
    """One tensor in two calls: its gradients add up."""
    call, given = calls(device)[op]

    def total(result: Any) -> Tensor:
        return (
            sum((t.sum() for t in result), torch.zeros((), device=device))
            if isinstance(result, tuple)
            else result.sum()
        )

    once = torch.autograd.grad(total(call(*given)), given)
    twice = torch.autograd.grad(total(call(*given)) + total(call(*given)), given)
    return [
        f"input {n}"
        for n, (a, b) in enumerate(zip(once, twice, strict=True))
        if not torch.allclose(2 * a, b, rtol=1e-5)
    ]


def common_rows() -> Iterator[Row]:
    """What holds for every op alike."""
    for op in calls("cpu"):
        yield Row(op=op, name="retain_graph, the same five times", check=lambda d, op=op: check_again(d, op))
        yield Row(op=op, name="an input used twice", check=lambda d, op=op: check_used_twice(d, op))


def rows() -> list[Row]:
    """The whole table, that of ops_promises_transformer.py with it, which is built of what stands here."""
    from ops_promises_transformer import transformer_rows

    here = (norm_rows(), entropy_rows(), adamw_rows(), gated_rows(), linear_rows(), common_rows())
    return [*itertools.chain(*here), *transformer_rows()]
