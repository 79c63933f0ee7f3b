"""Gradients of views, and writes into a part of a copy: the whole is made, then the part (TensorShape.cpp)."""

from dataclasses import replace

from undertorch.costs.building import inner
from undertorch.costs.copy import copied
from undertorch.costs.registry import cost
from undertorch.costs.rules import argument
from undertorch.records import Gpu, Kernel, Op, TensorRef


@cost("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward")
def view_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Zeros of the input's size, and the gradient copied into the part that the view showed."""
    whole = op.results[0]
    filled = inner(op, gpu, "aten::zero_", whole, self=whole)
    return filled + copied(_part(op, whole), op.tensor("grad_output"), gpu)


@cost("aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter")
def view_scatter(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A copy of the whole, and the source copied into its part."""
    whole = op.results[0]
    return copied(whole, op.tensor("self"), gpu) + copied(_part(op, whole), op.tensor("src"), gpu)


def _part(op: Op, whole: TensorRef) -> TensorRef:
    """The view of `whole` that the Op's name and arguments say."""
    if "diagonal" in op.name:
        return diagonal(whole, _int(op, "offset", 0), _int(op, "dim1", 0), _int(op, "dim2", 1))
    dimension = _int(op, "dim", 0)
    if "select" in op.name:
        return selected(whole, dimension, _int(op, "index", 0))
    size = whole.shape[dimension]
    return sliced(whole, dimension, _int(op, "start", 0), _int(op, "end", size), _int(op, "step", 1))


def sliced(tensor: TensorRef, dimension: int, start: int, end: int, step: int) -> TensorRef:
    """`tensor[start:end:step]` in one dimension; bounds wrap and clamp as Python's."""
    dimension %= len(tensor.shape)
    first, last, _ = slice(start, end, step).indices(tensor.shape[dimension])
    shape, strides = list(tensor.shape), list(tensor.strides)
    shape[dimension] = len(range(first, max(first, last), step))
    strides[dimension] *= step
    offset = tensor.offset + first * tensor.strides[dimension]
    return replace(tensor, shape=tuple(shape), strides=tuple(strides), offset=offset)


def selected(tensor: TensorRef, dimension: int, index: int) -> TensorRef:
    """`tensor.select(dimension, index)`."""
    dimension %= len(tensor.shape)
    index %= tensor.shape[dimension]
    return replace(
        tensor,
        shape=tensor.shape[:dimension] + tensor.shape[dimension + 1 :],
        strides=tensor.strides[:dimension] + tensor.strides[dimension + 1 :],
        offset=tensor.offset + index * tensor.strides[dimension],
    )


def diagonal(tensor: TensorRef, offset: int, first: int, second: int) -> TensorRef:
    """`tensor.diagonal(offset, first, second)`: the diagonal becomes the last dimension."""
    rank = len(tensor.shape)
    first, second = first % rank, second % rank
    down, across = max(0, -offset), max(0, offset)
    length = max(0, min(tensor.shape[first] - down, tensor.shape[second] - across))
    kept = [d for d in range(rank) if d not in (first, second)]
    return replace(
        tensor,
        shape=(*(tensor.shape[d] for d in kept), length),
        strides=(*(tensor.strides[d] for d in kept), tensor.strides[first] + tensor.strides[second]),
        offset=tensor.offset + down * tensor.strides[first] + across * tensor.strides[second],
    )


def _int(op: Op, name: str, default: int) -> int:
    value = argument(op, name)
    return value if isinstance(value, int) else default
