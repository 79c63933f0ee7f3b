"""Connectionist temporal classification: native/cuda/LossCTC.cu, torch's own kernels (not cuDNN's).

A block takes a few sequences and goes through their frames one after the other, with a barrier behind each: how long
that takes hangs on the number of frames more than on bytes. The kernels' notes say so.

FLOPs: a state of a frame adds three numbers by their logarithms (3 differences, 3 exponentials, 2 sums, a logarithm)
and adds the maximum and the label's: 11. Collecting takes 8 a state (a sum, then two numbers added by their
logarithms), and 6 an element of the gradient.
"""

from undertorch.costs.building import ceil_div, inner, pytorch, temporary, vector_math, viewed
from undertorch.costs.registry import cost
from undertorch.records import DTYPE_BYTES, Dim3, Gpu, Kernel, Kind, Op, TensorRef

THREADS, THREADS_FLOAT64, THREADS_FLOAT64_BACKWARD = 1024, 768, 896
THREADS_BLACKWELL = 640
"""Of a block at most; from compute capability 12.0 on fewer."""
LARGE = 450
"""Above this measure of the problem the blanks are collected by other ops."""
ADDED, COLLECTED, FINISHED = 11, 8, 6
ONE_BY_ONE = "a block goes through {frames} frames one after the other, which takes longer than its bytes"


@cost("aten::_ctc_loss")
def ctc_loss(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the labels' probabilities; writes the loss of each sequence and log alpha."""
    scores, targets = op.tensor("log_probs"), op.tensor("targets")
    loss, alpha = op.results[0], op.results[1]
    most = _most(scores, gpu, backward=False)
    return (
        *_lengths(op, gpu, scores),
        _along_the_frames("ctc_loss_log_alpha_gpu_kernel", scores, targets, alpha, loss.bytes, most),
    )


@cost("aten::_ctc_loss_backward")
def ctc_loss_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Fills log beta and the gradient, writes log beta from the last frame on, and collects both into the gradient."""
    scores, targets, alpha = op.tensor("log_probs"), op.tensor("targets"), op.tensor("log_alpha")
    outward, loss, gradient = op.tensor("grad"), op.tensor("neg_log_likelihood"), op.results[0]
    frames, batch, labels = scores.shape
    most = _most(scores, gpu, backward=True)
    beta = temporary(alpha.shape, alpha.dtype, alpha.device, 4)
    fills = (*_filled(op, gpu, beta), *_filled(op, gpu, gradient))
    betas = _along_the_frames("ctc_loss_backward_log_beta_gpu_kernel", scores, targets, beta, 0, most)
    by_frame = _blocks(frames, batch, most)
    read = alpha.bytes + beta.bytes + scores.bytes + targets.bytes + outward.bytes + loss.bytes
    if 2 * frames + 24 * batch // 10 + 2 * labels // 10 > LARGE:
        collecting = _large(op, gpu, scores, alpha, beta, gradient)
        name = "ctc_loss_backward_collect_nonblank_gpu_kernel"
        geometry = _blocks(alpha.shape[2] // 2, batch, most)
    else:
        collecting, name, geometry = (), "ctc_loss_backward_collect_gpu_kernel", by_frame
    return (
        *_lengths(op, gpu, scores),
        *fills,
        betas,
        *collecting,
        pytorch(
            name,
            Kind.LOSS,
            *geometry,
            read=read,
            written=gradient.bytes,
            flops=COLLECTED * alpha.elements + FINISHED * gradient.elements,
            math=vector_math(scores.dtype),
        ),
        # It writes what lies behind a sequence's last frame: nothing where all are of full length.
        pytorch(
            "ctc_loss_zero_padded_gradients",
            Kind.FILL,
            *by_frame,
            read=batch * DTYPE_BYTES["int64"],
            written=0,
            flops=0,
        ),
    )


def _along_the_frames(
    name: str, scores: TensorRef, targets: TensorRef, states: TensorRef, written: int, most: int
) -> Kernel:
    frames, batch, labels = scores.shape
    picked = min(labels, states.shape[2] // 2 + 1) * frames * batch * DTYPE_BYTES[scores.dtype]
    threads = _threads(states.shape[2], most)
    sequences = min(most // threads, batch)
    return pytorch(
        name,
        Kind.LOSS,
        (1, ceil_div(batch, max(sequences, 1)), 1),
        (threads, sequences, 1),
        read=picked + targets.bytes,
        written=states.bytes + written,
        flops=ADDED * states.elements,
        math=vector_math(scores.dtype),
        note=ONE_BY_ONE.format(frames=frames),
    )


def _large(
    op: Op, gpu: Gpu, scores: TensorRef, alpha: TensorRef, beta: TensorRef, gradient: TensorRef
) -> tuple[Kernel, ...]:
    """The gradient as the exponential of the scores, less the blanks' share, times what comes from outside."""
    frames, batch, _ = scores.shape
    blanks = temporary((batch, frames, alpha.shape[2] // 2 + 1), alpha.dtype, alpha.device, 5)
    every_other = (alpha.strides[0], alpha.strides[1], 2 * alpha.strides[2])

    alphas, betas = (viewed(states, blanks.shape, every_other) for states in (alpha, beta))
    summed = temporary((batch, frames, 1), alpha.dtype, alpha.device, 6)
    turned = viewed(summed, (frames, batch, 1), (1, frames, 1))
    losses = viewed(op.tensor("neg_log_likelihood"), (1, batch, 1), (batch, 1, 1))
    outward = viewed(op.tensor("grad"), (1, batch, 1), (batch, 1, 1))
    blank_scores = viewed(scores, (frames, batch, 1), scores.strides)
    blank_gradient = viewed(gradient, (frames, batch, 1), gradient.strides)
    return (
        *inner(op, gpu, "aten::exp", gradient, self=scores),
        *inner(op, gpu, "aten::add", blanks, overload="Tensor", self=alphas, other=betas, alpha=1),
        *inner(op, gpu, "aten::logsumexp", summed, self=blanks, dim=(2,), keepdim=True),
        *inner(op, gpu, "aten::add_", turned, overload="Tensor", self=turned, other=losses, alpha=1),
        *inner(op, gpu, "aten::sub_", turned, overload="Tensor", self=turned, other=blank_scores, alpha=1),
        *inner(op, gpu, "aten::exp_", turned, self=turned),
        *inner(op, gpu, "aten::sub_", blank_gradient, overload="Tensor", self=blank_gradient, other=turned, alpha=1),
        *inner(op, gpu, "aten::mul_", gradient, overload="Tensor", self=gradient, other=outward),
    )


def _lengths(op: Op, gpu: Gpu, scores: TensorRef) -> tuple[Kernel, ...]:
    """The lengths of sequences and targets, and where each target begins, are sent to the GPU."""
    there = temporary((scores.shape[1],), "int64", scores.device, 1)
    here = temporary((scores.shape[1],), "int64", "cpu", 2)
    return 3 * inner(op, gpu, "aten::copy_", there, self=there, src=here, non_blocking=False)


def _filled(op: Op, gpu: Gpu, tensor: TensorRef) -> tuple[Kernel, ...]:
    return inner(op, gpu, "aten::fill_", tensor, overload="Scalar", self=tensor, value="-inf")


def _most(scores: TensorRef, gpu: Gpu, backward: bool) -> int:
    if gpu.compute_capability is not None and gpu.compute_capability >= (12, 0):
        return THREADS_BLACKWELL
    if scores.dtype != "float64":
        return THREADS
    return THREADS_FLOAT64_BACKWARD if backward else THREADS_FLOAT64


def _threads(size: int, most: int) -> int:
    """`most`, halved as long as half of it is enough."""
    threads = most
    while threads // 2 >= size and threads > 1:
        threads //= 2
    return threads


def _blocks(size: int, batch: int, most: int) -> tuple[Dim3, Dim3]:
    threads = _threads(size, most)
    sequences = min(most // threads, batch)
    return (max(ceil_div(size, threads), 1), ceil_div(batch, max(sequences, 1)), 1), (threads, sequences, 1)
