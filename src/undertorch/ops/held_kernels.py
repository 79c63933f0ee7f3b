"""Kernels of norms and softmax whose rows lie in shared memory, in Gluon, the language under Triton's, where shared
memory is asked for by name.

A row is copied there without passing through registers, in tiles, and read from there as often as its sums need. As
soon as a tile has been read for the last time one of the block's next row is on its way to its place: memory has always
something to do, and a block needs little more room than for one row. All tiles are whole, and begin at multiples of 16
bytes (cp.async).

A tile's offset is added to an address last: constants of instructions take no registers, and there are none to spare.
"""

# ruff: noqa: PLR0915, RUF005  # a kernel is one function; Triton's language has no stars
# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

LOG2E: gl.constexpr = gl.constexpr(1.4426950408889634)
LOWEST: gl.constexpr = gl.constexpr(-3.4028234663852886e38)
"""The lowest float32: a largest element to begin with, from which -inf can be told."""


@gluon.jit
def _sums(a, b, other_a, other_b):
    return a + other_a, b + other_b


@gluon.jit
def _two_tiles(one_held, other_held, one, other, column, t: gl.constexpr):
    """Sends a tile of each on its way."""
    async_copy.async_copy_global_to_shared(one_held.index(t), one + column)
    async_copy.async_copy_global_to_shared(other_held.index(t), other + column)


@gluon.jit
def _slot(first, t: gl.constexpr, TILES: gl.constexpr, SLOTS: gl.constexpr):
    """Where a row's tile lies, whose first one lies in slot `first` of the ring."""
    if SLOTS == TILES:
        return t
    return (first + t) % SLOTS


@gluon.jit
def held_norm_backward(
    dy, dtotal, x, weight, mean, rstd, dx, sums,
    rows, dy_stride, dtotal_stride, x_stride, width,
    CENTRED: gl.constexpr, TOTAL: gl.constexpr, WEIGHT: gl.constexpr, NEED_WEIGHT: gl.constexpr,
    NEED_BIAS: gl.constexpr, TILE: gl.constexpr, TILES: gl.constexpr, SLOTS: gl.constexpr, VECTOR: gl.constexpr,
):  # fmt: skip
    """As norm_backward (norm_kernels.py), whose formula it has: the sums for weight and bias stay in registers, for
    which rows leave them. The weight lies in shared memory too. SLOTS: tiles of rows that are there, or on their way:
    what is more than a row's arrives while that is reduced.
    """
    layout: gl.constexpr = gl.BlockedLayout([VECTOR], [32], [gl.num_warps()], [0])
    slots: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    held_dy = gl.allocate_shared_memory(dy.dtype.element_ty, [SLOTS, TILE], slots)
    held_x = gl.allocate_shared_memory(x.dtype.element_ty, [SLOTS, TILE], slots)
    if TOTAL:
        held_total = gl.allocate_shared_memory(dtotal.dtype.element_ty, [SLOTS, TILE], slots)
    lane = gl.arange(0, TILE, layout)
    block, step = gl.program_id(0), gl.num_programs(0)
    if WEIGHT:
        held_weight = gl.allocate_shared_memory(weight.dtype.element_ty, [TILES, TILE], slots)
        for t in gl.static_range(TILES):
            async_copy.async_copy_global_to_shared(held_weight.index(t), weight + lane + t * TILE)
    to_weight = ()
    to_bias = ()
    for _ in gl.static_range(TILES):
        to_weight = to_weight + (gl.zeros([TILE], gl.float32, layout),)
        to_bias = to_bias + (gl.zeros([TILE], gl.float32, layout),)
    for n in gl.static_range(SLOTS):
        place = block + n // TILES * step
        column = n % TILES * TILE
        if place < rows:
            at = gl.cast(place, gl.int64)
            async_copy.async_copy_global_to_shared(held_dy.index(n), dy + at * dy_stride + lane + column)
            async_copy.async_copy_global_to_shared(held_x.index(n), x + at * x_stride + lane + column)
            if TOTAL:
                source = dtotal + at * dtotal_stride + lane + column
                async_copy.async_copy_global_to_shared(held_total.index(n), source)
        async_copy.commit_group()
    first = 0
    dy_step, x_step = gl.cast(step, gl.int64) * dy_stride, gl.cast(step, gl.int64) * x_stride
    for place in range(block, rows, step):
        row = gl.cast(place, gl.int64)
        scale = gl.load(rstd + row)
        middle = 0.0
        if CENTRED:
            middle = gl.load(mean + row)
        along = gl.zeros([TILE], gl.float32, layout)
        all_g = gl.zeros([TILE], gl.float32, layout)
        for t in gl.static_range(TILES):
            async_copy.wait_group(SLOTS - 1 - t)
            slot = _slot(first, t, TILES, SLOTS)
            g = held_dy.index(slot).load(layout).to(gl.float32)
            if WEIGHT:
                g *= held_weight.index(t).load(layout).to(gl.float32)
            along += g * (held_x.index(slot).load(layout).to(gl.float32) - middle)
            if CENTRED:
                all_g += g
        g_row = 0.0
        if CENTRED:
            along_row, g_row = gl.reduce((along, all_g), 0, _sums)
            g_row = g_row / width
        else:
            along_row = gl.sum(along, axis=0)
        along_row = along_row * scale / width
        ahead = gl.cast(place + SLOTS // TILES * step, gl.int64)
        next_dy, next_x = dy + ahead * dy_stride + lane, x + ahead * x_stride + lane
        weights_now = ()
        biases_now = ()
        for t in gl.static_range(TILES):
            slot = _slot(first, t, TILES, SLOTS)
            given = held_dy.index(slot).load(layout).to(gl.float32)
            value = held_x.index(slot).load(layout)
            normal = (value.to(gl.float32) - middle) * scale
            g = given
            if WEIGHT:
                g *= held_weight.index(t).load(layout).to(gl.float32)
            result = g - normal * along_row
            if CENTRED:
                result -= g_row
            result *= scale
            if TOTAL:
                result += held_total.index(slot).load(layout).to(gl.float32)
            gl.store(dx + row * width + lane + t * TILE, result.to(dx.dtype.element_ty))
            if NEED_WEIGHT:
                weights_now = weights_now + (to_weight[t] + given * normal,)
            if NEED_BIAS:
                biases_now = biases_now + (to_bias[t] + given,)
            if place + (t + SLOTS) // TILES * step < rows:
                if t > 0 and (t + SLOTS) % TILES == 0:  # from here on of the row after
                    next_dy += dy_step
                    next_x += x_step
                async_copy.async_copy_global_to_shared(held_dy.index(slot), next_dy + (t + SLOTS) % TILES * TILE)
                async_copy.async_copy_global_to_shared(held_x.index(slot), next_x + (t + SLOTS) % TILES * TILE)
                if TOTAL:
                    at = gl.cast(place + (t + SLOTS) // TILES * step, gl.int64)
                    source = dtotal + at * dtotal_stride + lane + (t + SLOTS) % TILES * TILE
                    async_copy.async_copy_global_to_shared(held_total.index(slot), source)
            async_copy.commit_group()
        if NEED_WEIGHT:
            to_weight = weights_now
        if NEED_BIAS:
            to_bias = biases_now
        if SLOTS != TILES:
            first = (first + TILES) % SLOTS
    share = gl.cast(block, gl.int64)
    for t in gl.static_range(TILES):
        if NEED_WEIGHT:
            gl.store(sums + share * width + lane + t * TILE, to_weight[t])
        if NEED_BIAS:
            # After all blocks' sums for the weight.
            offset = (share + gl.num_programs(0) * NEED_WEIGHT) * width
            gl.store(sums + offset + lane + t * TILE, to_bias[t])


@gluon.jit
def held_softmax_forward(
    x, y, rows, x_stride, width, TILE: gl.constexpr, SLOTS: gl.constexpr, VECTOR: gl.constexpr
):  # fmt: skip
    """A block takes a row at a time, in strides of the grid, in SLOTS tiles.

    Each thread finds the largest of its elements and their sum online (Milakov and Gimelshein, 2018), a vector at a
    time, so that there are 2 1/8 exponentials for an element of a half type and not 3.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, VECTOR], [32, 1], [gl.num_warps(), 1], [1, 0])
    slots: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    lines: gl.constexpr = gl.SliceLayout(1, layout)
    held = gl.allocate_shared_memory(x.dtype.element_ty, [SLOTS, TILE // VECTOR, VECTOR], slots)
    line = gl.arange(0, TILE // VECTOR, lines)
    lane = line[:, None] * VECTOR + gl.arange(0, VECTOR, gl.SliceLayout(0, layout))[None, :]
    block, step = gl.program_id(0), gl.num_programs(0)
    source = x + gl.cast(block, gl.int64) * x_stride
    for t in gl.static_range(SLOTS):
        async_copy.async_copy_global_to_shared(held.index(t), source + lane + t * TILE)
        async_copy.commit_group()
    for place in range(block, rows, step):
        row = gl.cast(place, gl.int64)
        tops = gl.full([TILE // VECTOR], LOWEST, gl.float32, lines)
        sums = gl.zeros([TILE // VECTOR], gl.float32, lines)
        for t in gl.static_range(SLOTS):
            async_copy.wait_group(SLOTS - 1 - t)
            value = held.index(t).load(layout).to(gl.float32)
            higher = gl.maximum(tops, gl.max(value, axis=1))
            powers = gl.exp2((value - higher[:, None]) * LOG2E)
            sums = sums * gl.exp2((tops - higher) * LOG2E) + gl.sum(powers, axis=1)
            tops = higher
        top = gl.max(tops, axis=0)
        # A row without anything above -inf has the sum 0.
        scale = 1.0 / gl.sum(sums * gl.exp2((tops - top) * LOG2E), axis=0)
        later = place + step
        after = x + gl.cast(later, gl.int64) * x_stride + lane
        for t in gl.static_range(SLOTS):
            value = held.index(t).load(layout).to(gl.float32)
            if later < rows:
                async_copy.async_copy_global_to_shared(held.index(t), after + t * TILE)
            async_copy.commit_group()
            power = gl.exp2((value - top) * LOG2E) * scale
            gl.store(y + row * width + lane + t * TILE, power.to(y.dtype.element_ty))


@gluon.jit
def held_softmax_backward(
    dy, y, dx, rows, dy_stride, y_stride, width,
    TILE: gl.constexpr, SLOTS: gl.constexpr, KEPT: gl.constexpr, AGAIN: gl.constexpr, VECTOR: gl.constexpr,
):  # fmt: skip
    """As held_softmax_forward, of both a row's result and its gradient; what is more than shared memory and registers
    hold, AGAIN tiles of each, is read twice, from L2 the second time.
    """
    layout: gl.constexpr = gl.BlockedLayout([VECTOR], [32], [gl.num_warps()], [0])
    slots: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    held_dy = gl.allocate_shared_memory(dy.dtype.element_ty, [SLOTS, TILE], slots)
    held_y = gl.allocate_shared_memory(y.dtype.element_ty, [SLOTS, TILE], slots)
    lane = gl.arange(0, TILE, layout)
    block, step = gl.program_id(0), gl.num_programs(0)
    given_row = dy + gl.cast(block, gl.int64) * dy_stride + lane
    row_of_y = y + gl.cast(block, gl.int64) * y_stride + lane
    for t in gl.static_range(SLOTS):
        _two_tiles(held_dy, held_y, given_row, row_of_y, t * TILE, t)
        async_copy.commit_group()
    kept_dy = ()
    kept_y = ()
    for t in gl.static_range(SLOTS, SLOTS + KEPT):
        kept_dy = kept_dy + (gl.load(given_row + t * TILE),)
        kept_y = kept_y + (gl.load(row_of_y + t * TILE),)
    for place in range(block, rows, step):
        row = gl.cast(place, gl.int64)
        given_row, row_of_y = dy + row * dy_stride + lane, y + row * y_stride + lane
        sums = gl.zeros([TILE], gl.float32, layout)
        for t in gl.static_range(max(SLOTS, AGAIN)):
            if t < AGAIN:  # on its way while a tile of shared memory is worked on
                column = (SLOTS + KEPT + t) * TILE
                far_dy = gl.load(given_row + column, eviction_policy="evict_last")
                far_y = gl.load(row_of_y + column, eviction_policy="evict_last")
            if t < SLOTS:
                async_copy.wait_group(SLOTS - 1 - t)
                sums += held_dy.index(t).load(layout).to(gl.float32) * held_y.index(t).load(layout).to(gl.float32)
            if t < AGAIN:
                sums += far_dy.to(gl.float32) * far_y.to(gl.float32)
        for t in gl.static_range(KEPT):
            sums += kept_dy[t].to(gl.float32) * kept_y[t].to(gl.float32)
        along = gl.sum(sums, axis=0)
        later = place + step
        after = gl.cast(gl.minimum(later, rows - 1), gl.int64)
        target = dx + row * width + lane
        after_dy, after_y = dy + after * dy_stride + lane, y + after * y_stride + lane
        next_dy = ()
        next_y = ()
        for t in gl.static_range(KEPT):
            value = kept_y[t].to(gl.float32)
            result = value * (kept_dy[t].to(gl.float32) - along)
            column = (SLOTS + t) * TILE
            next_dy = next_dy + (gl.load(after_dy + column),)
            next_y = next_y + (gl.load(after_y + column),)
            gl.store(target + column, result.to(dx.dtype.element_ty))
        kept_dy = next_dy
        kept_y = next_y
        for t in gl.static_range(max(SLOTS, AGAIN)):
            if t < AGAIN:
                far = (SLOTS + KEPT + t) * TILE
                far_dy = gl.load(given_row + far, eviction_policy="evict_first")
                far_y = gl.load(row_of_y + far, eviction_policy="evict_first")
            if t < SLOTS:
                value = held_y.index(t).load(layout)
                given = held_dy.index(t).load(layout)
                column = t * TILE
                if later < rows:
                    _two_tiles(held_dy, held_y, after_dy, after_y, column, t)
                async_copy.commit_group()
                result = value.to(gl.float32) * (given.to(gl.float32) - along)
                gl.store(target + column, result.to(dx.dtype.element_ty))
            if t < AGAIN:
                result = far_y.to(gl.float32) * (far_dy.to(gl.float32) - along)
                gl.store(target + far, result.to(dx.dtype.element_ty))
