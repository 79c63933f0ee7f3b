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
    if not inside(ctx, warp, site, number, where, mask):
        return FAULT
    if LEVEL > 1:
        note(ctx, warp, number, where, mask)
    each = array(i64, 32)
    store(each, where)
    if LEVEL > 0:
        count(ctx, warp, site, where, each[trailing_zeros(mask)], mask)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        at = pointer(M, each[lane])
        value = a[lane]
        if KIND == 0:
            out[lane] = atomic(OP, at, value)
        if KIND == 1:
            out[lane] = compare_exchange(at, value, b[lane])
        if KIND == 2:
            out[lane] = as_bits(M, atomic(OP, at, as_bits(F, value)))
        if KIND == 3:
            out[lane] = step_once(at, value)
    return GO_ON


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
