"""Bags of embeddings: rows of a table summed, averaged or compared, bag by bag. Geometry: native/cuda/EmbeddingBag.cu.

Which rows a bag names are values; bytes are counted for indices that all differ, as far as the table has rows. The
gradient of sums and means sorts the indices and adds up as the gradient of an embedding does (embedding.py). No
recording of these kernels is at hand, so their registers are unknown.
"""

from undertorch.costs import cub
from undertorch.costs.building import arange, pytorch, vector_math, zeros
from undertorch.costs.embedding import sorted_sums
from undertorch.costs.registry import cost
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

GRID = 1024
BLOCK = (32, 8, 1)

MAX_MODE = 2
"""0 is the sum, 1 the mean."""


@cost("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the rows named; writes a row a bag, the bag of each index, each bag's size, and of maxima their rows."""
    weight, indices, offsets = op.tensor("weight"), op.tensor("indices"), op.tensor("offsets")
    largest = op.arg("mode") == MAX_MODE
    rows = min(indices.elements, weight.shape[0]) * weight.shape[1] * weight.itemsize
    per_sample = op.tensor_bytes("per_sample_weights")
    return (
        pytorch(
            f"EmbeddingBag_updateOutputKernel_{'max' if largest else 'sum_mean'}",
            Kind.EMBEDDING,
            GRID,
            BLOCK,
            read=rows + indices.bytes + offsets.bytes + per_sample,
            written=sum(result.bytes for result in op.results),
            flops=0 if largest else indices.elements * weight.shape[1] * (2 if per_sample else 1),
            math=vector_math(weight.dtype),
            shared=0,
            note="Counted as if the indices all differed, as far as the table has rows.",
        ),
    )


@cost("aten::_embedding_bag_backward", "aten::_embedding_bag_dense_backward")
def embedding_bag_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The gradient of the whole table."""
    grad, indices, result = op.tensor("grad"), op.tensor("indices"), op.results[0]
    filled = zeros(op, gpu, result)
    if indices.elements == 0 or grad.elements == 0:
        return filled
    if op.arg("mode") == MAX_MODE:
        return (*filled, _of_maxima(grad, op.tensor("maximum_indices"), result))
    ranged = arange(op, gpu, indices.elements, indices.dtype, indices.device)
    ordered = cub.radix_sort(
        indices.elements,
        gpu,
        key_bytes=indices.itemsize,
        value_bytes=indices.itemsize,
        bits=max(result.shape[0].bit_length(), 1),
    )
    return (*filled, *ranged, *ordered, *sorted_sums(gpu, grad, result, indices.elements, result.shape[1]))


def _of_maxima(grad: TensorRef, largest: TensorRef, result: TensorRef) -> Kernel:
    return pytorch(
        "EmbeddingBag_accGradParametersKernel_max",
        Kind.EMBEDDING,
        GRID,
        BLOCK,
        read=grad.bytes + largest.bytes,
        written=min(grad.bytes, result.bytes),
        flops=grad.elements,
        math=vector_math(grad.dtype),
        shared=0,
    )
