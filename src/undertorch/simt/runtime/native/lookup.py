"""Where an address lies, when it does not lie where the same instruction's last one did; and faults."""


def settle(
    ctx: Context,
    warp: Warp,
    site: Site,
    number: i32,
    each: P[i64],
    mask: i32,
    size: i32,
    space: i32,
    writes: i32,
    level: i32,
) -> i1:
    """Whether every active lane's `size` bytes are aligned and lie in what it may touch; notes the fault where not.

    With events it writes those of the access: here lanes of one generic access may reach several spaces.
    """
    outside = 0
    crooked = 0
    shared = 0
    local = 0
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        one = left & ~(left - 1)
        left = left & (left - 1)
        at = each[lane]
        if (at & widen(i64, size - 1)) != 0:
            crooked = crooked | one
        kind = find(ctx, warp, site, at, lane, size, space, writes)
        if kind == NOWHERE:
            outside = outside | one
        if kind == SHARED:
            shared = shared | one
        if kind == LOCAL:
            local = local | one
    if (outside | crooked) != 0:
        if space == HOST:
            if crooked != 0:
                outside = 0
        return blame(ctx, warp, number, each, space, outside, crooked)
    if level > 1:
        note_part(ctx, warp, number, each, mask & ~(shared | local), size, HOST)
        note_part(ctx, warp, number, each, shared, size, SHARED)
        note_part(ctx, warp, number, each, local, size, LOCAL)
    return 1


def find(ctx: Context, warp: Warp, site: Site, at: i64, lane: i32, size: i32, space: i32, writes: i32) -> i32:
    """The space that one lane's bytes lie in: HOST for one of the launch's buffers, NOWHERE for none.

    The site keeps the buffer. An address of one space is looked for there alone; a host address may be generic.
    """
    bytes = widen(i64, size)
    if space == HOST:
        if (at - site.base) < site.bytes:
            return HOST
        buffers = pointer(Buffer, ctx.buffers)
        for n in range(ctx.buffer_count):
            buffer = buffers + n
            if buffer.bytes >= bytes:
                if (at - buffer.base) <= buffer.bytes - bytes:
                    if (writes == 0) or ((buffer.flags & READ_ONLY) == 0):
                        site.base = buffer.base
                        site.bytes = buffer.bytes - bytes + 1
                        site.delta = buffer.virtual - buffer.base
                        return HOST
    block = pointer(Block, warp.block)
    if space != LOCAL:
        if ctx.shared_bytes >= size:
            if (at - block.shared) <= widen(i64, ctx.shared_bytes - size):
                return SHARED
    if space != SHARED:
        if ctx.local_bytes >= size:
            own = warp.local + widen(i64, lane * ctx.local_bytes)
            if (at - own) <= widen(i64, ctx.local_bytes - size):
                return LOCAL
    return NOWHERE


def blame(ctx: Context, warp: Warp, number: i32, each: P[i64], space: i32, outside: i32, crooked: i32) -> i1:
    """Notes who did what."""
    bad = outside
    ctx.fault = 1
    if outside == 0:
        bad = crooked
        ctx.fault = 2
    lane = trailing_zeros(bad)
    ctx.fault_lane = lane
    ctx.fault_site = number
    ctx.fault_warp = warp.index
    ctx.fault_address = each[lane]
    if space == SHARED:
        block = pointer(Block, warp.block)
        ctx.fault_address = each[lane] - block.shared
    if space == LOCAL:
        ctx.fault_address = each[lane] - warp.local - widen(i64, lane * ctx.local_bytes)
    return 0


def note_part(ctx: Context, warp: Warp, number: i32, each: P[i64], mask: i32, size: i32, space: i32) -> None:
    """The event of those lanes of an access that reach one space."""
    if mask == 0:
        return
    event = row(ctx, warp, number, ACCESS, mask)
    event.space = space
    event.bytes = size
    place = load(V[i64], each)
    if space == SHARED:
        block = pointer(Block, warp.block)
        place = place - splat(block.shared) + splat(widen(i64, block.rank) << 24)
    if space == LOCAL:
        place = place - splat(warp.local)
    store(event.addresses, place)
