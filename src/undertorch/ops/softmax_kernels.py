"""Triton kernels of softmax over the rows of a matrix, forward and backward. All arithmetic is float32.

A row that fits into a block's registers is read once. Wider ones are read again, from the end, which the caches have:
each lane finds the largest of its elements and their sum online (Milakov and Gimelshein, 2018), piece by piece.
"""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
LOWEST: tl.constexpr = tl.constexpr(-3.4028234663852886e38)
"""The lowest float32: a largest element to begin with, from which -inf can be told."""


@triton.jit
def softmax_forward(
    x, y, rows, x_stride, width, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """A block takes ROWS whole rows at a time, in strides of the grid. STAGES: rows in flight through shared memory.

    A row without anything above -inf is nan, as torch's: -inf - -inf.
    """
    column = tl.arange(0, BLOCK)
    in_width = column < width
    first, step = tl.program_id(0).to(tl.int64) * ROWS, tl.num_programs(0).to(tl.int64) * ROWS
    for begin in tl.range(first, rows, step, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & in_width[None, :]
        value = tl.load(x + row[:, None] * x_stride + column[None, :], mask=inside, other=-float("inf")).to(tl.float32)
        power = tl.exp2((value - tl.max(value, axis=1)[:, None]) * LOG2E)
        power *= (1.0 / tl.sum(power, axis=1))[:, None]
        tl.store(y + row[:, None] * width + column[None, :], power.to(y.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward(
    dy, y, dx, rows, dy_stride, y_stride, width, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """dx = y * (dy - sum(dy * y)), cut as the forward is."""
    column = tl.arange(0, BLOCK)
    in_width = column < width
    first, step = tl.program_id(0).to(tl.int64) * ROWS, tl.num_programs(0).to(tl.int64) * ROWS
    for begin in tl.range(first, rows, step, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & in_width[None, :]
        given = tl.load(dy + row[:, None] * dy_stride + column[None, :], mask=inside, other=0.0)
        value = tl.load(y + row[:, None] * y_stride + column[None, :], mask=inside, other=0.0)
        along = tl.sum(given.to(tl.float32) * value.to(tl.float32), axis=1)
        result = value.to(tl.float32) * (given.to(tl.float32) - along[:, None])
        tl.store(dx + row[:, None] * width + column[None, :], result.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def wide_softmax_forward(x, y, rows, x_stride, width, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    """A block takes a row at a time, in strides of the grid, piece by piece, and reads it again from the end.

    The largest element is that of the vectors of 16 bytes that a thread loads, so that there is one exponential more
    for each of those, and not for each element.
    """
    last = (tl.cdiv(width, BLOCK) - 1) * BLOCK
    lane = tl.arange(0, BLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    for place in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(place, tl.int64)
        # Of each vector's place: the largest so far, and the sum for that.
        tops = tl.full((BLOCK // VECTOR,), LOWEST, tl.float32)
        sums = tl.zeros((BLOCK // VECTOR,), tl.float32)
        for begin in range(0, width, BLOCK):
            column = begin + lane
            value = tl.load(
                x + row * x_stride + column, mask=column < width, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            higher = tl.maximum(tops, tl.max(value, axis=1))
            powers = tl.exp2((value - higher[:, None]) * LOG2E)
            sums = sums * tl.exp2((tops - higher) * LOG2E) + tl.sum(powers, axis=1)
            tops = higher
        top = tl.max(tops, axis=0)
        # A row without anything above -inf has the sum 0.
        scale = 1.0 / tl.sum(sums * tl.exp2((tops - top) * LOG2E), axis=0)
        for back in range(0, width, BLOCK):
            column = last - back + lane
            inside = column < width
            value = tl.load(
                x + row * x_stride + column, mask=inside, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            power = tl.exp2((value - top) * LOG2E) * scale
            tl.store(y + row * width + column, power.to(y.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def wide_softmax_backward(dy, y, dx, rows, dy_stride, y_stride, width, BLOCK: tl.constexpr):
    """As wide_softmax_forward."""
    last = (tl.cdiv(width, BLOCK) - 1) * BLOCK
    for place in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(place, tl.int64)
        sums = tl.zeros((BLOCK,), tl.float32)
        for begin in range(0, width, BLOCK):
            column = begin + tl.arange(0, BLOCK)
            inside = column < width
            given = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0, eviction_policy="evict_last")
            value = tl.load(y + row * y_stride + column, mask=inside, other=0.0, eviction_policy="evict_last")
            sums += given.to(tl.float32) * value.to(tl.float32)
        along = tl.sum(sums, axis=0)
        for back in range(0, width, BLOCK):
            column = last - back + tl.arange(0, BLOCK)
            inside = column < width
            given = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0, eviction_policy="evict_first")
            value = tl.load(y + row * y_stride + column, mask=inside, other=0.0, eviction_policy="evict_first")
            result = value.to(tl.float32) * (given.to(tl.float32) - along)
            tl.store(
                dx + row * width + column, result.to(dx.dtype.element_ty), mask=inside, eviction_policy="evict_first"
            )
