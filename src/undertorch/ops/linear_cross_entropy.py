"""The last linear layer and its cross-entropy together: cross_entropy(x @ weight.T, labels), without all the logits.

Contract
    x: (..., D) and weight: (V, D), of one dtype (under autocast of its dtype), any strides, float32 or bfloat16 on CUDA
    (anything that floats elsewhere; float16, whose gradients underflow without loss scaling, goes through the
    reference). labels as of cross_entropy, with its options; the reduction is `mean` or `sum`. Logits exist for some
    rows at a time, about CHUNK_BYTES of them, in x's dtype. Where gradients are wanted they are computed with the loss,
    for an incoming gradient of 1, and scaled by the incoming one after: that is exact but for a rounding. The weight's
    is summed over the chunks in `accumulation`: float32, or the weight's own dtype, which needs half the memory of
    bfloat16's and rounds once a chunk. The same result every time as far as torch's matmul gives it. Raises BadCall.
"""

from functools import cache
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from undertorch.costs.training_ops import LOGITS_BYTES
from undertorch.ops import cross_entropy_kernels as kernels
from undertorch.ops.calls import BadCall, most_warps, on_device_of, rows_of, runs_own
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import prefers_library
from undertorch.ops.cross_entropy import (
    BOTH_PIECES,
    LOSS_PIECES,
    MOST_AT_ONCE,
    Settings,
    check,
    pieces,
    raise_told,
    told,
)
from undertorch.ops.cross_entropy import reference as cross_entropy_reference
from undertorch.ops.operators import differentiable, operator

CHUNK_BYTES = LOGITS_BYTES

# Reference


def reference(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
    z_loss: float = 0.0,
    softcap: float | None = None,
) -> Tensor:
    """The definition, in plain torch."""
    logits = x @ weight.t()
    return cross_entropy_reference(
        logits, labels, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction,
        z_loss=z_loss, softcap=softcap,
    )  # fmt: skip


# Kernels: torch's matmul, and cross_entropy_kernels.py, which writes the gradient over the chunk's own logits.


def forward(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    ignore_index: int,
    smoothing: float,
    reduction: str,
    z_loss: float,
    softcap: float | None,
    accumulation: torch.dtype,
    need_x: bool,
    need_weight: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The loss, and the gradients of x and weight that are needed."""
    settings = Settings(
        ignore_index=ignore_index, smoothing=smoothing, reduction=reduction, z_loss=z_loss, softcap=softcap
    )
    classes, features = weight.shape
    source, flat = rows_of(x, features), labels.reshape(-1)
    rows, device = flat.numel(), x.device
    dx = torch.zeros(x.shape, dtype=x.dtype, device=device) if need_x else None
    dweight = torch.zeros(weight.shape, dtype=accumulation, device=device) if need_weight else None
    result, denominator = torch.zeros((2,), dtype=torch.float32, device=device)
    if rows == 0 or classes == 0:
        loss = result.fill_(float("nan")) if reduction == "mean" else result
        return loss.clone(), dx, None if dweight is None else dweight.to(weight.dtype)
    loss = torch.empty(rows, dtype=torch.float32, device=device)
    mean, gradient = reduction == "mean", need_x or need_weight
    block = min(triton.next_power_of_2(rows), MOST_AT_ONCE)
    one_block: dict[str, Any] = {"BLOCK": block, "num_warps": most_warps(max(block // 512, 1))}
    piece = pieces(classes, BOTH_PIECES if gradient else LOSS_PIECES)[0]
    at_once = max(CHUNK_BYTES // (classes * x.element_size()), 1)
    with on_device_of(x):
        if mean:
            kernels.label_weight[(1,)](
                flat, None, denominator, rows, classes, ignore_index, WEIGHTED=False, **one_block
            )
        for begin in range(0, rows, at_once):
            part = source[begin : begin + at_once]
            here = part.shape[0]
            logits = part @ weight.t()
            lse = torch.empty((2, here), dtype=torch.float32, device=device)
            kernels.losses[(here,)](
                logits, flat[begin:], None, None, denominator, loss[begin:], lse, logits, told(x),
                here, classes, logits.stride(0), *settings.numbers,
                **settings.flags, WEIGHTED=False, MEAN=mean, GRADIENT=gradient, BLOCK=piece.block,
                num_warps=most_warps(piece.warps),
            )  # fmt: skip
            if dx is not None:
                torch.mm(logits, weight, out=dx.view(-1, features)[begin : begin + here])
            if dweight is not None:
                _add_product(dweight, logits.t(), part)
        kernels.reduced[(1,)](loss, denominator, result, rows, MEAN=mean, **one_block)
    return result.clone(), dx, None if dweight is None else dweight.to(weight.dtype)


def _add_product(total: Tensor, first: Tensor, second: Tensor) -> None:
    """total += first @ second, in one pass over the total where torch can."""
    if total.dtype == first.dtype:
        total.addmm_(first, second)
    elif _adds_products_in(total.dtype, first.dtype, first.device):
        torch.addmm(total, first, second, out_dtype=total.dtype, out=total)
    else:
        total += first @ second


@cache
def _adds_products_in(wide: torch.dtype, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this torch adds a product of the dtype to a matrix of a wider one: on CUDA, from some version on."""
    a, total = torch.zeros((16, 16), dtype=dtype, device=device), torch.zeros((16, 16), dtype=wide, device=device)
    try:
        torch.addmm(total, a, a, out_dtype=wide, out=total)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


# Autograd


def _fake(x: Tensor, weight: Tensor, *rest: Any) -> Any:
    need_x, need_weight = rest[-2:]
    return (
        x.new_empty((), dtype=torch.float32),
        x.new_empty(x.shape) if need_x else None,
        weight.new_empty(weight.shape) if need_weight else None,
    )


FORWARD = operator(
    "linear_cross_entropy_forward",
    "(Tensor x, Tensor weight, Tensor labels, int ignore_index, float smoothing, str reduction, float z_loss,"
    " float? softcap, ScalarType accumulation, bool need_x, bool need_weight) -> (Tensor, Tensor, Tensor)",
    forward,
    _fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, dx, dweight = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(tensor for tensor in (dx, dweight) if tensor is not None))
    ctx.save_for_backward(dx, dweight)


def _gradients(ctx: Any, incoming: Tensor | None, *_: Any) -> tuple[Any, ...]:
    nothing = (None,) * 9
    if incoming is None:
        return None, None, *nothing
    needs = ctx.needs_input_grad[:2]
    scaled = (
        (kept * incoming).to(kept.dtype) if need else None for kept, need in zip(ctx.saved_tensors, needs, strict=True)
    )
    return *scaled, *nothing


_CALL = differentiable(FORWARD, _setup, _gradients)

# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="both",
        who="undertorch",
        kernel="torch's matmul and losses (Triton), some rows at a time",
        serves="float32 and bfloat16 on one GPU",
        why="the logits and their gradient are the largest tensors of a small model's step, and here never exist whole",
    ),
    Candidate(
        passes="both",
        who="PyTorch",
        kernel="the reference",
        serves="UNDERTORCH_OPS=library, other dtypes, the CPU",
        why="for what the kernels do not take",
    ),
)


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
    z_loss: float = 0.0,
    softcap: float | None = None,
    accumulation: torch.dtype = torch.float32,
) -> Tensor:
    """cross_entropy(x @ weight.T, labels), differentiable in x and weight. Raises BadCall and BadLabel."""
    if reduction not in ("mean", "sum"):
        raise BadCall(f"linear_cross_entropy: reduction is {reduction!r}; it is mean or sum.")
    if accumulation not in (torch.float32, weight.dtype):
        raise BadCall(
            f"linear_cross_entropy: accumulation is {accumulation}; it is torch.float32 or the weight's {weight.dtype}."
        )
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[-1]:
        raise BadCall(
            f"linear_cross_entropy: x is {tuple(x.shape)} and weight {tuple(weight.shape)}; pass (..., D) and (V, D)."
        )
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        accumulation = torch.float32 if accumulation == torch.float32 else dtype
        x, weight = x.to(dtype), weight.to(dtype)
    if prefers_library() or not runs_own(x, weight) or x.dtype != weight.dtype or x.dtype == torch.float16:
        return reference(
            x, weight, labels, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction,
            z_loss=z_loss, softcap=softcap,
        )  # fmt: skip
    logits = x.new_empty((1,)).expand(*x.shape[:-1], weight.shape[0])  # what they would be, for the check
    check(logits, labels, None, label_smoothing, reduction, softcap)
    raise_told(x)
    needs = (torch.is_grad_enabled() and x.requires_grad, torch.is_grad_enabled() and weight.requires_grad)
    loss: Tensor = _CALL(
        x, weight, labels, ignore_index, label_smoothing, reduction, z_loss, softcap, accumulation, *needs
    )[0]  # fmt: skip
    return loss
