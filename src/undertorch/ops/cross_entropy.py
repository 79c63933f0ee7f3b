"""Cross-entropy of logits against labels (torch.nn.functional.cross_entropy), with z-loss and softcap.

With z = softcap * tanh(logits / softcap) where a softcap is given, lse = log(sum(exp(z))), V classes and class weights
w (ones by default), a row with label t has the loss

    w[t] * ((1 - smoothing) * (lse - z[t]) + z_loss * lse²) + smoothing / V * sum(w * (lse - z))

and 0 where t is ignore_index. A mean divides the sum of losses by the sum of w[t]; of no rows it is nan, as torch's.

Contract
    logits: (..., V), any strides, float32, bfloat16 or float16 on CUDA (anything that floats elsewhere). labels:
    integers of the shape logits.shape[:-1], any strides. weight: None, or V floats. The loss is float32 (float64 of
    float64), whatever the logits are. logits may hold -inf. The gradient has the logits' dtype and its own memory:
    logits are never written to, and stay valid for whoever else uses them. The same result every time.

    A label outside of 0..V-1 that is not ignore_index is never looked up. On a GPU its row's loss and gradient are nan,
    and the next call to cross_entropy (or `check_labels()`, which waits for the GPU) raises BadLabel; elsewhere the
    call itself raises BadLabel, where torch raises the IndexError that it is one of.

    gradient: when the gradient is computed. `forward`: along with the loss, for an incoming gradient of 1, which reads
    the logits once less; the backward checks the incoming gradient on the GPU and does nothing where it is 1, and all
    of it where it is not. `backward`: then. `auto`: forward for a mean or sum, except for float16, whose gradients
    without loss scaling underflow, and until an incoming gradient was seen that is not 1 (a loss that is divided or
    scaled), since then the forward's work was for nothing. Either way a second backward (retain_graph) is right.
"""

from functools import partial
from math import inf
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from undertorch.costs.building import ceil_div
from undertorch.costs.training_ops import padded
from undertorch.ops import cross_entropy_kernels as kernels
from undertorch.ops.calls import (
    Arguments,
    BadCall,
    is_int64,
    is_number,
    most_warps,
    multiprocessors,
    no_tensor,
    on_device_of,
    row_major_like,
    rows_of,
    runs_own,
)
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import chosen, prefers_library
from undertorch.ops.cross_entropy_ways import (
    GRADIENT_PIECES,
    VECTOR,
    Settings,
    alignment,
    launch_losses,
    loss_pieces,
    pieces,
    side_by_side,
    ways_of_both,
)
from undertorch.ops.launching import launch
from undertorch.ops.operators import differentiable, operator
from undertorch.ops.told import BadLabel, raise_told, saw_another_than_one, told

REDUCTIONS = ("mean", "sum", "none")
LABELS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOST_AT_ONCE = 16384
"""Labels that the one block which counts them reads at a time: 16 a thread."""


ARGUMENTS = Arguments(
    layout="logits (..., V), classes last; labels (...), integers; weight (V,) of the classes, or None; the loss is "
    "float32 (float64 of float64), without dimensions or, of reduction='none', (...)",
    unlike_torch="F.cross_entropy has the classes in dimension 1, so that (N, V, T) has to become (N, T, V) by "
    "transpose(1, 2); its labels may be probabilities, its loss has the logits' dtype. Defaults are the same",
)

# Reference


def reference(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    z_loss: float = 0.0,
    softcap: float | None = None,
) -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    check(logits, labels, weight, ignore_index, label_smoothing, reduction, z_loss, softcap)
    value = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    if softcap is not None:
        value = softcap * torch.tanh(value / softcap)
    value, flat = value.reshape(labels.numel(), logits.shape[-1]), labels.reshape(-1).long()
    weight = None if weight is None else weight.to(value.dtype)
    settings: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    if not z_loss:
        loss = _torchs(value, flat, weight, reduction=reduction, **settings)
        return loss.reshape(labels.shape) if reduction == "none" else loss
    rows = _torchs(value, flat, weight, reduction="none", **settings)
    counts = flat != ignore_index
    factor = counts.to(value.dtype)
    if weight is not None:
        factor = torch.where(counts, weight[torch.where(counts, flat, 0)], 0.0)  # ignore_index may be any number
    square = torch.where(counts, value.logsumexp(-1).square(), 0.0)
    rows = rows + z_loss * factor * square
    if reduction == "none":
        return rows.reshape(labels.shape)
    return rows.sum() / factor.sum() if reduction == "mean" else rows.sum()


def _torchs(value: Tensor, flat: Tensor, weight: Tensor | None, *, ignore_index: int, **settings: Any) -> Tensor:
    """torch's own, which names the label that is no class, but not the classes; on a GPU it stops the device."""
    try:
        return functional.cross_entropy(value, flat, weight, ignore_index=ignore_index, **settings)
    except IndexError as error:
        classes = value.shape[-1]
        wrong = flat[((flat < 0) | (flat >= classes)) & (flat != ignore_index)]
        if not wrong.numel():
            raise
        raise BadLabel(
            f"cross_entropy: the label {int(wrong[0])} is neither one of the {classes} classes (from 0 on) nor the "
            f"ignore_index {ignore_index}."
        ) from error


def check(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    smoothing: float,
    reduction: str,
    z_loss: float,
    softcap: float | None,
) -> None:
    """Raises BadCall where the arguments do not fit together."""
    if not (isinstance(logits, Tensor) and isinstance(labels, Tensor)):
        raise no_tensor("cross_entropy", logits=logits, labels=labels)
    if weight is not None and not isinstance(weight, Tensor):
        raise no_tensor("cross_entropy", weight=weight)
    if logits.dim() == 0 or not logits.is_floating_point():
        raise BadCall(f"cross_entropy: logits are {logits.dim()}-dimensional {logits.dtype}; pass floats of (..., V).")
    if labels.dtype not in LABELS:
        raise BadCall(f"cross_entropy: labels are {labels.dtype}; pass class numbers (probabilities are not served).")
    if labels.shape != logits.shape[:-1]:
        raise BadCall(
            f"cross_entropy: labels have shape {tuple(labels.shape)} and logits {tuple(logits.shape)}; "
            "there is one label to a row of logits, classes last."
        )
    if logits.shape[-1] == 0 and labels.numel():
        raise BadCall(f"cross_entropy: logits have shape {tuple(logits.shape)}, of no classes; a label is one of some.")
    if labels.device != logits.device or (weight is not None and weight.device != logits.device):
        others = f"labels on {labels.device}{'' if weight is None else f', weight on {weight.device}'}"
        raise BadCall(f"cross_entropy: logits are on {logits.device}, {others}; pass them on one device.")
    if weight is not None and weight.shape != logits.shape[-1:]:
        raise BadCall(f"cross_entropy: weight has shape {tuple(weight.shape)} for {logits.shape[-1]} classes.")
    if not is_int64(ignore_index):
        raise BadCall(f"cross_entropy: ignore_index is {ignore_index!r}; it is a whole number of 64 bits.")
    if not (is_number(smoothing) and 0.0 <= smoothing <= 1.0):
        raise BadCall(f"cross_entropy: label_smoothing is {smoothing!r}; it lies between 0 and 1.")
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise BadCall(f"cross_entropy: reduction is {reduction!r}; it is one of {', '.join(REDUCTIONS)}.")
    if softcap is not None and not (is_number(softcap) and 0 < softcap < inf):
        raise BadCall(f"cross_entropy: softcap is {softcap!r}; it is a number above 0, or None.")
    if not (is_number(z_loss) and -inf < z_loss < inf):  # math.isfinite of a SymFloat is not traced
        raise BadCall(f"cross_entropy: z_loss is {z_loss!r}; it is a number, 0 for none.")


# Kernels: cross_entropy_kernels.py in Triton and cross_entropy.cu in CUDA C++; cross_entropy_ways.py launches them.


def forward(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    smoothing: float,
    reduction: str,
    z_loss: float,
    softcap: float | None,
    with_gradient: bool,
    *,
    piece: Any = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The loss; of each row the largest logit and log2 of the rest; what a mean divides by; the gradient for an
    incoming gradient of 1, where that is asked for.
    """
    settings = Settings(
        ignore_index=ignore_index, smoothing=smoothing, reduction=reduction, z_loss=z_loss, softcap=softcap
    )
    width = logits.shape[-1]
    rows = labels.numel()
    floats: dict[str, Any] = {"dtype": torch.float32, "device": logits.device}
    loss, lse = torch.empty(labels.shape, **floats), torch.empty((2, rows), **floats)
    denominator = torch.empty((), **floats)
    gradient = row_major_like(logits) if with_gradient else None
    if rows == 0 or width == 0:
        empty = loss if reduction == "none" else denominator.fill_(float("nan") if reduction == "mean" else 0.0)
        return empty.clone(), lse, denominator, gradient
    mean = reduction == "mean"
    block = min(padded(rows), MOST_AT_ONCE)
    one_block = {"BLOCK": block, "num_warps": most_warps(max(block // 512, 1))}
    source, flat = rows_of(logits, width), side_by_side(labels)
    weight = None if weight is None else weight.contiguous()
    if piece is None:
        piece = chosen(
            "cross_entropy_forward",
            logits,
            rows,
            width,
            partial(_ways, logits, source, weight, softcap, with_gradient),
            lambda way, given: forward(
                given[0], labels, weight, *settings.numbers[:2], reduction, z_loss, softcap, with_gradient, piece=way
            ),
            (logits,),
            detail="with gradient" if with_gradient else "",
        )
    with on_device_of(logits):
        if mean:
            launch(
                kernels.label_weight,
                (1,),
                flat,
                weight,
                denominator,
                rows,
                width,
                ignore_index,
                WEIGHTED=weight is not None,
                **one_block,
            )
        launch_losses(piece, source, flat, weight, settings, denominator if mean else None, loss, lse, gradient)
        if reduction == "none":
            return loss, lse, denominator, gradient
        result = torch.empty((), **floats)
        launch(kernels.reduced, (1,), loss, denominator, result, rows, MEAN=mean, **one_block)
    return result, lse, denominator, gradient


def _ways(
    logits: Tensor, source: Tensor, weight: Tensor | None, softcap: float | None, with_gradient: bool
) -> tuple[Any, ...]:
    if with_gradient:
        return ways_of_both(logits, source, weight, softcap)
    return loss_pieces(logits.shape[-1], logits.element_size(), gradient=False)


def backward(
    incoming: Tensor,
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    denominator: Tensor,
    ignore_index: int,
    smoothing: float,
    reduction: str,
    z_loss: float,
    softcap: float | None,
    *,
    gradient: Tensor | None = None,
    piece: Any = None,
) -> Tensor:
    """The logits' gradient. `gradient`: holds it already for an incoming gradient of 1, and is written to otherwise."""
    settings = Settings(
        ignore_index=ignore_index, smoothing=smoothing, reduction=reduction, z_loss=z_loss, softcap=softcap
    )
    width, rows = logits.shape[-1], labels.numel()
    result = gradient
    if result is None:
        result = row_major_like(logits)
    if result.numel() == 0:
        return result
    source, flat = rows_of(logits, width), side_by_side(labels)
    weight = None if weight is None else weight.contiguous()
    if piece is None:
        piece = chosen(
            "cross_entropy_backward",
            logits,
            rows,
            width,
            partial(pieces, width, GRADIENT_PIECES),
            lambda way, given: backward(
                incoming,
                given[0],
                labels,
                weight,
                lse,
                denominator,
                *settings.numbers[:2],
                reduction,
                z_loss,
                softcap,
                piece=way,
            ),
            (logits,),
        )
    given = incoming.reshape(-1) if reduction == "none" else incoming
    all_weights = weight.float().sum() if weight is not None and smoothing > 0 else None
    common = {
        **settings.flags, **alignment(source, result.view(rows, width)), "WEIGHTED": weight is not None,
        "MEAN": reduction == "mean", "BLOCK": piece.block,
    }  # fmt: skip
    numbers = (rows, width, source.stride(0), width, *settings.numbers)
    with on_device_of(logits):
        if gradient is None:
            # A row may begin in the middle of its first vector.
            launch(
                kernels.gradients, (rows, ceil_div(width + common["SPLIT"] * VECTOR, piece.block)),
                source, flat, weight, all_weights, denominator, given, given.stride(0) if given.dim() else 0, lse,
                result, *numbers, **common, num_warps=most_warps(piece.warps),
            )  # fmt: skip
        else:
            blocks = min(rows, multiprocessors(logits) * 2048 // (32 * piece.warps))
            launch(
                kernels.gradients_unless_one, (blocks,),
                source, flat, weight, all_weights, denominator, given, lse, result, told(logits)[1:],
                *numbers, **common, num_warps=most_warps(piece.warps),
            )  # fmt: skip
    return result


# Autograd

SCHEMA = "int ignore_index, float smoothing, str reduction, float z_loss, float? softcap"


def _fake(logits: Tensor, labels: Tensor, weight: Any, ignore_index: int, smoothing: float, reduction: str,
          z_loss: float, softcap: float | None, with_gradient: bool) -> Any:  # fmt: skip
    floats: dict[str, Any] = {"dtype": torch.float32}
    loss = logits.new_empty(labels.shape if reduction == "none" else (), **floats)
    gradient = logits.new_empty(logits.shape) if with_gradient else None
    return loss, logits.new_empty((2, labels.numel()), **floats), logits.new_empty((), **floats), gradient


FORWARD = operator(
    "cross_entropy_forward",
    f"(Tensor logits, Tensor labels, Tensor? weight, {SCHEMA}, bool with_gradient) -> (Tensor, Tensor, Tensor, Tensor)",
    forward,
    _fake,
)
BACKWARD = operator(
    "cross_entropy_backward",
    f"(Tensor incoming, Tensor logits, Tensor labels, Tensor? weight, Tensor lse, Tensor denominator, {SCHEMA})"
    " -> Tensor",
    backward,
    lambda incoming, logits, *_: logits.new_empty(logits.shape),
)


def _unless_one(gradient: Tensor, *arguments: Any) -> None:
    backward(*arguments, gradient=gradient)


UNLESS_ONE = operator(
    "cross_entropy_unless_one",
    "(Tensor(a!) gradient, Tensor incoming, Tensor logits, Tensor labels, Tensor? weight, Tensor lse,"
    f" Tensor denominator, {SCHEMA}) -> ()",
    _unless_one,
    lambda *_: None,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    logits, labels, weight, *settings, _ = inputs
    _, lse, denominator, gradient = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(tensor for tensor in (lse, denominator, gradient) if tensor is not None))
    ctx.save_for_backward(logits, labels, weight, lse, denominator)
    ctx.settings = settings
    ctx.gradient = gradient if gradient is not None and gradient.numel() else None


def _gradients(ctx: Any, incoming: Tensor | None, *_: Any) -> tuple[Any, ...]:
    nothing = (None,) * 8
    if incoming is None or not ctx.needs_input_grad[0]:
        return None, *nothing
    # Handed out once: a second backward computes another, for the first may have been added to by then.
    ready, ctx.gradient = ctx.gradient, None
    if ready is not None:
        UNLESS_ONE(ready, incoming, *ctx.saved_tensors, *ctx.settings)
        return ready, *nothing
    return BACKWARD(incoming, *ctx.saved_tensors, *ctx.settings), *nothing


_CALL = differentiable(FORWARD, _setup, _gradients)


# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="both",
        who="undertorch",
        kernel="losses, with the gradient (Triton)",
        serves="an incoming gradient of 1, of a mean or sum; not float16",
        why="a read less: torch's reads and writes the logits' size five times",
    ),
    Candidate(
        passes="forward, backward",
        who="undertorch",
        kernel="losses and gradients (Triton)",
        serves="everything else",
        why="no log-probabilities are stored; z-loss and softcap cost nothing",
    ),
    Candidate(
        passes="both",
        who="undertorch",
        kernel="cross_entropy.cu (CUDA C++)",
        serves="bfloat16 on compute capability 9, rows from 32768 elements on, multiples of 8, that two SMs hold",
        why="one read and one write of the logits, the least there is",
    ),
    Candidate(
        passes="forward, backward",
        who="PyTorch",
        kernel="log_softmax and nll_loss",
        serves="UNDERTORCH_OPS=library, float64, the CPU",
        why="never measured ahead of ours",
    ),
)


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    z_loss: float = 0.0,
    softcap: float | None = None,
    gradient: Literal["auto", "forward", "backward"] = "auto",
) -> Tensor:
    """The loss of (..., V) logits against labels (...), differentiable in the logits. Raises BadCall and BadLabel."""
    check(logits, labels, weight, ignore_index, label_smoothing, reduction, z_loss, softcap)
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise BadCall("cross_entropy: weight asks for a gradient, and class weights have none; detach it.")
    if not isinstance(gradient, str) or gradient not in ("auto", "forward", "backward"):
        raise BadCall(f"cross_entropy: gradient is {gradient!r}; it is one of auto, forward, backward.")
    if gradient == "forward" and reduction == "none":
        raise BadCall(
            "cross_entropy: gradient='forward' needs reduction='mean' or 'sum': rows have gradients of their own."
        )
    if prefers_library() or not runs_own(logits, weight):
        return reference(
            logits, labels, weight, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction,
            z_loss=z_loss, softcap=softcap,
        )  # fmt: skip
    raise_told(logits)
    early = _early(gradient, logits, reduction)
    loss: Tensor = _CALL(
        logits, labels, weight, ignore_index, label_smoothing, reduction, z_loss, softcap, early
    )[0]  # fmt: skip
    return loss


def _early(gradient: str, logits: Tensor, reduction: str) -> bool:
    """Whether the gradient is computed along with the loss."""
    if torch.compiler.is_compiling() or not (logits.requires_grad and torch.is_grad_enabled()):
        return False
    if gradient == "auto":
        never_one = not torch.are_deterministic_algorithms_enabled() and saw_another_than_one(logits)
        return reduction != "none" and logits.dtype != torch.float16 and not never_one
    return gradient == "forward"
