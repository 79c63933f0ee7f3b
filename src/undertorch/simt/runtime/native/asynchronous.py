"""cp.async: each thread's copies wait in a queue of its warp, and are done when a wait reaches their group.

So a kernel that forgets its wait reads what was there before, as it may on a GPU.
Constants: SIZE (4, 8 or 16 bytes), T and S (types of the address registers of destination and source).
The site `number` is the write, into shared memory; `number + 1` the read, from global memory.
"""


def async_copy(
    ctx: Context,
    warp: Warp,
    number: i32,
    to: P[T],
    to_offset: i64,
    source: P[S],
    source_offset: i64,
    counts: P[i32],
    mask: i32,
) -> i32:
    """Copies of the lanes: `counts` bytes from global memory, the rest of SIZE filled with zeros."""
    block = pointer(Block, warp.block)
    targets = array(i64, 32)
    sources = array(i64, 32)
    store(targets, ((widen(i64, load(V[T], to)) + splat(to_offset)) & 0xFFFFFFFF) + splat(block.shared))
    store(sources, widen(i64, load(V[S], source)) + splat(source_offset))
    return async_issue(ctx, warp, number, targets, sources, counts, mask, SIZE)


def async_issue(
    ctx: Context, warp: Warp, number: i32, targets: P[i64], sources: P[i64], given: P[i32], mask: i32, size: i32
) -> i32:
    """Checks and queues a warp's copies."""
    block = pointer(Block, warp.block)
    site = pointer(Site, ctx.sites) + number
    counts = array(i32, 32)
    reading = 0
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        target = targets[lane] - block.shared
        origin = sources[lane]
        count = given[lane]
        count = select(count > size, size, count)
        counts[lane] = count
        wrong = 0
        failed = number
        if (ctx.shared_bytes < size) or (target > widen(i64, ctx.shared_bytes - size)):
            wrong = 1
        if ((target | origin) & widen(i64, size - 1)) != 0:
            wrong = 2
        if count != 0:
            reading = reading | (1 << lane)
            if not readable(ctx, site + 1, origin, widen(i64, count)):
                wrong = 1
                target = origin
                failed = number + 1
        if wrong != 0:
            ctx.fault = wrong
            ctx.fault_lane = lane
            ctx.fault_site = failed
            ctx.fault_warp = warp.index
            ctx.fault_address = target
            return FAULT
        if warp.queued == QUEUE:
            async_complete(warp, 1 << lane, 0, 1)
        entry = pointer(Copy, warp.queue) + warp.queued
        warp.queued += 1
        entry.to = target + block.shared
        entry.source = origin
        entry.bytes = count
        entry.fill = size - count
        entry.lane = lane
        entry.group = warp.groups[lane]
    if ctx.level > 0:
        if mask != 0:
            async_count(warp, site, targets, mask, size, SHARED)
        if reading != 0:
            async_count(warp, site + 1, sources, reading, size, HOST)
    if ctx.level > 1:
        note_copies(ctx, warp, number, targets, sources, counts, mask, size)
    return GO_ON


def async_count(warp: Warp, site: Site, each: P[i64], mask: i32, size: i32, space: i32) -> None:
    """Counts one side of the copies."""
    site.requests += 1
    site.lanes += widen(i64, population(mask))
    tally(warp, site, each, mask, 0, size, space)


def readable(ctx: Context, site: Site, at: i64, count: i64) -> i1:
    """Whether bytes lie in one of the launch's buffers."""
    buffers = pointer(Buffer, ctx.buffers)
    for n in range(ctx.buffer_count):
        buffer = buffers + n
        if buffer.bytes >= count:
            if (at - buffer.base) <= buffer.bytes - count:
                site.delta = buffer.virtual - buffer.base
                return 1
    return 0


def async_commit(ctx: Context, warp: Warp, number: i32, mask: i32) -> None:
    """Each lane's copies since its last commit are a group."""
    if ctx.level > 1:
        note_groups(ctx, warp, number, COMMITTED, 0, 0, mask)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        warp.groups[lane] += 1


def async_wait(ctx: Context, warp: Warp, number: i32, keep: i32, everything: i32, mask: i32) -> None:
    """All groups but each lane's last `keep` are done; or everything, committed or not."""
    async_complete(warp, mask, keep, everything)
    if ctx.level > 1:
        note_groups(ctx, warp, number, COMPLETED, keep, everything, mask)


def async_complete(warp: Warp, mask: i32, keep: i32, everything: i32) -> None:
    """Does the copies that are due, and closes the gaps in the queue."""
    entries = pointer(Copy, warp.queue)
    kept = 0
    for n in range(warp.queued):
        entry = entries + n
        committed = warp.groups[entry.lane]
        due = ((mask >> entry.lane) & 1) != 0
        if everything == 0:
            due = due and (entry.group + keep < committed)
        if due:
            copy(pointer(i8, entry.to), pointer(i8, entry.source), widen(i64, entry.bytes))
            fill(pointer(i8, entry.to + widen(i64, entry.bytes)), 0, widen(i64, entry.fill))
        else:
            if kept != n:
                copy(entries + kept, entry, COPY_BYTES)
            kept += 1
    warp.queued = kept
