"""Loads and stores of a warp. Every address is looked up among the launch's buffers before memory is touched.

What is common lies here; the rest is in lookup.py and tally.py, compiled once and called. Constants of a translation:
SPACE (HOST: global, const, param and generic addresses, which are the host's; SHARED: offsets into the block's; LOCAL:
offsets into the thread's), M the memory's integer type and BYTES its size, R the register's, SIGNED, COUNT (elements of
a vector access), A the address register's type, STORE, and LEVEL (0 nothing, 1 counters, 2 counters and events).
"""


def access(
    ctx: Context,
    warp: Warp,
    number: i32,
    addresses: P[A],
    offset: i64,
    mask: i32,
    r0: P[R],
    r1: P[R],
    r2: P[R],
    r3: P[R],
) -> i32:
    """One memory instruction of a warp; `r0` to `r3` are the register slots of its elements."""
    if mask == 0:
        return GO_ON
    site = pointer(Site, ctx.sites) + number
    first = trailing_zeros(mask)
    where = locate(ctx, warp, addresses, offset)
    origin = widen(i64, 0)
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        origin = block.shared
    if SPACE == LOCAL:
        origin = warp.local
    start = widen(i64, addresses[first]) + offset
    if SPACE != HOST:
        start = start & 0xFFFFFFFF
    start = start + origin
    if SPACE == LOCAL:
        start = start + widen(i64, first * ctx.local_bytes)
    shape = approve(ctx, warp, site, number, where, start, origin, mask)
    if shape == REFUSED:
        return FAULT
    if (LEVEL > 1) and STORE:
        note_values(ctx, warp, number, mask, r0, r1, r2, r3)
    if COUNT == 1:
        if shape == NEIGHBOURS:
            start = start - widen(i64, first) * BYTES
            if STORE:
                put_neighbours(start, mask, r0)
            else:
                take_neighbours(start, mask, r0)
            return GO_ON
    if not STORE:
        if shape == UNIFORM:
            take_one(start, mask, r0)
            if COUNT > 1:
                take_one(start + BYTES, mask, r1)
            if COUNT > 2:
                take_one(start + (2 * BYTES), mask, r2)
                take_one(start + (3 * BYTES), mask, r3)
            return GO_ON
    move(where, mask, r0)
    if COUNT > 1:
        move(where + BYTES, mask, r1)
    if COUNT > 2:
        move(where + (2 * BYTES), mask, r2)
        move(where + (3 * BYTES), mask, r3)
    return GO_ON


def approve(
    ctx: Context, warp: Warp, site: Site, number: i32, where: V[i64], start: i64, origin: i64, mask: i32
) -> i32:
    """What the addresses look like, or REFUSED where one is bad; counts the access and writes its event.

    Most accesses repeat the last one's pattern of addresses, moved: then the first address tells of all.
    """
    same = bits(load(V[i64], site.pattern) == where - splat(start)) | ~mask
    known = (same == FULL) and (site.pattern_mask == mask)
    known = known and ((start - origin - site.low) < site.room) and ((start & (BYTES * COUNT - 1)) == 0)
    if known:
        if LEVEL > 0:
            count(ctx, warp, site, where, start, mask)
        if LEVEL > 1:
            note(ctx, warp, number, where, mask)
        return site.shape
    common = (within(ctx, warp, site, where) | ~mask) == FULL
    if not common:
        if not rare(ctx, warp, site, number, where, mask):
            return REFUSED
    if LEVEL > 0:
        site.requests += 1
        site.lanes += widen(i64, population(mask))
    if LEVEL > 1:
        if common:
            note(ctx, warp, number, where, mask)
    site.misses += 1
    if (LEVEL > 0) or (site.misses < LESSONS) or ((site.misses & (LESSONS - 1)) == 0):
        study(ctx, warp, site, where, start, origin, mask)
        return site.shape
    return SCATTERED


def study(ctx: Context, warp: Warp, site: Site, where: V[i64], start: i64, origin: i64, mask: i32) -> None:
    """Keeps a pattern of addresses that every lane may access, and counts it."""
    each = array(i64, 32)
    store(each, where)
    learn(ctx, warp, site, each, mask, start, origin, BYTES * COUNT, SPACE)


def locate(ctx: Context, warp: Warp, addresses: P[A], offset: i64) -> V[i64]:
    """Host addresses of the lanes."""
    out = widen(i64, load(V[A], addresses)) + splat(offset)
    if SPACE != HOST:
        out = out & 0xFFFFFFFF
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        out = out + splat(block.shared)
    if SPACE == LOCAL:
        out = out + splat(warp.local) + lane_numbers(i64) * splat(widen(i64, ctx.local_bytes))
    return out


def within(ctx: Context, warp: Warp, site: Site, where: V[i64]) -> i32:
    """Lanes whose bytes are aligned and lie where accesses of this site commonly do.

    `site.bytes` is how many starting addresses an access of this size may have in the buffer found last.
    """
    straight = (where & (BYTES * COUNT - 1)) == 0
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        if ctx.shared_bytes < (BYTES * COUNT):
            return 0
        room = widen(i64, ctx.shared_bytes) - (BYTES * COUNT)
        return bits(straight & ((where - splat(block.shared)) <= splat(room)))
    if SPACE == LOCAL:
        if ctx.local_bytes < (BYTES * COUNT):
            return 0
        room = widen(i64, ctx.local_bytes) - (BYTES * COUNT)
        own = splat(warp.local) + lane_numbers(i64) * splat(widen(i64, ctx.local_bytes))
        return bits(straight & ((where - own) <= splat(room)))
    if SPACE == HOST:
        return bits(straight & ((where - splat(site.base)) < splat(site.bytes)))
    return 0


def rare(ctx: Context, warp: Warp, site: Site, number: i32, where: V[i64], mask: i32) -> i1:
    """Another buffer than last time, a generic address of shared or local memory, or a fault."""
    each = array(i64, 32)
    store(each, where)
    return settle(ctx, warp, site, number, each, mask, BYTES * COUNT, SPACE, STORE, LEVEL)


def take_neighbours(start: i64, mask: i32, out: P[R]) -> None:
    """Lanes read 32 neighbouring elements."""
    if mask == FULL:
        store(out, as_register(load(V[M], pointer(M, start))))
    else:
        new = as_register(masked_load(M, pointer(M, start), lanes(mask)))
        store(out, select(lanes(mask), new, load(V[R], out)))


def put_neighbours(start: i64, mask: i32, r: P[R]) -> None:
    """Lanes write 32 neighbouring elements."""
    value = narrow(M, load(V[R], r))
    if mask == FULL:
        store(pointer(M, start), value)
    else:
        masked_store(pointer(M, start), value, lanes(mask))


def take_one(at: i64, mask: i32, r: P[R]) -> None:
    """Lanes read the same element."""
    keep(as_register(splat(load(M, pointer(M, at)))), mask, r)


def move(where: V[i64], mask: i32, r: P[R]) -> None:
    """One element of each lane, wherever it lies."""
    if STORE:
        scatter(narrow(M, load(V[R], r)), where, lanes(mask))
    else:
        keep(as_register(gather(M, where, lanes(mask))), mask, r)


def keep(new: V[R], mask: i32, out: P[R]) -> None:
    """Writes the active lanes of a register."""
    if mask == FULL:
        store(out, new)
    else:
        store(out, select(lanes(mask), new, load(V[R], out)))


def as_register(value: V[M]) -> V[R]:
    """A register wider than the memory's element is extended."""
    if SIGNED:
        return widen_signed(R, value)
    else:
        return widen(R, value)


def count(ctx: Context, warp: Warp, site: Site, where: V[i64], start: i64, mask: i32) -> None:
    """Requests, lanes, and what they take: sectors of 32 bytes, or wavefronts of shared memory.

    `start` is the first active lane's address. Moved by whole words (sectors), a pattern takes the same.
    """
    site.requests += 1
    site.lanes += widen(i64, population(mask))
    if SPACE == LOCAL:
        return
    phase = narrow(i32, start & 3)
    if SPACE == HOST:
        phase = narrow(i32, (start + site.delta) & 31)
    known = bits(load(V[i64], site.pattern) == where - splat(start)) | ~mask
    if known == FULL:
        if site.pattern_mask == mask:
            if site.pattern_phase == phase:
                site.units += site.pattern_units
                site.ideal += site.pattern_ideal
                return
    each = array(i64, 32)
    store(each, where)
    tally(warp, site, each, mask, phase, BYTES * COUNT, SPACE)


def note(ctx: Context, warp: Warp, number: i32, where: V[i64], mask: i32) -> None:
    """The event of an access."""
    event = row(ctx, warp, number, ACCESS, mask)
    event.space = SPACE
    event.bytes = BYTES * COUNT
    place = where
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        place = where - splat(block.shared) + splat(widen(i64, block.rank) << 24)
    if SPACE == LOCAL:
        place = where - splat(warp.local)
    store(event.addresses, place)


def note_values(ctx: Context, warp: Warp, number: i32, mask: i32, r0: P[R], r1: P[R], r2: P[R], r3: P[R]) -> None:
    """What a store writes: a row for each 8 bytes, the lower first."""
    v0 = widen(i64, narrow(M, load(V[R], r0)))
    if COUNT == 1:
        note_value(ctx, warp, number, mask, 0, v0)
    if COUNT > 1:
        v1 = widen(i64, narrow(M, load(V[R], r1)))
        if BYTES == 8:
            note_value(ctx, warp, number, mask, 0, v0)
            note_value(ctx, warp, number, mask, 1, v1)
        else:
            v0 = v0 | (v1 << (8 * BYTES))
            if COUNT == 2:
                note_value(ctx, warp, number, mask, 0, v0)
    if COUNT > 2:
        v2 = widen(i64, narrow(M, load(V[R], r2)))
        v3 = widen(i64, narrow(M, load(V[R], r3)))
        if BYTES == 8:
            note_value(ctx, warp, number, mask, 2, v2)
            note_value(ctx, warp, number, mask, 3, v3)
        else:
            v2 = v2 | (v3 << (8 * BYTES))
            if BYTES == 4:
                note_value(ctx, warp, number, mask, 0, v0)
                note_value(ctx, warp, number, mask, 1, v2)
            else:
                note_value(ctx, warp, number, mask, 0, v0 | (v2 << (16 * BYTES)))


def note_value(ctx: Context, warp: Warp, number: i32, mask: i32, which: i32, values: V[i64]) -> None:
    """8 bytes of what each lane writes. It follows the event of its access without a gap."""
    event = next_row(ctx, warp, number, VALUES, mask)
    event.number = which
    store(event.addresses, values)
