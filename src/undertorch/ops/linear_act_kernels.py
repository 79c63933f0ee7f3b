"""Triton kernels of a linear layer's activation, and of its gradient with the bias's in one pass. All arithmetic is
float32.
"""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl

from undertorch.ops.gated_kernels import activated


@triton.jit
def activate(before, y, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """A block takes a piece of what lies without gaps; y may be `before` itself."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value, _ = activated(tl.load(before + at, mask=inside, other=0.0).to(tl.float32), KIND)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def activate_backward(
    dy, before, dbefore, sums, rows, width, dy_stride,
    NEED_BIAS: tl.constexpr, KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A block takes some columns and every so-manieth ROWS rows, so that the bias's gradient is summed on the way."""
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    share = tl.program_id(1)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(share * ROWS, rows, tl.num_programs(1) * ROWS):
        row = (begin + tl.arange(0, ROWS)).to(tl.int64)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        given = tl.load(dy + row[:, None] * dy_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        value = tl.load(before + row[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
        _, slope = activated(value, KIND)
        result = (given * slope).to(dbefore.dtype.element_ty)
        tl.store(dbefore + row[:, None] * width + column[None, :], result, mask=inside)
        if NEED_BIAS:
            total += given * slope
    if NEED_BIAS:
        tl.store(sums + share.to(tl.int64) * width + column, tl.sum(total, axis=0), mask=column < width)
