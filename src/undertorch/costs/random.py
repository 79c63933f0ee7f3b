"""Random numbers and dropout (ATen/native/cuda/DistributionTemplates.h, Dropout.cu).

Threads stride over the elements: there are never more blocks than are resident at once. FLOPs are those of the
transformation; the generator (Philox) works on whole numbers.
"""

from math import ceil, log, log2

from undertorch.costs.building import inner, temporary
from undertorch.costs.copy import copied
from undertorch.costs.cub import radix_sort
from undertorch.costs.fill import filled
from undertorch.costs.geometry.loops import Functor, Geometry, blocks
from undertorch.costs.geometry.tensor_iterator import dense, in_32_bits, tensor_iterator
from undertorch.costs.pointwise import moved, pointwise
from undertorch.costs.registry import Cost, cost
from undertorch.costs.rules import argument
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

THREADS = 256
"""block_size_bound of the distributions, block_size of dropout."""
TENSOR_THREADS, TENSOR_ELEMENTS = 512, 4
"""Threads, and elements a thread, where each element has its own probability (CUDA_tensor_apply2)."""

DUPLICATE_THREADS = 512
"""Of the kernel that looks for equal keys (Randperm.cuh)."""

DISTRIBUTIONS = {
    "aten::bernoulli_": ("bernoulli", 0),
    "aten::cauchy_": ("cauchy", 3),
    "aten::exponential_": ("exponential", 2),  # logarithm, scale
    "aten::geometric_": ("geometric", 2),
    "aten::log_normal_": ("log_normal", 7),
    "aten::normal_": ("normal", 6),  # Box–Muller: logarithm, root, angle, sine or cosine; scale, shift
    "aten::rand": ("uniform", 2),  # scale, shift
    "aten::rand_like": ("uniform", 2),
    "aten::randint": ("random_from_to", 0),
    "aten::randint_like": ("random_from_to", 0),
    "aten::randn": ("normal", 6),
    "aten::randn_like": ("normal", 6),
    "aten::random_": ("random_from_to", 0),
    "aten::uniform": ("uniform", 2),
    "aten::uniform_": ("uniform", 2),
}
"""Distribution and FLOPs an element, by Op."""


def _cost_of(distribution: str, flops: int) -> Cost:
    def drawn_by(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
        probability = argument(op, "p")
        if isinstance(probability, TensorRef):
            return _bernoulli_of(op.results[0], probability, gpu)
        return drawn(distribution, op.results[0], gpu, flops)

    return drawn_by


for _name, (_distribution, _flops) in DISTRIBUTIONS.items():
    cost(_name)(_cost_of(_distribution, _flops))


@cost("aten::bernoulli")
def bernoulli(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """With one probability for all, or with the input's elements as probabilities."""
    if isinstance(argument(op, "p"), int | float):
        return drawn("bernoulli", op.results[0], gpu, 0)
    return _bernoulli_of(op.results[0], op.tensor("self"), gpu)


def drawn(distribution: str, target: TensorRef, gpu: Gpu, flops: int) -> tuple[Kernel, ...]:
    """The kernels that fill a tensor with random numbers."""
    if target.device == "cpu" or not target.elements:
        return ()
    launches = [
        Geometry(
            name=f"distribution_elementwise_grid_stride_kernel<{distribution}>",
            grid=_resident(part.elements, gpu),
            block=(THREADS, 1, 1),
            elements=part.elements,
        )
        for part in in_32_bits(tensor_iterator([target], []))
    ]
    return moved(launches, [target], [], Kind.RANDOM, target.dtype, flops)


@cost("aten::randperm")
def randperm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Whole numbers in order, sorted by random keys of so many bits that few are equal; those are shuffled after.

    cuda/Randperm.cu; the count goes into a tensor first, to see whether the dtype holds it.
    """
    result = op.results[0]
    count = result.elements
    if result.device == "cpu" or not count:
        return ()
    number, numbers = (temporary(shape, result.dtype, result.device) for shape in ((), (count,)))
    bits = min(64, ceil(log2(count - (6 * count * count + 1) / (log(0.9) * 12))))
    keys = temporary((count,), "int32" if bits <= 32 else "int64", result.device, 2)
    shuffle = Geometry(
        name="randperm_handle_duplicate_keys_kernel",
        grid=(blocks(count, DUPLICATE_THREADS), 1, 1),
        block=(DUPLICATE_THREADS, 1, 1),
        elements=count,
    )
    return (
        filled(number, gpu)
        + inner(op, gpu, "aten::arange", numbers, end=count)
        + drawn("random_from_to", keys, gpu, 0)
        + radix_sort(count, gpu, key_bytes=keys.itemsize, value_bytes=result.itemsize, bits=bits)
        + moved([shuffle], [], [keys], Kind.RANDOM, None)
    )


@cost("aten::native_dropout", "aten::_fused_dropout")
def dropout(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the input, writes the result and a mask of a byte an element: x · mask · 1/(1 - p)."""
    source = op.inputs[0]
    result, mask = op.results
    if not source.elements:
        return ()
    if argument(op, "train") is False:
        return filled(mask, gpu) + copied(result, source, gpu)
    if op.name == "aten::native_dropout" and argument(op, "p") == 1:
        return filled(result, gpu) + filled(mask, gpu)
    vector = _dropout_vector(source, result, mask)
    launch = Geometry(
        name=f"fused_dropout_kernel_vec<{vector}>" if vector > 1 else "fused_dropout_kernel",
        grid=_resident(source.elements, gpu),
        block=(THREADS, 1, 1),
        elements=source.elements,
    )
    return moved([launch], [result, mask], [source], Kind.RANDOM, source.dtype, flops=2)


@cost("aten::native_dropout_backward", "aten::_masked_scale")
def dropout_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """gradient · mask · scale."""
    gradient, mask = op.inputs[:2]
    functor = Functor(name="masked_scale", result=gradient.dtype, arguments=(gradient.dtype, mask.dtype))
    return pointwise(functor, op.results, [gradient, mask], gpu, flops=2)


def _bernoulli_of(target: TensorRef, probabilities: TensorRef, gpu: Gpu) -> tuple[Kernel, ...]:
    if not target.elements:
        return ()
    launch = Geometry(
        name="kernelPointwiseApply2<bernoulli>",
        grid=(blocks(target.elements, TENSOR_THREADS * TENSOR_ELEMENTS), 1, 1),
        block=(TENSOR_THREADS, 1, 1),
        elements=target.elements,
    )
    return moved([launch], [target], [probabilities], Kind.RANDOM, None)


def _resident(elements: int, gpu: Gpu) -> tuple[int, int, int]:
    """Blocks for all elements, but no more than the GPU's threads hold at once."""
    return (min(gpu.sms * (gpu.max_threads_per_sm // THREADS), blocks(elements, THREADS)), 1, 1)


def _dropout_vector(source: TensorRef, result: TensorRef, mask: TensorRef) -> int:
    """Elements a load: 16 bytes that are aligned and leave no rest (Dropout.cu, get_vector_size)."""
    if not (dense(source) and dense(result) and dense(mask)):
        return 1
    widest = 16 // source.itemsize
    return next(
        vector
        for vector in (8, 4, 2, 1)
        if vector <= widest and source.offset % vector == 0 and source.elements % vector == 0
    )
