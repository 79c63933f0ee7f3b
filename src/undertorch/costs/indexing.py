"""Reading and writing by index: index_select, gather, index, index_put, scatter, index_add.

Geometry: native/cuda/Indexing.cu, IndexKernel.cu, IndexKernelUtils.cu and ScatterGatherKernel.cu of torch 2.11. Where
whole aligned rows are read, each index has a block of its own that copies 16 bytes a thread; everything else takes
one thread for a few elements. Bytes are counted for indices that all differ, as far as what they point into has rows.
"""

from dataclasses import replace
from math import prod

from undertorch.costs import cub
from undertorch.costs.building import (
    GRID_YZ_LIMIT,
    arange,
    ceil_div,
    contiguous_strides,
    inner,
    made_contiguous,
    pytorch,
    round_up,
    temporary,
    viewed,
)
from undertorch.costs.dtypes import math_of
from undertorch.costs.registry import NoCost, cost
from undertorch.costs.registry import kernels as kernels_of
from undertorch.costs.selection import places
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

FEW_INDICES = 16
"""Up to so many indices each thread reads all of them (index_select_out_cuda_impl, index_add_cuda_impl)."""

SLICE_THREADS = 128
"""Threads of the kernels for few indices, and of index_add's."""

BLOCKS_AN_SM = 8
"""Most blocks an SM that those launch."""

COPY_BYTES = 16
"""Bytes a thread copies at once where whole rows are read (vectorized_gather_kernel)."""

COPY_THREADS = 256
"""Most threads of a block of vectorized_gather_kernel (max_num_threads)."""

SCATTER_WORK = 128 * 8
"""Elements of a block of _scatter_gather_elementwise_kernel: num_threads() × thread_work_size()."""

INDEX_WORK = 128 * 4
"""Elements of a block of index_elementwise_kernel (launch_size_nd × launch_bound2)."""

SORTED_INDICES = 4
"""Indices of a block of the kernels that add up sorted indices (indices_per_block)."""


@cost("aten::index_select")
def index_select(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Copies the slices that the indices name. More than 16 indices go the way of gather."""
    source, index, result = op.tensor("self"), op.tensor("index"), op.results[0]
    if result.elements == 0:
        return ()
    dim = _dim(op, source)
    if index.elements <= FEW_INDICES:
        width = result.elements // max(index.elements, 1)
        return (
            pytorch(
                "indexSelectSmallIndex",
                Kind.EMBEDDING,
                min(ceil_div(width, SLICE_THREADS), gpu.sms * BLOCKS_AN_SM),
                min(width, SLICE_THREADS),
                read=index.bytes + _distinct(source, dim, index.elements),
                written=result.bytes,
                flops=0,
            ),
        )
    expanded = viewed(
        index,
        result.shape,
        tuple(index.strides[0] if index.strides and d == dim else 0 for d in range(len(result.shape))),
    )
    return (_gather(source, dim, expanded, result, index.bytes + _distinct(source, dim, index.elements), False),)


@cost("aten::gather")
def gather(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads one element of self for each element of index."""
    source, index, result = op.tensor("self"), op.tensor("index"), op.results[0]
    if result.elements == 0:
        return ()
    read = index.bytes + min(result.elements * source.itemsize, source.bytes)
    return (_gather(source, _dim(op, source), index, result, read, False),)


@cost("aten::index", "aten::_unsafe_index")
def index(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Advanced indexing. A single index over the first dimension copies whole rows where these are aligned."""
    source, result = op.tensor("self"), op.results[0]
    indices, positions = _indices(op)
    if len(indices) == 1 and _is_mask(indices[0]):
        rest = prod(source.shape) // max(1, _covered(source, indices[0], positions[0]))
        return _by_places(op, gpu, indices[0], positions[0], result.elements // max(rest, 1))
    _refuse_masks(op, indices)
    if result.elements == 0:
        return ()
    index_bytes = sum(tensor.bytes for tensor in indices)
    read = index_bytes + min(result.elements * source.itemsize, source.bytes)
    if len(indices) == 1 and positions == (0,) and indices[0].contiguous and source.contiguous:
        rows = viewed(result, (indices[0].elements, prod(source.shape[1:])))
        table = viewed(source, (source.shape[0], prod(source.shape[1:])))
        flat = viewed(indices[0], rows.shape, (1, 0))
        found = _gather(table, 0, flat, rows, read, True)
        if found.name.startswith("vectorized"):
            return (found,)
    return (_by_element("index_elementwise_kernel<128, 4>", INDEX_WORK, result.elements, read, result.bytes),)


@cost("aten::index_put_", "aten::_index_put_impl_", "aten::index_put", "aten::_unsafe_index_put")
def index_put(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Writes values where the indices point; with accumulate, adds them up after a sort of the indices."""
    target, values = op.tensor("self"), op.tensor("values")
    indices, positions = _indices(op)
    kernels: tuple[Kernel, ...] = ()
    if not op.name.endswith("_"):
        target = op.results[0]
        kernels = inner(op, gpu, "aten::clone", target, self=op.tensor("self"), memory_format=None)
    if len(indices) == 1 and _is_mask(indices[0]) and values.elements == 1 and values.device == "cpu":
        # A number where a mask says so is masked_fill_ (canDispatchToMaskedFill).
        mask = _spread(indices[0], positions[0], len(target.shape))
        filled = inner(op, gpu, "aten::masked_fill_", target, overload="Scalar", self=target, mask=mask, value=0.0)
        return kernels + filled
    if len(indices) == 1 and _is_mask(indices[0]) and op.name.endswith("_"):
        after = len(target.shape) - len(indices[0].shape)
        if len(values.shape) == after + 1 and positions == (0,):
            return _by_places(op, gpu, indices[0], 0, values.shape[0])
    _refuse_masks(op, indices)
    count = max(tensor.elements for tensor in indices)
    kept = [size for d, size in enumerate(target.shape) if d not in positions]
    written_elements = count * prod(kept)
    if written_elements == 0:
        return kernels
    index_bytes = sum(tensor.bytes for tensor in indices)
    if op.arg("accumulate") is not True:
        read = index_bytes + values.bytes
        written = min(written_elements, target.elements) * target.itemsize
        return *kernels, _by_element("index_elementwise_kernel<128, 4>", INDEX_WORK, written_elements, read, written)
    return kernels + _accumulated(op, gpu, target, values, indices, positions, count)


@cost(
    "aten::scatter",
    "aten::scatter_",
    "aten::scatter_add",
    "aten::scatter_add_",
    "aten::scatter_reduce",
    "aten::scatter_reduce_",
)
def scatter(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Writes (or adds, with atomics) one element of self for each element of index."""
    index = op.tensor("index")
    kernels: tuple[Kernel, ...] = ()
    target = op.results[0] if op.results else op.tensor("self")
    if not op.name.endswith("_"):
        kernels = inner(op, gpu, "aten::copy_", target, self=target, src=op.tensor("self"), non_blocking=False)
    if index.elements == 0:
        return kernels
    source = op.tensors("src")
    adds = "add" in op.name or "reduce" in op.name
    touched = min(index.elements * target.itemsize, target.bytes)
    read = index.bytes + (index.elements * source[0].itemsize if source else 0) + (touched if adds else 0)
    name = "_scatter_gather_elementwise_kernel<128, 8>"
    kernel = _by_element(name, SCATTER_WORK, index.elements, read, touched, target.dtype if adds else None)
    return *kernels, kernel


@cost("aten::index_add_", "aten::index_add")
def index_add(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Adds each slice of source, with atomics, to the slice of self that its index names."""
    index, source = op.tensor("index"), op.tensor("source")
    target = op.results[0] if op.results else op.tensor("self")
    kernels: tuple[Kernel, ...] = ()
    if not op.name.endswith("_"):
        kernels = inner(op, gpu, "aten::copy_", target, self=target, src=op.tensor("self"), non_blocking=False)
    if source.elements == 0:
        return kernels
    few = index.elements <= FEW_INDICES
    work = source.elements // index.elements if few else source.elements
    touched = min(source.elements * target.itemsize, target.bytes)
    math = math_of(source.dtype)
    an_element = 0 if math is None else 1 if op.arg("alpha") in (1, 1.0) else 2
    return (
        *kernels,
        pytorch(
            "indexFuncSmallIndex" if few else "indexFuncLargeIndex",
            Kind.EMBEDDING,
            min(ceil_div(work, SLICE_THREADS), gpu.sms * BLOCKS_AN_SM),
            min(work, SLICE_THREADS),
            read=index.bytes + source.bytes + touched,
            written=touched,
            flops=source.elements * an_element,
            math=math,
            registers=None if few else 32,
            shared=0,
        ),
    )


def _gather(source: TensorRef, dim: int, index: TensorRef, result: TensorRef, read: int, wraps: bool) -> Kernel:
    """One launch of gather. Whole rows: an index that is the same along them, contiguous and aligned to 16 bytes."""
    row = _row(source, dim, index, result)
    if row is None:
        name = "_scatter_gather_elementwise_kernel<128, 8>"
        return _by_element(name, SCATTER_WORK, result.elements, read, result.bytes)
    count, row_bytes = row
    threads = min(COPY_THREADS, round_up(ceil_div(row_bytes, COPY_BYTES), 32))
    in_y = min(ceil_div(row_bytes, COPY_THREADS * COPY_BYTES), GRID_YZ_LIMIT)
    return pytorch(
        f"vectorized_gather_kernel<{COPY_BYTES}>",
        Kind.EMBEDDING,
        (count, in_y, 1),
        threads,
        read=read,
        written=result.bytes,
        flops=0,
        registers=32,
        shared=0,
    )


def _row(source: TensorRef, dim: int, index: TensorRef, result: TensorRef) -> tuple[int, int] | None:
    """Rows and the bytes of one, where gather copies whole rows (fast_gather_kernel_eligible); None where not."""
    rest = tuple(size for d, size in enumerate(result.shape) if d != dim)
    stands_still = all(
        size == 1 or stride == 0
        for d, (size, stride) in enumerate(zip(index.shape, index.strides, strict=True))
        if d != dim
    )
    if dim != 0 or not rest or not stands_still or index.strides[0] != 1 or prod(rest) == 1:
        return None
    inside = contiguous_strides(rest)
    whole_rows = all(
        size == 1 or (a == expected and b == expected)
        for size, a, b, expected in zip(rest, source.strides[1:], result.strides[1:], inside, strict=True)
    )
    row_bytes = prod(rest) * result.itemsize
    steps = (row_bytes, source.strides[0] * source.itemsize, result.strides[0] * result.itemsize)
    starts = (source.offset * source.itemsize, result.offset * result.itemsize)
    if not whole_rows or any(position % COPY_BYTES for position in (*steps, *starts)):
        return None
    return result.shape[0], row_bytes


def _accumulated(
    op: Op,
    gpu: Gpu,
    target: TensorRef,
    values: TensorRef,
    indices: tuple[TensorRef, ...],
    positions: tuple[int, ...],
    count: int,
) -> tuple[Kernel, ...]:
    """index_put_with_sort_kernel: linear indices, a sort of them with their places, then one warp an index."""
    width = prod(target.shape[d] for d in range(positions[-1] + 1, len(target.shape)))
    before = prod(target.shape[: positions[0]])
    linear = temporary((count,), "int64", target.device, 2)
    checked = op.name in ("aten::index_put_", "aten::index_put")
    kernels: tuple[Kernel, ...] = ()
    for number, tensor in enumerate(indices):
        if checked:
            kernels += _range_check(op, gpu, tensor)
        size = target.shape[positions[number]]
        kernels += inner(op, gpu, "aten::remainder", linear, overload="Scalar", self=tensor, other=size)
        kernels += inner(op, gpu, "aten::mul", linear, overload="Scalar", self=linear, other=width)
        if number:
            kernels += inner(op, gpu, "aten::add_", linear, overload="Tensor", self=linear, other=linear, alpha=1)
    kernels += inner(
        op, gpu, "aten::div_", linear, overload="Scalar_mode", self=linear, other=width, rounding_mode="trunc"
    )
    values, copies = made_contiguous(op, gpu, values, 3)
    kernels += copies + arange(op, gpu, count, "int64", target.device, 4)
    rows = target.elements // max(width, 1)
    bits = max(1, (max(rows - 1, 0)).bit_length())
    kernels += cub.radix_sort(count, gpu, key_bytes=8, value_bytes=8, bits=bits)
    touched = min(count * before * width, target.elements) * target.itemsize
    math = math_of(target.dtype)
    if width == 1:
        name, registers = "indexing_backward_kernel_stride_1", None
    elif width <= gpu.warp_size:
        name, registers = "indexing_backward_kernel_small_stride", None
    else:
        name, registers = "indexing_backward_kernel", 30
    return (
        *kernels,
        pytorch(
            name,
            Kind.EMBEDDING,
            (
                ceil_div(count, SORTED_INDICES),
                min(GRID_YZ_LIMIT, ceil_div(width, gpu.warp_size * 4)),
                min(GRID_YZ_LIMIT, max(1, before)),
            ),
            (gpu.warp_size, SORTED_INDICES, 1),
            read=2 * linear.bytes + values.bytes + touched,
            written=touched,
            flops=0 if math is None else count * before * width,
            math=math,
            registers=registers,
            shared=0,
        ),
    )


def _range_check(op: Op, gpu: Gpu, index: TensorRef) -> tuple[Kernel, ...]:
    """The largest and the smallest index are compared with the size, each asserted on the GPU (wrapIndexOnce)."""
    one = temporary((), index.dtype, index.device, 5)
    answer = temporary((), "bool", index.device, 6)
    assertion = pytorch(
        "_assert_async_cuda_kernel", Kind.ELEMENTWISE, 1, 1, read=1, written=0, flops=0, registers=32, shared=0
    )
    return (
        *inner(op, gpu, "aten::max", one, self=index),
        *inner(op, gpu, "aten::lt", answer, overload="Scalar", self=one, other=1),
        assertion,
        *inner(op, gpu, "aten::min", one, self=index),
        *inner(op, gpu, "aten::ge", answer, overload="Scalar", self=one, other=0),
        assertion,
    )


def _by_element(name: str, work: int, elements: int, read: int, written: int, adds: str | None = None) -> Kernel:
    """One thread for a few elements; `adds`: the dtype in which each is added to what is there."""
    math = None if adds is None else math_of(adds)
    return pytorch(
        name,
        Kind.EMBEDDING,
        ceil_div(elements, work),
        128,
        read=read,
        written=written,
        flops=0 if math is None else elements,
        math=math,
        registers=36 if name.startswith("index") else 32,
        shared=0,
    )


def _indices(op: Op) -> tuple[tuple[TensorRef, ...], tuple[int, ...]]:
    """The index tensors and the dimensions that they index."""
    listed = op.arg("indices")
    pairs = [(d, t) for d, t in enumerate(listed if isinstance(listed, tuple) else ()) if isinstance(t, TensorRef)]
    return tuple(tensor for _, tensor in pairs), tuple(d for d, _ in pairs)


def _is_mask(index: TensorRef) -> bool:
    return index.dtype in ("bool", "uint8")


def _covered(source: TensorRef, mask: TensorRef, position: int) -> int:
    """Elements of the dimensions that a mask lies over."""
    return prod(source.shape[position : position + len(mask.shape)])


def _by_places(op: Op, gpu: Gpu, mask: TensorRef, position: int, count: int) -> tuple[Kernel, ...]:
    """A mask is turned into the places where it is set, an index tensor a dimension (IndexingUtils.h, expandTensors).

    How many they are follows from values; the result's or the values' shape has it.
    """
    listed = op.arg("indices")
    found = tuple(temporary((count,), "int64", mask.device, 10 + dim) for dim in range(len(mask.shape)))
    after = listed[position + 1 :] if isinstance(listed, tuple) else ()
    arguments = tuple(
        replace(argument, value=(*(None,) * position, *found, *after)) if argument.name == "indices" else argument
        for argument in op.arguments
    )
    by_index = kernels_of(replace(op, arguments=arguments), gpu)
    if by_index is None:
        raise NoCost(f"{op.name} by places is not known")
    return (*places(op, gpu, mask, count), *by_index)


def _refuse_masks(op: Op, indices: tuple[TensorRef, ...]) -> None:
    if not indices or any(map(_is_mask, indices)):
        raise NoCost(f"{op.name} with masks: how many elements they name depends on their values")


def _spread(mask: TensorRef, position: int, rank: int) -> TensorRef:
    """A mask over some dimensions, seen over all of them."""
    before, after = (1,) * position, (1,) * (rank - position - len(mask.shape))
    return viewed(mask, before + mask.shape + after, (0,) * len(before) + mask.strides + (0,) * len(after))


def _dim(op: Op, tensor: TensorRef) -> int:
    dim = op.arg("dim")
    return dim % max(len(tensor.shape), 1) if isinstance(dim, int) else 0


def _distinct(source: TensorRef, dim: int, count: int) -> int:
    """Bytes of `count` slices, at most all there are."""
    size = source.shape[dim] if source.shape else 1
    return source.elements // max(size, 1) * min(count, size) * source.itemsize
