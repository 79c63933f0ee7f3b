"""cat and stack (ATen/native/cuda/Shape.cu).

Inputs of one dtype that 32-bit offsets reach go into the result in batches, one launch each: a row of blocks an input.
How wide their accesses are depends on whether inputs are row-major and aligned; everything else is a copy an input.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from undertorch.costs.building import temporary, viewed
from undertorch.costs.copy import copied, narrowed
from undertorch.costs.dtypes import result_type
from undertorch.costs.geometry.loops import Geometry, blocks
from undertorch.costs.geometry.tensor_iterator import INT32_MAX, channels_last
from undertorch.costs.pointwise import moved
from undertorch.costs.registry import cost
from undertorch.costs.rules import argument
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

BATCH = 128
"""Inputs a launch (CAT_ARRAY_BATCH_SIZE); half of it where each brings its strides."""
MOST_DIMENSIONS = 4
"""CAT_ARRAY_MAX_INPUT_DIMS."""
ALIGNMENT = 16
"""Bytes of the widest access, for vectors of the result itself."""
ROW_MAJOR_THREADS, STRIDED_THREADS = 128, 512
MOST_BLOCKS_AN_SM = 32
"""max_tb_per_sm of getCatGridContig."""


@cost("aten::cat", "aten::_cat", "aten::concat")
def cat(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads every input once and writes the result once."""
    return concatenated(op.results[0], op.tensors("tensors"), _dim(op), gpu)


@cost("aten::stack", "aten::_stack")
def stack(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """cat of the inputs as they are, and a view of it; where the new dimension is the last, of unsqueezed inputs."""
    inputs, result = op.tensors("tensors"), op.results[0]
    shape = inputs[0].shape
    dimension = _dim(op) % (len(shape) + 1)
    if dimension < len(shape):
        joined = (*shape[:dimension], len(inputs) * shape[dimension], *shape[dimension + 1 :])
        return concatenated(viewed(result, joined), inputs, dimension, gpu)
    unsqueezed = [replace(t, shape=(*t.shape, 1), strides=(*t.strides, 1)) for t in inputs]
    return concatenated(result, unsqueezed, dimension, gpu)


def concatenated(result: TensorRef, inputs: Sequence[TensorRef], dimension: int, gpu: Gpu) -> tuple[Kernel, ...]:
    """The kernels that write the inputs one behind the other along a dimension of the result."""
    if result.elements == 0:
        return ()
    dimension %= len(result.shape)
    # One-dimensional empty tensors are let pass with any others, as torch always did.
    full = [tensor for tensor in inputs if tensor.shape != (0,)]
    nhwc = all(channels_last(tensor) and not tensor.contiguous for tensor in full)
    # One that is let pass counts as not contiguous.
    row_major = len(full) == len(inputs) and all(channels_last(t) if nhwc else t.contiguous for t in full)
    together = (
        len(inputs) > 1
        and len(result.shape) <= MOST_DIMENSIONS
        and all(tensor.dtype == result_type(inputs) for tensor in inputs)
        and all(_reached_by_32_bits(tensor) for tensor in (result, *inputs))
    )
    if together and (row_major or not nhwc):
        return _batched(result, inputs, dimension, gpu, row_major, nhwc)
    kernels: tuple[Kernel, ...] = ()
    offset = 0
    for tensor in full:
        size = tensor.shape[dimension]
        kernels += copied(narrowed(result, dimension, offset, size), tensor, gpu)
        offset += size
    return kernels


@dataclass(slots=True, kw_only=True)
class _Widths:
    """What the batches so far allow. Torch never takes back what one input has ruled out, nor the largest size seen."""

    vectors: bool
    """16-byte vectors of input and result."""
    aligned: bool
    """Every input begins at 16 bytes."""
    most_elements: int = 0


def _batched(
    result: TensorRef, inputs: Sequence[TensorRef], dimension: int, gpu: Gpu, row_major: bool, nhwc: bool
) -> tuple[Kernel, ...]:
    size = result.itemsize
    widths = _Widths(vectors=row_major and not nhwc and result.offset * size % ALIGNMENT == 0, aligned=True)
    batch = BATCH if row_major else BATCH // 2
    kernels: tuple[Kernel, ...] = ()
    for start in range(0, len(inputs), batch):
        group = inputs[start : start + batch]
        for tensor in group:
            widths.vectors = widths.vectors and _fills_vectors(tensor, dimension)
            widths.aligned = widths.aligned and tensor.offset * size % ALIGNMENT == 0
            widths.most_elements = max(widths.most_elements, tensor.elements)
        if widths.most_elements:
            launch = _launch(widths, row_major, dimension, size, len(group), gpu)
            written = temporary((sum(tensor.elements for tensor in group),), result.dtype, result.device)
            kernels += moved([launch], [written], group, Kind.COPY, None)
    return kernels


def _launch(widths: _Widths, row_major: bool, dimension: int, size: int, inputs: int, gpu: Gpu) -> Geometry:
    if not row_major or not (widths.vectors or (widths.aligned and size >= 2)):
        # Half of the GPU for each of two inputs (getCatGrid).
        name = "CatArrayBatchedCopy_contig" if row_major else "CatArrayBatchedCopy"
        return Geometry(name=name, grid=(2 * gpu.sms, inputs, 1), block=(STRIDED_THREADS, 1, 1), elements=1)
    access = ALIGNMENT if widths.vectors or size > 2 else ALIGNMENT // 2
    if widths.vectors:
        name = f"CatArrayBatchedCopy_vectorized<{dimension + 1}>"
    elif size <= 8:
        name = f"CatArrayBatchedCopy_alignedK_contig<{access}>"
    else:
        name = "CatArrayBatchedCopy_contig"
    columns = blocks(blocks(widths.most_elements, access // size), ROW_MAJOR_THREADS)
    grid = (min(gpu.sms * MOST_BLOCKS_AN_SM, columns), inputs, 1)
    return Geometry(name=name, grid=grid, block=(ROW_MAJOR_THREADS, 1, 1), elements=1)


def _fills_vectors(tensor: TensorRef, dimension: int) -> bool:
    """Whether an input begins at 16 bytes and its rows from the dimension on are whole vectors."""
    if tensor.offset * tensor.itemsize % ALIGNMENT:
        return False
    if tensor.elements == 0:
        return True
    if dimension == 0:
        row = tensor.elements
    else:
        # A stride says nothing where the size is 1.
        row = tensor.strides[dimension - 1] if tensor.shape[dimension - 1] != 1 else prod(tensor.shape[dimension:])
    return row * tensor.itemsize % ALIGNMENT == 0


def _reached_by_32_bits(tensor: TensorRef) -> bool:
    """Whether 32-bit offsets in elements reach all of it (ATen/native/CanUse32BitIndexMath)."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    return tensor.elements <= INT32_MAX and (tensor.elements == 0 or reach <= INT32_MAX)


def _dim(op: Op) -> int:
    dim = argument(op, "dim")
    return dim if isinstance(dim, int) else 0
