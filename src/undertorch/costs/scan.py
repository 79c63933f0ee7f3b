"""Running sums, products, maxima. Geometry: native/cuda/ScanUtils.cuh of torch 2.11.

A tensor that is one row goes to CUB. Rows along the innermost dimension share blocks of 512 threads, whose width
follows the ratio of row length to rows; along any other dimension each thread walks down one column.
One FLOP an element (cummax and cummin: comparisons, none; logcumsumexp: 4).
"""

from math import prod

from undertorch.costs import cub
from undertorch.costs.building import GRID_X_LIMIT, GRID_YZ_LIMIT, ceil_div, inner, made_contiguous, pytorch, temporary
from undertorch.costs.dtypes import math_of
from undertorch.costs.registry import cost
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

THREADS = 512
"""Threads of a block of the scan along the innermost dimension."""

WRAP = 2**32
"""ScanUtils.cuh reckons in uint32_t: where rows far outnumber their length a difference wraps and blocks get wide."""

INDEX_BYTES = 8


@cost("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", "aten::cumsum_", "aten::cumprod_")
def cumulate(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads each element once and writes each result once. Another dtype is a conversion before it."""
    result, given = op.results[0], op.tensor("self")
    kernels: tuple[Kernel, ...] = ()
    if given.dtype != result.dtype:
        converted = temporary(given.shape, result.dtype, given.device, 2)
        kernels = inner(op, gpu, "aten::copy_", converted, self=converted, src=given, non_blocking=False)
        given = converted
    flops = 4 if op.name == "aten::logcumsumexp" else 1
    return kernels + _scan(op, gpu, given, (result,), flops)


@cost("aten::cummax", "aten::cummin")
def cumulate_extremes(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Writes the extremes so far and where they are."""
    return _scan(op, gpu, op.tensor("self"), op.results[:2], flops=0)


def _scan(op: Op, gpu: Gpu, given: TensorRef, results: tuple[TensorRef, ...], flops: int) -> tuple[Kernel, ...]:
    if given.elements == 0:
        return ()
    dim = op.arg("dim")
    rank = len(given.shape)
    at = dim % rank if rank and isinstance(dim, int) else 0
    source, copies = made_contiguous(op, gpu, given)
    length = source.shape[at] if rank else 1
    if math_of(source.dtype) is None:
        flops = 0
    if length == source.elements and len(results) == 1:
        return copies + cub.scan(length, source.itemsize, flops * length)
    grid, block, shared = _innermost(source, length) if at >= rank - 1 else _outer(source, at)
    which = "innermost_dim" if at >= rank - 1 else "outer_dim"
    with_indices = len(results) > 1
    item_bytes = source.itemsize + (INDEX_BYTES if with_indices else 0)
    return (
        *copies,
        pytorch(
            f"tensor_kernel_scan_{which}" + ("_with_indices" if with_indices else ""),
            Kind.SCAN,
            grid,
            block,
            read=source.bytes,
            written=sum(result.bytes for result in results),
            flops=flops * source.elements,
            math=math_of(source.dtype),
            registers=None if with_indices else 32,
            shared=shared * item_bytes,
        ),
    )


def _innermost(source: TensorRef, length: int) -> tuple[int, tuple[int, int, int], int]:
    """Blocks, threads, and the elements that a block keeps in shared memory."""
    rows = source.elements // length
    difference = (max(length - 1, 0).bit_length() - max(rows - 1, 0).bit_length()) % WRAP
    log_across = min(max(4, (9 + difference) % WRAP // 2), 9)
    across = 1 << log_across
    down = THREADS // across
    return min(GRID_X_LIMIT, ceil_div(rows, down)), (across, down, 1), 2 * THREADS


def _outer(source: TensorRef, at: int) -> tuple[tuple[int, int, int], int, int]:
    columns = prod(source.shape[at + 1 :])
    threads = min(THREADS, columns)
    before = prod(source.shape[:at])
    return (min(GRID_YZ_LIMIT, before), min(GRID_YZ_LIMIT, ceil_div(columns, threads)), 1), threads, 0
