"""Triton kernels of the four norms: RMS and layer norm, each alone or after an addition. Statistics are in float32.

A row that fits into them lives in registers and is read once, in tiles of a power of two: one where the width is such,
several where padding to the next would leave lanes idle. Wider rows are read again, from the end, which the caches
have.

The backward walks rows with a few blocks an SM, so that the gradients of weight and bias are summed in registers and
written once a block: `column_sums` adds those up in a fixed order, and the result is the same from run to run. Those
sums take registers for good, so that wide rows are read again there, too, and of still wider ones the gradients of
weight and bias have a kernel of their own.
"""

# ruff: noqa: PLR0915, RUF005  # a kernel is one function; Triton's language has no stars
# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def _mask(inside, column, width, WHOLE: tl.constexpr):
    """Of a tile of rows; WHOLE: tiles end where rows do."""
    mask = inside[:, None]
    if not WHOLE:
        mask = mask & (column < width)[None, :]
    return mask


@triton.jit
def _vector(source, column, width, ROWS: tl.constexpr, WHOLE: tl.constexpr):
    """A tile of a weight or bias, in the rows' layout: a vector's would have to be exchanged between threads."""
    every = tl.broadcast_to(column[None, :], (ROWS, column.shape[0]))
    if WHOLE:
        return tl.load(source + every).to(tl.float32)
    return tl.load(source + every, mask=every < width, other=0.0).to(tl.float32)


@triton.jit
def norm_forward(
    x, residual, weight, bias, y, total, mean, rstd,
    rows, x_stride, residual_stride, width, eps,
    CENTRED: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """A block takes ROWS rows, each whole, in TILES tiles."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_row = row < rows
    values = ()
    for t in tl.static_range(TILES):
        column = t * TILE + tl.arange(0, TILE)
        inside = _mask(in_row, column, width, WHOLE)
        value = tl.load(x + row[:, None] * x_stride + column[None, :], mask=inside, other=0.0)
        if RESIDUAL:
            added = tl.load(residual + row[:, None] * residual_stride + column[None, :], mask=inside, other=0.0)
            # The sum as the next layer will read it, rounded; the norm is that of the rounded sum.
            value = (value.to(tl.float32) + added.to(tl.float32)).to(total.dtype.element_ty)
            tl.store(total + row[:, None] * width + column[None, :], value, mask=inside)
        values = values + (value,)
    if CENTRED:
        sums = values[0].to(tl.float32)
        for t in tl.static_range(1, TILES):
            sums += values[t].to(tl.float32)
        middle = tl.sum(sums, axis=1) / width
        tl.store(mean + row, middle, mask=in_row)
    squares = tl.zeros((ROWS, TILE), tl.float32)
    for t in tl.static_range(TILES):
        value = values[t].to(tl.float32)
        if CENTRED:
            value -= middle[:, None]
            if not WHOLE:
                value = tl.where((t * TILE + tl.arange(0, TILE) < width)[None, :], value, 0.0)
        squares += value * value
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=1) / width + eps)
    tl.store(rstd + row, scale, mask=in_row)
    for t in tl.static_range(TILES):
        column = t * TILE + tl.arange(0, TILE)
        value = values[t].to(tl.float32)
        if CENTRED:
            value -= middle[:, None]
        value *= scale[:, None]
        if WEIGHT:
            value *= _vector(weight, column, width, ROWS, WHOLE)
        if BIAS:
            value += _vector(bias, column, width, ROWS, WHOLE)
        inside = _mask(in_row, column, width, WHOLE)
        tl.store(y + row[:, None] * width + column[None, :], value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def wide_norm_forward(
    x, residual, weight, bias, y, total, mean, rstd,
    rows, x_stride, residual_stride, width, eps,
    CENTRED: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    BLOCK: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """A block takes one row, piece by piece, and reads it again for the result: from the end, UNROLL pieces in a row of
    loads from the beginning.

    Each lane keeps the moments of its own elements (Welford, 1962), and those are joined as Chan, Golub and LeVeque do
    (1979): one exchange between threads a row, and a large mean is harmless.
    """
    row = tl.program_id(0).to(tl.int64)
    middles = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for begin in tl.range(0, width, BLOCK, loop_unroll_factor=UNROLL):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(x + row * x_stride + column, mask=inside, other=0.0, eviction_policy="evict_last")
        if RESIDUAL:
            added = tl.load(
                residual + row * residual_stride + column, mask=inside, other=0.0, eviction_policy="evict_first"
            )
            value = (value.to(tl.float32) + added.to(tl.float32)).to(total.dtype.element_ty)
            tl.store(total + row * width + column, value, mask=inside)
        value = value.to(tl.float32)
        if CENTRED:
            off = value - middles
            moved = middles + off * (1.0 / (begin // BLOCK + 1))
            squares += tl.where(inside, off * (value - moved), 0.0)
            middles = tl.where(inside, moved, middles)
        else:
            squares += value * value
    if CENTRED:
        counts = (width // BLOCK + (tl.arange(0, BLOCK) < width % BLOCK)).to(tl.float32)
        middle = tl.sum(middles * counts, axis=0) / width
        apart = middles - middle
        # What the division has rounded away, of a large mean more than all other errors together.
        rest = tl.sum(counts * apart, axis=0) / width
        apart -= rest
        squares += counts * apart * apart
        tl.store(mean + row, middle + rest)
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / width + eps)
    tl.store(rstd + row, scale)
    source = x + row * x_stride
    if RESIDUAL:
        source = total + row * width
        tl.debug_barrier()  # what other threads have stored
    last = (tl.cdiv(width, BLOCK) - 1) * BLOCK
    for back in tl.range(0, width, BLOCK, loop_unroll_factor=UNROLL):
        column = (last - back if UNROLL == 1 else back) + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(source + column, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        if CENTRED:
            value = value - middle - rest
        value *= scale
        if WEIGHT:
            value *= tl.load(weight + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        if BIAS:
            value += tl.load(bias + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        tl.store(y + row * width + column, value.to(y.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _tile(source, stride, row, inside, column, width, WHOLE: tl.constexpr, READ: tl.constexpr):
    """A tile of rows, as it is in memory. READ: 1, and will be again; 2, for the last time; 0, only once."""
    policy: tl.constexpr = "evict_last" if READ == 1 else ("evict_first" if READ == 2 else "")
    mask = _mask(inside, column, width, WHOLE)
    return tl.load(source + row[:, None] * stride + column[None, :], mask=mask, other=0.0, eviction_policy=policy)


@triton.jit
def _tiles(source, stride, row, inside, width, TILE: tl.constexpr, TILES: tl.constexpr, WHOLE: tl.constexpr):
    """All tiles of rows."""
    found = ()
    for t in tl.static_range(TILES):
        found = found + (_tile(source, stride, row, inside, t * TILE + tl.arange(0, TILE), width, WHOLE, 0),)
    return found


@triton.jit
def norm_backward(
    dy, dtotal, x, weight, mean, rstd, dx, sums,
    rows, dy_stride, dtotal_stride, x_stride, width,
    CENTRED: tl.constexpr, TOTAL: tl.constexpr, WEIGHT: tl.constexpr,
    NEED_X: tl.constexpr, NEED_WEIGHT: tl.constexpr, NEED_BIAS: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr, WHOLE: tl.constexpr,
    STAGES: tl.constexpr, AHEAD: tl.constexpr, KEEP: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """A block takes ROWS rows at a time, in strides of the grid.

    dx = rstd * (g - mean(g) - x̂ * mean(g * x̂)) with g = dy * weight and x̂ the normalised row (RMS: no mean(g)).
    AHEAD: the next rows are loaded into registers before these are computed, so that memory never waits for the
    reduction over a row. STAGES: the same through shared memory, by Triton's pipeliner.
    KEEP: the weight stays in registers. TWICE: rows do not, and are read again, from the end, which the caches have.
    """
    block, step = tl.program_id(0), tl.num_programs(0) * ROWS
    none, every = tl.zeros((1,), tl.int64), tl.full((1,), 1, tl.int1)
    if KEEP and WEIGHT:
        factors = _tiles(weight, 0, none, every, width, TILE, TILES, WHOLE)
    to_weight = ()
    to_bias = ()
    for _ in tl.static_range(TILES):
        to_weight = to_weight + (tl.zeros((ROWS, TILE), tl.float32),)
        to_bias = to_bias + (tl.zeros((ROWS, TILE), tl.float32),)
    if AHEAD:
        row = block * ROWS + tl.arange(0, ROWS)
        next_dy = _tiles(dy, dy_stride, row.to(tl.int64), row < rows, width, TILE, TILES, WHOLE)
        next_x = _tiles(x, x_stride, row.to(tl.int64), row < rows, width, TILE, TILES, WHOLE)
    for begin in tl.range(block * ROWS, rows, step, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)
        at, in_row = row.to(tl.int64), row < rows
        if AHEAD:
            given, value = next_dy, next_x
            later = row + step
            next_dy = _tiles(dy, dy_stride, later.to(tl.int64), later < rows, width, TILE, TILES, WHOLE)
            next_x = _tiles(x, x_stride, later.to(tl.int64), later < rows, width, TILE, TILES, WHOLE)
        elif not TWICE:
            given = _tiles(dy, dy_stride, at, in_row, width, TILE, TILES, WHOLE)
            value = _tiles(x, x_stride, at, in_row, width, TILE, TILES, WHOLE)
        if TOTAL and not TWICE:
            passed = _tiles(dtotal, dtotal_stride, at, in_row, width, TILE, TILES, WHOLE)
        if WEIGHT and not KEEP and not TWICE:
            factors = _tiles(weight, 0, none, every, width, TILE, TILES, WHOLE)
        scale = tl.load(rstd + row, mask=in_row, other=0.0)
        middle = tl.zeros((ROWS,), tl.float32)
        if CENTRED:
            middle = tl.load(mean + row, mask=in_row, other=0.0)
        if NEED_X:
            along = tl.zeros((ROWS, TILE), tl.float32)
            for t in tl.static_range(TILES):
                column = t * TILE + tl.arange(0, TILE)
                if TWICE:
                    g = _tile(dy, dy_stride, at, in_row, column, width, WHOLE, 1).to(tl.float32)
                    x_here = _tile(x, x_stride, at, in_row, column, width, WHOLE, 1)
                else:
                    g = given[t].to(tl.float32)
                    x_here = value[t]
                if WEIGHT:
                    if TWICE and not KEEP:
                        g *= _tile(weight, 0, none, every, column, width, WHOLE, 1).to(tl.float32)
                    else:
                        g *= factors[t].to(tl.float32)
                off = x_here.to(tl.float32) - middle[:, None]
                if TILES == 1:  # what follows has use for it
                    off *= scale[:, None]
                along += g * off
                if CENTRED and t == 0:
                    all_g = g
                elif CENTRED:
                    all_g += g
            along_row = tl.sum(along, axis=1) / width
            if TILES > 1:
                along_row *= scale
            if CENTRED:
                g_row = tl.sum(all_g, axis=1) / width
        weights_now = ()
        biases_now = ()
        for t in tl.static_range(TILES - 1, -1, -1):
            column = t * TILE + tl.arange(0, TILE)
            if TWICE:
                dy_here = _tile(dy, dy_stride, at, in_row, column, width, WHOLE, 2).to(tl.float32)
                x_here = _tile(x, x_stride, at, in_row, column, width, WHOLE, 2)
            else:
                dy_here = given[t].to(tl.float32)
                x_here = value[t]
            normal = (x_here.to(tl.float32) - middle[:, None]) * scale[:, None]
            if NEED_X:
                g = dy_here
                if WEIGHT:
                    if TWICE and not KEEP:
                        g = dy_here * _tile(weight, 0, none, every, column, width, WHOLE, 1).to(tl.float32)
                    else:
                        g = dy_here * factors[t].to(tl.float32)
                result = g - normal * along_row[:, None]
                if CENTRED:
                    result -= g_row[:, None]
                result *= scale[:, None]
                if TOTAL:
                    if TWICE:
                        result += _tile(dtotal, dtotal_stride, at, in_row, column, width, WHOLE, 0).to(tl.float32)
                    else:
                        result += passed[t].to(tl.float32)
                mask = _mask(in_row, column, width, WHOLE)
                tl.store(dx + at[:, None] * width + column[None, :], result.to(dx.dtype.element_ty), mask=mask)
            if NEED_WEIGHT:
                weights_now = (to_weight[t] + dy_here * normal,) + weights_now
            if NEED_BIAS:
                biases_now = (to_bias[t] + dy_here,) + biases_now
        if NEED_WEIGHT:
            to_weight = weights_now
        if NEED_BIAS:
            to_bias = biases_now
    for t in tl.static_range(TILES):
        column = t * TILE + tl.arange(0, TILE)
        if NEED_WEIGHT:
            tl.store(sums + block.to(tl.int64) * width + column, tl.sum(to_weight[t], axis=0), mask=column < width)
        if NEED_BIAS:
            # After all blocks' sums for the weight.
            offset = (block + tl.num_programs(0) * NEED_WEIGHT).to(tl.int64) * width
            tl.store(sums + offset + column, tl.sum(to_bias[t], axis=0), mask=column < width)


@triton.jit
def wide_norm_dx(
    dy, dtotal, x, weight, mean, rstd, dx,
    rows, dy_stride, dtotal_stride, x_stride, width,
    CENTRED: tl.constexpr, TOTAL: tl.constexpr, WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The input's gradient alone: a block takes a row at a time, in strides of the grid, piece by piece, and reads it
    again from the end.
    """
    last = (tl.cdiv(width, BLOCK) - 1) * BLOCK
    for place in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(place, tl.int64)
        scale = tl.load(rstd + row)
        middle = 0.0
        if CENTRED:
            middle = tl.load(mean + row)
        along = tl.zeros((BLOCK,), tl.float32)
        all_g = tl.zeros((BLOCK,), tl.float32)
        for begin in range(0, width, BLOCK):
            column = begin + tl.arange(0, BLOCK)
            inside = column < width
            g = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0, eviction_policy="evict_last").to(
                tl.float32
            )
            value = tl.load(x + row * x_stride + column, mask=inside, other=0.0, eviction_policy="evict_last")
            if WEIGHT:
                g *= tl.load(weight + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
            along += g * (value.to(tl.float32) - middle)
            if CENTRED:
                all_g += g
        along_row = tl.sum(along, axis=0) * scale / width
        g_row = 0.0
        if CENTRED:
            g_row = tl.sum(all_g, axis=0) / width
        for back in range(0, width, BLOCK):
            column = last - back + tl.arange(0, BLOCK)
            inside = column < width
            g = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0, eviction_policy="evict_first").to(
                tl.float32
            )
            value = tl.load(x + row * x_stride + column, mask=inside, other=0.0, eviction_policy="evict_first")
            if WEIGHT:
                g *= tl.load(weight + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
            result = (g - g_row - (value.to(tl.float32) - middle) * scale * along_row) * scale
            if TOTAL:
                result += tl.load(dtotal + row * dtotal_stride + column, mask=inside, other=0.0).to(tl.float32)
            tl.store(
                dx + row * width + column, result.to(dx.dtype.element_ty), mask=inside, eviction_policy="evict_first"
            )


@triton.jit
def wide_norm_dw(
    dy, x, mean, rstd, sums,
    rows, dy_stride, x_stride, width,
    CENTRED: tl.constexpr, NEED_WEIGHT: tl.constexpr, NEED_BIAS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradients of weight and bias alone: a block takes some columns, and ROWS rows at a time."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    share = tl.program_id(1)
    in_width = column < width
    to_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    to_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in tl.range(share * ROWS, rows, tl.num_programs(1) * ROWS, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)
        in_row = row < rows
        inside = in_row[:, None] & in_width[None, :]
        at = row.to(tl.int64)[:, None]
        given = tl.load(dy + at * dy_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        if NEED_WEIGHT:
            value = tl.load(x + at * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
            if CENTRED:
                value -= tl.load(mean + row, mask=in_row, other=0.0)[:, None]
            to_weight += given * (value * tl.load(rstd + row, mask=in_row, other=0.0)[:, None])
        if NEED_BIAS:
            to_bias += given
    if NEED_WEIGHT:
        tl.store(sums + share.to(tl.int64) * width + column, tl.sum(to_weight, axis=0), mask=in_width)
    if NEED_BIAS:
        offset = (share + tl.num_programs(1) * NEED_WEIGHT).to(tl.int64) * width
        tl.store(sums + offset + column, tl.sum(to_bias, axis=0), mask=in_width)


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
