"""Embedding and its gradient. Geometry: native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu of torch 2.11.

The gradient of up to 3072 indices is one launch, in which a block adds up a strip of 32 features. More indices are
sorted first, split into runs of equal indices and these into parts of at most 10 rows; the parts are added up one by
one, then the parts of each run. How many runs there are depends on the indices: grids are made for the most that can
be, and bytes are counted for indices that all differ, as far as the table has rows.

torch 2.11 sorts all 64 bits of the indices in eight passes; later sources sort only the bits that the table's size
needs, and sum with atomics where few rows take many indices. Neither is predicted.
"""

from undertorch.costs import cub
from undertorch.costs.building import (
    accumulated,
    arange,
    ceil_div,
    inner,
    made_contiguous,
    pytorch,
    round_up,
    vector_math,
    viewed,
    zeros,
)
from undertorch.costs.registry import cost
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, TensorRef

MOST_UNSORTED = 3072
"""Indices that are not sorted (embedding_dense_backward_cuda)."""

STRIP_ROWS = 32
"""Threads in y of the kernel for few indices (BLOCKDIMY)."""

ROWS_A_PART = 10
"""Rows that one part of a run adds up (NROWS_PER_THREAD)."""

MAX_BLOCK = 1024
"""MAX_BLOCK_SIZE of SortingCommon.cuh."""

INDEX_BYTES = 8


@cost("aten::embedding")
def embedding(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Copies one row of the table an index: an index_select along the first dimension."""
    weight, indices, result = op.tensor("weight"), op.tensor("indices"), op.results[0]
    indices, copies = made_contiguous(op, gpu, indices)
    flat = viewed(indices, (indices.elements,))
    rows = viewed(result, (indices.elements, *weight.shape[1:]))
    return copies + inner(op, gpu, "aten::index_select", rows, self=weight, dim=0, index=flat)


@cost("aten::embedding_dense_backward")
def embedding_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Adds each row of the gradient to the row of the table that its index names."""
    grad, copies = made_contiguous(op, gpu, op.tensor("grad_output"))
    indices, more = made_contiguous(op, gpu, op.tensor("indices"), 2)
    result = op.results[0]
    filled = zeros(op, gpu, result)
    count, width = indices.elements, result.shape[-1] if result.shape else 1
    if count == 0 or width == 0:
        return filled
    scaled = op.arg("scale_grad_by_freq") is True
    if count <= MOST_UNSORTED and not scaled:
        return (*copies, *more, *filled, _few_indices(gpu, grad, indices, result, count, width))
    ranged = arange(op, gpu, count, indices.dtype, indices.device, 3)
    ordered = cub.radix_sort(count, gpu, key_bytes=indices.itemsize, value_bytes=indices.itemsize)
    counted = (*_counts_of_equal(count, indices),) if scaled else ()
    return (*copies, *more, *ranged, *ordered, *counted, *filled, *sorted_sums(gpu, grad, result, count, width))


def _few_indices(gpu: Gpu, grad: TensorRef, indices: TensorRef, result: TensorRef, count: int, width: int) -> Kernel:
    accumulator = DTYPE_BYTES[accumulated(grad.dtype)]
    rows = min(count, result.shape[0])
    return pytorch(
        "embedding_backward_feature_kernel",
        Kind.EMBEDDING,
        ceil_div(width, gpu.warp_size),
        (gpu.warp_size, STRIP_ROWS, 1),
        read=grad.bytes + indices.bytes + rows * width * result.itemsize,
        written=rows * width * result.itemsize,
        flops=count * width,
        math=vector_math(grad.dtype),
        registers=27 if grad.dtype == "float32" else None,
        shared=(accumulator + 4) * gpu.warp_size * STRIP_ROWS,
    )


def _counts_of_equal(count: int, indices: TensorRef) -> tuple[Kernel, ...]:
    """scale_grad_by_freq: how often each index occurs, by two scans over the sorted indices."""
    return cub.scan_by_key(count, indices.itemsize) * 2


def sorted_sums(gpu: Gpu, grad: TensorRef, result: TensorRef, count: int, width: int) -> tuple[Kernel, ...]:
    """What embedding_backward_cuda_kernel launches once the indices are sorted."""
    runs = min(count, result.shape[0])
    parts = count // ROWS_A_PART + runs
    strided = round_up(width, gpu.warp_size)
    block = min(strided, MAX_BLOCK)
    partial_bytes = min(parts, count) * width * DTYPE_BYTES[accumulated(grad.dtype)]
    per_run = runs * INDEX_BYTES
    math = vector_math(grad.dtype)
    return (
        *cub.unique_by_key(count, INDEX_BYTES, INDEX_BYTES),
        _bookkeeping("krn_partials_per_segment", ceil_div(runs, 32), 32, per_run, per_run, registers=16),
        *cub.scan(runs, INDEX_BYTES, flops=0),
        _bookkeeping("compute_num_of_partial_segments", 1, 1, 3 * INDEX_BYTES, INDEX_BYTES, registers=16),
        _bookkeeping(
            "krn_partial_segment_offset", ceil_div(runs, 32), 32, 3 * per_run, parts * INDEX_BYTES, registers=26
        ),
        pytorch(
            "compute_grad_weight",
            Kind.EMBEDDING,
            ceil_div(parts * strided, block),
            block,
            read=grad.bytes + count * INDEX_BYTES,
            written=partial_bytes,
            flops=2 * count * width,
            math=math,
            registers=32,
            shared=0,
        ),
        pytorch(
            "sum_and_scatter",
            Kind.EMBEDDING,
            ceil_div(runs * strided, block),
            block,
            read=partial_bytes + 3 * per_run,
            written=runs * width * result.itemsize,
            flops=min(parts, count) * width,
            math=math,
            registers=24,
            shared=0,
            note="Counted as if the indices all differed, as far as the table has rows.",
        ),
    )


def _bookkeeping(name: str, grid: int, block: int, read: int, written: int, registers: int) -> Kernel:
    return pytorch(
        name, Kind.EMBEDDING, grid, block, read=read, written=written, flops=0, registers=registers, shared=0
    )
