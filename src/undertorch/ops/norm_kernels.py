"""Triton kernels of the four norms: RMS and layer norm, each alone or after an addition. Statistics are in float32.

A row that fits into them lives in registers and is read once. The backward walks rows with a few blocks an SM, so
that the gradients of weight and bias are summed in registers and written once a block: `column_sums` adds those up in a
fixed order, and the result is the same from run to run. Wider rows are read again, from L2.
"""

# ruff: noqa: PLR0915  # a kernel is one function
# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def norm_forward(
    x, residual, weight, bias, y, total, mean, rstd,
    rows, x_stride, residual_stride, width, eps,
    CENTRED: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block takes ROWS rows, each whole."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    in_row, in_width = row < rows, column < width
    inside = in_row[:, None] & in_width[None, :]
    value = tl.load(x + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        added = tl.load(residual + row[:, None] * residual_stride + column[None, :], mask=inside, other=0.0)
        # The sum as the next layer will read it, rounded; the norm is that of the rounded sum.
        rounded = (value + added.to(tl.float32)).to(total.dtype.element_ty)
        tl.store(total + row[:, None] * width + column[None, :], rounded, mask=inside)
        value = rounded.to(tl.float32)
    if CENTRED:
        middle = tl.sum(value, axis=1) / width
        value = tl.where(in_width[None, :], value - middle[:, None], 0.0)
        tl.store(mean + row, middle, mask=in_row)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / width + eps)
    tl.store(rstd + row, scale, mask=in_row)
    value *= scale[:, None]
    # Loaded in the rows' own layout: a vector's would have to be exchanged between threads for it.
    every = tl.broadcast_to(column[None, :], (ROWS, BLOCK))
    if WEIGHT:
        value *= tl.load(weight + every, mask=every < width, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + every, mask=every < width, other=0.0).to(tl.float32)
    tl.store(y + row[:, None] * width + column[None, :], value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _summed(x, residual, offset, residual_offset, column, width, total, RESIDUAL: tl.constexpr):
    """A piece of a row in float32, after the addition."""
    inside = column < width
    value = tl.load(x + offset + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if RESIDUAL:
        added = tl.load(residual + residual_offset + column, mask=inside, other=0.0, eviction_policy="evict_last")
        value = (value + added.to(tl.float32)).to(total.dtype.element_ty).to(tl.float32)
    return value


@triton.jit
def wide_norm_forward(
    x, residual, weight, bias, y, total, mean, rstd,
    rows, x_stride, residual_stride, width, eps,
    CENTRED: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block takes one row, piece by piece, and reads it again for the result.

    The moments of the pieces are joined as Chan, Golub and LeVeque do (1979), which keeps a large mean harmless.
    """
    row = tl.program_id(0).to(tl.int64)
    middle = 0.0
    squares = 0.0
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        value = _summed(x, residual, row * x_stride, row * residual_stride, column, width, total, RESIDUAL)
        if CENTRED:
            count = tl.minimum(width - begin, BLOCK).to(tl.float32)
            here = tl.sum(value, axis=0) / count
            off = tl.where(column < width, value - here, 0.0)
            apart = here - middle
            squares += tl.sum(off * off, axis=0) + apart * apart * (begin * (count / (begin + count)))
            middle += apart * (count / (begin + count))
        else:
            squares += tl.sum(value * value, axis=0)
    scale = 1.0 / tl.sqrt(squares / width + eps)
    tl.store(rstd + row, scale)
    if CENTRED:
        tl.store(mean + row, middle)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        value = _summed(x, residual, row * x_stride, row * residual_stride, column, width, total, RESIDUAL)
        if RESIDUAL:
            tl.store(total + row * width + column, value.to(total.dtype.element_ty), mask=inside)
        if CENTRED:
            value -= middle
        value *= scale
        if WEIGHT:
            value *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * width + column, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def norm_backward(
    dy, dtotal, x, weight, mean, rstd, dx, sums,
    rows, dy_stride, dtotal_stride, x_stride, width,
    CENTRED: tl.constexpr, TOTAL: tl.constexpr, WEIGHT: tl.constexpr,
    NEED_X: tl.constexpr, NEED_WEIGHT: tl.constexpr, NEED_BIAS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """A block takes ROWS rows at a time, in strides of the grid.

    dx = rstd * (g - mean(g) - x̂ * mean(g * x̂)) with g = dy * weight and x̂ the normalised row (RMS: no mean(g)).
    AHEAD: the next rows are loaded into registers before these are computed, so that memory never waits for the
    reduction over a row. STAGES: the same through shared memory, by Triton's pipeliner.
    """
    block = tl.program_id(0)
    step = tl.num_programs(0) * ROWS
    column = tl.arange(0, BLOCK)
    in_width = column < width
    if WEIGHT:
        factor = tl.load(weight + column, mask=in_width, other=0.0).to(tl.float32)[None, :]
    to_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    to_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    first = block * ROWS + tl.arange(0, ROWS)
    if AHEAD:
        at = first.to(tl.int64)[:, None]
        inside = (first < rows)[:, None] & in_width[None, :]
        next_dy = tl.load(dy + at * dy_stride + column[None, :], mask=inside, other=0.0)
        next_x = tl.load(x + at * x_stride + column[None, :], mask=inside, other=0.0)
        next_rstd = tl.load(rstd + first, mask=first < rows, other=0.0)
    for begin in tl.range(block * ROWS, rows, step, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None]
        inside = (row < rows)[:, None] & in_width[None, :]
        if AHEAD:
            given, value, scale = next_dy, next_x, next_rstd
            later = row + step
            there = later.to(tl.int64)[:, None]
            still = (later < rows)[:, None] & in_width[None, :]
            next_dy = tl.load(dy + there * dy_stride + column[None, :], mask=still, other=0.0)
            next_x = tl.load(x + there * x_stride + column[None, :], mask=still, other=0.0)
            next_rstd = tl.load(rstd + later, mask=later < rows, other=0.0)
        else:
            given = tl.load(dy + at * dy_stride + column[None, :], mask=inside, other=0.0)
            value = tl.load(x + at * x_stride + column[None, :], mask=inside, other=0.0)
            scale = tl.load(rstd + row, mask=row < rows, other=0.0)
        if TOTAL:
            passed = tl.load(dtotal + at * dtotal_stride + column[None, :], mask=inside, other=0.0)
        given = given.to(tl.float32)
        if CENTRED:
            middle = tl.load(mean + row, mask=row < rows, other=0.0)
            normal = tl.where(in_width[None, :], (value.to(tl.float32) - middle[:, None]) * scale[:, None], 0.0)
        else:
            normal = value.to(tl.float32) * scale[:, None]
        if NEED_X:
            g = given
            if WEIGHT:
                g = given * factor
            along = tl.sum(g * normal, axis=1) / width
            result = g - normal * along[:, None]
            if CENTRED:
                result -= (tl.sum(g, axis=1) / width)[:, None]
            result *= scale[:, None]
            if TOTAL:
                result += passed.to(tl.float32)
            tl.store(dx + at * width + column[None, :], result.to(dx.dtype.element_ty), mask=inside)
        if NEED_WEIGHT:
            to_weight += given * normal
        if NEED_BIAS:
            to_bias += given
    if NEED_WEIGHT:
        tl.store(sums + block.to(tl.int64) * width + column, tl.sum(to_weight, axis=0), mask=in_width)
    if NEED_BIAS:
        # After all blocks' sums for the weight.
        offset = (block + tl.num_programs(0) * NEED_WEIGHT).to(tl.int64) * width
        tl.store(sums + offset + column, tl.sum(to_bias, axis=0), mask=in_width)


@triton.jit
def wide_norm_dx(
    dy, dtotal, x, weight, mean, rstd, dx, sums,
    rows, dy_stride, dtotal_stride, x_stride, width,
    CENTRED: tl.constexpr, TOTAL: tl.constexpr, WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The input's gradient of rows that do not fit into registers: a block takes one, and reads it twice."""
    row = tl.program_id(0).to(tl.int64)
    scale = tl.load(rstd + row)
    middle = 0.0
    if CENTRED:
        middle = tl.load(mean + row)
    along = tl.zeros((BLOCK,), tl.float32)
    all_g = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        g = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        value = tl.load(x + row * x_stride + column, mask=inside, other=0.0, eviction_policy="evict_last")
        if WEIGHT:
            g *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        along += g * (value.to(tl.float32) - middle) * scale
        all_g += g
    along_mean = tl.sum(along, axis=0) / width
    g_mean = 0.0
    if CENTRED:
        g_mean = tl.sum(all_g, axis=0) / width
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        g = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            g *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        result = (g - g_mean - (value - middle) * scale * along_mean) * scale
        if TOTAL:
            result += tl.load(dtotal + row * dtotal_stride + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + row * width + column, result.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def wide_norm_dw(
    dy, dtotal, x, weight, mean, rstd, dx, sums,
    rows, dy_stride, dtotal_stride, x_stride, width,
    CENTRED: tl.constexpr, NEED_WEIGHT: tl.constexpr, NEED_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of weight and bias of such rows: a block takes some columns and every so-manieth row."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    share = tl.program_id(1)
    inside = column < width
    to_weight = tl.zeros((BLOCK,), tl.float32)
    to_bias = tl.zeros((BLOCK,), tl.float32)
    for row in range(share, rows, tl.num_programs(1)):
        at = tl.cast(row, tl.int64)
        given = tl.load(dy + at * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        if NEED_WEIGHT:
            value = tl.load(x + at * x_stride + column, mask=inside, other=0.0).to(tl.float32)
            if CENTRED:
                value -= tl.load(mean + row)
            to_weight += given * value * tl.load(rstd + row)
        if NEED_BIAS:
            to_bias += given
    if NEED_WEIGHT:
        tl.store(sums + share.to(tl.int64) * width + column, to_weight, mask=inside)
    if NEED_BIAS:
        offset = (share + tl.num_programs(1) * NEED_WEIGHT).to(tl.int64) * width
        tl.store(sums + offset + column, to_bias, mask=inside)


@triton.jit
def column_sums(sums, first, second, shares, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Adds up the blocks' shares: into `first`, and those that follow into `second`, where the grid has a second row.

    In a fixed order, without atomics.
    """
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    which = tl.program_id(1)
    inside = column < width
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, shares, ROWS):
        share = begin + tl.arange(0, ROWS)
        at = (which * shares + share).to(tl.int64)[:, None] * width + column[None, :]
        total += tl.load(sums + at, mask=(share < shares)[:, None] & inside[None, :], other=0.0)
    result = tl.sum(total, axis=0)
    if which == 0:
        tl.store(first + column, result.to(first.dtype.element_ty), mask=inside)
    else:
        tl.store(second + column, result.to(second.dtype.element_ty), mask=inside)
