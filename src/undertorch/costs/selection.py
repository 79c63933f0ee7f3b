"""Picking out what meets a condition: nonzero, masked_select. Geometry: native/cuda/Nonzero.cu and CUB.

How many elements there are follows from values; the Op's result has the number, which the recorder assumed or the GPU
found. The count goes to the host, which waits for it and only then makes room for the result.
"""

from undertorch.costs import cub
from undertorch.costs.building import ceil_div, inner, made_contiguous, over_link, pytorch, temporary
from undertorch.costs.registry import NoCost, cost
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

COUNT_BYTES = 4
"""Of the int that CUB counts in."""

INDEX_BYTES = 8

WRITE_THREADS = 256
"""Of a block that turns places in the flattened tensor into an index a dimension (nonzero_cuda_out_impl)."""

MOST_ELEMENTS = 2**31 - 1
"""More are counted and selected in several chunks, which is not modelled."""


@cost("aten::nonzero")
def nonzero(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the tensor to count, reads it again to write the place of each element found."""
    return places(op, gpu, op.tensor("self"), op.results[0].shape[0])


@cost("aten::masked_select")
def masked_select(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The places where the mask is set, then the elements there."""
    source, mask, result = op.tensor("self"), op.tensor("mask"), op.results[0]
    if source.shape != mask.shape:
        raise NoCost(f"{op.name} of tensors that are broadcast: their copies were not recorded")
    found = result.shape[0]
    indices = tuple(temporary((found,), "int64", mask.device, 8 + dim) for dim in range(len(mask.shape)))
    return (
        *places(op, gpu, mask, found),
        *inner(op, gpu, "aten::index", result, overload="Tensor", self=source, indices=indices),
    )


def places(op: Op, gpu: Gpu, tensor: TensorRef, found: int) -> tuple[Kernel, ...]:
    """What `tensor.nonzero()` launches where `found` elements are. Raises NoCost."""
    if tensor.elements > MOST_ELEMENTS:
        raise NoCost(f"{op.name} of more than 2³¹ − 1 elements")
    source, copies = made_contiguous(op, gpu, tensor)
    to_host = over_link(COUNT_BYTES, "Memcpy DtoH (Device -> Pinned)")
    selected = cub.select_flagged(source.elements, found, flag_bytes=source.itemsize, item_bytes=INDEX_BYTES)
    kernels = (*copies, *cub.count(source.elements, gpu, item_bytes=source.itemsize), to_host, *selected)
    dims = len(tensor.shape)
    if found == 0 or dims < 2:
        return kernels
    spread = pytorch(
        "write_indices",
        Kind.SORT,
        ceil_div(found, WRITE_THREADS),
        WRITE_THREADS,
        read=found * INDEX_BYTES,
        written=found * INDEX_BYTES * dims,
        flops=0,
        registers=32,
        shared=0,
    )
    return (*kernels, spread)
