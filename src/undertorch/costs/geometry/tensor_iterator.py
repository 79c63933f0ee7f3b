"""The order in which PyTorch walks the tensors of an element-by-element Op (ATen/TensorIterator.cpp).

Dimensions are put in order of the strides, fastest first, and neighbours that lie one behind the other become one. What
is left decides the kernel: one contiguous dimension is vectorized, anything else computes an offset per element.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import mul

from undertorch.records import DTYPE_BYTES, TensorRef

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One tensor as the iterator sees it."""

    dtype: str
    strides: tuple[int, ...]
    """Bytes a step, one a dimension of the iterator; 0 where it is broadcast or reduced."""
    address: int
    """Bytes from the start of its storage to its first element. Storages start at multiples of 512
    (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize), so that this decides alignment."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorIterator:
    """A TensorIterator after its dimensions were put in order and merged."""

    shape: tuple[int, ...]
    """Fastest dimension first."""
    outputs: tuple[Operand, ...]
    inputs: tuple[Operand, ...]
    reduction: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Outputs, then inputs."""
        return self.outputs + self.inputs

    @property
    def elements(self) -> int:
        """Steps that it takes."""
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether every operand is one run of neighbouring elements."""
        if self.elements == 1:
            return True
        return len(self.shape) == 1 and all(operand.strides[0] == operand.itemsize for operand in self.operands)

    @property
    def fits_32_bits(self) -> bool:
        """Whether 32-bit integers hold the count of elements and each operand's byte offsets."""
        return self.elements <= INT32_MAX and all(
            1 + sum((size - 1) * stride for size, stride in zip(self.shape, operand.strides, strict=True)) <= INT32_MAX
            for operand in self.operands
        )

    @property
    def reduced_dimensions(self) -> int:
        """Dimensions along which the first output does not move."""
        return sum(stride == 0 for stride in self.outputs[0].strides)

    @property
    def output_elements(self) -> int:
        """Results of a reduction."""
        pairs = zip(self.shape, self.outputs[0].strides, strict=True)
        return prod(size for size, stride in pairs if stride != 0 or size == 0)


def tensor_iterator(outputs: Sequence[TensorRef], inputs: Sequence[TensorRef]) -> TensorIterator:
    """Over broadcast inputs; outputs have the broadcast shape."""
    tensors = (*outputs, *inputs)
    shape = broadcast(*(tensor.shape for tensor in tensors))
    if _one_run(tensors):
        return _merged(
            TensorIterator(
                shape=(prod(shape),),
                outputs=tuple(_operand(tensor, (tensor.itemsize,)) for tensor in outputs),
                inputs=tuple(_operand(tensor, (tensor.itemsize,)) for tensor in inputs),
            )
        )
    return _ordered(
        TensorIterator(
            shape=shape,
            outputs=tuple(_operand(tensor, _strides(tensor, shape)) for tensor in outputs),
            inputs=tuple(_operand(tensor, _strides(tensor, shape)) for tensor in inputs),
        )
    )


def reduction_iterator(
    outputs: Sequence[TensorRef], source: TensorRef, dimensions: Sequence[int] | None, keepdim: bool
) -> TensorIterator:
    """Over `source`, where the outputs stand still along the reduced dimensions. None or empty: all of them."""
    rank = len(source.shape)
    reduced = {d % rank for d in dimensions} if dimensions and rank else set(range(rank))
    viewed = tuple(output if keepdim else _with_ones(output, reduced, rank) for output in outputs)
    return _ordered(
        TensorIterator(
            shape=source.shape,
            outputs=tuple(_operand(output, _strides(output, source.shape)) for output in viewed),
            inputs=(_operand(source, _strides(source, source.shape)),),
            reduction=True,
        )
    )


def in_32_bits(whole: TensorIterator) -> tuple[TensorIterator, ...]:
    """In parts that fit 32-bit offsets, halving the dimension that reaches furthest until they do, in order; of those
    that reach nowhere (broadcast), the longest.
    """
    if whole.fits_32_bits:
        return (whole,)
    _, _, dimension = max(
        ((size - 1) * abs(operand.strides[d]), size, d)
        for d, size in enumerate(whole.shape)
        for operand in whole.operands
        if size != 0
    )
    half = whole.shape[dimension] // 2
    first = _narrowed(whole, dimension, 0, half)
    second = _narrowed(whole, dimension, half, whole.shape[dimension] - half)
    return in_32_bits(first) + in_32_bits(second)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that they broadcast to. A size of 1 gives way to any other."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def dense(tensor: TensorRef) -> bool:
    """Whether its elements fill one run of memory in some order, each once (torch's is_non_overlapping_and_dense)."""
    pairs = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.strides, strict=True) if size != 1)
    runs = accumulate((size for _, size in pairs), mul, initial=1)
    return tensor.elements == 0 or all(stride == run for (stride, _), run in zip(pairs, runs, strict=False))


def _one_run(tensors: Sequence[TensorRef]) -> bool:
    """Torch's fast set-up: same shapes, and all of them row-major, or channels-last, or dense with the same strides."""
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        return False
    if all(tensor.contiguous for tensor in tensors) or all(channels_last(tensor) for tensor in tensors):
        return True
    return all(tensor.strides == tensors[0].strides and dense(tensor) for tensor in tensors)


def channels_last(tensor: TensorRef) -> bool:
    """Whether a tensor of 4 dimensions lies as N, H, W, C without gaps."""
    if len(tensor.shape) != 4:
        return False
    _, c, h, w = tensor.shape
    expected = (h * w * c, 1, w * c, c)
    return all(
        size == 1 or stride == run for size, stride, run in zip(tensor.shape, tensor.strides, expected, strict=True)
    )


def _operand(tensor: TensorRef, strides: tuple[int, ...]) -> Operand:
    return Operand(dtype=tensor.dtype, strides=strides, address=tensor.offset * tensor.itemsize)


def _strides(tensor: TensorRef, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Byte strides over a shape that the tensor broadcasts to."""
    missing = len(shape) - len(tensor.shape)
    own = zip(tensor.shape, tensor.strides, shape[missing:], strict=True)
    return (0,) * missing + tuple(
        0 if size == 1 and wanted != 1 else stride * tensor.itemsize for size, stride, wanted in own
    )


def _with_ones(output: TensorRef, reduced: set[int], rank: int) -> TensorRef:
    """A reduction's result with the reduced dimensions put back, of size 1 and stride 0."""
    sizes, strides = iter(output.shape), iter(output.strides)
    return replace(
        output,
        shape=tuple(1 if d in reduced else next(sizes) for d in range(rank)),
        strides=tuple(0 if d in reduced else next(strides) for d in range(rank)),
    )


def _ordered(given: TensorIterator) -> TensorIterator:
    """Its dimensions in order of the strides, fastest first; then merged."""
    order = list(reversed(range(len(given.shape))))
    # Torch's own insertion sort: the comparison is not transitive, so that another sort could answer another order.
    for i in range(1, len(order)):
        moving = i
        for before in range(i - 1, -1, -1):
            comparison = _comes_after(given, order[before], order[moving])
            if comparison > 0:
                order[before], order[moving] = order[moving], order[before]
                moving = before
            elif comparison < 0:
                break
    return _merged(_with_dimensions(given, order))


def _comes_after(given: TensorIterator, a: int, b: int) -> int:
    """1 where dimension `a` belongs behind `b`, -1 where before, 0 where no operand tells."""
    for index, operand in enumerate(given.operands):
        stride_a, stride_b = operand.strides[a], operand.strides[b]
        if given.reduction and index < len(given.outputs) and (stride_a == 0) != (stride_b == 0):
            return 1 if stride_b == 0 else -1
        if stride_a == 0 or stride_b == 0:
            continue
        if stride_a != stride_b:
            return 1 if stride_a > stride_b else -1
        if given.shape[a] > given.shape[b]:
            return 1
    return 0


def _merged(given: TensorIterator) -> TensorIterator:
    """Neighbouring dimensions that lie one behind the other in every operand, or of size 1, become one."""
    if len(given.shape) <= 1:
        return given
    shape = list(given.shape)
    strides = [list(operand.strides) for operand in given.operands]
    last = 0
    for d in range(1, len(shape)):
        if shape[last] == 1 or shape[d] == 1 or all(shape[last] * steps[last] == steps[d] for steps in strides):
            if shape[last] == 1:
                for steps in strides:
                    steps[last] = steps[d]
            shape[last] *= shape[d]
        else:
            last += 1
            shape[last] = shape[d]
            for steps in strides:
                steps[last] = steps[d]
    return _with_strides(given, tuple(shape[: last + 1]), [tuple(steps[: last + 1]) for steps in strides])


def _with_dimensions(given: TensorIterator, order: Sequence[int]) -> TensorIterator:
    shape = tuple(given.shape[d] for d in order)
    return _with_strides(given, shape, [tuple(operand.strides[d] for d in order) for operand in given.operands])


def _with_strides(given: TensorIterator, shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> TensorIterator:
    operands = tuple(replace(operand, strides=steps) for operand, steps in zip(given.operands, strides, strict=True))
    count = len(given.outputs)
    return replace(given, shape=shape, outputs=operands[:count], inputs=operands[count:])


def _narrowed(whole: TensorIterator, dimension: int, start: int, size: int) -> TensorIterator:
    shape = (*whole.shape[:dimension], size, *whole.shape[dimension + 1 :])
    moved = tuple(
        replace(operand, address=operand.address + start * operand.strides[dimension]) for operand in whole.operands
    )
    count = len(whole.outputs)
    part = replace(whole, shape=shape, outputs=moved[:count], inputs=moved[count:])
    return _merged(part) if size == 1 and not whole.reduction else part
