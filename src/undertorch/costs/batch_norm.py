"""Batch norm. Geometry of PyTorch's own kernels: native/cuda/Normalization.cuh and Normalization.cu of torch 2.11.

In training: the moments of each channel, the running statistics and the reciprocal deviation, then the elements. The
contiguous layout takes one block a channel, channels-last tiles of channels and rows. cuDNN's batch norm is closed:
one block a channel, as recorded on an H200, and marked predicted.

FLOPs: moments 4 an element; applied 4 (subtract, scale, weight, bias); backward 5 for the sums, 5 to apply them.
"""

from dataclasses import dataclass, replace
from math import prod

from undertorch.costs.building import (
    GRID_YZ_LIMIT,
    accumulated,
    ceil_div,
    inner,
    last_power_of_two,
    pytorch,
    vector_math,
    viewed,
    zeros,
)
from undertorch.costs.building import temporary as scratch
from undertorch.costs.geometry.loops import Functor
from undertorch.costs.geometry.tensor_iterator import channels_last
from undertorch.costs.pointwise import pointwise
from undertorch.costs.registry import cost
from undertorch.costs.units import generation
from undertorch.records import DTYPE_BYTES, Dim3, Gpu, Kernel, Kind, Op, Origin, TensorRef

MOST_THREADS = 512
"""MAX_BLOCK_SIZE of Normalization.cuh."""

SIZES = (32, 64, 128, 256, 512)
"""Threads that getNumThreads chooses from."""

TILE_WIDTH = 32
ROWS_A_THREAD = 16
MOST_ROW_BLOCKS = 128
"""Of the channels-last kernels (OPTIMAL_TILE_W, ELEMENTS_PER_THREAD, MAX_H_BLOCK)."""

FEWEST_ROW_BLOCKS = 8
"""Below these a reduction across blocks is not worth while (flexible_launch_configs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planes:
    """An input as batch norm sees it."""

    samples: int
    channels: int
    pixels: int

    @property
    def rows(self) -> int:
        """Elements of a channel."""
        return self.samples * self.pixels

    @property
    def elements(self) -> int:
        """All of them."""
        return self.rows * self.channels


@cost(
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_no_training",
    "aten::_batch_norm_no_update",
)
def batch_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """PyTorch's own kernels. Not training: the running statistics are read, nothing is reduced."""
    source, result = op.tensor("input"), op.results[0]
    planes = planes_of(source)
    if planes.elements == 0:
        return ()
    training = next((argument.value for argument in op.arguments if argument.name == "training"), False) is True
    acc = accumulated(source.dtype)
    mean, deviation = (scratch((planes.channels,), acc, source.device, number) for number in (1, 2))
    running = op.tensors("running_mean") + op.tensors("running_var")
    if not training:
        kernels = inner(op, gpu, "aten::copy_", mean, self=mean, src=running[0], non_blocking=True)
        kernels += _by_channel("batch_norm_calc_invstd", (deviation,), (running[1],), gpu, flops=2)
        return (*kernels, *_applied(op, gpu, planes, source, result, mean, deviation))
    moments = _moments(op, gpu, planes, source, acc)
    if running:
        update = _by_channel(
            "batch_norm_update_stats_and_invert", (*running, deviation), (mean, deviation, *running), gpu, flops=9
        )
    else:
        update = _by_channel("batch_norm_calc_invstd", (deviation,), (deviation,), gpu, flops=2)
    return (*moments, *update, *_applied(op, gpu, planes, source, result, mean, deviation))


@cost("aten::native_batch_norm_backward")
def batch_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Contiguous: one kernel, which reads gradient and input twice. Channels-last: sums, then the elements."""
    source, grad = op.tensor("input"), op.tensor("grad_out")
    planes = planes_of(source)
    if planes.elements == 0:
        return ()
    acc_bytes = DTYPE_BYTES[accumulated(source.dtype)]
    read = grad.bytes + source.bytes
    affine = op.tensor_bytes("weight")
    statistics = 2 * planes.channels * acc_bytes
    written = sum(tensor.bytes for tensor in op.results)
    math = vector_math(source.dtype)
    for_input = op.outputs[0]
    if not _as_channels_last(source) and for_input is not None:
        threads = _threads(planes.pixels)
        return (
            pytorch(
                "batch_norm_backward_kernel",
                Kind.NORM,
                planes.channels,
                (threads, max(1, MOST_THREADS // threads), 1),
                read=read + affine + statistics,
                written=written,
                flops=10 * planes.elements,
                math=math,
                traffic=2 * read + written if read > gpu.l2_bytes else None,
            ),
        )
    grid, block = _tiles(planes, reduces=True)
    sums = written - (for_input.bytes if for_input is not None else 0)
    kernels = (
        *_semaphores(op, gpu, grid, source),
        pytorch(
            "batch_norm_backward_reduce_channels_last_kernel<4>",
            Kind.NORM,
            grid,
            block,
            read=read + statistics,
            written=statistics + sums,
            flops=5 * planes.elements,
            math=math,
            registers=40 if source.dtype == "bfloat16" else None,
            shared=MOST_THREADS * 2 * acc_bytes + 1,  # two sums of each thread, and whether the block is the last
        ),
    )
    if for_input is None:
        return kernels
    grid, block = _tiles(planes, reduces=False)
    applied = pytorch(
        "batch_norm_backward_elemt_channels_last_kernel<4>",
        Kind.NORM,
        grid,
        block,
        read=read + affine + 2 * statistics,
        written=for_input.bytes,
        flops=5 * planes.elements,
        math=math,
        registers=32 if source.dtype == "bfloat16" else None,
        shared=0,
    )
    return *kernels, applied


@cost("aten::cudnn_batch_norm", "aten::_batch_norm_with_update")
def cudnn_batch_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One block a channel, which reads its plane twice: for the moments and for the result."""
    source, result = op.tensor("input"), op.results[0]
    planes = planes_of(source)
    if planes.elements == 0:
        return ()
    parameters = op.tensor_bytes("weight", "bias", "running_mean", "running_var")
    statistics = sum(tensor.bytes for tensor in op.results[1:]) + op.tensor_bytes("running_mean", "running_var")
    nhwc = channels_last(source)
    kernel = pytorch(
        "bn_fw_tr_1C11_kernel_NCHW" if not nhwc else "bn_fw_tr_1C11_kernel_NHWC",
        Kind.NORM,
        planes.channels,
        MOST_THREADS,
        read=source.bytes + parameters,
        written=result.bytes + statistics,
        flops=8 * planes.elements,
        math=vector_math(source.dtype),
        registers=48,
        shared=144,
        traffic=2 * source.bytes + result.bytes if source.bytes > gpu.l2_bytes else None,
        library="cuDNN",
        note="cuDNN's geometry is not public: one block a channel, as recorded.",
    )
    return (_closed(kernel, gpu),)


@cost("aten::cudnn_batch_norm_backward", "aten::batch_norm_backward")
def cudnn_batch_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One block a channel, which reads gradient and input twice."""
    source = op.tensor("input")
    grad = op.tensors("grad_output") or op.tensors("grad_out")
    planes = planes_of(source)
    if planes.elements == 0:
        return ()
    read = source.bytes + grad[0].bytes
    written = sum(tensor.bytes for tensor in op.results)
    kernel = pytorch(
        "bn_bw_1C11_kernel_new",
        Kind.NORM,
        planes.channels,
        MOST_THREADS,
        read=read + op.tensor_bytes("weight", "save_mean", "save_var"),
        written=written,
        flops=10 * planes.elements,
        math=vector_math(source.dtype),
        traffic=2 * read + written if read > gpu.l2_bytes else None,
        library="cuDNN",
        note="cuDNN's geometry is not public: one block a channel, as its forward was recorded.",
    )
    return (_closed(kernel, gpu),)


def _closed(kernel: Kernel, gpu: Gpu) -> Kernel:
    """A kernel of cuDNN; on AMD's GPUs MIOpen takes its place, whose kernels are not known by name."""
    if generation(gpu) is None:
        kernel = replace(
            kernel, name="batch_norm", library="MIOpen", registers=None, shared_bytes=None, resources_origin=None
        )
    return replace(kernel, geometry_origin=Origin.PREDICTED)


def planes_of(tensor: TensorRef) -> Planes:
    """Samples, channels, and everything after them."""
    channels = tensor.shape[1] if len(tensor.shape) > 1 else 1
    return Planes(samples=tensor.shape[0], channels=channels, pixels=prod(tensor.shape[2:]))


def _moments(op: Op, gpu: Gpu, planes: Planes, source: TensorRef, acc: str) -> tuple[Kernel, ...]:
    written = 2 * planes.channels * DTYPE_BYTES[acc]
    registers: int | None
    shared: int | None
    if _as_channels_last(source):
        grid, block = _tiles(planes, reduces=True)
        name, before, registers, shared = (
            "batch_norm_collect_statistics_channels_last_kernel",
            _semaphores(op, gpu, grid, source),
            40 if source.dtype == "bfloat16" else None,
            # A mean, a sum of squares and a count of each thread, and whether the block is the last to come.
            MOST_THREADS * (2 * DTYPE_BYTES[acc] + DTYPE_BYTES["int32"]) + 1,
        )
    else:
        threads = _threads(planes.pixels)
        grid, block = (planes.channels, 1, 1), (threads, max(1, MOST_THREADS // threads), 1)
        name, before = "batch_norm_collect_statistics_kernel", ()
        registers, shared = (27, 640) if source.dtype == "float32" else (None, None)
    kernel = pytorch(
        name,
        Kind.NORM,
        grid,
        block,
        read=source.bytes,
        written=written,
        flops=4 * planes.elements,
        math=vector_math(source.dtype),
        registers=registers,
        shared=shared,
    )
    return *before, kernel


def _applied(
    op: Op, gpu: Gpu, planes: Planes, source: TensorRef, result: TensorRef, mean: TensorRef, deviation: TensorRef
) -> tuple[Kernel, ...]:
    """batch_norm_elementwise."""
    affine = op.tensors("weight") + op.tensors("bias")
    if not source.contiguous and not _as_channels_last(source):
        shape = (1, planes.channels, *(1,) * (len(source.shape) - 2))
        inputs = (source, *(viewed(tensor, shape) for tensor in (*affine, mean, deviation)))
        types = tuple(tensor.dtype for tensor in inputs)
        functor = Functor(name="batch_norm_elementwise", result=result.dtype, arguments=types)
        return pointwise(functor, (result,), inputs, gpu, flops=4, kind=Kind.NORM)
    if _as_channels_last(source):
        grid, block = _tiles(planes, reduces=False)
        name, registers = "batch_norm_transform_input_channels_last_kernel", 32 if source.dtype == "bfloat16" else None
    else:
        across = max(_threads(planes.pixels // 4), min(_threads(planes.pixels), 64))
        down = max(64 // across, 1)
        in_y = max(1, min(256 * 1024 // planes.channels, ceil_div(planes.samples, down)))
        grid, block = (planes.channels, min(in_y, GRID_YZ_LIMIT), 1), (across, down, 1)
        name, registers = "batch_norm_transform_input_kernel", 24 if source.dtype == "float32" else None
    return (
        pytorch(
            name,
            Kind.NORM,
            grid,
            block,
            read=source.bytes + mean.bytes + deviation.bytes + sum(tensor.bytes for tensor in affine),
            written=result.bytes,
            flops=(2 + len(affine)) * planes.elements,
            math=vector_math(source.dtype),
            registers=registers,
            shared=0,
        ),
    )


def _by_channel(
    name: str, outputs: tuple[TensorRef, ...], inputs: tuple[TensorRef, ...], gpu: Gpu, flops: int
) -> tuple[Kernel, ...]:
    types = tuple(tensor.dtype for tensor in inputs)
    functor = Functor(name=name, result=outputs[0].dtype, arguments=types)
    return pointwise(functor, outputs, inputs, gpu, flops=flops, kind=Kind.NORM)


def _semaphores(op: Op, gpu: Gpu, grid: Dim3, source: TensorRef) -> tuple[Kernel, ...]:
    """Several blocks down a channel add up in turn, which takes a counter each."""
    if grid[1] == 1:
        return ()
    return zeros(op, gpu, scratch((grid[0],), "int32", source.device, 3))


def _as_channels_last(tensor: TensorRef) -> bool:
    """batch_norm_choose_impl: channels lie next to one another."""
    if len(tensor.shape) < 2:
        return False
    return channels_last(tensor) or (tensor.contiguous and tensor.strides[1] == 1)


def _threads(size: int) -> int:
    """getNumThreads."""
    return next((threads for threads in SIZES if size <= threads), MOST_THREADS)


def _tiles(planes: Planes, reduces: bool) -> tuple[Dim3, Dim3]:
    """flexible_launch_configs: channels in x, rows in y."""
    across = min(last_power_of_two(planes.channels), TILE_WIDTH)
    down = min(last_power_of_two(ceil_div(planes.rows, ROWS_A_THREAD)), MOST_THREADS // across)
    if across * down != MOST_THREADS:
        across = min(last_power_of_two(planes.channels), MOST_THREADS // down)
    in_y = min(ceil_div(planes.rows, down * ROWS_A_THREAD), MOST_ROW_BLOCKS)
    if reduces and in_y < FEWEST_ROW_BLOCKS:
        in_y = 1
    return (ceil_div(planes.channels, across), in_y, 1), (across, down, 1)
