"""A linear layer with its activation: act(x @ weight.T + bias), as the first half of a feed-forward layer.

Contract
    x: (..., D), weight: (F, D), bias: None or (F,), of one dtype (under autocast of its dtype), any strides, float32,
    bfloat16 or float16 on CUDA (anything that floats elsewhere). activation: `relu`, `gelu`,
    `gelu_tanh` or `silu`. The result is (..., F), row-major, in that dtype. Products add up in float32 as torch's
    matmul does, with its settings; activations and the bias's gradient are float32. Kept for the backward: x, weight,
    and what goes into the activation (of relu its result, which is there anyway). Gradients that nobody asks for are
    not computed. The same result every time as far as torch's matmul gives it. Raises BadCall.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from undertorch.costs.building import ceil_div
from undertorch.costs.linear_act import (
    ACTIVATED_PIECE,
    ACTIVATED_WARPS,
    STRIP_COLUMNS,
    STRIP_ROWS,
    STRIP_WARPS,
    shares_of,
)
from undertorch.costs.training_ops import SUMMED_COLUMNS, SUMMED_WARPS
from undertorch.ops import linear_act_kernels as kernels
from undertorch.ops.calls import (
    Arguments,
    BadCall,
    as_autocast_hands_them,
    multiprocessors,
    no_tensor,
    on_device_of,
    rows_of,
    runs_own,
)
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import chosen, prefers_library
from undertorch.ops.gated import KINDS as GATED_KINDS
from undertorch.ops.launching import launch
from undertorch.ops.norm_kernels import column_sums
from undertorch.ops.operators import differentiable, operator

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
KINDS = {**GATED_KINDS, "relu": 3}
"""As gated_kernels.py numbers them."""

ARGUMENTS = Arguments(
    layout="x (..., D); weight (F, D), as nn.Linear(D, F).weight is; bias (F,) or None; the result is (..., F)",
    unlike_torch="There is none; it is act(F.linear(x, weight, bias)), and `gelu` is F.gelu's default, by erf",
)

# Reference


def reference(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation = "gelu") -> Tensor:
    """The definition, in plain torch: of half types the activation is computed in float32."""
    check(x, weight, bias, activation)
    before = functional.linear(x, weight, bias)
    value = before.float() if before.dtype in (torch.bfloat16, torch.float16) else before
    if activation == "relu":
        value = torch.relu(value)
    elif activation == "silu":
        value = functional.silu(value)
    else:
        value = functional.gelu(value, approximate="tanh" if activation == "gelu_tanh" else "none")
    return value.to(before.dtype)


def check(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> None:
    """Raises BadCall where shapes do not fit together."""
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[-1] or not x.is_floating_point():
        raise BadCall(
            f"linear_act: x is {tuple(x.shape)} {x.dtype} and weight {tuple(weight.shape)}; pass floats of (..., D) "
            "and (F, D)."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise BadCall(f"linear_act: bias has shape {tuple(bias.shape)} and the layer {weight.shape[0]} features.")
    if any(tensor is not None and tensor.dtype != x.dtype for tensor in (weight, bias)):
        types = f"{x.dtype}, weight {weight.dtype}{'' if bias is None else f' and bias {bias.dtype}'}"
        raise BadCall(f"linear_act: x is {types}; pass one dtype.")
    if not isinstance(activation, str) or activation not in KINDS:
        raise BadCall(f"linear_act: activation is {activation!r}; it is one of {', '.join(KINDS)}.")


# Kernels: linear_act_kernels.py, and torch's matmul.


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """cuBLASLt's, by torch's _addmm_activation: nothing else runs, and nothing is kept."""

    def __str__(self) -> str:
        return "epilogue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """torch's matmul with the bias, then a kernel for the activation."""

    def __str__(self) -> str:
        return "product, then activation"


def ways(x: Tensor, kind: int, keep: bool) -> tuple[Any, ...]:
    """Who may serve the forward, the usual one first. An epilogue writes the result only: of relu that is enough."""
    found: list[Any] = [Apart()]
    on_cuda = x.is_cuda and torch.version.cuda is not None
    # Its GELU is good to 1e-6 of the result (H200, CUDA 13.0): enough for half types, not for float32.
    gelu = kind == KINDS["gelu_tanh"] and not keep and x.dtype != torch.float32
    if on_cuda and (kind == KINDS["relu"] or gelu):
        found.insert(0, Epilogue())
    return tuple(found)


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, kind: int, keep: bool, *, way: Any = None
) -> tuple[Tensor, Tensor | None]:
    """The result; and what goes into the activation, where that is to be kept (never of relu)."""
    features, inputs = weight.shape
    shape = (*x.shape[:-1], features)
    keep = keep and kind != KINDS["relu"]
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y, torch.empty_like(y) if keep else None
    source = rows_of(x, inputs) if inputs else x.new_empty((y.numel() // features, 0))
    if way is None:
        again: Any = forward
        way = chosen(
            "linear_act_forward",
            x,
            source.shape[0],
            features,
            ways(x, kind, keep),
            lambda way, given: again(*given, kind, keep, way=way),
            (x, weight, bias),
            detail=f"from {inputs}, {next(name for name, number in KINDS.items() if number == kind)}{', kept' * keep}",
        )
    if isinstance(way, Epilogue):
        vector = weight.new_zeros(features) if bias is None else bias
        return torch._addmm_activation(vector, source, weight.t(), use_gelu=kind != KINDS["relu"]).view(shape), None
    before = torch.mm(source, weight.t()) if bias is None else torch.addmm(bias, source, weight.t())
    before = before.view(shape)
    if not keep:
        y = before  # over what nobody needs any more
    pieces = ceil_div(y.numel(), ACTIVATED_PIECE)
    with on_device_of(x):
        launch(
            kernels.activate, (pieces,),
            before, y, y.numel(), KIND=kind, BLOCK=ACTIVATED_PIECE, num_warps=ACTIVATED_WARPS
        )  # fmt: skip
    return y, before if keep else None


def backward(
    dy: Tensor, x: Tensor, weight: Tensor, kept: Tensor, kind: int, need_x: bool, need_weight: bool, need_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients that are needed. `kept`: what went into the activation, or what came out of relu."""
    features, inputs = weight.shape
    dbias = torch.empty(features, dtype=x.dtype, device=x.device) if need_bias else None
    if kept.numel() == 0:
        return (
            torch.zeros(x.shape, dtype=x.dtype, device=x.device) if need_x else None,
            torch.zeros(weight.shape, dtype=weight.dtype, device=x.device) if need_weight else None,
            None if dbias is None else dbias.zero_(),
        )
    source, given = rows_of(x, inputs) if inputs else x.new_empty((kept.numel() // features, 0)), rows_of(dy, features)
    before = kept.view(-1, features)
    rows = before.shape[0]
    shares = shares_of(rows, features, multiprocessors(x))
    dbefore = torch.empty_like(before)
    sums = torch.empty((shares, features), dtype=torch.float32, device=x.device) if need_bias else None
    with on_device_of(x):
        launch(
            kernels.activate_backward, (ceil_div(features, STRIP_COLUMNS), shares),
            given, before, dbefore, sums, rows, features, given.stride(0),
            NEED_BIAS=need_bias, KIND=kind, ROWS=STRIP_ROWS, COLUMNS=STRIP_COLUMNS, num_warps=STRIP_WARPS,
        )  # fmt: skip
        if dbias is not None:
            columns = SUMMED_COLUMNS[features > 8192]
            launch(
                column_sums,
                (ceil_div(features, columns), 1),
                sums,
                dbias,
                dbias,
                shares,
                features,
                ROWS=32,
                BLOCK=columns,
                num_warps=SUMMED_WARPS,
            )
    dx = torch.mm(dbefore, weight).view(x.shape) if need_x else None
    dweight = torch.mm(dbefore.t(), source) if need_weight else None
    return dx, dweight, dbias


# Autograd

FORWARD = operator(
    "linear_act_forward",
    "(Tensor x, Tensor weight, Tensor? bias, int kind, bool keep) -> (Tensor, Tensor)",
    forward,
    lambda x, weight, bias, kind, keep: (
        x.new_empty((*x.shape[:-1], weight.shape[0])),
        x.new_empty((*x.shape[:-1], weight.shape[0])) if keep and kind != KINDS["relu"] else None,
    ),
)
BACKWARD = operator(
    "linear_act_backward",
    "(Tensor dy, Tensor x, Tensor weight, Tensor kept, int kind, bool need_x, bool need_weight, bool need_bias)"
    " -> (Tensor, Tensor, Tensor)",
    backward,
    lambda dy, x, weight, kept, kind, need_x, need_weight, need_bias: (
        x.new_empty(x.shape) if need_x else None,
        weight.new_empty(weight.shape) if need_weight else None,
        x.new_empty(weight.shape[:1]) if need_bias else None,
    ),
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, weight, _, ctx.kind, _ = inputs
    y, before = output
    ctx.set_materialize_grads(False)
    if before is not None:
        ctx.mark_non_differentiable(before)
    ctx.save_for_backward(x, weight, y if ctx.kind == KINDS["relu"] else before)


def _gradients(ctx: Any, dy: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if dy is None:
        return None, None, None, None, None
    x, weight, kept = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    found = BACKWARD(dy, x, weight, kept, ctx.kind, *needs)
    return *(gradient if need else None for gradient, need in zip(found, needs, strict=True)), None, None


_CALL = differentiable(FORWARD, _setup, _gradients)

# Cost: costs/linear_act.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="forward",
        who="PyTorch",
        kernel="_addmm_activation: cuBLASLt's epilogue",
        serves="relu; gelu_tanh of half types where no gradient is asked for",
        why="nothing but the product runs. Of gelu a backward needs what went in, which torch's call does not give",
    ),
    Candidate(
        passes="forward",
        who="undertorch",
        kernel="torch's addmm, then activate (Triton)",
        serves="everything",
        why="torch's matmul at full rate. A product with the activation in it in Triton, which spares a read, was "
        "slower and was dropped",
    ),
    Candidate(
        passes="backward",
        who="undertorch",
        kernel="activate_backward and column_sums (Triton), torch's matmuls",
        serves="everything",
        why="torch goes over the gradient once more for the bias",
    ),
)


def linear_act(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation = "gelu") -> Tensor:
    """act(x @ weight.T + bias), differentiable in all three. Raises BadCall."""
    if not (isinstance(x, Tensor) and isinstance(weight, Tensor)):
        raise no_tensor("linear_act", x=x, weight=weight)
    if bias is not None and not isinstance(bias, Tensor):
        raise no_tensor("linear_act", bias=bias)
    x, weight, bias = as_autocast_hands_them(x, weight, bias)
    given = [tensor for tensor in (x, weight, bias) if tensor is not None]
    if prefers_library() or not runs_own(*given):
        return reference(x, weight, bias, activation)
    check(x, weight, bias, activation)
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    y: Tensor = _CALL(x, weight, bias, KINDS[activation], keep)[0]
    return y
