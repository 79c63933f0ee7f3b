"""Pooling and nearest-neighbour upsampling of images. Geometry: native/cuda/DilatedMaxPool2d.cu, AveragePool2d.cu,
AdaptiveAveragePooling.cu, UpSampleNearest2d.cu.

Images that lie as N, H, W, C (channels last) have kernels of their own. FLOPs: additions and divisions; a maximum is
none. Windows count whole, also where they reach over the edge.
"""

from dataclasses import dataclass, replace

from undertorch.costs.building import (
    GRID_YZ_LIMIT,
    ceil_div,
    inner,
    last_power_of_two,
    pytorch,
    temporary,
    vector_math,
    zeros,
)
from undertorch.costs.geometry.tensor_iterator import channels_last
from undertorch.costs.registry import cost
from undertorch.records import Dim3, Gpu, Kernel, Kind, Op, TensorRef, Value

POOL_THREADS = 256
"""BLOCK_THREADS of the max-pooling kernels."""

AVERAGE_THREADS = 1024
"""Of the average-pooling kernels, and of upsampling by channels: as many as a block may have, at most this."""

UPSAMPLE_THREADS = 512
"""MAX_THREADS of the upsampling kernels."""

CHANNELS_A_THREAD = 4
PIXELS_A_THREAD = 2
"""Along height and along width (BLOCK_STRIDE) of the kernels for channels-last images."""

PLANES_A_THREAD = 4
"""Of an upsampling kernel."""

INDEX = 4
"""Bytes of an index while it is in shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The sizes of a batch of images."""

    batch: int
    channels: int
    height: int
    width: int

    @property
    def pixels(self) -> int:
        """Of one channel of one image."""
        return self.height * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Geometry of a kernel for channels-last images."""

    grid: Dim3
    block: Dim3
    cached: int
    """Elements of a block that stand in shared memory."""


@cost("aten::max_pool2d_with_indices")
def max_pool2d(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the input; writes the largest of each window, and where it was in 64 bits."""
    source, copies = _laid_out(op, gpu, op.tensor("self"))
    result, indices = op.results
    if result.elements == 0:
        return ()
    nhwc = _nhwc(source)
    launch = _channels_last_launch(_image(result), gpu)
    return (
        *copies,
        pytorch(
            "max_pool_forward_nhwc" if nhwc else "max_pool_forward_nchw",
            Kind.REDUCTION,
            launch.grid if nhwc else ceil_div(result.elements, POOL_THREADS),
            launch.block if nhwc else POOL_THREADS,
            read=source.bytes,
            written=result.bytes + indices.bytes,
            flops=0,
            registers=None if nhwc else 23,
            shared=launch.cached * (INDEX + source.itemsize) if nhwc else 0,
        ),
    )


@cost("aten::max_pool2d_with_indices_backward")
def max_pool2d_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Zeros, then each pixel gathers from the windows whose largest it was."""
    grad, copies = _laid_out(op, gpu, op.tensor("grad_output"), like=op.tensor("self"))
    result = op.results[0]
    if grad.elements == 0:
        return ()
    nhwc = _nhwc(op.tensor("self"))
    image = _image(result)
    launch = _channels_last_launch(image, gpu)
    rows = (ceil_div(image.pixels, POOL_THREADS), min(image.batch, GRID_YZ_LIMIT), min(image.channels, GRID_YZ_LIMIT))
    accumulated = max(4, result.itemsize)
    return (
        *copies,
        *zeros(op, gpu, result),
        pytorch(
            "max_pool_backward_nhwc" if nhwc else "max_pool_backward_nchw",
            Kind.REDUCTION,
            launch.grid if nhwc else rows,
            launch.block if nhwc else POOL_THREADS,
            read=grad.bytes + op.tensor_bytes("indices"),
            written=result.bytes,
            flops=grad.elements,
            math=vector_math(grad.dtype),
            registers=None if nhwc else 32,
            shared=launch.cached * accumulated if nhwc else 0,
        ),
    )


@cost("aten::avg_pool2d")
def avg_pool2d(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The mean of each window."""
    source, copies = _laid_out(op, gpu, op.tensor("self"))
    result = op.results[0]
    return (*copies, *_averages(op, source, result, "avg_pool2d_out_cuda_frame", result.elements * _window(op)))


@cost("aten::avg_pool2d_backward")
def avg_pool2d_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Each pixel adds up the gradients of its windows, each divided by the window's size."""
    grad, copies = _laid_out(op, gpu, op.tensor("grad_output"), like=op.tensor("self"))
    result = op.results[0]
    flops = 2 * grad.elements * _window(op)
    return (*copies, *_averages(op, grad, result, "avg_pool2d_backward_out_cuda_frame", flops))


@cost("aten::_adaptive_avg_pool2d")
def adaptive_avg_pool2d(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The mean of each of `output_size` windows, which may overlap."""
    source, result = op.tensor("self"), op.results[0]
    if result.elements == 0:
        return ()
    nhwc = _nhwc(source)
    source, copies = (source, ()) if nhwc else _laid_out(op, gpu, source)
    launch = _channels_last_launch(_image(result), gpu)
    return (
        *copies,
        pytorch(
            "adaptive_average_pool_nhwc" if nhwc else "adaptive_average_pool",
            Kind.REDUCTION,
            launch.grid if nhwc else _adaptive_grid(_image(source)),
            launch.block if nhwc else (32, 8, 1),
            read=source.bytes,
            written=result.bytes,
            # All but one addition of each window, and two divisions (by its height and width).
            flops=_adaptive_elements(source, result) + result.elements,
            math=vector_math(source.dtype),
            registers=None if nhwc else 32,
            shared=launch.cached * max(4, source.itemsize) if nhwc else 0,
        ),
    )


@cost("aten::_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Zeros, then every window adds its share to its pixels (atomically where images are row-major)."""
    grad, source, result = op.tensor("grad_output"), op.tensor("self"), op.results[0]
    if result.elements == 0:
        return ()
    nhwc = _nhwc(source)
    grad, copies = (grad, ()) if nhwc else _laid_out(op, gpu, grad)
    image, outer = _image(source), _image(grad)
    launch = _channels_last_launch(image, gpu)
    factors = (launch.cached + outer.height + outer.width) * grad.itemsize
    return (
        *zeros(op, gpu, result),
        *copies,
        pytorch(
            "adaptive_average_gradinput_nhwc" if nhwc else "atomic_adaptive_average_gradinput",
            Kind.REDUCTION,
            launch.grid if nhwc else _adaptive_grid(image),
            launch.block if nhwc else (32, 8, 1),
            read=grad.bytes + (0 if nhwc else result.bytes),
            written=result.bytes,
            flops=_adaptive_elements(source, grad) + 2 * grad.elements,
            math=vector_math(grad.dtype),
            shared=factors + 2 * image.width * INDEX if nhwc else 0,
        ),
    )


@cost("aten::upsample_nearest2d")
def upsample_nearest2d(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Each result is a copy of the nearest pixel."""
    source, result = op.tensor("self"), op.results[0]
    if source.elements == 0:
        return ()
    if source.shape == result.shape:
        return inner(op, gpu, "aten::copy_", result, self=result, src=source, non_blocking=False)
    source, copies = _laid_out(op, gpu, source)
    if _nhwc(source):
        blocks = ceil_div(result.elements, AVERAGE_THREADS)
        return (*copies, _upsampled("upsample_nearest2d_nhwc_out_frame", blocks, AVERAGE_THREADS, source, result, None))
    image = _image(result)
    planes = image.batch * image.channels
    x = min(last_power_of_two(image.width), UPSAMPLE_THREADS)
    y = min(last_power_of_two(image.height), UPSAMPLE_THREADS // x)
    z = min(planes, UPSAMPLE_THREADS // x // y)
    # A block has 64 threads in z at most (CUDA C++ Programming Guide, technical specifications).
    z = min(z, 64)
    depth = min(ceil_div(planes, z * PLANES_A_THREAD), GRID_YZ_LIMIT)
    grid = (ceil_div(image.width, x), ceil_div(image.height, y), depth)
    return (*copies, _upsampled("upsample_nearest2d_out_frame", grid, (x, y, z), source, result, 30))


@cost("aten::upsample_nearest2d_backward")
def upsample_nearest2d_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Each pixel adds up the gradients of its copies."""
    grad, result = op.tensor("grad_output"), op.results[0]
    if result.elements == 0:
        return ()
    if grad.shape == result.shape:
        return inner(op, gpu, "aten::copy_", result, self=result, src=grad, non_blocking=False)
    grad, copies = _laid_out(op, gpu, grad)
    nhwc = _nhwc(grad)
    name = "upsample_nearest2d_backward_nhwc_out_frame" if nhwc else "upsample_nearest2d_backward_out_frame"
    threads = AVERAGE_THREADS if nhwc else UPSAMPLE_THREADS
    covered = result.elements if nhwc else result.elements // result.shape[0]
    kernel = _upsampled(name, ceil_div(covered, threads), threads, grad, result, None)
    return (*copies, replace(kernel, flops=grad.elements, math=vector_math(grad.dtype)))


def _averages(op: Op, source: TensorRef, result: TensorRef, name: str, flops: int) -> tuple[Kernel, ...]:
    if result.elements == 0:
        return ()
    nhwc = _nhwc(source)
    return (
        pytorch(
            f"{name}_nhwc" if nhwc else name,
            Kind.REDUCTION,
            ceil_div(result.elements, AVERAGE_THREADS),
            AVERAGE_THREADS,
            read=source.bytes,
            written=result.bytes,
            flops=flops,
            math=vector_math(source.dtype),
            registers=32 if name == "avg_pool2d_out_cuda_frame" and not nhwc else None,
            shared=0,
        ),
    )


def _upsampled(
    name: str, grid: Dim3 | int, block: Dim3 | int, source: TensorRef, result: TensorRef, registers: int | None
) -> Kernel:
    return pytorch(
        name,
        Kind.COPY,
        grid,
        block,
        read=source.bytes,
        written=result.bytes,
        flops=0,
        registers=registers,
        shared=0,
    )


def _channels_last_launch(image: Image, gpu: Gpu) -> Launch:
    """Threads along channels, width and height, each with 4 channels and 2 × 2 pixels."""
    most = min(gpu.max_threads_per_block, AVERAGE_THREADS)
    channels = last_power_of_two(image.channels)
    x = min(channels, gpu.warp_size)
    y = min(last_power_of_two(image.width), most // x)
    # A block has 64 threads in z at most (CUDA C++ Programming Guide, technical specifications).
    z = min(last_power_of_two(image.height), most // x // y, 64)
    x = min(channels, most // y // z)
    parts = ceil_div(image.channels, x * CHANNELS_A_THREAD)
    each = ceil_div(image.channels, x * parts)
    grid = (
        image.batch * parts,
        min(ceil_div(image.width, y * PIXELS_A_THREAD), GRID_YZ_LIMIT),
        min(ceil_div(image.height, z * PIXELS_A_THREAD), GRID_YZ_LIMIT),
    )
    return Launch(grid=grid, block=(x, y, z), cached=each * x * y * z)


def _adaptive_grid(image: Image) -> Dim3:
    return image.batch * image.channels, max(16 // image.channels, 1), 1


def _adaptive_elements(source: TensorRef, result: TensorRef) -> int:
    """Elements of all windows: of n, window i begins at i · size / n, rounded down, ends at (i + 1) · size / n, up."""
    covered = 1
    for size, count in zip(source.shape[-2:], result.shape[-2:], strict=True):
        covered *= sum(ceil_div((i + 1) * size, count) - i * size // count for i in range(count))
    image = _image(source)
    return image.batch * image.channels * covered


def _window(op: Op) -> int:
    height, width = _pair(op.arg("kernel_size"))
    return height * width


def _pair(value: Value) -> tuple[int, int]:
    sizes = [size for size in value if isinstance(size, int)] if isinstance(value, tuple) else []
    if isinstance(value, int):
        sizes = [value]
    return sizes[0], sizes[-1]


def _image(tensor: TensorRef) -> Image:
    batch, channels, height, width = tensor.shape if len(tensor.shape) == 4 else (1, *tensor.shape)
    return Image(batch=batch, channels=channels, height=height, width=width)


def _nhwc(tensor: TensorRef) -> bool:
    return channels_last(tensor) and not tensor.contiguous


def _laid_out(
    op: Op, gpu: Gpu, tensor: TensorRef, like: TensorRef | None = None
) -> tuple[TensorRef, tuple[Kernel, ...]]:
    """`tensor.contiguous(memory_format)`, the format that `like` (or itself) suggests."""
    nhwc = _nhwc(tensor if like is None else like)
    if channels_last(tensor) if nhwc else tensor.contiguous:
        return tensor, ()
    copy = temporary(tensor.shape, tensor.dtype, tensor.device, 1)
    if nhwc:
        _, channels, height, width = tensor.shape
        copy = replace(copy, strides=(channels * height * width, 1, width * channels, channels))
    return copy, inner(
        op, gpu, "aten::clone", copy, self=tensor, memory_format="channels_last" if nhwc else "contiguous_format"
    )
