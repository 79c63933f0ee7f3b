"""Loads and stores of a warp. Every address is looked up among the launch's buffers before memory is touched.

Constants of a translation: SPACE (HOST: global, const, param and generic addresses, which are the host's; SHARED:
offsets into the block's; LOCAL: offsets into the thread's), M the memory's integer type and BYTES its size, R the
register's, SIGNED, COUNT (elements of a vector access), A the address register's type, STORE, and LEVEL (0 nothing,
1 counters, 2 counters and events).
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
    if not inside(ctx, warp, site, number, where, mask):
        return FAULT
    start = widen(i64, addresses[first]) + offset
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        start = start + block.shared
    if SPACE == LOCAL:
        start = start + warp.local + widen(i64, first * ctx.local_bytes)
    if LEVEL > 0:
        count(ctx, warp, site, where, start, mask)
    if LEVEL > 1:
        note(ctx, warp, number, where, mask)
    start = start - widen(i64, first) * (BYTES * COUNT)
    together = bits(where == splat(start) + lane_numbers(i64) * (BYTES * COUNT)) | ~mask
    if COUNT == 1:
        if together == FULL:
            if STORE:
                put_neighbours(start, mask, r0)
            else:
                take_neighbours(start, mask, r0)
            return GO_ON
    move(where, first, mask, r0)
    if COUNT > 1:
        move(where + BYTES, first, mask, r1)
    if COUNT > 2:
        move(where + (2 * BYTES), first, mask, r2)
        move(where + (3 * BYTES), first, mask, r3)
    return GO_ON


def locate(ctx: Context, warp: Warp, addresses: P[A], offset: i64) -> V[i64]:
    """Host addresses of the lanes."""
    out = widen(i64, load(V[A], addresses)) + splat(offset)
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        out = out + splat(block.shared)
    if SPACE == LOCAL:
        out = out + splat(warp.local) + lane_numbers(i64) * splat(widen(i64, ctx.local_bytes))
    return out


def inside(ctx: Context, warp: Warp, site: Site, number: i32, where: V[i64], mask: i32) -> i1:
    """Whether every active lane's bytes lie in one of the buffers, aligned; notes the fault where not."""
    straight = bits((where & (BYTES * COUNT - 1)) == 0) | ~mask
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        room = widen(i64, ctx.shared_bytes) - (BYTES * COUNT)
        good = bits((where - splat(block.shared)) <= splat(room)) | ~mask
        if ctx.shared_bytes < (BYTES * COUNT):
            good = ~mask
        if (good & straight) == FULL:
            return 1
        return blame(ctx, warp, number, where, ~good, ~straight)
    if SPACE == LOCAL:
        room = widen(i64, ctx.local_bytes) - (BYTES * COUNT)
        own = splat(warp.local) + lane_numbers(i64) * splat(widen(i64, ctx.local_bytes))
        good = bits((where - own) <= splat(room)) | ~mask
        if ctx.local_bytes < (BYTES * COUNT):
            good = ~mask
        if (good & straight) == FULL:
            return 1
        return blame(ctx, warp, number, where, ~good, ~straight)
    if SPACE == HOST:
        good = bits((where - splat(site.base)) < splat(site.bytes)) | ~mask
        if (good & straight) == FULL:
            return 1
        if straight != FULL:
            return blame(ctx, warp, number, where, 0, ~straight)
        return look_up(ctx, warp, site, number, where, mask)
    return 0


def look_up(ctx: Context, warp: Warp, site: Site, number: i32, where: V[i64], mask: i32) -> i1:
    """Finds each lane's buffer. The site keeps the last that was in the launch's table.

    `site.bytes` is how many starting addresses an access of this size may have in the buffer.
    """
    each = array(i64, 32)
    store(each, where)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        at = each[lane]
        if not find(ctx, warp, site, at, lane):
            return blame(ctx, warp, number, where, 1 << lane, 0)
        left = left & (left - 1)
    return 1


def find(ctx: Context, warp: Warp, site: Site, at: i64, lane: i32) -> i1:
    """Whether one lane's bytes lie in the block's shared memory, in its own local memory or in a buffer."""
    if (at - site.base) < site.bytes:
        return 1
    buffers = pointer(Buffer, ctx.buffers)
    for n in range(ctx.buffer_count):
        buffer = buffers + n
        if buffer.bytes >= (BYTES * COUNT):
            if (at - buffer.base) <= buffer.bytes - (BYTES * COUNT):
                if STORE:
                    if (buffer.flags & READ_ONLY) != 0:
                        return 0
                site.base = buffer.base
                site.bytes = buffer.bytes - (BYTES * COUNT) + 1
                site.delta = buffer.virtual - buffer.base
                return 1
    block = pointer(Block, warp.block)
    if widen(i64, ctx.shared_bytes) >= (BYTES * COUNT):
        if (at - block.shared) <= widen(i64, ctx.shared_bytes) - (BYTES * COUNT):
            return 1
    if widen(i64, ctx.local_bytes) >= (BYTES * COUNT):
        own = warp.local + widen(i64, lane * ctx.local_bytes)
        if (at - own) <= widen(i64, ctx.local_bytes) - (BYTES * COUNT):
            return 1
    return 0


def blame(ctx: Context, warp: Warp, number: i32, where: V[i64], outside: i32, crooked: i32) -> i1:
    """Notes who did what."""
    each = array(i64, 32)
    store(each, where)
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
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        ctx.fault_address = each[lane] - block.shared
    if SPACE == LOCAL:
        ctx.fault_address = each[lane] - warp.local - widen(i64, lane * ctx.local_bytes)
    return 0


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


def move(where: V[i64], first: i32, mask: i32, r: P[R]) -> None:
    """One element of each lane, wherever it lies."""
    if STORE:
        scatter(narrow(M, load(V[R], r)), where, lanes(mask))
    else:
        each = array(i64, 32)
        store(each, where)
        one = each[first]
        if (bits(where == splat(one)) | ~mask) == FULL:
            new = as_register(splat(load(M, pointer(M, one))))
            keep(new, mask, r)
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
    active = population(mask)
    site.lanes += widen(i64, active)
    if SPACE == LOCAL:
        return
    phase = narrow(i32, start & 3)
    if SPACE == HOST:
        phase = narrow(i32, (start + site.delta) & 31)
    pattern = where - splat(start)
    known = bits(load(V[i64], site.pattern) == pattern) | ~mask
    if known == FULL:
        if site.pattern_mask == mask:
            if site.pattern_phase == phase:
                site.units += site.pattern_units
                site.ideal += ideal(active, mask)
                return
    units = widen(i64, 0)
    if SPACE == SHARED:
        block = pointer(Block, warp.block)
        units = widen(i64, wavefronts(where - splat(block.shared), mask))
    if SPACE == HOST:
        units = widen(i64, distinct((where + splat(site.delta)) >> 5, mask))
    store(site.pattern, pattern)
    site.pattern_mask = mask
    site.pattern_phase = phase
    site.pattern_units = units
    site.units += units
    site.ideal += ideal(active, mask)


def ideal(active: i32, mask: i32) -> i64:
    """The least that as many lanes could take."""
    if SPACE == SHARED:
        return widen(i64, ideal_wavefronts(mask))
    else:
        return widen(i64, (active * (BYTES * COUNT) + 31) >> 5)


def ideal_wavefronts(mask: i32) -> i32:
    """Of addresses without conflicts: a pass for each group of lanes that 128 bytes hold."""
    total = 0
    for group in range(PASSES):
        part = (mask >> (group * LANES_A_PASS)) & LANES_OF_PASS
        if part != 0:
            total += 1
    return total


def wavefronts(offsets: V[i64], mask: i32) -> i32:
    """Of up to 4 bytes a lane one pass of 32 lanes; 8 bytes two of 16; 16 bytes four of 8: each as many wavefronts as
    the most distinct words that fall into one bank (of the pass's width).
    """
    total = 0
    each = array(i64, 32)
    words = offsets >> WORD_SHIFT
    store(each, words)
    steps = each[trailing_zeros(mask)]
    start = splat(steps - widen(i64, trailing_zeros(mask)))
    if PASSES == 1:
        if (bits(words == start + lane_numbers(i64)) | ~mask) == FULL:
            return 1
        if (bits(words == splat(steps)) | ~mask) == FULL:
            return 1
    for group in range(PASSES):
        left = mask & (LANES_OF_PASS << (group * LANES_A_PASS))
        banks = array(i32, 32)
        most = 0
        while left != 0:
            word = each[trailing_zeros(left)]
            left = left & ~bits(words == splat(word))
            bank = word & (BANKS_A_PASS - 1)
            banks[bank] += 1
            most = select(banks[bank] > most, banks[bank], most)
        total += most
    return total


def distinct(keys: V[i64], mask: i32) -> i32:
    """How many different keys the active lanes have."""
    total = 0
    each = array(i64, 32)
    store(each, keys)
    left = mask
    while left != 0:
        key = each[trailing_zeros(left)]
        left = left & ~bits(keys == splat(key))
        total += 1
    return total


def note(ctx: Context, warp: Warp, number: i32, where: V[i64], mask: i32) -> None:
    """Writes one event; a full buffer is handed to the host first."""
    if ctx.event_count == ctx.event_capacity:
        call_address(ctx.host, ctx, warp, EVENTS_FULL, 0, 0)
    event = pointer(Event, ctx.events) + ctx.event_count
    block = pointer(Block, warp.block)
    barrier = block.barriers + 0
    event.sequence = ctx.event_count
    event.block = block.linear
    event.site = number
    event.warp = warp.index
    event.mask = mask
    event.phase = barrier.phase
    place = where
    if SPACE == SHARED:
        place = where - splat(block.shared) + splat(widen(i64, block.rank) << 24)
    if SPACE == LOCAL:
        place = where - splat(warp.local)
    store(event.addresses, place)
    ctx.event_count += 1
