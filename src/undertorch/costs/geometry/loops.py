"""Kernels of element-by-element Ops: ATen/native/cuda/CUDALoops.cuh (gpu_kernel), Loops.cuh, CUDAJitLoops.cuh."""

from dataclasses import dataclass, replace

from undertorch.costs.geometry.builds import RECORDED, Build
from undertorch.costs.geometry.tensor_iterator import TensorIterator, in_32_bits
from undertorch.records import DTYPE_BYTES, Dim3, Gpu

WARPS_A_BLOCK = 4
"""thread_constants.h, num_threads: 4 warps."""
UNROLLED_ELEMENTS = 4
"""Elements a thread where nothing is vectorized (CUDALoops.cuh, elementwise_thread_work_size)."""
MULTIPLE_OUTPUT_ELEMENTS = 8
"""Elements a thread of kernels with several outputs (thread_constants.h, thread_work_size)."""
OFFSET_THREADS = 128
"""Threads of `elementwise_kernel`, whatever the warp (CUDALoops.cuh, launch_legacy_kernel<128, …>)."""
VECTOR_BYTES = 16
"""The widest load of a thread."""
SECTOR = 32
"""Bytes: the least that a cache hands over (CUDA C++ Best Practices Guide, coalesced access)."""
LANES = 32
"""Of a warp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Functor:
    """What a kernel applies to each element, with the types it is compiled for."""

    name: str
    result: str
    """Dtype."""
    arguments: tuple[str, ...]
    """Dtypes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """One launch."""

    name: str
    grid: Dim3
    block: Dim3
    elements: int
    """How many of the Op's elements it serves."""
    sector_bytes: int | None = None
    """Of all sectors that its warps ask for, where neighbours do not lie beside each other; None: they do."""


def gpu_kernel(iterator: TensorIterator, functor: Functor, gpu: Gpu, build: Build = RECORDED) -> tuple[Geometry, ...]:
    """The launches of a functor with one output: none for empty tensors, several past 32-bit offsets."""
    if iterator.elements == 0:
        return ()
    return tuple(_launch(part, functor, gpu, build) for part in in_32_bits(iterator))


def multiple_outputs_kernel(iterator: TensorIterator, functor: Functor, gpu: Gpu) -> tuple[Geometry, ...]:
    """The launches of a functor with several outputs (Loops.cuh, gpu_kernel_multiple_outputs)."""
    if iterator.elements == 0:
        return ()
    threads = WARPS_A_BLOCK * gpu.warp_size
    name = f"unrolled_elementwise_kernel_for_multi_outputs<{len(iterator.outputs)}, {functor.name}>"
    return tuple(_geometry(name, part.elements, MULTIPLE_OUTPUT_ELEMENTS, threads) for part in in_32_bits(iterator))


def jitted_kernel(iterator: TensorIterator, functor: Functor, gpu: Gpu) -> tuple[Geometry, ...]:
    """The launches of a functor that torch compiles at run time (CUDAJitLoops.cuh, jitted_gpu_kernel_generic)."""
    if iterator.elements == 0:
        return ()
    threads = WARPS_A_BLOCK * gpu.warp_size
    # Here it is the smallest element that decides, not the sum of all (jit_utils.cpp, calc_io_size).
    types = (functor.result, *functor.arguments)
    per_thread = 16 if min(DTYPE_BYTES[dtype] for dtype in types) == 1 else 8
    launches = []
    for part in in_32_bits(iterator):
        vector = 1
        if part.contiguous and not _casts(part, functor):
            # One-byte types keep to 4 here in every build: the header names a fault of the compiler.
            widest = 4 if DTYPE_BYTES[functor.arguments[0]] == 1 else VECTOR_BYTES // DTYPE_BYTES[functor.arguments[0]]
            vector = min(widest, _aligned_vector(part, functor))
        name = f"{functor.name}_vectorized{vector}_kernel" if vector > 1 else f"{functor.name}_kernel"
        launches.append(_geometry(name, part.elements, per_thread, threads))
    return tuple(launches)


def blocks(elements: int, elements_a_block: int) -> int:
    """Blocks that it takes to serve them all."""
    return -(-elements // elements_a_block)


def _launch(part: TensorIterator, functor: Functor, gpu: Gpu, build: Build) -> Geometry:
    threads = WARPS_A_BLOCK * gpu.warp_size
    casts = _casts(part, functor)
    if casts and part.contiguous:
        return _geometry(f"unrolled_elementwise_kernel<{functor.name}>", part.elements, UNROLLED_ELEMENTS, threads)
    if not part.contiguous:
        unroll = 2 if not casts and DTYPE_BYTES[functor.result] >= 4 else 4
        found = _geometry(f"elementwise_kernel<128, {unroll}, {functor.name}>", part.elements, unroll, OFFSET_THREADS)
        return replace(found, sector_bytes=_sector_bytes(part))
    vector = _vector(part, functor, gpu, build)
    if vector == 1:
        return _geometry(f"unrolled_elementwise_kernel<{functor.name}>", part.elements, UNROLLED_ELEMENTS, threads)
    name = f"vectorized_elementwise_kernel<{vector}, {functor.name}>"
    return _geometry(name, part.elements, _elements_a_thread(functor), threads)


def _sector_bytes(part: TensorIterator) -> int | None:
    """Lanes go along the fastest dimension: where an operand's neighbours lie a sector or more apart in it, each is a
    sector of its own. None where no operand's do.
    """
    asked = [min(max(abs(operand.strides[0]), operand.itemsize), SECTOR) for operand in part.operands]
    apart = any(each > operand.itemsize for each, operand in zip(asked, part.operands, strict=True))
    return part.elements * sum(asked) if apart and part.shape[0] >= LANES else None


def _casts(part: TensorIterator, functor: Functor) -> bool:
    """Whether some tensor has another dtype than the functor's (TensorIteratorDynamicCasting.h)."""
    types = (functor.result, *functor.arguments)
    return any(operand.dtype != dtype for operand, dtype in zip(part.operands, types, strict=True))


def _vector(part: TensorIterator, functor: Functor, gpu: Gpu, build: Build) -> int:
    """Elements a load: 16 bytes of the result's type, as far as every address is aligned and the GPU has the kernel."""
    size = DTYPE_BYTES[functor.result]
    vector = min(VECTOR_BYTES // size, _aligned_vector(part, functor))
    # Loads of 8 are compiled for Hopper and for data-centre Blackwell alone, to keep the library small.
    if gpu.compute_capability is None or gpu.compute_capability[0] not in (9, 10):
        vector = min(vector, 4)
    return min(vector, build.one_byte_vector) if size == 1 else vector


def _aligned_vector(part: TensorIterator, functor: Functor) -> int:
    """The most elements, up to 8, that every tensor is aligned for (MemoryAccess.cuh, can_vectorize_up_to)."""
    types = (functor.result, *functor.arguments)
    return min(
        next(vector for vector in (8, 4, 2, 1) if operand.address % (vector * DTYPE_BYTES[dtype]) == 0)
        for operand, dtype in zip(part.operands, types, strict=True)
    )


def _elements_a_thread(functor: Functor) -> int:
    """16 where a single byte moves an element, else 8 (CUDALoops.cuh, elems_per_thread)."""
    moved = sum(DTYPE_BYTES[dtype] for dtype in (functor.result, *functor.arguments))
    return 16 if moved == 1 else 8


def _geometry(name: str, elements: int, elements_a_thread: int, threads: int) -> Geometry:
    grid = (blocks(elements, elements_a_thread * threads), 1, 1)
    return Geometry(name=name, grid=grid, block=(threads, 1, 1), elements=elements)
