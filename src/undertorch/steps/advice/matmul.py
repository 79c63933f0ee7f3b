"""Matmuls that the GPU has a faster way for: TF32, or rows that begin where its loads can."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from undertorch import costs
from undertorch.records import Argument, Kernel, Kind, Math, Op, TensorRef, Value
from undertorch.steps.advice.dataflow import Queue, Saving
from undertorch.steps.predict.times import timing

ALIGNED = 16
"""Bytes that a row has to begin at a multiple of for tensor cores to be fed well (cuBLAS, Tensor Core Usage)."""
MULTIPLE = 64
"""Elements that a padded size is a multiple of: 128 bytes of 16-bit numbers, a line of the L2 cache."""

PRODUCTS = frozenset({Kind.MATMUL, Kind.ATTENTION, Kind.CONVOLUTION})
ON_CORES = frozenset({Math.FP32, Math.FP16, Math.BF16, Math.TENSOR_BF16})
"""What a product in bfloat16 is computed with where no tensor core takes it."""
PRODUCT_OPS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution"})
"""Ops that are products whether or not their kernels are known."""


def without_tf32(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """float32 matmuls on a GPU whose tensor cores take TF32, for which torch was not allowed to use it."""
    if Math.TENSOR_TF32 not in queue.gpu.peaks:
        return
    saved, ops = 0.0, set()
    for number, some in queue.runs.items():
        op = queue.ops[number]
        for run in some:
            kernel = run.launch.kernel
            if kernel.kind is Kind.MATMUL and kernel.math is Math.FP32 and number not in taken and not op.tf32:
                saved += run.time_us * (1 - _ratio(queue, (replace(kernel, math=Math.TENSOR_TF32),), (kernel,)))
                ops.add(number)
    yield Saving(
        kind="tf32",
        ops=frozenset(),
        about=frozenset(ops),
        saves_us=saved,
        saves_bytes=0,
        what=(
            "These matmuls are float32 on the CUDA cores. torch.set_float32_matmul_precision('high') lets the tensor "
            "cores do them in TF32, with a mantissa of 10 bits in the factors and sums in float32; autocast to "
            "bfloat16 would also halve the bytes."
        ),
    )


def without_bfloat16(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """Products in bfloat16 on a GPU whose tensor cores take float16 and no bfloat16 (Volta, Turing)."""
    peaks = queue.gpu.peaks
    if Math.TENSOR_BF16 in peaks or Math.TENSOR_FP16 not in peaks:
        return
    ops = frozenset(op.id for op in queue.step.ops if queue.works(op) and _bfloat16_product(queue, op)) - taken
    if not ops:
        return
    saved, spent = 0.0, 0.0
    for number in ops:
        for run in queue.runs.get(number, ()):
            kernel = run.launch.kernel
            if kernel.kind in PRODUCTS and kernel.math in ON_CORES:
                spent += run.time_us
                saved += run.time_us * (1 - _ratio(queue, (replace(kernel, math=Math.TENSOR_FP16),), (kernel,)))
    gain = f": {(spent - saved) / 1000:.3g} ms in place of {spent / 1000:.3g} ms" if saved else ""
    yield Saving(
        kind="float16",
        ops=frozenset(),
        about=ops,
        saves_us=saved or None,
        saves_bytes=0,
        what=(
            f"The {queue.gpu.name} has no bfloat16 tensor cores, so that the bfloat16 products of {len(ops):,} ops go "
            f"to its CUDA cores. In float16 they take its tensor cores{gain}. Use autocast with dtype=torch.float16 "
            "and a torch.amp.GradScaler: small gradients are lost in float16 otherwise."
        ),
    )


def _bfloat16_product(queue: Queue, op: Op) -> bool:
    if not any(tensor.dtype == "bfloat16" for tensor in op.inputs):
        return False
    return bool(queue.kinds(op) & PRODUCTS) if queue.runs.get(op.id) else op.name in PRODUCT_OPS


def _ratio(queue: Queue, new: tuple[Kernel, ...], old: tuple[Kernel, ...]) -> float:
    """Predicted time of kernels over that of others, at most 1."""
    before = sum(timing(kernel, queue.gpu, None).time_us for kernel in old)
    after = sum(timing(kernel, queue.gpu, None).time_us for kernel in new)
    return min(1.0, after / before) if before else 1.0


def misaligned(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """Matmuls whose rows begin off a multiple of 16 bytes, by the size that makes them do so."""
    by_size: dict[int, list[tuple[int, float]]] = {}
    for number in queue.runs:
        op = queue.ops[number]
        if number in taken or Kind.MATMUL not in queue.kinds(op):
            continue
        sizes = odd_sizes(op)
        if not sizes:
            continue
        old, new = costs.kernels(op, queue.gpu), costs.kernels(padded(op, sizes), queue.gpu)
        if not old or not new:
            continue
        by_size.setdefault(max(sizes), []).append((number, queue.time_us([number]) * (1 - _ratio(queue, new, old))))
    for size, some in by_size.items():
        yield Saving(
            kind="alignment",
            ops=frozenset(),
            about=frozenset(number for number, _ in some),
            saves_us=sum(saved for _, saved in some),
            saves_bytes=None,
            what=(
                f"A dimension of {size:,} makes rows begin off a multiple of {ALIGNED} bytes, for which "
                f"{len(some):,} matmul{'s' if len(some) > 1 else ''} of the step take slower kernels. Pad it to "
                f"{_up(size):,} (a multiple of {MULTIPLE}); of a vocabulary, the added tokens never occur."
            ),
        )


def odd_sizes(op: Op) -> set[int]:
    """Sizes of a matmul's dimensions that rows (or columns) of its matrices are apart by, no multiple of 16 bytes."""
    found = set()
    for tensor in (*op.inputs, *op.results):
        if len(tensor.shape) >= 2:
            for stride in tensor.strides[-2:]:
                if stride != 1 and stride * tensor.itemsize % ALIGNED and stride in tensor.shape:
                    found.add(stride)
    return found


def padded(op: Op, sizes: set[int]) -> Op:
    """The Op with those sizes rounded up, its tensors laid out in the same order."""

    def value(given: Value) -> Value:
        if isinstance(given, TensorRef):
            return _padded(given, sizes)
        if isinstance(given, tuple):
            return tuple(_padded(one, sizes) if isinstance(one, TensorRef) else one for one in given)
        return given

    return replace(
        op,
        arguments=tuple(Argument(name=one.name, value=value(one.value)) for one in op.arguments),
        outputs=tuple(None if one is None else _padded(one, sizes) for one in op.outputs),
    )


def _padded(tensor: TensorRef, sizes: set[int]) -> TensorRef:
    shape = tuple(_up(size) if size in sizes else size for size in tensor.shape)
    strides = list(tensor.strides)
    step = 1
    for dimension in sorted(range(len(shape)), key=lambda number: (tensor.strides[number], -number)):
        if tensor.strides[dimension]:
            strides[dimension] = step
            step *= shape[dimension]
    return replace(tensor, shape=shape, strides=tuple(strides))


def _up(size: int) -> int:
    return ceil(size / MULTIPLE) * MULTIPLE
