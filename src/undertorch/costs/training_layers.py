"""Kernels of the layers of undertorch's training (train/products.py, train/gradients.py)."""

from dataclasses import replace

from undertorch.costs.building import ceil_div, inner, temporary
from undertorch.costs.linear_act import STRIP_COLUMNS, STRIP_WARPS, activation, shares_of, slope, summed
from undertorch.costs.registry import cost, other_ways
from undertorch.costs.training_ops import FLOAT32, own_kernel
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

SUMMED_ROWS, SUM_WARPS = 32, 8
"""Of the sums of columns: rows of a block at a time, and its warps."""

ADDED_FEW, ADDED_ROWS = 2, 16
"""Of an embedding's gradient: rows of a token that a block adds first, and at a time if there are more."""


def added_warps(width: int) -> int:
    """Of a block that has whole rows."""
    return min(max(1 << (width - 1).bit_length(), 256) // 256, 8)


def head_blocks(queries: int, keys: int, size: int) -> tuple[int, int]:
    """Heads of a block that joins them, and how many blocks have all heads of q, k and v."""
    at_once = max(STRIP_COLUMNS // size, 1)
    return at_once, ceil_div(queries, at_once) + 2 * ceil_div(keys, at_once)


@cost("undertorch::product")
def product(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """As torch's matmul."""
    first, second, bias = op.tensor("first"), op.tensor("second"), op.tensors("bias")
    result = temporary((first.shape[0], second.shape[1]), first.dtype, first.device, 1)
    if bias:
        return inner(op, gpu, "aten::addmm", result, self=bias[0], mat1=first, mat2=second, beta=1, alpha=1)
    return inner(op, gpu, "aten::mm", result, self=first, mat2=second)


@cost("undertorch::gelu_product")
def gelu_product(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The product with its bias, which writes what goes into the GELU beside what comes out of it (cuBLASLt)."""
    made, result = _biased(op, gpu)
    if not made:
        return ()
    *before, last = made
    assert last.min_bytes_written is not None
    return *before, replace(last, min_bytes_written=last.min_bytes_written + result.bytes)


@other_ways("undertorch::gelu_product")
def gelu_product_apart(op: Op, gpu: Gpu) -> tuple[tuple[Kernel, ...], ...]:
    """torch's product, then the activation."""
    made, result = _biased(op, gpu)
    return ((*made, activation(result)),)


def _biased(op: Op, gpu: Gpu) -> tuple[tuple[Kernel, ...], TensorRef]:
    first, second, bias = op.tensor("first"), op.tensor("second"), op.tensor("bias")
    result = temporary((first.shape[0], second.shape[1]), first.dtype, first.device, 1)
    return inner(op, gpu, "aten::addmm", result, self=bias, mat1=first, mat2=second, beta=1, alpha=1), result


@cost("undertorch::gelu_gradient")
def gelu_gradient(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The slope and the bias's gradient in one pass, as of ops.linear_act."""
    before = op.tensor("before")
    if before.elements == 0:
        return ()
    rows, width = before.shape
    shares = shares_of(rows, width, gpu.sms)
    return slope(before, shares, flops=8, biased=True), summed(before, shares, width)


@cost("undertorch::column_sums")
def column_sums(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Strips of rows side by side, then the strips."""
    x = op.tensor("rows")
    rows, width = x.shape
    if x.elements == 0:
        return ()
    shares = shares_of(rows, width, gpu.sms)
    strips = own_kernel(
        "column_strips",
        Kind.REDUCTION,
        (ceil_div(width, STRIP_COLUMNS), shares, 1),
        SUM_WARPS,
        read=x.bytes,
        written=shares * width * FLOAT32,
        flops=x.elements,
    )
    return strips, summed(x, shares, width)


@cost("undertorch::heads_joined")
def heads_joined(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """All three are read, and written beside each other; the columns' sums on the way."""
    q, k = op.tensor("dq"), op.tensor("dk")
    batch, queries, tokens, size = q.shape
    keys = k.shape[1]
    _, blocks = head_blocks(queries, keys, size)
    width, total = (queries + 2 * keys) * size, q.bytes + 2 * k.bytes
    if total == 0:
        return ()
    shares = shares_of(batch * tokens, blocks * STRIP_COLUMNS, gpu.sms)
    copied = own_kernel(
        "joined",
        Kind.COPY,
        (blocks, shares, 1),
        STRIP_WARPS,
        read=total,
        written=total + shares * width * FLOAT32,
        flops=batch * tokens * width,
    )
    return copied, summed(q, shares, width)


@cost("undertorch::rows_added")
def rows_added(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Every row is read once; of the table, with tokens unknown, as many rows as there can be are read and written."""
    table, rows, tokens, order = (op.tensor(name) for name in ("table", "rows", "tokens", "order"))
    if rows.elements == 0:
        return ()
    touched = min(table.bytes, rows.shape[0] * table.shape[1] * table.itemsize)
    return (
        own_kernel(
            "rows_added",
            Kind.EMBEDDING,
            rows.shape[0],
            added_warps(rows.shape[1]),
            read=rows.bytes + tokens.bytes + order.bytes + touched,
            written=touched,
            flops=rows.elements,
        ),
    )
