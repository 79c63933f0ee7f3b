"""Softmax and log-softmax. Launch geometry: native/cuda/SoftMax.cu and PersistentSoftmax.cuh of torch 2.11.

Which kernel runs is decided by the width of the dimension: up to 1024 (backward) or 2048 (forward) elements a warp
keeps its rows in registers; wider rows take a block each, held in registers, in shared memory, or read again from
global memory where neither holds them. A dimension that is not the innermost goes to the spatial kernels.

FLOPs, forward: 4 an element (subtract the maximum, exponentiate, add up, divide; a log-softmax subtracts instead of
dividing and takes one logarithm a row). Backward of softmax: 3 an element (add up, multiply, subtract) after the
product grad * output, which is a launch of its own; of log-softmax 4 (add up, exponentiate, multiply, subtract).
Comparisons for the maximum are no FLOPs.
"""

from dataclasses import dataclass
from math import prod

from undertorch.costs.building import (
    accumulated,
    aligned,
    ceil_div,
    inner,
    made_contiguous,
    pytorch,
    round_up,
    temporary,
    vector_math,
)
from undertorch.costs.registry import cost
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, TensorRef

MAX_THREADS = 1024
"""`max_threads` of SoftMax.cu."""

VECTOR_BYTES = 16
"""Bytes of a float4: the width of one vectorised access, and the alignment that it needs (ALIGN_BYTES)."""

PERSISTENT_THREADS = 128
"""Threads of a block of the persistent kernels (PersistentSoftmax.cuh)."""

PERSISTENT_CHUNK = 2**30
"""Elements that one launch of a persistent kernel takes at most (host_softmax)."""

MOST_REGISTER_PASSES = 10
"""Below this many elements a thread, cunn_SoftMaxForwardReg keeps the row in registers (host_softmax)."""

Registers = dict[str, tuple[int, int]]
"""By dtype: of softmax, of log-softmax. As recorded on the H200; other dtypes are unknown."""

WARP_FORWARD_REGISTERS: dict[int, Registers] = {  # by log2 of the padded width
    4: {"float32": (19, 21), "bfloat16": (19, 21)},
    6: {"float32": (22, 31), "bfloat16": (24, 27)},
    9: {"float32": (32, 40), "bfloat16": (32, 40)},
    10: {"float32": (48, 71), "bfloat16": (48, 72)},
    11: {"float32": (80, 128), "bfloat16": (80, 128)},
}
WARP_BACKWARD_REGISTERS: dict[int, Registers] = {
    4: {"float32": (24, 24), "bfloat16": (23, 22)},
    6: {"float32": (31, 31), "bfloat16": (28, 29)},
    9: {"float32": (56, 55), "bfloat16": (55, 55)},
    10: {"float32": (95, 95), "bfloat16": (96, 96)},
}
BLOCK_REGISTERS: dict[str, Registers] = {
    "cunn_SoftMaxForward": {"float32": (32, 32), "bfloat16": (32, 32)},
    "cunn_SoftMaxForwardReg": {"float32": (28, 26), "bfloat16": (28, 26)},
    "cunn_SoftMaxBackward": {"float32": (40, 56), "bfloat16": (40, 32)},
    "cunn_SoftMaxBackwardSmem": {"float32": (23, 27), "bfloat16": (29, 29)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A tensor as softmax sees it: `outer` × `width` × `inner`, the softmax along `width`."""

    outer: int
    width: int
    inner: int

    @property
    def elements(self) -> int:
        """All of them."""
        return self.outer * self.width * self.inner


def rows_of(tensor: TensorRef, dim: int) -> Rows:
    """Splits a shape at a dimension, which may count from the end; a scalar is one row of one element."""
    shape = tensor.shape or (1,)
    at = dim % len(shape)
    return Rows(outer=prod(shape[:at]), width=shape[at], inner=prod(shape[at + 1 :]))


@cost("aten::_softmax", "aten::_log_softmax")
def softmax(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads self, writes the result. With half_to_float the result is float32 of a float16 input."""
    log = op.name == "aten::_log_softmax"
    given, result = op.tensor("self"), op.results[0]
    if given.elements == 0:
        return ()
    source, copies = made_contiguous(op, gpu, given)
    rows = rows_of(given, _integer(op, "dim"))
    converts = op.arg("half_to_float") is True
    if rows.inner > 1:
        return *copies, _spatial("cunn_SpatialSoftMaxForward", rows, gpu, (source,), result, flops=4, registers=34)
    widest = 1024 if converts else 2048
    if rows.width <= widest and rows.width * source.itemsize <= 4 * widest:
        return copies + _persistent(
            "softmax_warp_forward", rows, (source,), result, flops=4, registers=WARP_FORWARD_REGISTERS, log=log
        )
    return *copies, _forward_by_block(rows, gpu, source, result, log, in_registers=not converts)


@cost("aten::_safe_softmax")
def safe_softmax(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A softmax whose rows without a finite score become 0 (native/transformers/attention.cpp): which those are takes
    four more kernels.
    """
    scores, result, dim = op.tensor("self"), op.results[0], op.arg("dim")
    infinity, zero = (temporary((), result.dtype, result.device, number) for number in (1, 2))
    equal = temporary(scores.shape, "bool", scores.device, 3)
    kept = _integer(op, "dim") % max(len(scores.shape), 1)
    rows = temporary((*scores.shape[:kept], 1, *scores.shape[kept + 1 :]), "bool", scores.device, 4)
    out = temporary(result.shape, result.dtype, result.device, 5)
    return (
        *inner(op, gpu, "aten::_softmax", out, self=scores, dim=dim, half_to_float=False),
        *inner(op, gpu, "aten::fill_", infinity, overload="Scalar", self=infinity, value="-inf"),
        *inner(op, gpu, "aten::eq", equal, overload="Tensor", self=scores, other=infinity),
        *inner(op, gpu, "aten::all", rows, overload="dim", self=equal, dim=dim, keepdim=True),
        *inner(op, gpu, "aten::fill_", zero, overload="Scalar", self=zero, value=0.0),
        *inner(op, gpu, "aten::where", result, overload="self", condition=rows, self=zero, other=out),
    )


@cost("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def softmax_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the gradient and the output, writes the input's gradient. Of softmax, after a product grad * output."""
    log = op.name == "aten::_log_softmax_backward_data"
    grad, output, result = op.tensor("grad_output"), op.tensor("output"), op.results[0]
    if grad.elements == 0:
        return ()
    flops = 4 if log else 3
    before: tuple[Kernel, ...] = ()
    if not log:
        product = temporary(grad.shape, grad.dtype, grad.device, 2)
        before = inner(op, gpu, "aten::mul", product, overload="Tensor", self=grad, other=output)
        grad = product
    grad, copies = made_contiguous(op, gpu, grad, 3)
    output, more = made_contiguous(op, gpu, output, 4)
    before += copies + more
    rows = rows_of(output, _integer(op, "dim"))
    if rows.inner > 1:
        kernel = _spatial("cunn_SpatialSoftMaxBackward", rows, gpu, (grad, output), result, flops, registers=None)
        return *before, kernel
    if rows.width <= 1024 and rows.width * result.itemsize <= 4096:
        return before + _persistent(
            "softmax_warp_backward", rows, (grad, output), result, flops, registers=WARP_BACKWARD_REGISTERS, log=log
        )
    return *before, _backward_by_block(rows, gpu, grad, output, result, log, flops)


def _persistent(
    name: str,
    rows: Rows,
    inputs: tuple[TensorRef, ...],
    result: TensorRef,
    flops: int,
    registers: dict[int, Registers],
    log: bool,
) -> tuple[Kernel, ...]:
    """One warp (or a part of one) for one or two rows, padded to a power of two."""
    log2 = max(rows.width - 1, 0).bit_length()
    padded = 1 << log2
    warp = min(padded, 32)
    warps = PERSISTENT_THREADS // warp
    rows_a_block = warps * (2 if padded <= 128 else 1)
    rows_a_launch = PERSISTENT_CHUNK // rows.width
    launches = []
    for first in range(0, rows.outer, rows_a_launch):
        count = min(rows_a_launch, rows.outer - first)
        elements = count * rows.width
        launches.append(
            pytorch(
                name,
                Kind.SOFTMAX,
                ceil_div(count, rows_a_block),
                (warp, warps, 1),
                read=elements * sum(tensor.itemsize for tensor in inputs),
                written=elements * result.itemsize,
                flops=flops * elements,
                math=vector_math(inputs[0].dtype),
                registers=_registers(registers.get(log2), inputs[0].dtype, log),
                shared=0,
            )
        )
    return tuple(launches)


def _forward_by_block(
    rows: Rows, gpu: Gpu, source: TensorRef, result: TensorRef, log: bool, in_registers: bool
) -> Kernel:
    """One block a row. Held in registers below ten elements a thread, else in shared memory, else read three times."""
    vector = VECTOR_BYTES // source.itemsize
    threads = round_up(min(rows.width, MAX_THREADS), gpu.warp_size)
    reduction = threads // gpu.warp_size * DTYPE_BYTES[accumulated(source.dtype)]
    fits = rows.width < (gpu.shared_per_block - reduction) // source.itemsize
    vectorises = rows.width % vector == 0 and aligned(source, vector) and aligned(result, vector)
    read, written = rows.elements * source.itemsize, rows.elements * result.itemsize
    traffic = None
    if in_registers and ceil_div(rows.width, threads) < MOST_REGISTER_PASSES:
        name, shared = "cunn_SoftMaxForwardReg", reduction
    elif fits and vectorises:
        name, shared = "cunn_SoftMaxForwardSmem", rows.width * source.itemsize + reduction
    else:
        name, shared = "cunn_SoftMaxForward", reduction
        traffic = _reread(rows, gpu, threads, source, passes=3, others=written)
    return pytorch(
        name if name == "cunn_SoftMaxForwardReg" else f"{name}<{vector}>",
        Kind.SOFTMAX,
        rows.outer,
        threads,
        read=read,
        written=written,
        flops=4 * rows.elements,
        math=vector_math(source.dtype),
        registers=_registers(BLOCK_REGISTERS.get(name), source.dtype, log),
        shared=shared,
        traffic=traffic,
    )


def _backward_by_block(
    rows: Rows, gpu: Gpu, grad: TensorRef, output: TensorRef, result: TensorRef, log: bool, flops: int
) -> Kernel:
    """One block a row. The gradient is read for its sum and again for the result, from shared memory where it fits."""
    vector = VECTOR_BYTES // output.itemsize
    most = min(rows.width // vector, MAX_THREADS) // (2 if vector > 1 else 1)
    threads = max(1 << max(most - 1, 0).bit_length(), gpu.warp_size)
    accumulator = DTYPE_BYTES[accumulated(output.dtype)]
    reduction = threads // gpu.warp_size * accumulator
    fits = rows.width < (gpu.shared_per_block - reduction) // output.itemsize
    vectorises = rows.width % vector == 0 and all(aligned(tensor, vector) for tensor in (grad, output, result))
    written = rows.elements * result.itemsize
    traffic = None
    if fits and vectorises:
        name, shared = "cunn_SoftMaxBackwardSmem", rows.width * output.itemsize + reduction
    else:
        name, shared = "cunn_SoftMaxBackward", threads * accumulator
        once = rows.elements * output.itemsize + written
        traffic = _reread(rows, gpu, threads, grad, passes=2, others=once)
    return pytorch(
        f"{name}<{vector}>",
        Kind.SOFTMAX,
        rows.outer,
        threads,
        read=rows.elements * (grad.itemsize + output.itemsize),
        written=written,
        flops=flops * rows.elements,
        math=vector_math(output.dtype),
        registers=_registers(BLOCK_REGISTERS.get(name), output.dtype, log),
        shared=shared,
        traffic=traffic,
    )


def _reread(rows: Rows, gpu: Gpu, threads: int, tensor: TensorRef, passes: int, others: int) -> int | None:
    """Traffic of a kernel that reads each row `passes` times. None (the least) where later passes find the row in L2.

    `others`: bytes of what it moves once. The rows at work are those of all resident blocks. Measured on an H200
    (tests/golden/h200_ops.json.gz), whose L2 keeps a copy in either half: rows at work of 44, 58 and 88 % of it came
    from memory again to 43, 75 and 100 %.
    """
    resident = min(rows.outer, gpu.sms * max(1, gpu.max_threads_per_sm // threads))
    at_work = resident * rows.width * tensor.itemsize
    again = min(1.0, max(0.0, (at_work / gpu.l2_bytes - 0.25) / 0.45))
    if again == 0:
        return None
    return round((1 + (passes - 1) * again) * rows.elements * tensor.itemsize) + others


def _spatial(
    name: str,
    rows: Rows,
    gpu: Gpu,
    inputs: tuple[TensorRef, ...],
    result: TensorRef,
    flops: int,
    registers: int | None,
) -> Kernel:
    """Threads in y along `inner`, threads in x along the softmax; as many blocks as can be resident at once."""
    across = min(rows.inner, MAX_THREADS)
    along = 1
    if across <= 64 and rows.width >= 64:
        while across * along <= MAX_THREADS and along <= rows.width:
            along *= 2
        along //= 2
    threads = across * along
    shared = 0 if along == 1 else threads * DTYPE_BYTES[accumulated(inputs[0].dtype)]
    resident = gpu.sms * max(1, min(gpu.max_threads_per_sm // round_up(threads, gpu.warp_size), gpu.max_blocks_per_sm))
    in_y = min(ceil_div(rows.inner, across), resident)
    in_x = min(ceil_div(resident, in_y), rows.outer)
    return pytorch(
        name,
        Kind.SOFTMAX,
        (in_x, in_y, 1),
        (along, across, 1),
        read=rows.elements * sum(tensor.itemsize for tensor in inputs),
        written=rows.elements * result.itemsize,
        flops=flops * rows.elements,
        math=vector_math(inputs[0].dtype),
        registers=registers,
        shared=shared,
        note="The grid fills the GPU; how many blocks an SM holds is taken from the threads alone.",
    )


def _registers(known: Registers | None, dtype: str, log: bool) -> int | None:
    return known[dtype][log] if known is not None and dtype in known else None


def _integer(op: Op, name: str) -> int:
    value = op.arg(name)
    if not isinstance(value, int):
        raise TypeError(f"argument {name!r} of {op.name} is {value!r}, not an integer")
    return value
