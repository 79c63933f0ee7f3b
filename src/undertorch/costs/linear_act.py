"""Kernels of undertorch's linear layer with its activation (undertorch/ops/linear_act.py), as it usually runs.

FLOPs of an activation: 5 an element forward, as of the gated ones (costs/training_ops.py), 8 backward; relu 1 and 1.
"""

from undertorch.costs.building import HALVES, ceil_div, inner, temporary, viewed
from undertorch.costs.registry import cost, other_ways
from undertorch.costs.training_ops import FLOAT32, SUMMED_COLUMNS, SUMMED_WARPS, own_kernel
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

GELU_TANH, RELU = 2, 3
"""As ops/gated_kernels.py numbers them: those that cuBLASLt has an epilogue for."""

ACTIVATED_PIECE, ACTIVATED_WARPS = 4096, 8
"""Elements that a block of the activation works on, and its warps."""

STRIP_ROWS, STRIP_COLUMNS, STRIP_WARPS, STRIPS_PER_SM = 16, 256, 4, 4
"""Of the activation's backward: rows of a block at a time, its columns, warps, and blocks on an SM."""


def shares_of(rows: int, width: int, sms: int) -> int:
    """Blocks that share a strip of columns."""
    wanted = max(sms * STRIPS_PER_SM // ceil_div(width, STRIP_COLUMNS), 1)
    return min(wanted, ceil_div(rows, STRIP_ROWS))


def _matrices(op: Op) -> tuple[TensorRef, TensorRef, TensorRef]:
    """x as rows, the weight turned, and what they make."""
    x, weight = op.tensor("x"), op.tensor("weight")
    features, inputs = weight.shape
    rows = x.elements // inputs if inputs else 0
    matrix = viewed(x, (rows, inputs)) if x.contiguous else temporary((rows, inputs), x.dtype, x.device, 1)
    turned = viewed(weight, (inputs, features), (weight.strides[1], weight.strides[0]))
    return matrix, turned, temporary((rows, features), x.dtype, x.device, 2)


@cost("undertorch::linear_act_forward")
def linear_act(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """relu, and gelu by tanh of half types that are not kept: cuBLASLt's epilogue. Else product, then activation."""
    matrix, turned, result = _matrices(op)
    if result.elements == 0 or matrix.elements == 0:
        return ()
    kind, bias = op.arg("kind"), op.tensors("bias")
    half = matrix.dtype in HALVES
    if kind == RELU or (kind == GELU_TANH and half and op.arg("keep") is not True):
        vector = bias[0] if bias else temporary((result.shape[1],), result.dtype, result.device, 3)
        filled = () if bias else inner(op, gpu, "aten::zero_", vector, self=vector)
        product = inner(
            op, gpu, "aten::_addmm_activation", result, self=vector, mat1=matrix, mat2=turned, beta=1, alpha=1,
            use_gelu=kind == GELU_TANH,
        )  # fmt: skip
        return (*filled, *product)
    return _apart(op, gpu)


@other_ways("undertorch::linear_act_forward")
def linear_act_apart(op: Op, gpu: Gpu) -> tuple[tuple[Kernel, ...], ...]:
    """Product, then activation, where an epilogue is usual."""
    return (_apart(op, gpu),)


def _apart(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    matrix, turned, result = _matrices(op)
    bias = op.tensors("bias")
    product = (
        inner(op, gpu, "aten::addmm", result, self=bias[0], mat1=matrix, mat2=turned, beta=1, alpha=1)
        if bias
        else inner(op, gpu, "aten::mm", result, self=matrix, mat2=turned)
    )
    return (*product, activation(result))


def activation(result: TensorRef) -> Kernel:
    """What a product left is read, and as much is written."""
    return own_kernel(
        "activate",
        Kind.ELEMENTWISE,
        ceil_div(result.elements, ACTIVATED_PIECE),
        ACTIVATED_WARPS,
        read=result.bytes,
        written=result.bytes,
        flops=5 * result.elements,
    )


def slope(before: TensorRef, shares: int, *, flops: int, biased: bool) -> Kernel:
    """The activation's gradient, of so many FLOPs an element; `biased`: with the bias's shares in the same pass."""
    width = before.shape[1]
    return own_kernel(
        "activate_backward",
        Kind.ELEMENTWISE,
        (ceil_div(width, STRIP_COLUMNS), shares, 1),
        STRIP_WARPS,
        read=2 * before.bytes,
        written=before.bytes + (shares * width * FLOAT32 if biased else 0),
        flops=(flops + biased) * before.elements,
    )


def summed(like: TensorRef, shares: int, width: int) -> Kernel:
    """The shares of a gradient of `width` elements added up, and written in `like`'s dtype."""
    return own_kernel(
        "column_sums",
        Kind.REDUCTION,
        (ceil_div(width, SUMMED_COLUMNS[width > 8192]), 1, 1),
        SUMMED_WARPS,
        read=shares * width * FLOAT32,
        written=width * like.itemsize,
        flops=shares * width,
    )


@cost("undertorch::linear_act_backward")
def linear_act_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The activation's gradient with the bias's in one pass, then the two products that are needed."""
    matrix, _, before = _matrices(op)
    if before.elements == 0 or matrix.elements == 0:
        return ()
    rows, width = before.shape
    shares = shares_of(rows, width, gpu.sms)
    need_x, need_weight, need_bias = (op.arg(name) is True for name in ("need_x", "need_weight", "need_bias"))
    kernels = [slope(before, shares, flops=1 if op.arg("kind") == RELU else 8, biased=need_bias)]
    if need_bias:
        kernels.append(summed(before, shares, width))
    if need_x:
        kernels += inner(op, gpu, "aten::mm", matrix, self=before, mat2=op.tensor("weight"))
    if need_weight:
        over = viewed(before, (width, rows), (1, width))
        weight = temporary(op.tensor("weight").shape, before.dtype, before.device, 3)
        kernels += inner(op, gpu, "aten::mm", weight, self=over, mat2=matrix)
    return tuple(kernels)
