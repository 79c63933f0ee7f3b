"""The least bytes that a kernel moves: each distinct byte once, however many tensors show it."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from undertorch.records import TensorRef


def least_bytes(tensors: Iterable[TensorRef]) -> int:
    """Bytes to read (or to write) all of them once. Views of one storage count no byte twice: together they are at most
    the span from their first byte to their last."""
    by_storage: dict[tuple[str, int], list[TensorRef]] = defaultdict(list)
    for tensor in tensors:
        if tensor.elements:
            by_storage[tensor.device, tensor.storage].append(tensor)
    return sum(_of_one_storage(views) for views in by_storage.values())


def _of_one_storage(views: Collection[TensorRef]) -> int:
    # The same view twice (x * x) is one; so is a view whose version alone differs.
    distinct = {(view.offset, view.shape, view.strides, view.dtype): view for view in views}.values()
    ends = [_span(view) for view in distinct]
    return min(sum(view.bytes for view in distinct), max(end for _, end in ends) - min(begin for begin, _ in ends))


def _span(view: TensorRef) -> tuple[int, int]:
    """First byte and one past the last."""
    reach = [(size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)]
    first = view.offset + sum(step for step in reach if step < 0)
    last = view.offset + sum(step for step in reach if step > 0)
    return first * view.itemsize, (last + 1) * view.itemsize
