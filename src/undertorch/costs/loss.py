"""Losses. Geometry: native/cuda/NLLLoss.cu, NLLLoss2d.cu, Loss.cu, Loss.cpp, BinaryMiscOpsKernels.cu of torch 2.11.

The negative log-likelihood reads one element of each row: a 4-byte read that fetches a 32-byte sector, which is the
traffic given beside the least bytes. With a reduction one block adds up all rows. The element-by-element losses are
one kernel and, reduced, the reduction Op that PyTorch calls.

FLOPs: nll_loss 2 a row (add to the sum and to the weights), 1 more with class weights; mse 2 an element, smooth_l1 4,
huber 3, binary cross entropy 6; their gradients as their functions say.
"""

from math import log2, prod

from undertorch.costs.building import (
    accumulated,
    ceil_div,
    inner,
    made_contiguous,
    pytorch,
    temporary,
    vector_math,
    zeros,
)
from undertorch.costs.geometry.loops import Functor
from undertorch.costs.pointwise import pointwise
from undertorch.costs.registry import cost
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, TensorRef

NONE, MEAN = 0, 1
"""at::Reduction; 2 is the sum."""

THREADS = 1024
"""Threads of a block that takes rows one by one (CUDA_NUM_THREADS)."""

FEWEST_THREADS, ROWS_A_THREAD = 32, 16
"""Of the block that adds up all rows: a power of two near rows / 16, between 32 and 1024 (nll_loss_threads)."""

BLOCKS_A_SAMPLE = 128
"""nll_loss2d: a sample takes its blocks of 1024 over 128, at least one."""


@cost("aten::nll_loss_forward")
def nll_loss(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads target and one element a row; writes the loss and the total weight."""
    scores, target = op.tensor("self"), op.tensor("target")
    loss, total = op.results[0], op.results[1]
    rows = scores.shape[0] if len(scores.shape) == 2 else 1
    if op.arg("reduction") == NONE and len(scores.shape) == 2:
        filled = zeros(op, gpu, total)
        return (*filled, _row_by_row(op, "nll_loss_forward_no_reduce_cuda_kernel", rows, loss, gpu)) if rows else filled
    if target.elements == 0:
        return zeros(op, gpu, loss) + zeros(op, gpu, total)
    _, copies = made_contiguous(op, gpu, scores)
    threads = _threads(rows)
    accumulator = DTYPE_BYTES[accumulated(scores.dtype)]
    one_row = len(scores.shape) == 1
    read, traffic = _picked(op, rows, gpu)
    written = loss.bytes + total.bytes
    return (
        *copies,
        pytorch(
            f"nll_loss_forward_reduce_cuda_kernel_{'1d' if one_row else '2d'}",
            Kind.LOSS,
            1,
            1 if one_row else threads,
            read=read,
            written=written,
            flops=(3 if op.tensors("weight") else 2) * rows,
            math=vector_math(scores.dtype),
            registers=None if one_row else 32,
            shared=0 if one_row else 2 * accumulator * threads,
            traffic=traffic + written,
        ),
    )


@cost("aten::nll_loss_backward")
def nll_loss_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Fills the gradient with zeros, then writes one element a row."""
    scores, result = op.tensor("self"), op.results[0]
    rows = scores.shape[0] if len(scores.shape) == 2 else 1
    filled = zeros(op, gpu, result)
    if rows == 0:
        return filled
    if op.arg("reduction") == NONE and len(scores.shape) == 2:
        return *filled, _row_by_row(op, "nll_loss_backward_no_reduce_cuda_kernel", rows, result, gpu)
    one_row = len(scores.shape) == 1
    target, weights = op.tensor("target"), op.tensors("weight")
    written = rows * result.itemsize
    read = target.bytes + 2 * result.itemsize + sum(min(rows, weight.elements) * weight.itemsize for weight in weights)
    return (
        *filled,
        pytorch(
            f"nll_loss_backward_reduce_cuda_kernel_{'1d' if one_row else '2d'}",
            Kind.LOSS,
            1,
            1 if one_row else _threads(rows),
            read=read,
            written=written,
            flops=rows if weights else 1,
            math=vector_math(scores.dtype),
            registers=None if one_row else 32,
            shared=0,
            traffic=read + rows * gpu.sector_bytes,
        ),
    )


@cost("aten::nll_loss2d_forward")
def nll_loss2d(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """As nll_loss, one row a pixel; the sums are added up with atomics and divided by a launch of one thread."""
    scores, target = op.tensor("self"), op.tensor("target")
    loss, total = op.results[0], op.results[1]
    pixels = target.elements
    if op.arg("reduction") == NONE:
        filled = zeros(op, gpu, total)
        if pixels == 0:
            return filled
        return *filled, _row_by_row(op, "nll_loss2d_forward_no_reduce_kernel", pixels, loss, gpu)
    if pixels == 0:
        return zeros(op, gpu, loss) + zeros(op, gpu, total)
    _, copies = made_contiguous(op, gpu, scores)
    _, more = made_contiguous(op, gpu, target, 2)
    read, traffic = _picked(op, pixels, gpu)
    written = loss.bytes + total.bytes
    kernels = (
        *copies,
        *more,
        *zeros(op, gpu, loss),
        *zeros(op, gpu, total),
        pytorch(
            "nll_loss2d_forward_kernel",
            Kind.LOSS,
            _sample_blocks(target),
            THREADS,
            read=read,
            written=written,
            flops=(3 if op.tensors("weight") else 2) * pixels,
            math=vector_math(scores.dtype),
            traffic=traffic + written,
        ),
    )
    if op.arg("reduction") != MEAN:
        return kernels
    average = pytorch(
        "nll_loss2d_forward_size_average_kernel",
        Kind.LOSS,
        1,
        1,
        read=written,
        written=loss.bytes,
        flops=1,
        math=vector_math(scores.dtype),
    )
    return *kernels, average


@cost("aten::nll_loss2d_backward")
def nll_loss2d_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Fills the gradient with zeros, then writes one element a pixel."""
    target, result = op.tensor("target"), op.results[0]
    filled = zeros(op, gpu, result)
    pixels = target.elements
    if pixels == 0:
        return filled
    if op.arg("reduction") == NONE:
        return *filled, _row_by_row(op, "nll_loss2d_backward_no_reduce_kernel", pixels, result, gpu)
    read = target.bytes + 2 * result.itemsize
    kernel = pytorch(
        "nll_loss2d_backward_kernel",
        Kind.LOSS,
        _sample_blocks(target),
        THREADS,
        read=read,
        written=pixels * result.itemsize,
        flops=pixels if op.tensors("weight") else 1,
        math=vector_math(result.dtype),
        traffic=read + pixels * gpu.sector_bytes,
    )
    return *filled, kernel


@cost("aten::mse_loss")
def mse_loss(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Difference and square, 2 FLOPs an element."""
    return _elementwise(op, gpu, "mse", flops=2)


@cost("aten::smooth_l1_loss")
def smooth_l1_loss(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Difference, its square, half of it over beta: 4 FLOPs an element (beyond beta: 2, not counted apart)."""
    return _elementwise(op, gpu, "smooth_l1", flops=4)


@cost("aten::huber_loss")
def huber_loss(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Difference, and half its square or delta times what is beyond: 3 FLOPs an element."""
    return _elementwise(op, gpu, "huber", flops=3)


@cost("aten::binary_cross_entropy")
def binary_cross_entropy(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Two logarithms, two products, two differences. Class weights are a product more; the reduced value is copied."""
    losses = temporary(op.tensor("self").shape, op.results[0].dtype, op.results[0].device, 2)
    kernels = _by_element(op, gpu, "binary_cross_entropy", (losses,), ("self", "target"), flops=6)
    for weight in op.tensors("weight"):
        kernels += inner(op, gpu, "aten::mul_", losses, overload="Tensor", self=losses, other=weight)
    return kernels + _reduced(op, gpu, losses, op.results[0])


@cost("aten::binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """(1 - target) * input - log_sigmoid(input), as four Ops over the elements and a fill (Loss.cpp)."""
    logits, target, result = op.tensor("self"), op.tensor("target"), op.results[0]
    device, dtype = logits.device, logits.dtype
    soft = temporary(logits.shape, dtype, device, 2)
    empty = temporary((0,), dtype, device, 3)
    losses = temporary(logits.shape, dtype, device, 4)
    kernels = inner(op, gpu, "aten::log_sigmoid_forward", soft, empty, self=logits)
    for weight in op.tensors("pos_weight"):
        scaled = temporary(logits.shape, dtype, device, 5)
        kernels += inner(op, gpu, "aten::sub", weight, overload="Tensor", self=weight, other=1, alpha=1)
        kernels += inner(op, gpu, "aten::mul", scaled, overload="Tensor", self=weight, other=target)
        kernels += inner(op, gpu, "aten::add_", scaled, overload="Tensor", self=scaled, other=1, alpha=1)
        kernels += inner(op, gpu, "aten::mul_", soft, overload="Tensor", self=soft, other=scaled)
    kernels += inner(op, gpu, "aten::fill_", losses, overload="Scalar", self=losses, value=1)
    kernels += inner(op, gpu, "aten::sub_", losses, overload="Tensor", self=losses, other=target, alpha=1)
    kernels += inner(op, gpu, "aten::mul_", losses, overload="Tensor", self=losses, other=logits)
    kernels += inner(op, gpu, "aten::sub_", losses, overload="Tensor", self=losses, other=soft, alpha=1)
    for weight in op.tensors("weight"):
        kernels += inner(op, gpu, "aten::mul_", losses, overload="Tensor", self=losses, other=weight)
    return kernels + _reduced(op, gpu, losses, result)


@cost("aten::mse_loss_backward")
def mse_loss_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """2 / n times the difference times the gradient: 3 FLOPs an element, over a result that was filled with zeros."""
    return _gradient(op, gpu, "mse_backward", flops=3)


@cost("aten::smooth_l1_loss_backward")
def smooth_l1_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Difference, over beta where small, times the norm and the gradient: 4 FLOPs an element."""
    return _gradient(op, gpu, "smooth_l1_backward", flops=4)


@cost("aten::huber_loss_backward")
def huber_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Difference or delta, times the norm and the gradient: 3 FLOPs an element."""
    return _gradient(op, gpu, "huber_backward", flops=3)


@cost("aten::binary_cross_entropy_backward")
def binary_cross_entropy_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """(input - target) / (input * (1 - input)), times the gradient: 5 FLOPs an element; a mean divides afterwards."""
    result = op.results[0]
    kernels = _by_element(
        op, gpu, "binary_cross_entropy_backward", (result,), ("grad_output", "self", "target"), flops=5
    )
    for weight in op.tensors("weight"):
        kernels += inner(op, gpu, "aten::mul_", result, overload="Tensor", self=result, other=weight)
    if op.arg("reduction") == MEAN:
        kernels += inner(op, gpu, "aten::div_", result, overload="Scalar", self=result, other=result.elements)
    return kernels


def _elementwise(op: Op, gpu: Gpu, functor: str, flops: int) -> tuple[Kernel, ...]:
    """The losses of self and target, then their reduction."""
    result = op.results[0]
    if op.arg("reduction") == NONE:
        return _by_element(op, gpu, functor, (result,), ("self", "target"), flops)
    losses = temporary(op.tensor("self").shape, result.dtype, result.device, 2)
    return _by_element(op, gpu, functor, (losses,), ("self", "target"), flops) + _reduced(op, gpu, losses, result)


def _gradient(op: Op, gpu: Gpu, functor: str, flops: int) -> tuple[Kernel, ...]:
    """zeros_like, then one kernel over self, target and the gradient, which a reduction has left a scalar."""
    result = op.results[0]
    return zeros(op, gpu, result) + _by_element(op, gpu, functor, (result,), ("self", "target", "grad_output"), flops)


def _by_element(
    op: Op, gpu: Gpu, functor: str, outputs: tuple[TensorRef, ...], names: tuple[str, ...], flops: int
) -> tuple[Kernel, ...]:
    inputs = tuple(op.tensor(name) for name in names)
    dtype = outputs[0].dtype
    return pointwise(
        Functor(name=functor, result=dtype, arguments=(dtype,) * len(inputs)),
        outputs,
        inputs,
        gpu,
        flops=flops,
        kind=Kind.LOSS,
    )


def _reduced(op: Op, gpu: Gpu, losses: TensorRef, result: TensorRef) -> tuple[Kernel, ...]:
    if op.arg("reduction") == NONE:
        return ()
    name = "aten::mean" if op.arg("reduction") == MEAN else "aten::sum"
    return inner(op, gpu, name, result, self=losses, dtype=None)


def _row_by_row(op: Op, name: str, rows: int, result: TensorRef, gpu: Gpu) -> Kernel:
    """No reduction: one thread a row."""
    read, traffic = _picked(op, rows, gpu)
    if "backward" in name:
        grad = op.tensor("grad_output").bytes
        read = op.tensor("target").bytes + grad + _weights(op, rows)
        traffic = read + rows * gpu.sector_bytes
        written = rows * result.itemsize
    else:
        written = result.bytes
        traffic += written
    return pytorch(
        name,
        Kind.LOSS,
        ceil_div(rows, THREADS),
        THREADS,
        read=read,
        written=written,
        flops=rows if op.tensors("weight") else 0,
        math=vector_math(result.dtype),
        registers=32 if name.endswith("cuda_kernel") else None,
        shared=0,
        traffic=traffic,
    )


def _picked(op: Op, rows: int, gpu: Gpu) -> tuple[int, int]:
    """Least bytes of the targets and one score (and weight) a row; and with the sector that each score fetches."""
    scores = op.tensor("self")
    others = op.tensor("target").bytes + _weights(op, rows)
    return others + rows * scores.itemsize, others + min(rows * gpu.sector_bytes, scores.bytes)


def _weights(op: Op, rows: int) -> int:
    return sum(min(rows, weight.elements) * weight.itemsize for weight in op.tensors("weight"))


def _threads(rows: int) -> int:
    return min(max(FEWEST_THREADS, 1 << round(log2(max(rows // ROWS_A_THREAD, 1)))), THREADS)


def _sample_blocks(target: TensorRef) -> int:
    samples = target.shape[0]
    pixels = prod(target.shape[1:])
    return samples * max(1, ceil_div(pixels, THREADS) // BLOCKS_A_SAMPLE)
