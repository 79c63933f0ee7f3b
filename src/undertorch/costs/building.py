"""What cost functions are built of: kernels with defaults, temporaries, and the Ops that PyTorch calls inside an Op."""

from dataclasses import replace

from undertorch.costs.registry import NoCost, kernels
from undertorch.records import Argument, Dim3, Gpu, Kernel, Kind, Math, Op, Origin, TensorRef, Value

HALVES = ("float16", "bfloat16")

GRID_X_LIMIT = 2**31 - 1
"""Blocks in x (CUDA C++ Programming Guide, technical specifications per compute capability)."""

GRID_YZ_LIMIT = 65535
"""Blocks in y or z; from the same table."""


def ceil_div(size: int, step: int) -> int:
    """The least number of steps that cover `size`."""
    return -(-size // step)


def round_up(size: int, step: int) -> int:
    """The least multiple of `step` that is not below `size`."""
    return ceil_div(size, step) * step


def last_power_of_two(size: int) -> int:
    """2**floor(log2(size)), at least 1 (native/cuda/LaunchUtils.h)."""
    return 1 << max(size.bit_length() - 1, 0)


def accumulated(dtype: str) -> str:
    """The dtype that ATen accumulates in on a GPU (ATen/AccumulateType.h): float32 for the half types."""
    return "float32" if dtype in HALVES else dtype


def vector_math(dtype: str) -> Math:
    """The unit outside tensor cores that works in the dtype ATen accumulates in; integers count with FP32's lanes."""
    return Math.FP64 if dtype in ("float64", "complex128") else Math.FP32


def aligned(tensor: TensorRef, count: int) -> bool:
    """Whether the tensor begins at a multiple of `count` elements.

    Allocations themselves begin at multiples of 512 bytes (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize).
    """
    return tensor.offset % count == 0


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def temporary(shape: tuple[int, ...], dtype: str, device: str, number: int = 1) -> TensorRef:
    """A contiguous tensor that lives only inside an Op. Its storage number is negative: no recorded tensor has such."""
    return TensorRef(
        shape=shape,
        strides=contiguous_strides(shape),
        dtype=dtype,
        device=device,
        storage=-number,
        offset=0,
        version=0,
    )


def viewed(tensor: TensorRef, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> TensorRef:
    """The same storage seen with another shape; row-major where no strides are given."""
    return replace(tensor, shape=shape, strides=contiguous_strides(shape) if strides is None else strides)


def pytorch(
    name: str,
    kind: Kind,
    grid: Dim3 | int,
    block: Dim3 | int,
    *,
    read: int | None,
    written: int | None,
    flops: int | None,
    math: Math | None = None,
    registers: int | None = None,
    shared: int | None = None,
    traffic: int | None = None,
    note: str | None = None,
    library: str = "PyTorch",
) -> Kernel:
    """A kernel whose launch geometry PyTorch's (or CUB's) source defines.

    Registers and shared memory are those that the kernel had in the H200 recordings under tests/golden (torch 2.11,
    CUDA 13.0); another build may differ, hence predicted.
    """
    return Kernel(
        name=name,
        kind=kind,
        library=library,
        grid=(grid, 1, 1) if isinstance(grid, int) else grid,
        block=(block, 1, 1) if isinstance(block, int) else block,
        geometry_origin=Origin.COMPUTED,
        registers=registers,
        shared_bytes=shared,
        resources_origin=None if registers is None and shared is None else Origin.PREDICTED,
        min_bytes_read=read,
        min_bytes_written=written,
        flops=flops,
        bytes_origin=None if read is None and written is None and flops is None else Origin.COMPUTED,
        traffic_bytes=traffic,
        math=math if flops else None,
        note=note,
    )


def memset(size: int, note: str | None = None) -> Kernel:
    """What the driver does for cudaMemsetAsync of `size` bytes."""
    return Kernel(
        name="Memset",
        kind=Kind.MEMSET,
        library="driver",
        grid=None,
        block=None,
        geometry_origin=None,
        min_bytes_read=0,
        min_bytes_written=size,
        flops=0,
        note=note,
    )


def device_copy(size: int) -> Kernel:
    """What the driver does for cudaMemcpyAsync of `size` bytes within the device."""
    return Kernel(
        name="Memcpy DtoD",
        kind=Kind.MEMCPY,
        library="driver",
        grid=None,
        block=None,
        geometry_origin=None,
        min_bytes_read=size,
        min_bytes_written=size,
        flops=0,
    )


def over_link(size: int, name: str) -> Kernel:
    """A copy of `size` bytes between host and GPU (or two GPUs), which go over the link once; named as CUPTI does."""
    return replace(device_copy(size), name=name, min_bytes_read=0)


def inner(
    op: Op, gpu: Gpu, name: str, *outputs: TensorRef, overload: str = "default", **arguments: Value
) -> tuple[Kernel, ...]:
    """The kernels of an Op that PyTorch calls inside `op`, such as the copy that makes an argument contiguous.

    Raises NoCost where no cost is registered for it: a part left out would pass for a whole.
    """
    call = replace(
        op,
        name=name,
        overload=overload,
        arguments=tuple(Argument(name=key, value=value) for key, value in arguments.items()),
        outputs=outputs,
    )
    found = kernels(call, gpu)
    if found is None:
        raise NoCost(f"{op.name} calls {name}, for which no cost is registered")
    return found


def made_contiguous(op: Op, gpu: Gpu, tensor: TensorRef, number: int = 1) -> tuple[TensorRef, tuple[Kernel, ...]]:
    """What `tensor.contiguous()` answers: the tensor itself, or a row-major copy of it with the copy's kernels."""
    if tensor.contiguous:
        return tensor, ()
    copy = temporary(tensor.shape, tensor.dtype, tensor.device, number)
    return copy, inner(op, gpu, "aten::clone", copy, self=tensor, memory_format="contiguous_format")


def zeros(op: Op, gpu: Gpu, tensor: TensorRef) -> tuple[Kernel, ...]:
    """The fill that `at::zeros` or `zero_()` runs; nothing for an empty tensor."""
    return inner(op, gpu, "aten::zero_", tensor, self=tensor)


def arange(op: Op, gpu: Gpu, count: int, dtype: str, device: str, number: int = 1) -> tuple[Kernel, ...]:
    """The kernels of `at::arange(count)`."""
    indices = temporary((count,), dtype, device, number)
    return inner(op, gpu, "aten::arange", indices, end=count, dtype=dtype, device=device)
