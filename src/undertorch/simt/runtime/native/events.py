"""Rows of the event buffer (layout.EVENT)."""


def row(ctx: Context, warp: Warp, number: i32, kind: i32, mask: i32) -> Event:
    """The row of an event; a buffer that may not hold it with what follows is handed to the host first."""
    if ctx.event_count + EVENT_ROWS > ctx.event_capacity:
        hand_over(ctx, warp)
    return next_row(ctx, warp, number, kind, mask)


def hand_over(ctx: Context, warp: Warp) -> None:
    """Lets the host look at the buffer, which is empty then."""
    call_address(ctx.host, ctx, warp, EVENTS_FULL, 0, 0)


def next_row(ctx: Context, warp: Warp, number: i32, kind: i32, mask: i32) -> Event:
    """A row that belongs to the one before: no hand-over parts them."""
    event = pointer(Event, ctx.events) + ctx.event_count
    block = pointer(Block, warp.block)
    barrier = block.barriers + 0
    event.block = block.linear
    event.site = number
    event.warp = warp.index
    event.mask = mask
    event.phase = barrier.phase
    event.kind = kind
    ctx.event_count += 1
    return event


def note_step(ctx: Context, warp: Warp, number: i32, kind: i32, mask: i32) -> None:
    """An instruction without addresses: a fence, bar.warp.sync, an exit."""
    if mask != 0:
        row(ctx, warp, number, kind, mask)


def note_barrier(ctx: Context, warp: Warp, number: i32, kind: i32, id: i32, phase: i32, count: i32, mask: i32) -> None:
    """Lanes arrive at a barrier of the block, or it opens."""
    event = row(ctx, warp, number, kind, mask)
    event.number = id
    event.phase = phase
    event.count = count


def note_copies(
    ctx: Context, warp: Warp, number: i32, targets: P[i64], sources: P[i64], counts: P[i32], mask: i32, size: i32
) -> None:
    """A cp.async is issued: its write and its read, a row for each group and size among its lanes."""
    block = pointer(Block, warp.block)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        group = warp.groups[lane]
        same = bits(load(V[i32], warp.groups) == splat(group)) & left
        left = left & ~same
        event = row(ctx, warp, number, ISSUED, same)
        event.number = group
        event.space = SHARED
        event.bytes = size
        store(event.addresses, load(V[i64], targets) - splat(block.shared))
        while same != 0:
            first = trailing_zeros(same)
            alike = bits(load(V[i32], counts) == splat(counts[first])) & same
            same = same & ~alike
            if counts[first] != 0:
                event = row(ctx, warp, number + 1, ISSUED, alike)
                event.number = group
                event.space = HOST
                event.bytes = counts[first]
                store(event.addresses, load(V[i64], sources))


def note_groups(ctx: Context, warp: Warp, number: i32, kind: i32, back: i32, everything: i32, mask: i32) -> None:
    """A commit closes the lanes' group; a wait completes all groups below a number: a row for each number."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        group = warp.groups[lane]
        same = bits(load(V[i32], warp.groups) == splat(group)) & left
        left = left & ~same
        if everything != 0:
            group = group + 1
        else:
            group = select(signed_less(group, back), group ^ group, group - back)
        event = row(ctx, warp, number, kind, same)
        event.number = group


def note_members(ctx: Context, warp: Warp, number: i32, members: P[i32], mask: i32) -> None:
    """Member masks that leave out their own lane, or (GONE) name lanes that have ended or never were."""
    pcs = load(V[i32], warp.pc)
    gone = widen(i32, 0)
    if GONE:
        gone = bits(pcs == splat(widen(i32, EXITED)))
    asked = load(V[i32], members)
    own = splat(widen(i32, 1)) << lane_numbers(i32)
    bad = bits(((asked & splat(gone)) != splat(widen(i32, 0))) | ((asked & own) == splat(widen(i32, 0)))) & mask
    if bad != 0:
        event = row(ctx, warp, number, MEMBERS, bad)
        event.count = gone
        store(event.addresses, widen(i64, asked))
