"""Atomics: lane by lane, each as one atomic operation of the host, so that host threads may share a launch.

Constants: OP (LLVM's name of the operation, or one of those below), M the memory's type, A the address register's.
"""


def atomics(
    ctx: Context, warp: Warp, number: i32, addresses: P[A], offset: i64, mask: i32, out: P[M], a: P[M], b: P[M]
) -> i32:
    """atom and red (`out` is then scratch). `b` is the new value of cas."""
    if mask == 0:
        return GO_ON
    site = pointer(Site, ctx.sites) + number
    where = locate(ctx, warp, addresses, offset)
    common = (within(ctx, warp, site, where) | ~mask) == FULL
    if not common:
        if not rare(ctx, warp, site, number, where, mask):
            return FAULT
    if LEVEL > 1:
        if common:
            note(ctx, warp, number, where, mask)
    each = array(i64, 32)
    store(each, where)
    if LEVEL > 0:
        count(ctx, warp, site, where, each[trailing_zeros(mask)], mask)
    left = mask
    exchanged = 0
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        at = pointer(M, each[lane])
        value = a[lane]
        if KIND == 0:
            out[lane] = atomic(OP, at, value)
        if KIND == 1:
            old = compare_exchange(at, value, b[lane])
            out[lane] = old
            if LEVEL > 1:
                exchanged = exchanged | (select(old == value, widen(i32, 1), widen(i32, 0)) << lane)
        if KIND == 2:
            out[lane] = as_bits(M, atomic(OP, at, as_bits(F, value)))
        if KIND == 3:
            out[lane] = step_once(at, value)
        if KIND == 4:
            out[lane] = add_halves(at, value)
        if KIND == 5:
            block = pointer(Block, warp.block)
            if (each[lane] - block.shared) < widen(i64, ctx.shared_bytes):
                out[lane] = as_bits(M, atomic(OP, at, as_bits(F, value)))
            else:
                out[lane] = add_flushed(at, value)
    if (LEVEL > 1) and (KIND == 1):
        event = pointer(Event, ctx.events) + (ctx.event_count - 1)
        event.count = exchanged
    return GO_ON


def add_flushed(at: P[M], value: M) -> M:
    """add of float32 in global memory, which makes subnormal operands and results zeros (PTX ISA, atom)."""
    while 1:
        old = load(M, at)
        new = flushed(as_bits(i32, as_bits(f32, flushed(old)) + as_bits(f32, flushed(value))))
        if compare_exchange(at, old, new) == old:
            return old
    return value


def flushed(x: i32) -> i32:
    """A float32's bits; a subnormal as zero of its sign."""
    return select((x & 0x7F800000) == 0, x & 0x80000000, x)


def add_halves(at: P[M], value: M) -> M:
    """add of float16 and bfloat16, one or two in a word: it exchanges until nobody came between."""
    while 1:
        old = load(M, at)
        new = widen(M, sum_of_halves(narrow(i16, old), narrow(i16, value)))
        if BYTES == 4:
            upper = sum_of_halves(narrow(i16, old >> 16), narrow(i16, value >> 16))
            new = new | (widen(M, upper) << 16)
        if compare_exchange(at, old, new) == old:
            return old
    return value


def sum_of_halves(x: i16, y: i16) -> i16:
    """F: half, or f32 for bfloat16, which is its upper half and is rounded to nearest even by an addition."""
    if F == "half":
        return as_bits(i16, as_bits(half, x) + as_bits(half, y))
    if F == "f32":
        total = as_bits(i32, as_bits(f32, widen(i32, x) << 16) + as_bits(f32, widen(i32, y) << 16))
        if (total & 0x7FFFFFFF) > 0x7F800000:
            return narrow(i16, 0x7FFF)
        return narrow(i16, (total + 0x7FFF + ((total >> 16) & 1)) >> 16)


def step_once(at: P[M], bound: M) -> M:
    """inc and dec, which wrap at the operand. UP tells which."""
    while 1:
        old = load(M, at)
        new = old
        if UP:
            new = select(old >= bound, old ^ old, old + 1)
        else:
            new = select((old == 0) | (old > bound), bound, old - 1)
        if compare_exchange(at, old, new) == old:
            return old
    return bound
