"""Times the training ops on a GPU: every way to cut our kernels, torch, torch.compile, Liger and quack.

    PYTHONPATH=src python3 benchmarks/ops.py OUT [--quick] [--seconds N] [--only WORD]

Writes OUT/ops.jsonl, a row as soon as it is known. A measurement is a CUDA graph of calls on rotating inputs that
together exceed three times the L2 cache; graphs of one case are replayed in turn, and the median counts. Forward
and backward are timed apart; `both` is their sum unless a peer does them in one. The copy ceiling is that of a kernel,
measured in the same run. `--compile I N` compiles a share of the kernels into Triton's cache, which the run itself does
first, on all cores. `--on cpu` rehearses it all on small tensors, with kernels that are compiled and not run.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional

import undertorch.ops
from undertorch.ops import norms
from undertorch.ops.calls import on_host

# The files, whose functions have their names.
adamw_op, ce, norm_op = (import_module(f"undertorch.ops.{name}") for name in ("adamw", "cross_entropy", "grad_norm"))

BF16, FP32 = torch.bfloat16, torch.float32
ROUNDS = 15
SMS = 132
"""Of the H200."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One op at one shape."""

    op: str
    rows: int
    width: int
    dtype: torch.dtype = BF16
    quick: bool = False
    """Whether it is in the quick run, with all configurations."""

    def __str__(self) -> str:
        return f"{self.op} {self.rows}x{self.width} {str(self.dtype).removeprefix('torch.')}"


GATED = ("swiglu", "geglu")
NORMS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")

CASES = (
    Case(op="cross_entropy", rows=32768, width=50304, quick=True),
    Case(op="rms_norm", rows=16384, width=4096, quick=True),
    Case(op="adamw", rows=148, width=403_000_000, dtype=FP32, quick=True),
    Case(op="cross_entropy", rows=8192, width=128256, quick=True),
    Case(op="layer_norm", rows=32768, width=768, quick=True),
    Case(op="add_rms_norm", rows=16384, width=4096, quick=True),
    Case(op="rms_norm", rows=16384, width=8192, quick=True),
    Case(op="layer_norm", rows=16384, width=4096, quick=True),
    Case(op="grad_norm", rows=148, width=403_000_000, dtype=FP32, quick=True),
    Case(op="add_layer_norm", rows=32768, width=768, quick=True),
    Case(op="swiglu", rows=16384, width=14336, quick=True),
    Case(op="geglu", rows=32768, width=3072, quick=True),
    Case(op="linear_cross_entropy", rows=32768, width=50304, quick=True),
    # The sweep.
    *(Case(op="rms_norm", rows=65536, width=width) for width in (128, 512, 1024, 2048)),
    *(Case(op="rms_norm", rows=rows, width=4096) for rows in (256, 2048)),
    *(Case(op="rms_norm", rows=8192, width=width) for width in (5120, 6144, 12288, 16384, 32768)),
    Case(op="rms_norm", rows=2048, width=65536),
    Case(op="rms_norm", rows=16384, width=4096, dtype=FP32),
    Case(op="layer_norm", rows=32768, width=1024),
    Case(op="layer_norm", rows=32768, width=1600),
    Case(op="layer_norm", rows=4096, width=768),
    Case(op="layer_norm", rows=32768, width=768, dtype=FP32),
    Case(op="layer_norm", rows=8192, width=12288),
    Case(op="add_rms_norm", rows=8192, width=8192),
    Case(op="add_rms_norm", rows=2048, width=4096),
    Case(op="add_layer_norm", rows=16384, width=4096),
    Case(op="cross_entropy", rows=8192, width=50257),
    Case(op="cross_entropy", rows=8192, width=32000),
    Case(op="cross_entropy", rows=16384, width=32000, dtype=FP32),
    Case(op="cross_entropy", rows=4096, width=151936),
    Case(op="cross_entropy", rows=512, width=128256),
    Case(op="cross_entropy", rows=65536, width=1024),
    Case(op="adamw", rows=148, width=124_000_000, dtype=FP32),
    Case(op="adamw", rows=148, width=124_000_000),
    Case(op="adamw", rows=600, width=30_000_000, dtype=FP32),
)


@triton.jit
def copy_kernel(source, target, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at))


@dataclass
class Data:
    """Inputs of a case, several sets of them."""

    sets: list[dict[str, Any]]
    bytes: dict[str, int]
    """Least bytes of a pass."""


@dataclass
class Way:
    """Somebody's way to do a pass of a case."""

    who: str
    pass_: str
    call: Callable[[dict[str, Any]], Any]
    config: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


class Rows:
    """Writes rows as they come."""

    def __init__(self, out: Path) -> None:
        self.file = (out / "ops.jsonl").open("a", encoding="utf-8")
        self.started = time.monotonic()

    def write(self, **row: Any) -> None:
        row["at_s"] = round(time.monotonic() - self.started, 1)
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()


# Inputs


def norm_data(case: Case, rows: int, device: str) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(rows + case.width)

    def normal(*shape: int, dtype: torch.dtype = case.dtype) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype, generator=generator)

    centred, residual = "layer" in case.op, case.op.startswith("add")
    x, dy = normal(rows, case.width), normal(rows, case.width)
    return {
        "x": x,
        "dy": dy,
        "residual": normal(rows, case.width) if residual else None,
        "dtotal": normal(rows, case.width) if residual else None,
        "weight": normal(case.width),
        "bias": normal(case.width) if centred else None,
        "mean": x.float().mean(-1) if centred else None,
        "rstd": x.float().var(-1, unbiased=False).add(1e-5).rsqrt(),
    }


def entropy_data(case: Case, rows: int, device: str) -> dict[str, Any]:
    logits = torch.randn(rows, case.width, device=device, dtype=case.dtype)
    labels = torch.randint(0, case.width, (rows,), device=device)
    return {"logits": logits, "labels": labels, "lse": torch.rand(2, rows, device=device),
            "denominator": torch.full((), float(rows), device=device), "one": torch.ones((), device=device),
            "other": torch.full((), 0.5, device=device)}  # fmt: skip


def optimizer_data(case: Case, total: int, device: str) -> dict[str, Any]:
    """Sizes as of a transformer: a big one, and many in turn large and small."""
    tensors = case.rows
    small = 1024
    large = max((total * 9 // 10 - tensors // 2 * small) // (tensors - tensors // 2), 16)
    sizes = [total - large * (tensors - tensors // 2 - 1) - small * (tensors // 2)]
    sizes += [large if place % 2 else small for place in range(1, tensors)]
    sizes = [max(size, 16) for size in sizes]

    def each(dtype: torch.dtype) -> list[torch.Tensor]:
        return [torch.randn(size, device=device).mul_(0.02).to(dtype) for size in sizes]

    half = case.dtype != FP32
    return {
        "p": each(case.dtype),
        "g": each(case.dtype),
        "m": each(FP32),
        "v": [tensor.square() for tensor in each(FP32)],
        "steps": [torch.zeros((), device=device) for _ in sizes],
        "masters": each(FP32) if half else None,
        "norm": torch.full((), 2.0, device=device),
    }


def gated_data(case: Case, rows: int, device: str) -> dict[str, Any]:
    gate, up, dy = (torch.randn(rows, case.width, device=device, dtype=case.dtype) for _ in range(3))
    return {"x": gate, "residual": up, "dy": dy, "dtotal": None}


FEATURES = 768
"""Of the linear layer before the cross-entropy."""


def linear_data(case: Case, rows: int, device: str) -> dict[str, Any]:
    x = torch.randn(rows, FEATURES, device=device, dtype=case.dtype)
    weight = torch.randn(case.width, FEATURES, device=device, dtype=case.dtype) * 0.02
    return {"x": x, "weight": weight, "labels": torch.randint(0, case.width, (rows,), device=device)}


MAKERS = {**dict.fromkeys(NORMS, norm_data), "cross_entropy": entropy_data,
          "adamw": optimizer_data, "grad_norm": optimizer_data, "swiglu": gated_data, "geglu": gated_data,
          "linear_cross_entropy": linear_data}  # fmt: skip


def least_bytes(case: Case) -> dict[str, int]:
    elements, size = case.rows * case.width, case.dtype.itemsize
    if case.op in NORMS:
        tensors = (4, 4) if case.op.startswith("add") else (2, 3)
        return {"forward": tensors[0] * elements * size, "backward": tensors[1] * elements * size}
    if case.op == "cross_entropy":
        return {"forward": elements * size, "forward+gradient": 2 * elements * size, "backward": 2 * elements * size,
                "both": 2 * elements * size, "both, gradient not one": 3 * elements * size}  # fmt: skip
    if case.op == "adamw":
        return {
            "update": case.width * 28,
            "step": case.width * (32 if size == 4 else 30),
        }
    if case.op in GATED:
        return {"forward": 3 * elements * size, "backward": 5 * elements * size}
    if case.op == "linear_cross_entropy":  # bound by its matmuls
        return dict.fromkeys(("forward", "backward", "both"), 2 * (case.rows + case.width) * FEATURES * size)
    return {"norm": case.width * size}


# Ways


def our_ways(case: Case, every: bool) -> Iterator[Way]:
    few = (lambda ways: ways) if every else (lambda ways: ways[:1])
    if case.op in NORMS:
        centred = "layer" in case.op
        for tile in few(norms.forward_tiles(case.width, case.rows, SMS)) or (None,):
            yield Way("undertorch", "forward", partial(our_norm_forward, case, centred, tile), str(tile))
        for tile in few(norms.backward_tiles(case.width, case.rows, SMS)) or (None,):
            yield Way("undertorch", "backward", partial(our_norm_backward, case, centred, tile), str(tile))
    elif case.op == "cross_entropy":
        for piece in few(ce.pieces(case.width, ce.LOSS_PIECES)):
            yield Way("undertorch", "forward", partial(our_entropy, piece, False), str(piece))
        for piece in few(ce.pieces(case.width, ce.BOTH_PIECES)):
            yield Way("undertorch", "forward+gradient", partial(our_entropy, piece, True), str(piece))
        for piece in few(ce.pieces(case.width, ce.GRADIENT_PIECES)):
            yield Way("undertorch", "backward", partial(our_entropy_backward, piece), str(piece))
        yield Way("undertorch", "both", partial(our_entropy_both, "one", True), "gradient in forward")
        yield Way(
            "undertorch", "both, gradient not one", partial(our_entropy_both, "other", True), "gradient in forward"
        )
        yield Way("undertorch", "both, gradient not one", partial(our_entropy_both, "other", False), "in backward")
    elif case.op == "adamw":
        for configuration in few(adamw_op.CONFIGURATIONS):
            yield Way("undertorch", "update", partial(our_update, configuration, False), str(configuration))
        yield Way("undertorch", "step", partial(our_update, adamw_op.CONFIGURATIONS[0], True), "norm, clip, update")
    elif case.op != "grad_norm":
        yield from differentiated("undertorch", case, getattr(undertorch.ops, case.op))
    else:
        for configuration in few(
            ((32768, 4096, 8), (16384, 2048, 4), (65536, 4096, 8), (8192, 2048, 8), (16384, 4096, 16))
        ):
            yield Way(
                "undertorch", "norm", lambda d, c=configuration: norm_op.sum_of_squares(d["g"], c), str(configuration)
            )


def our_norm_forward(case: Case, centred: bool, tile: Any, d: dict[str, Any]) -> Any:
    return norms.forward(d["x"], d["residual"], d["weight"], d["bias"], 1e-5, centred=centred, name=case.op, tile=tile)


def our_norm_backward(case: Case, centred: bool, tile: Any, d: dict[str, Any]) -> Any:
    bias = d["bias"]
    return norms.backward(
        d["dy"], d["dtotal"], d["x"], d["weight"], d["mean"], d["rstd"], None if bias is None else bias.dtype,
        True, True, bias is not None, centred=centred, name=case.op, tile=tile,
    )  # fmt: skip


SETTINGS = (-100, 0.0, "mean", 0.0, None)


def our_entropy(piece: Any, gradient: bool, d: dict[str, Any]) -> Any:
    return ce.forward(d["logits"], d["labels"], None, *SETTINGS, gradient, piece=piece)


def our_entropy_backward(piece: Any, d: dict[str, Any]) -> Any:
    return ce.backward(d["one"], d["logits"], d["labels"], None, d["lse"], d["denominator"], *SETTINGS, piece=piece)


def our_entropy_both(incoming: str, early: bool, d: dict[str, Any], piece: Any = None) -> Any:
    _, lse, denominator, gradient = ce.forward(d["logits"], d["labels"], None, *SETTINGS, early, piece=piece)
    return ce.backward(d[incoming], d["logits"], d["labels"], None, lse, denominator, *SETTINGS, gradient=gradient)


def our_update(configuration: Any, with_norm: bool, d: dict[str, Any]) -> Any:
    norm = norm_op.grad_norm(d["g"]) if with_norm else d["norm"]
    adamw_op.adamw(
        d["p"], d["g"], d["m"], d["v"], d["steps"], lr=1e-4, masters=d["masters"], norm=norm, max_norm=1.0,
        configuration=configuration,
    )  # fmt: skip


def torch_ways(case: Case) -> Iterator[Way]:
    aten = torch.ops.aten
    shape = [case.width]
    if case.op in NORMS:
        residual, centred = case.op.startswith("add"), "layer" in case.op

        def forward(d: dict[str, Any]) -> Any:
            x = d["x"] + d["residual"] if residual else d["x"]
            if centred:
                return x, aten.native_layer_norm(x, shape, d["weight"], d["bias"], 1e-5)
            return x, aten._fused_rms_norm(x, shape, d["weight"], 1e-5)

        def backward(d: dict[str, Any]) -> Any:
            rstd = d["rstd"].unsqueeze(-1)
            if centred:
                dx, *others = aten.native_layer_norm_backward(
                    d["dy"], d["x"], shape, d["mean"].unsqueeze(-1), rstd, d["weight"], d["bias"], [True] * 3
                )
            else:
                dx, *others = aten._fused_rms_norm_backward(d["dy"], d["x"], shape, rstd, d["weight"], [True] * 2)
            return (dx + d["dtotal"] if residual else dx), *others

        yield Way("torch", "forward", forward)
        yield Way("torch", "backward", backward)
    elif case.op == "cross_entropy":

        def loss_forward(d: dict[str, Any]) -> Any:
            log_probabilities = torch.log_softmax(d["logits"], -1)
            return log_probabilities, aten.nll_loss_forward(log_probabilities, d["labels"], None, 1, -100)

        def loss_both(d: dict[str, Any]) -> Any:
            log_probabilities, (_, weight) = loss_forward(d)
            one = d["one"].to(case.dtype)
            given = aten.nll_loss_backward(one, log_probabilities, d["labels"], None, 1, -100, weight)
            return aten._log_softmax_backward_data(given, log_probabilities, -1, case.dtype)

        yield Way("torch", "forward", loss_forward)
        yield Way("torch", "both", loss_both)
    elif case.op == "adamw":

        def update(d: dict[str, Any]) -> Any:
            torch._fused_adamw_(
                d["masters"] or d["p"], [g.float() for g in d["g"]] if d["masters"] else d["g"], d["m"], d["v"], [],
                d["steps"], lr=1e-4, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
            )  # fmt: skip
            if d["masters"]:
                torch._foreach_copy_(d["p"], d["masters"])

        def step(d: dict[str, Any]) -> Any:
            norm = torch.nn.utils.get_total_norm(d["g"])
            torch._foreach_mul_(d["g"], (1.0 / (norm + 1e-6)).clamp(max=1.0))
            update(d)

        yield Way("torch", "update", update)
        yield Way("torch", "step", step)
    elif case.op in GATED:
        activation = functional.silu if case.op == "swiglu" else functional.gelu
        yield from differentiated("torch", case, lambda gate, up: activation(gate) * up)
    elif case.op == "linear_cross_entropy":
        yield from differentiated("torch", case, lambda x, w, labels: functional.cross_entropy(x @ w.t(), labels))
    else:
        yield Way("torch", "norm", lambda d: torch.nn.utils.get_total_norm(d["g"]))


def reference_call(case: Case) -> Callable[..., Any] | None:
    """What torch.compile is given."""
    return None if case.op in ("adamw", "grad_norm") else import_module(f"undertorch.ops.{case.op}").reference


def compiled_ways(case: Case) -> Iterator[Way]:
    call = reference_call(case)
    if call is not None:
        torch._dynamo.reset()
        yield from differentiated("torch.compile", case, torch.compile(call, dynamic=False))


def liger_ways(case: Case) -> Iterator[Way]:
    if case.op == "cross_entropy":
        from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

        def both(d: dict[str, Any]) -> Any:
            # Its forward writes the gradient over the logits, so later rounds see gradients as logits: as many bytes.
            loss = LigerCrossEntropyFunction.apply(d["logits"].detach().requires_grad_(), d["labels"], None, -100)
            return loss[0] if isinstance(loss, tuple) else loss

        yield Way("liger", "both", both)
    elif case.op == "rms_norm":
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction

        yield from differentiated(
            "liger", case, lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-5, 0.0, "llama", False)
        )
    elif case.op == "layer_norm":
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction

        yield from differentiated("liger", case, lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5))
    elif case.op in GATED:
        from liger_kernel.ops.geglu import LigerGELUMulFunction
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        function = LigerSiLUMulFunction if case.op == "swiglu" else LigerGELUMulFunction
        yield from differentiated("liger", case, function.apply)
    elif case.op == "linear_cross_entropy":
        from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

        yield from differentiated(
            "liger", case, lambda x, w, labels: LigerFusedLinearCrossEntropyFunction.apply(x, w, labels)[0]
        )
    elif case.op == "add_rms_norm":
        from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

        yield from differentiated(
            "liger", case, lambda x, r, w: LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-5, 0.0, "llama", False)
        )


def quack_ways(case: Case) -> Iterator[Way]:
    if case.op == "rms_norm":
        from quack.rmsnorm import rmsnorm

        yield from differentiated("quack", case, lambda x, w: rmsnorm(x, w, eps=1e-5))
    elif case.op == "cross_entropy":
        from quack.cross_entropy import cross_entropy

        yield from differentiated("quack", case, lambda logits, labels: cross_entropy(logits, labels).mean())


def differentiated(who: str, case: Case, call: Callable[..., Any]) -> Iterator[Way]:
    """Forward and backward of a differentiable function. The forward runs once outside of the graph."""
    names = ("logits",) if case.op == "cross_entropy" else ("x", "residual", "weight", "bias")

    def run(d: dict[str, Any]) -> tuple[list[torch.Tensor], Any]:
        given = [d[name].detach().requires_grad_() for name in names if d.get(name) is not None]
        return given, call(*given, *([d["labels"]] if "labels" in d else []))

    def forward(d: dict[str, Any]) -> Any:
        return run(d)[1]

    def backward(d: dict[str, Any]) -> Any:
        key = f"kept by {who}"
        if key not in d:
            d[key] = run(d)
        given, out = d[key]
        out = out if isinstance(out, tuple) else (out,)
        incoming = [torch.ones_like(out[0])] if "labels" in d else [d["dy"], d["dtotal"]][: len(out)]
        return torch.autograd.grad(out, given, incoming, retain_graph=True)

    yield Way(who, "forward", forward)
    yield Way(who, "backward", backward)
    if case.op.endswith("cross_entropy"):

        def both(d: dict[str, Any]) -> Any:
            given, out = run(d)
            return torch.autograd.grad(out, given)

        yield Way(who, "both", both)


# Timing


def sets_needed(bytes_of_a_set: int, l2: int) -> int:
    return max(2, min(-(-3 * l2 // bytes_of_a_set) + 1, 64))


class Calls:
    """Stands for a graph in a rehearsal."""

    def __init__(self, way: Way, sets: list[dict[str, Any]]) -> None:
        self.way, self.sets = way, sets
        self.replay()

    def replay(self) -> None:
        with on_host():
            for d in self.sets:
                self.way.call(d)


def captured(way: Way, sets: list[dict[str, Any]], stream: Any, pool: Any) -> Any:
    if stream is None:
        return Calls(way, sets)
    with torch.cuda.stream(stream):
        way.call(sets[0])
        way.call(sets[-1])
        kept = [way.call(d) for d in sets] if way.pass_ == "backward" else []
    del kept
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        outputs = [way.call(d) for d in sets]
    del outputs
    return graph


def timed(ways: list[tuple[Way, Any]], sets: int, rounds: int, stream: Any) -> list[list[float]]:
    """Microseconds of a call, round by round, of each way in turn."""
    times: list[list[float]] = [[] for _ in ways]
    if stream is None:
        return [[1.0] for _ in ways]
    with torch.cuda.stream(stream):
        for _, graph in ways:
            graph.replay()
        for _ in range(rounds):
            for place, (_, graph) in enumerate(ways):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times[place].append(begin.elapsed_time(end) * 1e3 / sets)
    return times


def copy_rate(rows: Rows) -> float:
    """Bytes a second of a copy kernel, read and written: the best of several block sizes."""
    count = 2**29
    source, target = torch.randn(count, device="cuda", dtype=BF16), torch.empty(count, device="cuda", dtype=BF16)
    best = 0.0
    for block, warps in ((4096, 8), (8192, 8), (2048, 4), (8192, 16)):
        for _ in range(3):
            copy_kernel[(count // block,)](source, target, BLOCK=block, num_warps=warps)
        taken = []
        for _ in range(10):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            copy_kernel[(count // block,)](source, target, BLOCK=block, num_warps=warps)
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end))
        rate = 4 * count / (sorted(taken)[5] * 1e-3)
        best = max(best, rate)
        rows.write(op="copy", config=f"{block} elements, {warps} warps", tb_s=round(rate / 1e12, 3))
    return best


def run_case(case: Case, rows: Rows, rate: float, quick: bool, peers: bool, device: str = "cuda") -> None:
    real = device == "cuda"
    l2 = torch.cuda.get_device_properties(0).L2_cache_size if real else 1
    least = least_bytes(case)
    of_a_set = min(least.values())
    count = sets_needed(of_a_set, l2) if case.op not in ("adamw", "grad_norm") else 2
    maker = MAKERS[case.op]
    size = case.width if case.op in ("adamw", "grad_norm") else case.rows
    sets = [maker(case, size if real else 100_000 if size > 100_000 else 16, device) for _ in range(count)]
    ways = [*our_ways(case, quick), *torch_ways(case)]
    if case.op == "cross_entropy" and case.dtype == BF16:
        ways += ring_ways(case, sets[0])
    if peers:
        for source in (liger_ways, quack_ways, compiled_ways):
            try:
                ways += list(source(case))
            except Exception as error:  # a peer that is not there or does not know the case: said, and left out
                rows.write(op=case.op, rows=case.rows, width=case.width, who=source.__name__, failed=repr(error)[:200])
    stream, pool = (torch.cuda.Stream(), torch.cuda.graph_pool_handle()) if real else (None, None)
    ready = []
    for way in ways:
        try:
            ready.append((way, captured(way, sets, stream, pool)))
        except Exception as error:
            rows.write(op=case.op, rows=case.rows, width=case.width, pass_=way.pass_, who=way.who, config=way.config,
                       failed=repr(error)[:300])  # fmt: skip
            if "illegal" in repr(error) or "device-side assert triggered" in repr(error):
                raise
    long = max(least.values()) * count > 5e9
    taken = timed(ready, count, 7 if long else ROUNDS, stream)
    for (way, _), times in zip(ready, taken, strict=True):
        median = sorted(times)[len(times) // 2]
        rows.write(
            op=case.op, rows=case.rows, width=case.width, dtype=str(case.dtype).removeprefix("torch."),
            pass_=way.pass_, who=way.who, config=way.config, us=round(median, 3), least=round(min(times), 3),
            of_copy=round(least[way.pass_] / (median * 1e-6) / rate, 4), bytes=least[way.pass_],
        )  # fmt: skip


def ring_ways(case: Case, d: dict[str, Any]) -> list[Way]:
    """cross_entropy.cu, in every way it is cut, where it gave the right answer in a process of its own (--ring)."""
    if os.environ.get("RINGS_CHECKED") is None:
        return []
    checked = json.loads(os.environ["RINGS_CHECKED"])
    rings = [ring for ring in ce.RINGS if ring.holds(case.width) and str(ring) in checked]
    return [
        *(Way("undertorch", "forward+gradient", partial(our_entropy, ring, True), str(ring)) for ring in rings),
        *(
            Way("undertorch", "both", partial(our_entropy_both, "one", True, piece=ring), str(ring))
            for ring in rings[:4]
        ),
    ]


def check_rings(out: Path) -> None:
    """Tries cross_entropy.cu in every way, against float64; names those that were right, one a line, as it goes."""
    for width, rows, settings in (
        (50304, 700, (-100, 0.0, "mean", 0.0, None)),
        (1024, 300, (-100, 0.1, "mean", 1e-3, None)),
        (128256, 300, (-100, 0.0, "sum", 0.0, None)),
    ):
        torch.manual_seed(width)
        logits = (torch.randn(rows, width, device="cuda") * 3).bfloat16()
        labels = torch.randint(0, width, (rows,), device="cuda")
        labels[::7] = -100
        logits[torch.arange(rows), labels.clamp_min(0)] += 10
        exact = logits.double().requires_grad_()
        loss = ce.reference(exact, labels, ignore_index=-100, label_smoothing=settings[1], reduction=settings[2],
                            z_loss=settings[3])  # fmt: skip
        loss.backward()
        for ring in ce.RINGS:
            if not ring.holds(width):
                continue
            got, _, _, gradient = ce.forward(logits, labels, None, *settings, True, piece=ring)
            torch.cuda.synchronize()
            off = float((gradient.double() - exact.grad).norm() / exact.grad.norm())
            print(json.dumps({"ring": str(ring), "width": width, "loss": float(abs(got.double() / loss - 1)),
                              "gradient": off, "right": off < 4e-3}), flush=True)  # fmt: skip


def rings(rows: Rows) -> list[str]:
    """The rings that were right at every width, by a process of its own: a hang or a trap there costs no more."""
    command = [sys.executable, __file__, "-", "--ring"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        found: dict[str, bool] = {}
        for line in done.stdout.splitlines():
            row = json.loads(line)
            rows.write(op="check", **row)
            found[row["ring"]] = found.get(row["ring"], True) and row["right"]
        if done.returncode:
            rows.write(op="check", failed=done.stderr[-600:])
        return [ring for ring, right in found.items() if right]
    rows.write(op="check", failed="the rings hung")
    return []


# Compiling first


class _Compiler:
    """Triton's driver for an H200 that launches nothing, so that workers without a GPU fill the cache."""

    def __init__(self) -> None:
        from undertorch.compilers.triton_driver import Driver, put_in_place
        from undertorch.gpus import find

        put_in_place(Driver(find("H200"), lambda launch: None, lambda name, count: None))


def compile_share(share: int, of: int, quick: bool) -> None:
    _Compiler()
    ways = []
    for case in CASES:
        if quick and not case.quick:
            continue
        small = {"cross_entropy": 16}.get(case.op, 16)
        data = MAKERS[case.op](case, 100_000 if case.op in ("adamw", "grad_norm") else small, "cpu")
        ways += [(way, data) for way in our_ways(case, quick or case.quick)]
    for way, data in ways[share::of]:
        with on_host(), contextlib.suppress(Exception):  # what does not fit the GPU is found again, and said, there
            way.call(data)


def compile_all(quick: bool) -> float:
    begin = time.monotonic()
    workers = max(min((os.cpu_count() or 2) - 2, 14), 1)
    each = [[sys.executable, __file__, "-", "--compile", str(n), str(workers), *(["--quick"] if quick else [])]
            for n in range(workers)]  # fmt: skip
    running = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in each]
    for process in running:
        process.wait()
    return time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--quick", action="store_true", help="main shapes, all our configurations, torch; compile for few"
    )
    parser.add_argument("--seconds", type=float, help="start no case after that; 135 (quick) or 450")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="cases whose name holds this word")
    parser.add_argument("--compile", nargs=2, type=int, metavar=("I", "N"))
    parser.add_argument("--ring", action="store_true", help="check cross_entropy.cu and nothing else")
    asked = parser.parse_args()
    os.environ["UNDERTORCH_OPS"] = "own"  # nothing is measured but what is asked for here
    if asked.compile:
        return compile_share(*asked.compile, asked.quick)
    if asked.ring:
        return check_rings(asked.out)
    asked.out.mkdir(parents=True, exist_ok=True)
    rows = Rows(asked.out)
    limit = asked.seconds or (135 if asked.quick else 450)
    if asked.on == "cpu":
        return rehearse(asked, rows)
    rows.write(op="environment", torch=torch.__version__, triton=triton.__version__, gpu=torch.cuda.get_device_name(),
               compile_s=round(compile_all(asked.quick), 1))  # fmt: skip
    os.environ["RINGS_CHECKED"] = json.dumps(rings(rows))
    rate = copy_rate(rows)
    done = 0
    for case in CASES:
        if (asked.quick and not case.quick) or asked.only not in str(case):
            continue
        if time.monotonic() - rows.started > limit:
            rows.write(op="stopped", before=str(case), after_s=limit)
            break
        try:
            run_case(case, rows, rate, asked.quick or case.quick, peers=not asked.quick)
        except Exception as error:
            rows.write(op=case.op, rows=case.rows, width=case.width, failed=repr(error)[:400])
            if "illegal" in repr(error) or "device-side assert triggered" in repr(error):
                raise
        done += 1
        torch.cuda.empty_cache()
    if asked.quick and time.monotonic() - rows.started < limit:
        for case in [case for case in CASES if case.op in ("rms_norm", "cross_entropy") and case.quick][:2]:
            run_compiled(case, rows, rate)
    summary(asked.out)
    return None


def rehearse(asked: Any, rows: Rows) -> None:
    _Compiler()
    for case in CASES:
        if (not asked.quick or case.quick) and asked.only in str(case):
            run_case(case, rows, 1e12, case.quick, peers=not asked.quick, device="cpu")
    summary(asked.out)


def run_compiled(case: Case, rows: Rows, rate: float) -> None:
    """torch.compile alone."""
    least, stream, pool = least_bytes(case), torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    sets = [MAKERS[case.op](case, case.rows, "cuda") for _ in range(2)]
    for way in compiled_ways(case):
        try:
            graph = captured(way, sets, stream, pool)
        except Exception as error:
            rows.write(op=case.op, who=way.who, pass_=way.pass_, failed=repr(error)[:300])
            continue
        (times,) = timed([(way, graph)], len(sets), 7, stream)
        median = sorted(times)[len(times) // 2]
        rows.write(op=case.op, rows=case.rows, width=case.width, dtype=str(case.dtype).removeprefix("torch."),
                   pass_=way.pass_, who=way.who, config="", us=round(median, 3), least=round(min(times), 3),
                   of_copy=round(least[way.pass_] / (median * 1e-6) / rate, 4), bytes=least[way.pass_])  # fmt: skip


def summary(out: Path) -> None:
    """The best of each who, and our three best."""
    rows = [json.loads(line) for line in (out / "ops.jsonl").read_text().splitlines()]
    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if "us" in row:
            cases.setdefault((row["op"], row["rows"], row["width"], row["dtype"], row["pass_"]), []).append(row)
    for key, found in cases.items():
        best = sorted((row for row in found if row["who"] == "undertorch"), key=lambda row: row["us"])[:3]
        others = [row for row in found if row["who"] != "undertorch"]
        print(*key, "|", "; ".join(f"{row['us']:.1f} ({row['of_copy']:.0%}) {row['config']}" for row in best), "|",
              ", ".join(f"{row['who']} {row['us']:.1f}" for row in others), flush=True)  # fmt: skip
    for row in rows:
        if "failed" in row:
            print("failed:", {key: str(value)[:160] for key, value in row.items()}, flush=True)


if __name__ == "__main__":
    main()
