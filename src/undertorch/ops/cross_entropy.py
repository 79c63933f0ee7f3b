"""Cross-entropy of logits against labels (torch.nn.functional.cross_entropy), with z-loss and softcap.

With z = softcap * tanh(logits / softcap) where a softcap is given, lse = log(sum(exp(z))), V classes and class weights
w (ones by default), a row with label t has the loss

    w[t] * ((1 - smoothing) * (lse - z[t]) + z_loss * lse²) + smoothing / V * sum(w * (lse - z))

and 0 where t is ignore_index. A mean divides the sum of losses by the sum of w[t]; of no rows it is nan, as torch's.

Contract
    logits: (..., V), any strides, float32, bfloat16 or float16 on CUDA (anything that floats elsewhere). labels:
    integers of the shape logits.shape[:-1]. weight: None, or V floats. The loss is float32 (float64 of float64),
    whatever the logits are. logits may hold -inf. The gradient has the logits' dtype and its own memory: logits are
    never written to, and stay valid for whoever else uses them. The same result every time.

    A label outside of 0..V-1 that is not ignore_index is never looked up. On a GPU its row's loss and gradient are nan,
    and the next call to cross_entropy (or `check_labels()`, which waits for the GPU) raises BadLabel; elsewhere the
    call itself raises IndexError, as torch does.

    gradient: when the gradient is computed. `forward`: along with the loss, for an incoming gradient of 1, which reads
    the logits once less; the backward checks the incoming gradient on the GPU and does nothing where it is 1, and all
    of it where it is not. `backward`: then. `auto`: forward for a mean or sum, except for float16, whose gradients
    without loss scaling underflow, and until an incoming gradient was seen that is not 1 (a loss that is divided or
    scaled), since then the forward's work was for nothing. Either way a second backward (retain_graph) is right.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
import triton
from torch import Tensor
from torch.nn import functional

from undertorch.ops import cross_entropy_kernels as kernels
from undertorch.ops.calls import BadCall, most_warps, multiprocessors, on_device_of, rows_of, runs_own
from undertorch.ops.candidates import Candidate
from undertorch.ops.captures import beside_capture, captures
from undertorch.ops.choose import DOES_NOT_RUN, chosen, prefers_library
from undertorch.ops.cuda_source import CudaKernel, CudaSource
from undertorch.ops.operators import differentiable, operator

REDUCTIONS = ("mean", "sum", "none")
LABELS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOST_AT_ONCE = 16384
"""Labels that the one block which counts them reads at a time: 16 a thread."""


class BadLabel(IndexError):
    """A label lies outside of the classes."""


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
    check(logits, labels, weight, label_smoothing, reduction, softcap)
    value = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    if softcap is not None:
        value = softcap * torch.tanh(value / softcap)
    value, flat = value.reshape(-1, logits.shape[-1]), labels.reshape(-1).long()
    weight = None if weight is None else weight.to(value.dtype)
    settings: dict[str, Any] = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    if not z_loss:
        loss = functional.cross_entropy(value, flat, weight, reduction=reduction, **settings)
        return loss.reshape(labels.shape) if reduction == "none" else loss
    rows = functional.cross_entropy(value, flat, weight, reduction="none", **settings)
    counts = flat != ignore_index
    factor = counts.to(value.dtype) if weight is None else torch.where(counts, weight[flat.clamp_min(0)], 0.0)
    square = torch.where(counts, value.logsumexp(-1).square(), 0.0)
    rows = rows + z_loss * factor * square
    if reduction == "none":
        return rows.reshape(labels.shape)
    return rows.sum() / factor.sum() if reduction == "mean" else rows.sum()


def check(
    logits: Tensor, labels: Tensor, weight: Tensor | None, smoothing: float, reduction: str, softcap: float | None
) -> None:
    """Raises BadCall where the arguments do not fit together."""
    if logits.dim() == 0 or not logits.is_floating_point():
        raise BadCall(f"cross_entropy: logits are {logits.dim()}-dimensional {logits.dtype}; pass floats of (..., V).")
    if labels.dtype not in LABELS:
        raise BadCall(f"cross_entropy: labels are {labels.dtype}; pass class numbers (probabilities are not served).")
    if labels.shape != logits.shape[:-1]:
        raise BadCall(
            f"cross_entropy: labels have shape {tuple(labels.shape)} and logits {tuple(logits.shape)}; "
            "there is one label to a row of logits, classes last."
        )
    if weight is not None and weight.shape != logits.shape[-1:]:
        raise BadCall(f"cross_entropy: weight has shape {tuple(weight.shape)} for {logits.shape[-1]} classes.")
    if not 0.0 <= smoothing <= 1.0:
        raise BadCall(f"cross_entropy: label_smoothing is {smoothing}; it lies between 0 and 1.")
    if reduction not in REDUCTIONS:
        raise BadCall(f"cross_entropy: reduction is {reduction!r}; it is one of {', '.join(REDUCTIONS)}.")
    if softcap is not None and not softcap > 0:
        raise BadCall(f"cross_entropy: softcap is {softcap}; it is above 0, or None.")


# Kernels: cross_entropy_kernels.py in Triton and cross_entropy.cu in CUDA C++.


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """How a kernel is cut: the elements of a row that a block works on at a time, and its warps."""

    block: int = 4096
    warps: int = 8

    def __str__(self) -> str:
        return f"{self.block} elements, {self.warps} warps"


LOSS_PIECES = ((4096, 8), (2048, 4), (8192, 8), (8192, 16), (1024, 4), (4096, 16), (256, 1))
BOTH_PIECES = ((16384, 32), (8192, 16), (16384, 16), (4096, 16), (4096, 8), (2048, 4), (1024, 4), (256, 1))
GRADIENT_PIECES = ((2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (1024, 4), (256, 1))
"""Elements and warps, the fastest first: 32768 x 50304 bfloat16 on an H200. The loss alone is read once, at the copy
rate; with the gradient a row is read again from L2, which wants few rows at a time."""


def pieces(width: int, kinds: tuple[tuple[int, int], ...]) -> tuple[Piece, ...]:
    """Ways to cut one of the kernels, the usual one first: no piece is longer than the row."""
    most = max(triton.next_power_of_2(width), 256)
    return tuple(Piece(block=block, warps=warps) for block, warps in kinds if block <= most)


def ways_of_both(logits: Tensor, source: Tensor, weight: Tensor | None, softcap: float | None) -> tuple[Any, ...]:
    """Ways to cut the loss with its gradient, the usual one first. `source` is the matrix of rows."""
    width = logits.shape[-1]
    first, *others = pieces(width, BOTH_PIECES)
    rings = [ring for ring in RINGS if ring.holds(width)] if serves_ring(logits, source, weight, softcap) else []
    # A row in one block's shared memory is read once (1.70 ms where 2.06, 32768 x 50304 on an H200).
    if rings and rings[0].cluster == 1 and loads_ring(logits.device):
        return rings[0], first, *rings[1:2], *others, *rings[2:]
    return first, *rings[:2], *others, *rings[2:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """How cross_entropy.cu is cut: threads that compute, and bytes of a slot of its ring."""

    threads: int = 512
    slot_bytes: int = 16384
    cluster: int = 1
    """Blocks that share a row."""

    def __str__(self) -> str:
        return f"row in shared memory, {self.threads} threads, slots of {self.slot_bytes} bytes, {self.cluster} blocks"

    @property
    def slots(self) -> int:
        """As many as fit: two barriers of 8 bytes go with each, and the blocks' sums."""
        return (MOST_SHARED - RING_SUMS) // (self.slot_bytes + 16)

    def defines(self, settings: "Settings") -> dict[str, int]:
        """The constants that cross_entropy.cu is compiled with."""
        flags = settings.flags
        return {
            "THREADS": self.threads,
            "CLUSTER": self.cluster,
            "SLOTS": self.slots,
            "SLOT_BYTES": self.slot_bytes,
            "SMOOTH": flags["SMOOTH"],
            "Z_LOSS": flags["Z_LOSS"],
        }

    def holds(self, width: int) -> bool:
        """Whether a row fits, with the two slots whose stores may still be reading (PENDING)."""
        share = triton.cdiv(width // 8, self.cluster) * 16
        return self.cluster * 8 <= width and triton.cdiv(share, self.slot_bytes) + 2 <= self.slots


MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a block of compute capability 9.0 can get (CUDA C++ Programming Guide, table of technical
specifications)."""

RING_SUMS = 16 + 2 * 32 * 12 + 32
"""Bytes after the ring: two barriers, sums of at most 32 warps for two rows, and those of the other block."""

RINGS = tuple(
    Ring(threads=threads, slot_bytes=size, cluster=cluster)
    for cluster in (1, 2)
    for threads, size in ((384, 12288), (768, 12288), (512, 16384), (256, 16384), (512, 8192))
)
"""The fastest first: 1.68 to 1.81 ms with one block a row, 2.01 to 2.45 with two (32768 x 50304 bfloat16, H200)."""


def serves_ring(logits: Tensor, rows_matrix: Tensor, weight: Tensor | None, softcap: float | None) -> bool:
    """Whether cross_entropy.cu takes the call: bulk copies move multiples of 16 bytes, between multiples of 16."""
    width = logits.shape[-1]
    return (
        logits.is_cuda
        and torch.cuda.get_device_capability(logits.device)[0] == 9
        and logits.dtype == torch.bfloat16
        and weight is None
        and softcap is None
        and width % 8 == 0
        and rows_matrix.stride(0) % 8 == 0
        and rows_matrix.data_ptr() % 16 == 0
    )


SOURCE = CudaSource(Path(__file__).with_suffix(".cu"))


@cache
def loads_ring(device: torch.device) -> bool:
    """Whether cross_entropy.cu can be compiled and loaded here."""
    plain = Settings(ignore_index=-100, smoothing=0.0, reduction="mean", z_loss=0.0, softcap=None)
    try:
        _ring_kernel(RINGS[0], plain, torch.empty(0, device=device))
    except DOES_NOT_RUN:
        return False
    return True


def _ring_kernel(ring: Ring, settings: "Settings", like: Tensor) -> CudaKernel:
    with beside_capture() if captures(like) else nullcontext():  # a module is loaded
        return SOURCE.kernel("cross_entropy", ring.defines(settings), like.device)


def launch_ring(
    ring: Ring, logits: Tensor, labels: Tensor, settings: "Settings", denominator: Tensor | None,
    loss: Tensor, lse: Tensor, gradient: Tensor, wrong: Tensor,
) -> None:  # fmt: skip
    """One launch of cross_entropy.cu on a matrix of rows."""
    rows, width = logits.shape
    kernel = _ring_kernel(ring, settings, logits)
    blocks = min(rows, multiprocessors(logits) // ring.cluster) * ring.cluster
    shared = ring.slots * (ring.slot_bytes + 16) + RING_SUMS
    kernel.launch(
        (blocks, 1, 1), (ring.threads + 32, 1, 1), shared, "PPPPPPPqiiqff",
        logits, labels.long(), loss, lse, gradient, denominator, wrong, logits.stride(0), rows, width,
        settings.ignore_index, settings.smoothing, settings.z_loss,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What stays the same from call to call."""

    ignore_index: int
    smoothing: float
    reduction: str
    z_loss: float
    softcap: float | None

    @property
    def flags(self) -> dict[str, bool]:
        """Those that a kernel is compiled for."""
        return {"CAPPED": self.softcap is not None, "SMOOTH": self.smoothing > 0, "Z_LOSS": self.z_loss != 0}

    @property
    def numbers(self) -> tuple[int, float, float, float]:
        """Those that a kernel is handed."""
        return self.ignore_index, self.smoothing, self.z_loss, self.softcap or 1.0


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
    gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device) if with_gradient else None
    if rows == 0 or width == 0:
        empty = loss if reduction == "none" else denominator.fill_(float("nan") if reduction == "mean" else 0.0)
        return empty.clone(), lse, denominator, gradient
    mean = reduction == "mean"
    block = min(triton.next_power_of_2(rows), MOST_AT_ONCE)
    one_block = {"BLOCK": block, "num_warps": most_warps(max(block // 512, 1))}
    source, flat = rows_of(logits, width), labels.reshape(-1)
    weight = None if weight is None else weight.contiguous()
    if piece is None:
        ways = ways_of_both(logits, source, weight, softcap) if with_gradient else pieces(width, LOSS_PIECES)
        piece = chosen(
            "cross_entropy_forward",
            logits,
            rows,
            width,
            ways,
            lambda way, given: forward(
                given[0], labels, weight, *settings.numbers[:2], reduction, z_loss, softcap, with_gradient, piece=way
            ),
            (logits,),
            detail="with gradient" if with_gradient else "",
        )
    weighted = weight is not None
    all_weights = weight.float().sum() if weight is not None and smoothing > 0 else None
    with on_device_of(logits):
        if mean:
            kernels.label_weight[(1,)](
                flat, weight, denominator, rows, width, ignore_index, WEIGHTED=weighted, **one_block
            )
        if isinstance(piece, Ring) and gradient is not None:
            launch_ring(piece, source, flat, settings, denominator if mean else None, loss, lse, gradient, told(logits))
        else:
            kernels.losses[(rows,)](
                source, flat, weight, all_weights, denominator, loss, lse, gradient, told(logits),
                rows, width, source.stride(0), *settings.numbers,
                **settings.flags, WEIGHTED=weighted, MEAN=mean, GRADIENT=with_gradient, BLOCK=piece.block,
                num_warps=most_warps(piece.warps),
            )  # fmt: skip
        if reduction == "none":
            return loss, lse, denominator, gradient
        result = torch.empty((), **floats)
        kernels.reduced[(1,)](loss, denominator, result, rows, MEAN=mean, **one_block)
    return result, lse, denominator, gradient


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
        result = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    if result.numel() == 0:
        return result
    source, flat = rows_of(logits, width), labels.reshape(-1)
    weight = None if weight is None else weight.contiguous()
    if piece is None:
        piece = chosen(
            "cross_entropy_backward",
            logits,
            rows,
            width,
            pieces(width, GRADIENT_PIECES),
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
    common = {**settings.flags, "WEIGHTED": weight is not None, "MEAN": reduction == "mean", "BLOCK": piece.block}
    numbers = (rows, width, source.stride(0), *settings.numbers)
    with on_device_of(logits):
        if gradient is None:
            kernels.gradients[(rows, triton.cdiv(width, piece.block))](
                source, flat, weight, all_weights, denominator, given, given.stride(0) if given.dim() else 0, lse,
                result, *numbers, **common, num_warps=most_warps(piece.warps),
            )  # fmt: skip
        else:
            blocks = min(rows, multiprocessors(logits) * 2048 // (32 * piece.warps))
            kernels.gradients_unless_one[(blocks,)](
                source, flat, weight, all_weights, denominator, given, lse, result, told(logits)[1:],
                *numbers, **common, num_warps=most_warps(piece.warps),
            )  # fmt: skip
    return result


# What kernels tell

_TOLD: dict[torch.device, Tensor] = {}
"""Of each GPU, two numbers in the host's memory that kernels write to: a wrong label, and whether an incoming gradient
was not 1. Process-wide, as CUDA's own errors are; reading it waits for nothing.
"""

NONE_WRONG = -(2**63)


def told(like: Tensor) -> Tensor:
    """What kernels on this tensor's GPU write to."""
    if like.device not in _TOLD:
        flags = torch.tensor([NONE_WRONG, 0], dtype=torch.int64, device="cpu")
        with beside_capture() if captures(like) else nullcontext():
            _TOLD[like.device] = flags.pin_memory() if like.is_cuda else flags
    return _TOLD[like.device]


def check_labels() -> None:
    """Waits for the GPU and raises BadLabel where a label of an earlier call was wrong."""
    for device, flags in _TOLD.items():
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        _raise_wrong(flags)


def raise_told(like: Tensor) -> None:
    """Raises BadLabel where a kernel on this tensor's GPU has told of one. Waits for nothing."""
    if not torch.compiler.is_compiling() and like.device in _TOLD:
        _raise_wrong(_TOLD[like.device])


def _raise_wrong(flags: Tensor) -> None:
    label = int(flags[0])
    if label != NONE_WRONG:
        flags[0] = NONE_WRONG
        raise BadLabel(
            f"cross_entropy: an earlier call was given the label {label}, which is neither one of its classes nor its "
            "ignore_index; the losses of such rows were nan."
        )


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
        figures="32768 x 50304 bfloat16 on an H200: 2.28 ms against torch's 6.3",
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
        serves="bfloat16 on compute capability 9, rows of multiples of 8 that fit into one or two SMs' shared memory",
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
    if prefers_library() or not runs_own(logits, weight):
        return reference(
            logits, labels, weight, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction,
            z_loss=z_loss, softcap=softcap,
        )  # fmt: skip
    check(logits, labels, weight, label_smoothing, reduction, softcap)
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise BadCall("cross_entropy: weight asks for a gradient, and class weights have none; detach it.")
    raise_told(logits)
    early = _early(gradient, logits, reduction)
    loss: Tensor = _CALL(
        logits, labels, weight, ignore_index, label_smoothing, reduction, z_loss, softcap, early
    )[0]  # fmt: skip
    return loss


def _early(gradient: str, logits: Tensor, reduction: str) -> bool:
    """Whether the gradient is computed along with the loss."""
    if gradient not in ("auto", "forward", "backward"):
        raise BadCall(f"cross_entropy: gradient is {gradient!r}; it is one of auto, forward, backward.")
    if torch.compiler.is_compiling() or not (logits.requires_grad and torch.is_grad_enabled()):
        return False
    if gradient == "auto":
        flags = _TOLD.get(logits.device)
        never_one = flags is not None and not torch.are_deterministic_algorithms_enabled() and int(flags[1]) != 0
        return reduction != "none" and logits.dtype != torch.float16 and not never_one
    if gradient == "forward" and reduction == "none":
        raise BadCall(
            "cross_entropy: gradient='forward' needs reduction='mean' or 'sum': rows have gradients of their own."
        )
    return gradient == "forward"
