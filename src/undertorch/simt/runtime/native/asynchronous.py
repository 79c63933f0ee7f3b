"""cp.async: each thread's copies wait in a queue of its warp, and are done when a wait reaches their group.

So a kernel that forgets its wait reads what was there before, as it may on a GPU.
Constants: SIZE (4, 8 or 16 bytes), T and S (types of the address registers of destination and source), LEVEL.
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
    left = mask
    block = pointer(Block, warp.block)
    site = pointer(Site, ctx.sites) + number
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        target = widen(i64, to[lane]) + to_offset
        origin = widen(i64, source[lane]) + source_offset
        count = counts[lane]
        if count > SIZE:
            count = widen(i32, SIZE)
        wrong = 0
        if target + SIZE > widen(i64, ctx.shared_bytes):
            wrong = 1
        if ((target | origin) & (SIZE - 1)) != 0:
            wrong = 2
        if count != 0:
            if not readable(ctx, origin, widen(i64, count)):
                wrong = 1
                target = origin
        if wrong != 0:
            ctx.fault = wrong
            ctx.fault_lane = lane
            ctx.fault_site = number
            ctx.fault_warp = warp.index
            ctx.fault_address = target
            return FAULT
        if warp.queued == QUEUE:
            async_complete(ctx, warp, 1 << lane, 0, 1)
        entry = pointer(Copy, warp.queue) + warp.queued
        warp.queued += 1
        entry.to = target + block.shared
        entry.source = origin
        entry.bytes = count
        entry.fill = SIZE - count
        entry.lane = lane
        entry.group = warp.groups[lane]
        entry.site = number
        entry.live = 1
    if LEVEL > 0:
        site.requests += 1
        site.lanes += widen(i64, population(mask))
    return GO_ON


def readable(ctx: Context, at: i64, count: i64) -> i1:
    """Whether bytes lie in one of the launch's buffers."""
    buffers = pointer(Buffer, ctx.buffers)
    for n in range(ctx.buffer_count):
        buffer = buffers + n
        if buffer.bytes >= count:
            if (at - buffer.base) <= buffer.bytes - count:
                return 1
    return 0


def async_commit(warp: Warp, mask: i32) -> None:
    """Each lane's copies since its last commit are a group."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        warp.groups[lane] += 1


def async_wait(ctx: Context, warp: Warp, keep: i32, everything: i32, mask: i32) -> None:
    """All groups but each lane's last `keep` are done; or everything, committed or not."""
    async_complete(ctx, warp, mask, keep, everything)


def async_complete(ctx: Context, warp: Warp, mask: i32, keep: i32, everything: i32) -> None:
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
