"""Who can do a pass of a case of benchmarks/ops.py, and how it is called: ours, torch, torch.compile, Liger, quack."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

import undertorch.ops
from ops_cases import GATED, MANY_TENSORS, NORMS, Case, Data
from undertorch.ops import choose, norms
from undertorch.ops import cross_entropy_ways as entropy_ways
from undertorch.ops.norm_cuts import backward_tiles, forward_tiles

# The files, whose functions have their names.
adamw_file, entropy_file, norm_file = (
    import_module(f"undertorch.ops.{name}") for name in ("adamw", "cross_entropy", "grad_norm")
)

SMS = 132
"""Of the H200: how a kernel is cut depends on it."""


INPUTS = {"cross_entropy": ("logits",), "rope": ("q", "k"), "attention": ("q", "k", "v")}
"""What an op is differentiable in, where that is not a row, a residual, a weight and a bias."""


@dataclass(frozen=True)
class Way:
    """Somebody's way to do a pass of a case."""

    who: str
    pass_: str
    call: Callable[[Data], Any]
    config: str = ""
    spoils: bool = False
    """Whether it writes over its inputs: then it gets its own, renewed before each round."""
    waits: bool = False
    """Whether it waits for the GPU, so that no graph holds it: then its calls are timed as they come."""


@contextmanager
def mode(name: str) -> Iterator[None]:
    """UNDERTORCH_OPS, with what the other one chose forgotten."""
    before = os.environ.get("UNDERTORCH_OPS")
    os.environ["UNDERTORCH_OPS"] = name
    choose.forget()
    try:
        yield
    finally:
        if before is None:
            del os.environ["UNDERTORCH_OPS"]
        else:
            os.environ["UNDERTORCH_OPS"] = before
        choose.forget()


def differentiated(who: str, case: Case, call: Callable[..., Any], *, how: str | None = None) -> Iterator[Way]:
    """Forward, backward and both of a differentiable function. `how`: its UNDERTORCH_OPS.

    The backward is that of a forward which runs once, outside of what is timed; of a loss, whose forward may compute
    the gradient already, there is only both.
    """
    names = INPUTS.get(case.op, ("x", "residual", "weight", "bias"))
    loss = case.op.endswith("cross_entropy")
    others = ("labels",) if loss else ("cos", "sin") if case.op == "rope" else ()

    def run(d: Data, wants: bool = True) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
        given = [d[name].detach().requires_grad_(wants) for name in names if d.get(name) is not None]
        out = call(*given, *(d[name] for name in others))
        return given, out if isinstance(out, tuple) else (out,)

    def gradients(d: Data, given: list[torch.Tensor], out: tuple[Any, ...], incoming: str, keep: bool) -> Any:
        incomings = [d[incoming].to(out[0].dtype)] if loss else d["incoming"][: len(out)]
        return torch.autograd.grad(out, given, incomings, retain_graph=keep)

    def forward(d: Data) -> Any:
        return run(d, wants=not loss)[1]

    def backward(d: Data) -> Any:
        key = f"kept by {who}"
        if key not in d:
            d[key] = run(d)
        return gradients(d, *d[key], "incoming", True)

    def both(incoming: str, d: Data) -> Any:
        return gradients(d, *run(d), incoming, False)

    def in_mode(function: Callable[[Data], Any], d: Data) -> Any:
        if how is None:
            return function(d)
        with mode(how):
            return function(d)

    yield Way(who, "forward", partial(in_mode, forward))
    if not loss:
        yield Way(who, "backward", partial(in_mode, backward))
    yield Way(who, "both", partial(in_mode, partial(both, "one")))
    if case.op == "cross_entropy":
        yield Way(who, "both, gradient not 1", partial(in_mode, partial(both, "other")))


# Ours


def own_ways(case: Case) -> Iterator[Way]:
    """What the user gets with UNDERTORCH_OPS=own."""
    return _our_ways(case, "own")


def auto_ways(case: Case) -> Iterator[Way]:
    """What the user gets: what is fastest here, which the first call measures. AdamW and the gated have no choice."""
    return _our_ways(case, "auto")


def _our_ways(case: Case, how: str) -> Iterator[Way]:
    who = f"undertorch {how}"
    if case.op == "adamw":
        yield Way(who, "update", partial(_update, None, False))
        yield Way(who, "step", partial(_update, None, True))
    elif case.op == "grad_norm":
        yield Way(who, "norm", lambda d: norm_file.grad_norm(d["g"]))
    elif case.op == "cross_entropy":
        # What `gradient="auto"` settles at once it has seen the incoming gradient.
        early = list(differentiated(who, case, partial(entropy_file.cross_entropy, gradient="forward"), how=how))
        late = list(differentiated(who, case, partial(entropy_file.cross_entropy, gradient="backward"), how=how))
        yield from (*early[:-1], late[-1])
    elif case.op == "attention":
        yield from differentiated(who, case, partial(undertorch.ops.attention, causal=True, **settings(case)), how=how)
    else:
        yield from differentiated(who, case, getattr(undertorch.ops, case.op), how=how)
        if case.op == "linear_cross_entropy" and how == "own":
            narrow = partial(undertorch.ops.linear_cross_entropy, accumulation=case.dtype)
            yield from (way for way in differentiated(f"{who}{NARROW}", case, narrow, how=how) if way.pass_ == "both")


NARROW = ", narrow sums"
"""Of the weight's gradient, over chunks, in its own dtype: as Liger's are unless it is told otherwise."""
WIDE = ", wide sums"


def settings(case: Case) -> dict[str, Any]:
    """Of an attention: `window` or `softcap`, from its variant."""
    *_, last = case.variant.split(", ")
    name, _, number = last.partition(" ")
    return {name: int(number) if name == "window" else float(number)} if name in ("window", "softcap") else {}


def cuts(case: Case, at_most: int | None = None) -> Iterator[Way]:
    """Every way to cut our kernels, or the first few: for tuning, and to compile what `auto` will want to measure."""
    if case.op in NORMS:
        centred = "layer" in case.op
        adds = case.op.startswith("add")
        for tile in forward_tiles(case.width, case.rows, SMS, centred=centred, residual=adds)[:at_most]:
            yield Way("undertorch", "forward", partial(_norm_forward, case, centred, tile), str(tile))
        size = case.dtype.itemsize
        for tile in backward_tiles(case.width, case.rows, SMS, centred=centred, total=adds, itemsize=size)[:at_most]:
            yield Way("undertorch", "backward", partial(_norm_backward, case, centred, tile), str(tile))
    elif case.op == "cross_entropy":
        for piece in entropy_ways.pieces(case.width, entropy_ways.LOSS_PIECES)[:at_most]:
            yield Way("undertorch", "forward", partial(_entropy, piece, False), str(piece))
        both = [*entropy_ways.pieces(case.width, entropy_ways.BOTH_PIECES)[:at_most]]
        if case.dtype == torch.bfloat16 and case.width % 8 == 0 and torch.cuda.is_available():
            both += [ring for ring in entropy_ways.RINGS if ring.holds(case.width)][: at_most and 2]
        for piece in both:
            yield Way("undertorch", "both", partial(_entropy, piece, True), str(piece))
    elif case.op == "adamw":
        for configuration in adamw_file.CONFIGURATIONS[:at_most]:
            yield Way("undertorch", "update", partial(_update, configuration, False), str(configuration))
    elif case.op == "grad_norm":
        for configuration in (
            (32768, 4096, 8), (16384, 2048, 4), (65536, 4096, 8), (8192, 2048, 8), (16384, 4096, 16),
        )[:at_most]:  # fmt: skip
            yield Way("undertorch", "norm", partial(_norm, configuration), str(configuration))


def _norm_forward(case: Case, centred: bool, tile: Any, d: Data) -> Any:
    return norms.forward(d["x"], d["residual"], d["weight"], d["bias"], 1e-5, centred=centred, name=case.op, tile=tile)


def _norm_backward(case: Case, centred: bool, tile: Any, d: Data) -> Any:
    if "statistics" not in d:
        *_, mean, rstd = _norm_forward(case, centred, forward_tiles(case.width, case.rows, SMS)[0], d)
        d["statistics"] = mean, rstd
    bias, (dy, *dtotal) = d["bias"], d["incoming"]
    return norms.backward(
        dy, dtotal[0] if dtotal else None, d["x"], d["weight"], *d["statistics"], None if bias is None else bias.dtype,
        True, True, bias is not None, centred=centred, name=case.op, tile=tile,
    )  # fmt: skip


def _entropy(piece: Any, gradient: bool, d: Data) -> Any:
    return entropy_file.forward(d["logits"], d["labels"], None, -100, 0.0, "mean", 0.0, None, gradient, piece=piece)


def _update(configuration: Any, with_norm: bool, d: Data) -> Any:
    norm = norm_file.grad_norm(d["g"]) if with_norm else d["norm"]
    adamw_file.adamw(
        d["p"], d["g"], d["m"], d["v"], d["steps"], lr=1e-4, masters=d["masters"], norm=norm, max_norm=1.0,
        configuration=configuration,
    )  # fmt: skip


def _norm(configuration: Any, d: Data) -> Any:
    return norm_file.sum_of_squares(d["g"], configuration)


# torch


def plain(case: Case) -> Callable[..., Any]:
    """The case in plain torch."""
    shape = (case.width,)

    def norm(x: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
        if "layer" in case.op:
            return functional.layer_norm(x, shape, *vectors, 1e-5)
        return functional.rms_norm(x, shape, *vectors, 1e-5)

    def added(x: torch.Tensor, residual: torch.Tensor, *vectors: torch.Tensor) -> Any:
        total = x + residual
        return norm(total, *vectors), total

    activation = functional.silu if case.op == "swiglu" else functional.gelu
    calls: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(NORMS[:2], norm),
        **dict.fromkeys(NORMS[2:], added),
        **dict.fromkeys(GATED, lambda gate, up: activation(gate) * up),
        "softmax": partial(torch.softmax, dim=-1),
        "rope": _rope,
        "linear_act": lambda x, weight, bias: functional.gelu(functional.linear(x, weight, bias)),
        "attention": partial(functional.scaled_dot_product_attention, is_causal=True),
        "cross_entropy": functional.cross_entropy,
        "linear_cross_entropy": lambda x, weight, labels: functional.cross_entropy(x @ weight.t(), labels),
    }
    return calls[case.op]


def _rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    """As transformers writes it."""
    cos, sin = (torch.cat([table, table], -1) for table in (cos, sin))

    def turned(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    return turned(q), turned(k)


def _by_cudnn(*given: torch.Tensor) -> Any:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return functional.scaled_dot_product_attention(*given, is_causal=True)


def _flex(case: Case) -> Callable[..., Any]:
    """torch's flex_attention, compiled: the only way of its own to cap scores or to leave out those that are far."""
    given = settings(case)

    def seen(batch: Any, head: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < given["window"]) if "window" in given else q >= k

    def capped(score: Any, batch: Any, head: Any, q: Any, k: Any) -> Any:
        return given["softcap"] * torch.tanh(score / given["softcap"])

    mask = flex_attention.create_block_mask(seen, None, None, case.rows, case.rows)
    call = torch.compile(flex_attention.flex_attention, dynamic=False)
    return partial(call, score_mod=capped if "softcap" in given else None, block_mask=mask)


def torch_ways(case: Case) -> Iterator[Way]:
    """torch in eager; AdamW by its fused kernel, which takes no float32 masters of half parameters."""
    if case.op == "grad_norm":
        yield Way("torch", "norm", lambda d: torch.nn.utils.get_total_norm(d["g"]))
    elif case.op == "adamw":
        yield Way("torch", "update", _torch_update)
        yield Way("torch", "step", _torch_step)
    elif case.op == "attention":
        if not settings(case):
            yield from differentiated("torch", case, plain(case))
            yield from differentiated("torch, cuDNN", case, _by_cudnn)
    else:
        yield from differentiated("torch", case, plain(case))


def _torch_update(d: Data) -> None:
    kept, gradients = (d["masters"], [g.float() for g in d["g"]]) if d["masters"] else (d["p"], d["g"])
    torch._fused_adamw_(
        kept, gradients, d["m"], d["v"], [], d["steps"],
        lr=1e-4, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    if d["masters"]:
        torch._foreach_copy_(d["p"], d["masters"])


def _torch_step(d: Data) -> None:
    norm = torch.nn.utils.get_total_norm(d["g"])
    torch._foreach_mul_(d["g"], (1.0 / (norm + 1e-6)).clamp(max=1.0))
    _torch_update(d)


def compiled_ways(case: Case) -> Iterator[Way]:
    """torch.compile of plain torch, for this very shape."""
    if case.op not in MANY_TENSORS:
        torch._dynamo.reset()
        # Otherwise a compiled backward may reuse what the forward kept, and cannot run twice.
        import_module("torch._functorch.config").donated_buffer = False
        if settings(case):
            yield from differentiated("torch.compile", case, _flex(case))
            return
        yield from differentiated("torch.compile", case, torch.compile(plain(case), dynamic=False))


# Peers


def liger_ways(case: Case) -> Iterator[Way]:
    """Liger's functions. Some of them write gradients over their inputs."""
    ops = import_module("liger_kernel.ops")
    llama = (1e-5, 0.0, "llama", False)
    calls: dict[str, Callable[..., Any]] = {
        "rms_norm": lambda x, w: ops.LigerRMSNormFunction.apply(x, w, *llama),
        "layer_norm": lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-5),
        "add_rms_norm": lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, *llama),
        "swiglu": ops.LigerSiLUMulFunction.apply,
        "geglu": ops.LigerGELUMulFunction.apply,
        "rope": _liger_rope,
        "softmax": ops.LigerSoftmaxFunction.apply,
        "cross_entropy": lambda logits, labels: ops.LigerCrossEntropyFunction.apply(logits, labels, None, -100)[0],
        "linear_cross_entropy": lambda x, w, labels: ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, labels)[0],
    }
    if case.op in calls:
        spoils = case.op == "cross_entropy" or case.op in GATED
        waits = case.op.endswith("cross_entropy")  # for the number of labels that are not ignored
        for way in differentiated("liger", case, calls[case.op]):
            yield replace(way, spoils=spoils, waits=waits)
    if case.op == "linear_cross_entropy":
        given = (None, None, -100, 0.0, 0.0, "mean", None, False, torch.float32)
        linear = ops.LigerFusedLinearCrossEntropyFunction.apply
        for way in differentiated(f"liger{WIDE}", case, lambda x, w, labels: linear(x, w, labels, *given)[0]):
            if way.pass_ == "both":
                yield replace(way, waits=True)


def _liger_rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    cos, sin = (table.repeat(1, 2).unsqueeze(0) for table in (cos, sin))
    return import_module("liger_kernel.ops").LigerRopeFunction.apply(q, k, cos, sin)


def quack_ways(case: Case) -> Iterator[Way]:
    """quack's functions, where it is installed."""
    if case.op == "rms_norm":
        rmsnorm = import_module("quack.rmsnorm").rmsnorm
        yield from differentiated("quack", case, lambda x, w: rmsnorm(x, w, eps=1e-5))
    elif case.op == "cross_entropy":
        entropy = import_module("quack.cross_entropy").cross_entropy
        yield from differentiated("quack", case, lambda logits, labels: entropy(logits, labels, reduction="mean"))
    elif case.op == "softmax":
        yield from differentiated("quack", case, import_module("quack.softmax").softmax)


PEERS = {"torch": torch_ways, "torch.compile": compiled_ways, "liger": liger_ways, "quack": quack_ways}
