"""Images taken apart into windows and put together again, pixels shuffled between channels and space, adaptive maxima.

Geometry: native/cuda/im2col.cuh, Im2Col.cu, Col2Im.cu, AdaptiveMaxPooling2d.cu, native/PixelShuffle.cpp (a permuted
copy). No recording of these kernels is at hand, so their registers are unknown.
"""

from math import prod

from undertorch.costs.building import (
    ceil_div,
    contiguous_strides,
    inner,
    made_contiguous,
    pytorch,
    vector_math,
    viewed,
    zeros,
)
from undertorch.costs.registry import cost
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

IM2COL_THREADS = 1024
COL2IM_THREADS = 512
ADAPTIVE_BLOCK = (32, 8, 1)


@cost("aten::im2col")
def im2col(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A launch an image; a thread copies one window of one channel."""
    source, copies = made_contiguous(op, gpu, op.tensor("self"))
    result = op.results[0]
    window = op.arg("kernel_size")
    if result.elements == 0 or not isinstance(window, tuple):
        return ()
    batch = source.shape[0] if len(source.shape) == 4 else 1
    of_one = result.elements // batch // prod(int(size) for size in window if isinstance(size, int))
    launch = pytorch(
        "im2col_kernel",
        Kind.COPY,
        ceil_div(of_one, IM2COL_THREADS),
        IM2COL_THREADS,
        read=source.bytes // batch,
        written=result.bytes // batch,
        flops=0,
        shared=0,
    )
    return (*copies, *(launch,) * batch)


@cost("aten::col2im")
def col2im(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One launch; a thread adds up what the windows say of one pixel."""
    source, copies = made_contiguous(op, gpu, op.tensor("self"))
    result = op.results[0]
    if result.elements == 0:
        return ()
    return (
        *copies,
        pytorch(
            "col2im_batched_kernel",
            Kind.REDUCTION,
            ceil_div(result.elements, COL2IM_THREADS),
            COL2IM_THREADS,
            read=source.bytes,
            written=result.bytes,
            flops=source.elements,
            math=vector_math(source.dtype),
            shared=0,
        ),
    )


@cost("aten::pixel_shuffle")
def pixel_shuffle(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Channels C·r·r of H × W become C channels of rH × rW: a copy of the permuted image."""
    factor = _factor(op, "upscale_factor")
    source, result = op.tensor("self"), op.results[0]
    *outer, channels, height, width = source.shape
    split = (*outer, channels // factor**2, factor, factor, height, width)
    first = len(outer)
    order = (*range(first), first, first + 3, first + 1, first + 4, first + 2)
    return _permuted(op, gpu, source, result, split, order)


@cost("aten::pixel_unshuffle")
def pixel_unshuffle(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The way back."""
    factor = _factor(op, "downscale_factor")
    source, result = op.tensor("self"), op.results[0]
    *outer, channels, height, width = source.shape
    split = (*outer, channels, height // factor, factor, width // factor, factor)
    first = len(outer)
    order = (*range(first), first, first + 2, first + 4, first + 1, first + 3)
    return _permuted(op, gpu, source, result, split, order)


def _factor(op: Op, name: str) -> int:
    factor = op.arg(name)
    return factor if isinstance(factor, int) else 1


def _permuted(
    op: Op, gpu: Gpu, source: TensorRef, result: TensorRef, split: tuple[int, ...], order: tuple[int, ...]
) -> tuple[Kernel, ...]:
    source, copies = made_contiguous(op, gpu, source)
    strides = contiguous_strides(split)
    shape = tuple(split[at] for at in order)
    permuted = viewed(source, shape, tuple(strides[at] for at in order))
    copied = viewed(result, shape)
    return (*copies, *inner(op, gpu, "aten::clone", copied, self=permuted, memory_format="contiguous_format"))


@cost("aten::adaptive_max_pool2d")
def adaptive_max_pool2d(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A block a plane (and a share of its rows): the largest of each window, and where it was in 64 bits."""
    source, (result, indices) = op.tensor("self"), op.results
    if result.elements == 0:
        return ()
    return (_adaptive("adaptivemaxpool", source, (source,), (result, indices), 0),)


@cost("aten::adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Adds each gradient to the pixel that was the largest, by atomics where windows overlap."""
    grad, indices, result = op.tensor("grad_output"), op.tensor("indices"), op.results[0]
    if grad.elements == 0:
        return ()
    kernel = _adaptive("atomicadaptivemaxgradinput", result, (grad, indices), (result,), grad.elements)
    return (*zeros(op, gpu, result), kernel)


def _adaptive(
    name: str, image: TensorRef, read: tuple[TensorRef, ...], written: tuple[TensorRef, ...], flops: int
) -> Kernel:
    planes, channels = prod(image.shape[:-2]), image.shape[-3]
    return pytorch(
        name,
        Kind.REDUCTION,
        (planes, max(16 // channels, 1), 1),
        ADAPTIVE_BLOCK,
        read=sum(tensor.bytes for tensor in read),
        written=sum(tensor.bytes for tensor in written),
        flops=flops,
        math=vector_math(read[0].dtype),
        shared=0,
    )
