"""The last linear layer and its cross-entropy together: cross_entropy(x @ weight.T, labels), without all the logits.

Contract
    x: (..., D) and weight: (V, D), of one dtype (under autocast of its dtype), any strides, float32 or bfloat16 on CUDA
    (anything that floats elsewhere; float16, whose gradients underflow without loss scaling, goes through the
    reference). labels as of cross_entropy, with its options; the reduction is `mean` or `sum`. Logits exist for some
    rows at a time (logit_rows), in x's dtype. Where gradients are wanted they are computed with the loss, for an
    incoming gradient of 1; the backward looks at the incoming one on the GPU and scales them in place if it is another,
    which is exact but for a rounding. A second backward computes them again. The weight's gradient is summed over the
    chunks in `accumulation`: float32, or the weight's own dtype, which of bfloat16 needs half the memory and rounds
    once a chunk. The same result every time as far as torch's matmul gives it. Raises BadCall.
"""

from functools import cache, partial
from typing import Any, Literal
from warnings import warn

import torch
from torch import Tensor
from torch.nn import functional

from undertorch.costs.training_ops import (
    SCALED_PIECE,
    SCALED_WARPS,
    logit_bytes,
    logit_rows,
    padded,
    scaling_blocks,
    whole_classes,
)
from undertorch.ops import cross_entropy_kernels as kernels
from undertorch.ops.calls import (
    PLAIN,
    Arguments,
    BadCall,
    as_autocast_hands_them,
    most_warps,
    multiprocessors,
    no_tensor,
    on_device_of,
    rows_of,
    runs_own,
)
from undertorch.ops.candidates import Candidate, by_reference
from undertorch.ops.choose import chosen, prefers_library
from undertorch.ops.cross_entropy import MOST_AT_ONCE, check
from undertorch.ops.cross_entropy import forward as cross_entropy_forward
from undertorch.ops.cross_entropy import reference as cross_entropy_reference
from undertorch.ops.cross_entropy_ways import Settings, launch_losses, loss_pieces, side_by_side, ways_of_both
from undertorch.ops.launching import launch
from undertorch.ops.operators import differentiable, operator
from undertorch.ops.told import raise_told

CHUNK_BYTES: int | None = None
"""Of logits at a time; None: as measured best."""

WHOLE_IN_FLOAT16 = "linear_cross_entropy: of float16 all logits are made at once, by torch; bfloat16 spares them."

ARGUMENTS = Arguments(
    layout="x (..., D); weight (V, D) of the last layer, as nn.Linear(D, V, bias=False).weight is; labels (...), "
    "integers; the loss is float32 (float64 of float64), without dimensions",
    unlike_torch="F.linear_cross_entropy (torch 2.13) takes them in this order too, but its `weight` is that of the "
    "classes, which is not served here, nor are linear_bias and reduction='none'; of x with more than two dimensions "
    "its classes are in dimension 1 of the logits, here last. Defaults are the same",
)

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


# Kernels: torch's matmul, and the cross-entropy's, which write the gradient over the chunk's own logits.


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
    *,
    at_once: int | None = None,
    way: Any = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The loss, and the gradients of x and weight that are needed. `at_once`: rows of a chunk; `way`: of its losses."""
    settings = Settings(
        ignore_index=ignore_index, smoothing=smoothing, reduction=reduction, z_loss=z_loss, softcap=softcap
    )
    classes, features = weight.shape
    source, flat = rows_of(x, features), side_by_side(labels)
    rows, device, mean = flat.numel(), x.device, reduction == "mean"
    result, denominator = (torch.empty((), dtype=torch.float32, device=device) for _ in range(2))
    dx = torch.empty(x.shape, dtype=x.dtype, device=device) if need_x else None
    if rows == 0 or classes == 0:
        nothing = torch.zeros(weight.shape, dtype=weight.dtype, device=device) if need_weight else None
        return result.fill_(float("nan") if mean else 0.0), None if dx is None else dx.zero_(), nothing
    weight_of_whole = _with_whole_vectors(weight)
    dweight = torch.empty(weight_of_whole.shape, dtype=accumulation, device=device) if need_weight else None
    loss = torch.empty(rows, dtype=torch.float32, device=device)
    block = min(padded(rows), MOST_AT_ONCE)
    one_block: dict[str, Any] = {"BLOCK": block, "num_warps": most_warps(max(block // 512, 1))}
    if at_once is None:
        wide = need_weight and accumulation != weight.dtype
        most = CHUNK_BYTES or logit_bytes(accumulation.itemsize if need_weight else None)
        at_once = logit_rows(rows, classes, features, x.element_size(), most, wide=wide)
    buffer = x.new_empty((min(at_once, rows), weight_of_whole.shape[0]))
    with on_device_of(x):
        if mean:
            launch(
                kernels.label_weight,
                (1,),
                flat,
                None,
                denominator,
                rows,
                classes,
                ignore_index,
                WEIGHTED=False,
                **one_block,
            )
        for begin in range(0, rows, at_once):
            part, labels_here = source[begin : begin + at_once], flat[begin : begin + at_once]
            logits = torch.mm(part, weight_of_whole.t(), out=buffer[: part.shape[0]])
            of_classes = logits[:, :classes]
            if way is None:
                way = _way(of_classes, labels_here, settings, gradient=need_x or need_weight)
            launch_losses(
                way, of_classes, labels_here, None, settings, denominator if mean else None,
                loss[begin:], loss.new_empty((2, part.shape[0])), of_classes if need_x or need_weight else None,
            )  # fmt: skip
            if dx is not None:
                torch.mm(logits, weight_of_whole, out=dx.view(rows, features)[begin : begin + at_once])
            if dweight is not None:
                _add_product(dweight, logits.t(), part, first=begin == 0)
        launch(kernels.reduced, (1,), loss, denominator, result, rows, MEAN=mean, **one_block)
    del buffer, logits, of_classes  # before there are two of the weight's gradient
    return result, dx, None if dweight is None else dweight[:classes].to(weight.dtype)


def _with_whole_vectors(weight: Tensor) -> Tensor:
    """With classes of zeros after the last, to a multiple of 8: cuBLAS takes four times as long on 32768 x 768 x 50257
    as on 50304. Their logits are 0 and stay so, for the losses leave them out; so do they add nothing to x's gradient.
    """
    more = whole_classes(weight.shape[0]) - weight.shape[0]
    return functional.pad(weight, (0, 0, 0, more)) if more else weight


def _way(logits: Tensor, labels: Tensor, settings: Settings, *, gradient: bool) -> Any:
    """How the losses of the chunks are computed: as cross_entropy's of as many rows."""
    rows, classes = logits.shape
    if not gradient:
        return loss_pieces(classes, logits.element_size(), gradient=False)[0]
    alone = (settings.ignore_index, settings.smoothing, settings.reduction, settings.z_loss, settings.softcap)
    return chosen(
        "cross_entropy_forward",
        logits,
        rows,
        classes,
        partial(ways_of_both, logits, logits, None, settings.softcap),
        lambda way, given: cross_entropy_forward(given[0], labels, None, *alone, True, piece=way),
        (logits,),
        detail="with gradient",
    )


def _add_product(total: Tensor, one: Tensor, other: Tensor, *, first: bool) -> None:
    """total += one @ other, in one pass over the total where torch can; `first`: total = one @ other."""
    if total.dtype == one.dtype:
        torch.mm(one, other, out=total) if first else total.addmm_(one, other)
    elif not _adds_products_in(total.dtype, one.dtype, one.device):
        total.copy_(one @ other) if first else total.add_(one @ other)
    elif first:
        torch.mm(one, other, out_dtype=total.dtype, out=total)
    else:
        torch.addmm(total, one, other, out_dtype=total.dtype, out=total)


@cache
def _adds_products_in(wide: torch.dtype, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this torch adds a product of the dtype to a matrix of a wider one: on CUDA, from some version on."""
    a, total = torch.zeros((16, 16), dtype=dtype, device=device), torch.zeros((16, 16), dtype=wide, device=device)
    try:
        torch.addmm(total, a, a, out_dtype=wide, out=total)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


def scale(gradients: list[Tensor], incoming: Tensor) -> None:
    """Multiplies tensors of one dtype by the incoming gradient, in place. Where it is 1 nothing is read of them."""
    for gradient in gradients:
        blocks = scaling_blocks(gradient.numel(), multiprocessors(gradient))
        with on_device_of(gradient):
            if blocks:
                launch(
                    kernels.scaled_unless_one,
                    (blocks,),
                    gradient,
                    incoming,
                    gradient.numel(),
                    BLOCK=SCALED_PIECE,
                    num_warps=SCALED_WARPS,
                )


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
SCALE = operator(
    "linear_cross_entropy_scale", "(Tensor(a!)[] gradients, Tensor incoming) -> ()", scale, lambda *_: None
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, weight, labels, *ctx.settings = inputs
    _, dx, dweight = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(tensor for tensor in (dx, dweight) if tensor is not None))
    ctx.save_for_backward(x, weight, labels)
    ctx.ready = dx, dweight


def _gradients(ctx: Any, incoming: Tensor | None, *_: Any) -> tuple[Any, ...]:
    nothing = (None,) * 9
    if incoming is None:
        return None, None, *nothing
    # Handed out once: a second backward computes others, for the first may have been added to by then.
    ready, ctx.ready = ctx.ready, None
    if ready is None:
        _, *ready = FORWARD(*ctx.saved_tensors, *ctx.settings)
    needs = ctx.needs_input_grad[:2]
    wanted = [gradient for gradient, need in zip(ready, needs, strict=True) if need]
    if all(type(gradient) in PLAIN for gradient in wanted):
        SCALE(wanted, incoming)
    else:  # a compiler would copy what it is to write over
        wanted = [(gradient * incoming).to(gradient.dtype) for gradient in wanted]
    left = iter(wanted)
    return *(next(left) if need else None for need in needs), *nothing


_CALL = differentiable(FORWARD, _setup, _gradients)

# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="both",
        who="undertorch",
        kernel="torch's matmul and cross_entropy's kernels, some rows at a time",
        serves="float32 and bfloat16 on one GPU",
        why="the logits and their gradient are the largest tensors of a small model's step, and here never exist whole",
    ),
    by_reference("both"),
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
    if not (isinstance(x, Tensor) and isinstance(weight, Tensor) and isinstance(labels, Tensor)):
        raise no_tensor("linear_cross_entropy", x=x, weight=weight, labels=labels)
    if not isinstance(reduction, str) or reduction not in ("mean", "sum"):
        raise BadCall(f"linear_cross_entropy: reduction is {reduction!r}; it is mean or sum.")
    if not isinstance(accumulation, torch.dtype) or accumulation not in (torch.float32, weight.dtype):
        raise BadCall(
            f"linear_cross_entropy: accumulation is {accumulation}; it is torch.float32 or the weight's {weight.dtype}."
        )
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[-1] or not x.is_floating_point():
        raise BadCall(
            f"linear_cross_entropy: x is {tuple(x.shape)} {x.dtype} and weight {tuple(weight.shape)}; pass floats of "
            "(..., D) and (V, D)."
        )
    x, weight = as_autocast_hands_them(x, weight)
    accumulation = torch.float32 if accumulation == torch.float32 else weight.dtype
    if x.dtype != weight.dtype:
        raise BadCall(f"linear_cross_entropy: x is {x.dtype} and weight {weight.dtype}; pass one dtype.")
    if prefers_library() or not runs_own(x, weight) or x.dtype == torch.float16:
        if x.dtype == torch.float16 and runs_own(x, weight) and not torch.compiler.is_compiling():
            warn(WHOLE_IN_FLOAT16, stacklevel=2)
        return reference(
            x, weight, labels, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction,
            z_loss=z_loss, softcap=softcap,
        )  # fmt: skip
    logits = x.new_empty((1,)).expand(*x.shape[:-1], weight.shape[0])  # what they would be, for the check
    check(logits, labels, None, ignore_index, label_smoothing, reduction, z_loss, softcap)
    raise_told(x)
    needs = (torch.is_grad_enabled() and x.requires_grad, torch.is_grad_enabled() and weight.requires_grad)
    loss: Tensor = _CALL(
        x, weight, labels, ignore_index, label_smoothing, reduction, z_loss, softcap, accumulation, *needs
    )[0]  # fmt: skip
    return loss
