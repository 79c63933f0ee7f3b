"""Sorting and selecting. Geometry: native/cuda/Sort.cu, SortStable.cu, Sorting.cpp, TensorTopK.cu of torch 2.11.

Slices of up to 4096 elements are sorted in place by a warp or a block each; longer ones by CUB's radix sort: one slice
after another where there is one (or each is long), all together by value and then by slice where there are fewer than
128, in segments where there are more. top-k picks the k-th value by its digits, gathers what lies above it, and sorts
the k results. Comparisons are no FLOPs.
"""

from dataclasses import dataclass

from undertorch.costs import cub
from undertorch.costs.building import GRID_YZ_LIMIT, arange, ceil_div, inner, memset, pytorch, round_up, temporary
from undertorch.costs.registry import NoCost, cost
from undertorch.costs.rules import argument
from undertorch.records import Dim3, Gpu, Kernel, Kind, Op, TensorRef

LONGEST_IN_PLACE = 4096
"""Elements of a slice that is sorted in place (should_use_small_sort)."""

LONGEST_BITONIC = 32
LONGEST_IN_A_WARP = 128

BLOCK_OF_SLICES = 16
"""Most slices of a block of the kernels that sort several (max_block_y)."""

BITONIC_BLOCKS_AN_SM = 6
"""Blocks of 16 × 16 threads with 39 registers that an SM holds (cudaOccupancyMaxPotentialBlockSize, on an H200)."""

ITEMS_A_THREAD = 32
"""Elements a thread of radixSortKVInPlace holds (default_ipt)."""

LONG_SLICE = 1_000_000
MANY_SLICES = 128
"""From so many slices on, CUB sorts segments; slices of a million are sorted one by one (launch_stable_sort_kernel)."""

INDEX_BYTES = 8

SELECT_THREADS = 256
"""Threads of the kernels that select within a slice that several blocks share (mbtopk::BLOCK_THREADS)."""

SELECT_REGISTERS = 40
"""Registers a thread that get_items_per_thread reckons with (REGS_PER_THREAD)."""

FEWEST_ITEMS, MOST_ITEMS = 4, 64
"""Bounds of the elements a thread takes there."""

SEVERAL_BLOCKS = ((20, 20000), (40, 10000), (80, 8000), (199, 5000), (799, 3000), (4000, 800))
"""Up to so many slices, the length from which several blocks share one (should_use_multiblock); beyond them, 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """A tensor as `count` slices of `length` elements."""

    count: int
    length: int


def slices_of(tensor: TensorRef, dim: int) -> Slices:
    """Slices along a dimension, which may count from the end; a scalar is one of one."""
    length = tensor.shape[dim % len(tensor.shape)] if tensor.shape else 1
    return Slices(count=tensor.elements // length if length else 0, length=length)


@cost("aten::sort")
def sort(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Writes the sorted values and where they came from."""
    source = op.tensor("self")
    values, indices = op.results[0], op.results[1]
    slices = slices_of(source, _integer(op, "dim"))
    if source.elements == 0:
        return ()
    kernels = inner(op, gpu, "aten::copy_", values, self=values, src=source, non_blocking=False)
    if not source.shape:
        return kernels + inner(op, gpu, "aten::zero_", indices, self=indices)
    if slices.length <= LONGEST_IN_PLACE:
        ramp = temporary((slices.length,), "int64", source.device)
        kernels += arange(op, gpu, slices.length, "int64", source.device)
        shape = tuple(
            size if d == _integer(op, "dim") % len(source.shape) else 1 for d, size in enumerate(source.shape)
        )
        kernels += inner(op, gpu, "aten::copy_", indices, self=indices, src=_shaped(ramp, shape), non_blocking=False)
        kernels += inner(op, gpu, "aten::copy_", values, self=values, src=source, non_blocking=False)
        return kernels + in_place(slices, values, gpu, stable=argument(op, "stable") is True)
    return kernels + _by_radix(slices, source.itemsize, gpu)


@cost("aten::topk")
def topk(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Writes the k largest (or smallest) of each slice and where they were."""
    source, values = op.tensor("self"), op.results[0]
    dim = _integer(op, "dim")
    slices, chosen = slices_of(source, dim), slices_of(values, dim)
    if values.elements == 0:
        return ()
    kernels: tuple[Kernel, ...] = ()
    if not source.contiguous:
        copy = temporary(source.shape, source.dtype, source.device)
        kernels = inner(op, gpu, "aten::clone", copy, self=source, memory_format="contiguous_format")
    shared = _several_blocks(slices)
    kernels += _select_by_blocks(slices, source, values, gpu) if shared else (_select(slices, source, values, gpu),)
    if op.arg("sorted") is not True or values.elements <= 1:
        return kernels
    if chosen.length <= LONGEST_IN_PLACE:
        return kernels + in_place(chosen, values, gpu, stable=False)
    return kernels + _sort_results(op, gpu, values, dim)


def in_place(slices: Slices, keys: TensorRef, gpu: Gpu, stable: bool) -> tuple[Kernel, ...]:
    """sortKeyValueInplace: keys and their int64 values, each read and written once."""
    if slices.length <= 1:
        return ()
    pair = keys.itemsize + INDEX_BYTES
    moved = slices.count * slices.length * pair
    registers, shared = None, None
    if slices.length <= LONGEST_IN_A_WARP:
        bitonic = slices.length <= LONGEST_BITONIC and not stable
        name = "bitonicSortKVInPlace" if bitonic else "warpMergeSortKVInPlace"
        across = 16 if bitonic else gpu.warp_size
        # Half the blocks of twice the threads; the registers of the warp's sort are not known.
        least_grid = gpu.sms * (BITONIC_BLOCKS_AN_SM if bitonic else BITONIC_BLOCKS_AN_SM // 2)
        rows = min(BLOCK_OF_SLICES, max(1, slices.count // least_grid))
        grid, block = tiles_grid(ceil_div(slices.count, rows)), (across, rows, 1)
        if bitonic and keys.itemsize == 4:
            registers, shared = 39, 6656
    else:
        name = "radixSortKVInPlace"
        padded = max(1024, 1 << (slices.length - 1).bit_length())
        grid, block = tiles_grid(slices.count), (padded // ITEMS_A_THREAD, 1, 1)
        if keys.itemsize == 4 and padded == 1024:
            registers, shared = 200, 8464
    return (
        pytorch(name, Kind.SORT, grid, block, read=moved, written=moved, flops=0, registers=registers, shared=shared),
    )


def tiles_grid(tiles: int) -> Dim3:
    """getGridFromTiles (SortingCommon.cuh): at most 65535 blocks in each dimension."""
    in_x = min(tiles, GRID_YZ_LIMIT)
    in_y = in_z = 1
    if tiles > GRID_YZ_LIMIT:
        rest = ceil_div(tiles, GRID_YZ_LIMIT)
        in_y = min(rest, GRID_YZ_LIMIT)
        in_z = ceil_div(rest, GRID_YZ_LIMIT) if rest > GRID_YZ_LIMIT else 1
    return in_x, in_y, in_z


def _by_radix(slices: Slices, key_bytes: int, gpu: Gpu) -> tuple[Kernel, ...]:
    """launch_stable_sort_kernel."""
    elements = slices.count * slices.length
    if slices.count == 1 or slices.length >= LONG_SLICE:
        fill = _filled("fill_reverse_indices_kernel", slices.length, registers=26)
        one = cub.radix_sort(slices.length, gpu, key_bytes=key_bytes, value_bytes=INDEX_BYTES)
        return fill, *one * slices.count
    if slices.count < MANY_SLICES:
        slice_bits = max(1, (slices.count - 1).bit_length())
        # Both sorts carry a slice's number and a place as one value of 8 bytes.
        return (
            _filled("fill_index_and_segment_kernel", elements, registers=28),
            *cub.radix_sort(elements, gpu, key_bytes=key_bytes, value_bytes=8),
            *cub.radix_sort(elements, gpu, key_bytes=8, value_bytes=0, bits=slice_bits),
            pytorch(
                "sort_postprocess_kernel",
                Kind.SORT,
                ceil_div(elements, 512),
                512,
                read=elements * (8 + key_bytes),
                written=elements * (key_bytes + INDEX_BYTES),
                flops=0,
                registers=28,
                shared=0,
            ),
        )
    raise NoCost(f"sort of {slices.count} slices of {slices.length}: CUB's segmented sort has no known geometry")


def _filled(name: str, elements: int, registers: int) -> Kernel:
    return pytorch(
        name,
        Kind.SORT,
        ceil_div(elements, 1024),
        1024,
        read=0,
        written=elements * 8,
        flops=0,
        registers=registers,
        shared=0,
    )


def _several_blocks(slices: Slices) -> bool:
    least = next((length for most, length in SEVERAL_BLOCKS if slices.count <= most), 400)
    return slices.length >= least


def _select(slices: Slices, source: TensorRef, values: TensorRef, gpu: Gpu) -> Kernel:
    """sbtopk::gatherTopK: one block a slice, which reads it once for each two bits of the key and twice to gather."""
    passes = source.itemsize * 8 // 2 + 2
    written = values.elements * (values.itemsize + INDEX_BYTES)
    return pytorch(
        "gatherTopK",
        Kind.SORT,
        tiles_grid(slices.count),
        min(round_up(slices.length, gpu.warp_size), 1024),
        read=source.bytes,
        written=written,
        flops=0,
        registers=32,
        shared=128,
        traffic=passes * source.bytes + written if source.bytes > gpu.l2_bytes else None,
    )


def _select_by_blocks(slices: Slices, source: TensorRef, values: TensorRef, gpu: Gpu) -> tuple[Kernel, ...]:
    """mbtopk: for each byte of the key a histogram, its sums, the counts within; then where to write; then writing."""
    by_registers = gpu.registers_per_sm // (SELECT_REGISTERS * SELECT_THREADS)
    at_once = gpu.sms * min(by_registers, gpu.max_blocks_per_sm) * SELECT_THREADS
    items = max(FEWEST_ITEMS, min(ceil_div(slices.count * slices.length, at_once), MOST_ITEMS))
    a_slice = ceil_div(slices.length, items * SELECT_THREADS)
    blocks = slices.count * a_slice
    grid = tiles_grid(blocks)
    digits = cub.DIGITS
    counts, sums = blocks * digits * 2, slices.count * digits * 4

    def kernel(
        name: str, shape: Dim3 | int, threads: int, read: int, written: int, registers: int, shared: int
    ) -> Kernel:
        return pytorch(
            name, Kind.SORT, shape, threads, read=read, written=written, flops=0, registers=registers, shared=shared
        )

    one_byte = (
        kernel("computeBlockDigitCounts", grid, SELECT_THREADS, source.bytes, counts, 20, 1024),
        kernel("computeDigitCumSum", slices.count, digits, counts, sums, 32, 1184),
        kernel("computeBlockwiseWithinKCounts", grid, digits, counts + sums, blocks * 4, 18, 36),
    )
    written = values.elements * (values.itemsize + INDEX_BYTES)
    return (
        kernel("fill", ceil_div(slices.count, 512), 512, 0, slices.count * 4, 16, 0),
        memset(sums),
        memset(blocks * 4),
        *one_byte * source.itemsize,
        kernel("computeBlockwiseKthCounts", ceil_div(slices.count, 256), 256, counts, blocks * 4, 18, 0),
        *cub.scan_by_key(blocks, 4) * 2,
        kernel("gatherTopK", grid, SELECT_THREADS, source.bytes + blocks * 8, written, 32, 1184),
    )


def _sort_results(op: Op, gpu: Gpu, values: TensorRef, dim: int) -> tuple[Kernel, ...]:
    """More than 4096 results a slice: sorted apart, the indices gathered in that order, both copied back."""
    indices = op.results[1]
    ordered = temporary(values.shape, values.dtype, values.device, 2)
    places = temporary(values.shape, "int64", values.device, 3)
    gathered = temporary(values.shape, "int64", values.device, 4)
    return (
        *inner(op, gpu, "aten::sort", ordered, places, self=values, dim=dim, descending=op.arg("largest")),
        *inner(op, gpu, "aten::gather", gathered, self=indices, dim=dim, index=places, sparse_grad=False),
        *inner(op, gpu, "aten::copy_", indices, self=indices, src=gathered, non_blocking=False),
        *inner(op, gpu, "aten::copy_", values, self=values, src=ordered, non_blocking=False),
    )


def _shaped(tensor: TensorRef, shape: tuple[int, ...]) -> TensorRef:
    return temporary(shape, tensor.dtype, tensor.device, -tensor.storage)


def _integer(op: Op, name: str) -> int:
    value = op.arg(name)
    if not isinstance(value, int):
        raise TypeError(f"argument {name!r} of {op.name} is {value!r}, not an integer")
    return value
