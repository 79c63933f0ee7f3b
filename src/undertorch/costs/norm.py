"""Layer norm and RMS norm. Launch geometry: native/cuda/layer_norm_kernel.cu of torch 2.11; statistics in float32.

One block takes a row. Widths that are a multiple of 4, of aligned tensors that are not float64, take the vectorised
kernels. The gradients of weight and bias are sums down the columns: one launch, whose block grows with the rows; of
very many narrow rows partial sums and then `sum(0)`.

FLOPs, forward: 6 an element (add up; subtract the mean, square, add up; subtract the mean, times the reciprocal
deviation), and 1 each for weight and bias; RMS norm has no mean: 3 (square, add up, scale), and 1 for the weight.
Backward of the input: 12 an element, and 2 for the weight; RMS norm 8, and 2. Backward of weight and bias: 4 an element
(subtract, scale, times the gradient, add up), and 1 for the bias; RMS norm 3.
"""

from math import prod

from undertorch.costs.building import (
    HALVES,
    accumulated,
    aligned,
    ceil_div,
    inner,
    made_contiguous,
    pytorch,
    temporary,
    vector_math,
    viewed,
)
from undertorch.costs.registry import cost
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, TensorRef

VECTOR = 4
"""Elements of one vectorised access, whatever the dtype (`vec_size`)."""

WARPS = 4
"""Warps of a block that takes a row (num_threads() in thread_constants.h is 4 warps)."""

WIDEST_VECTORISED = 2**24
"""Elements that a float32 still counts exactly; wider rows take the scalar kernels."""

COLUMNS = 32
"""Columns of a block of the weight's gradient (block_dim_x)."""

SHORT_ROWS = ((64, 1, 8), (128, 8, 64), (256, 16, 128))
"""Rows below which, block in y, rows of a tile (LaunchGammaBetaBackwardCUDAKernel)."""

TALL = (32, 256)
"""Block in y and rows of a tile for more rows than SHORT_ROWS name."""

MANY_ROWS = 64 * 1024
"""Rows above which a narrow matrix is summed in two launches."""

PARTIAL_ROWS = 32
"""Rows of a tile of the two-launch sum."""

MOST_PARTIAL_BLOCKS = 64 * 1024 // 2
"""Blocks of the two-launch sum (max_grid_size)."""

REGISTERS = {
    # layer norm, RMS norm; float32, then half types; as recorded on the H200
    "vectorized_layer_norm_kernel": ((39, 32), (32, 27)),
    "RowwiseMomentsCUDAKernel": ((28, 28), (28, 28)),
    "LayerNormForwardCUDAKernel": ((21, 16), (23, 17)),
    "layer_norm_grad_input_kernel_vectorized": ((32, 32), (32, 32)),
    "layer_norm_grad_input_kernel": ((32, 32), (32, 31)),
}
TEMPLATE_REGISTERS = {
    # The same of GammaBetaBackwardCUDAKernelTemplate, by whether it sums in blocks and whether the tiles are whole.
    (True, True): ((31, 32), (32, 32)),
    (True, False): ((46, 44), (46, 45)),
    (False, True): ((54, 38), (50, 35)),
}


@cost("aten::native_layer_norm")
def layer_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads input, weight, bias; writes the result, mean and reciprocal deviation."""
    return _forward(op, gpu, rms=False)


@cost("aten::_fused_rms_norm")
def rms_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads input and weight; writes the result and the reciprocal root of the mean square."""
    return _forward(op, gpu, rms=True)


@cost("aten::native_layer_norm_backward")
def layer_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads gradient and input, once for each launch; writes the gradients that output_mask asks for."""
    return _backward(op, gpu, rms=False)


@cost("aten::_fused_rms_norm_backward")
def rms_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads gradient and input, once for each launch; writes the gradients that output_mask asks for."""
    return _backward(op, gpu, rms=True)


def _forward(op: Op, gpu: Gpu, rms: bool) -> tuple[Kernel, ...]:
    given, result = op.tensor("input"), op.results[0]
    rows, width = _rows_and_width(op)
    if rows == 0:
        return ()
    source, copies = made_contiguous(op, gpu, given)
    affine = op.tensors("weight") + op.tensors("bias")
    elements = rows * width
    moments, normalise = (2, 1) if rms else (4, 2)
    statistics = sum(tensor.bytes for tensor in op.results[1:])
    scale = len(affine) * elements
    math = vector_math(source.dtype)
    if _vectorises(width, source, result, *affine):
        name = "vectorized_layer_norm_kernel"
        row = pytorch(
            name,
            Kind.NORM,
            rows,
            (gpu.warp_size, WARPS, 1),
            read=source.bytes + sum(tensor.bytes for tensor in affine),
            written=result.bytes + statistics,
            flops=(moments + normalise) * elements + scale,
            math=math,
            registers=_registers(REGISTERS[name], source.dtype, rms),
            shared=WARPS * 3 // 2 * DTYPE_BYTES["float32"],
        )
        return *copies, row
    accumulator = DTYPE_BYTES[accumulated(source.dtype)]
    return (
        *copies,
        pytorch(
            "RowwiseMomentsCUDAKernel",
            Kind.NORM,
            rows,
            512,  # kCUDABlockReduceNumThreads
            read=source.bytes,
            written=statistics,
            flops=moments * elements,
            math=math,
            registers=_registers(REGISTERS["RowwiseMomentsCUDAKernel"], source.dtype, rms),
            shared=gpu.warp_size * (16 + 2 * accumulator),  # one WelfordData a warp: mean, m2, two counts
        ),
        pytorch(
            "LayerNormForwardCUDAKernel",
            Kind.NORM,
            rows,
            256,  # kCUDANumThreads
            read=source.bytes + statistics + sum(tensor.bytes for tensor in affine),
            written=result.bytes,
            flops=normalise * elements + scale,
            math=math,
            registers=_registers(REGISTERS["LayerNormForwardCUDAKernel"], source.dtype, rms),
            shared=0,
        ),
    )


def _backward(op: Op, gpu: Gpu, rms: bool) -> tuple[Kernel, ...]:
    rows, width = _rows_and_width(op)
    if rows == 0 or width == 0:
        return _empty_gradients(op, gpu)
    grad, copies = made_contiguous(op, gpu, op.tensor("grad_out"))
    source, more = made_contiguous(op, gpu, op.tensor("input"), 2)
    for_input, *for_weight = op.outputs
    kernels = copies + more
    if for_input is not None:
        kernels += (_input_gradient(op, gpu, rms, rows, width, grad, source, for_input),)
    wanted = tuple(tensor for tensor in for_weight if tensor is not None)
    if wanted:
        kernels += _weight_gradients(op, gpu, rms, rows, width, grad, source, wanted)
    return kernels


def _input_gradient(
    op: Op, gpu: Gpu, rms: bool, rows: int, width: int, grad: TensorRef, source: TensorRef, result: TensorRef
) -> Kernel:
    weight = op.tensors("weight")
    vectorised = _vectorises(width, grad, source, result, *weight)
    name = "layer_norm_grad_input_kernel_vectorized" if vectorised else "layer_norm_grad_input_kernel"
    per_element = (8 if rms else 12) + 2 * len(weight)
    # Each block sums over its row, then reads it again: from L2, unless the rows at work exceed it.
    resident = min(rows, gpu.sms * (gpu.max_threads_per_sm // (WARPS * gpu.warp_size)))
    again = grad.bytes + source.bytes
    read = again + _statistics(op).bytes * (1 if rms else 2) + sum(tensor.bytes for tensor in weight)
    spills = resident * width * (grad.itemsize + source.itemsize) > gpu.l2_bytes
    return pytorch(
        name,
        Kind.NORM,
        rows,
        WARPS * gpu.warp_size,
        read=read,
        written=result.bytes,
        flops=per_element * rows * width,
        math=vector_math(source.dtype),
        registers=_registers(REGISTERS[name], source.dtype, rms),
        shared=WARPS * DTYPE_BYTES[accumulated(source.dtype)],
        traffic=read + again + result.bytes if spills else None,
    )


def _weight_gradients(
    op: Op,
    gpu: Gpu,
    rms: bool,
    rows: int,
    width: int,
    grad: TensorRef,
    source: TensorRef,
    wanted: tuple[TensorRef, ...],
) -> tuple[Kernel, ...]:
    accumulator = DTYPE_BYTES[accumulated(source.dtype)]
    in_x = ceil_div(width, COLUMNS)
    read = grad.bytes + source.bytes + _statistics(op).bytes * (1 if rms else 2)
    flops = (3 if rms else 4) + (len(wanted) - 1)
    if rows > MANY_ROWS and width // COLUMNS < gpu.sms // 2:
        in_y = min(MOST_PARTIAL_BLOCKS // in_x, ceil_div(rows, PARTIAL_ROWS))
        block_y, tile, shared = 1, PARTIAL_ROWS, 0
        partial = tuple(temporary((in_y, width), tensor.dtype, tensor.device, 4 + i) for i, tensor in enumerate(wanted))
        written = sum(tensor.bytes for tensor in partial)
        sums = tuple(
            kernel
            for part, whole in zip(partial, wanted, strict=True)
            for kernel in inner(
                op,
                gpu,
                "aten::sum",
                viewed(whole, (width,)),
                overload="dim_IntList",
                self=part,
                dim=(0,),
                keepdim=False,
                dtype=None,
            )
        )
    else:
        in_y, sums = 1, ()
        block_y, tile = next(((y, t) for below, y, t in SHORT_ROWS if rows < below), TALL)
        shared = 2 * accumulator * (COLUMNS + 1) * block_y
        written = sum(tensor.bytes for tensor in wanted)
    whole_tiles = rows % tile == 0 and width % COLUMNS == 0
    return (
        pytorch(
            "GammaBetaBackwardCUDAKernelTemplate",
            Kind.NORM,
            (in_x, in_y, 1),
            (COLUMNS, block_y, 1),
            read=read,
            written=written,
            flops=flops * rows * width,
            math=vector_math(source.dtype),
            registers=_registers(TEMPLATE_REGISTERS.get((block_y > 1, whole_tiles)), source.dtype, rms),
            shared=shared,
        ),
        *sums,
    )


def _empty_gradients(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Without rows the gradients of weight and bias are zeros (layer_norm_backward_cuda)."""
    return tuple(
        kernel
        for tensor in op.outputs[1:]
        if tensor is not None and tensor.elements
        for kernel in inner(op, gpu, "aten::zero_", tensor, self=tensor)
    )


def _rows_and_width(op: Op) -> tuple[int, int]:
    normalized = op.arg("normalized_shape")
    width = prod(size for size in normalized if isinstance(size, int)) if isinstance(normalized, tuple) else 1
    shape = op.tensor("input").shape
    kept = shape[: len(shape) - len(normalized)] if isinstance(normalized, tuple) else shape[:-1]
    return prod(kept), width


def _statistics(op: Op) -> TensorRef:
    return op.tensor("rstd")


def _vectorises(width: int, *tensors: TensorRef) -> bool:
    return (
        tensors[0].dtype != "float64"
        and width <= WIDEST_VECTORISED
        and width % VECTOR == 0
        and all(aligned(tensor, VECTOR) for tensor in tensors)
    )


def _registers(known: tuple[tuple[int, int], tuple[int, int]] | None, dtype: str, rms: bool) -> int | None:
    if known is None or dtype not in ("float32", *HALVES):
        return None
    return known[dtype in HALVES][rms]
