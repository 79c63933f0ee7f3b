"""Turns: which lanes of a warp run, which warps of a block, which blocks of a launch; and barriers between them.

Within a warp the lanes with the smallest program counter run under a mask, which brings the two sides of a branch
together again at the end of it. Pure smallest-first never ends on a spin lock inside a warp, so a group whose fuel
(backward branches) is used up lets another run for a while: the one of `leader`.
"""


def run_blocks(ctx: Context, block: Block) -> i32:
    """Runs block after block on one block's memory, until none is left or one cannot go on."""
    while ctx.next_block < ctx.end_block:
        start(ctx, block, ctx.next_block)
        ctx.next_block += 1
        status = run_block(ctx, block)
        if status != DONE:
            return status
    return DONE


def start(ctx: Context, block: Block, number: i64) -> None:
    """Makes a block's memory that of the block `number`. Shared memory starts as zeros; on a GPU it holds anything."""
    grid = ctx.grid
    x = widen(i64, grid[0])
    y = widen(i64, grid[1])
    block.linear = number
    block.ctaid[0] = narrow(i32, number % x)
    block.ctaid[1] = narrow(i32, (number // x) % y)
    block.ctaid[2] = narrow(i32, number // (x * y))
    block.exited = 0
    block.done = 0
    fill(pointer(i8, block.shared), 0, widen(i64, ctx.shared_bytes))
    fill(block.barriers, 0, BARRIERS * BARRIER_BYTES)
    for n in range(ctx.warps):
        warp = pointer(Warp, block.warps + widen(i64, n * ctx.warp_bytes))
        store(warp.pc, select(lanes(warp.alive), splat(widen(i32, 0)), splat(widen(i32, EXITED))))
        warp.done = 0
        warp.leader = NOBODY
        warp.queued = 0
        warp.met = 0
        fill(warp.meeting, 0, 128)
        fill(warp.groups, 0, 128)


def run_block(ctx: Context, block: Block) -> i32:
    """Gives each warp its turn until all have ended, or until none can go on without other blocks.

    Out of fuel: a whole round in which no warp ended and no barrier opened, only loops went round; or so many rounds
    that the host has to look whether somebody wants to stop.
    """
    ctx.block = address(block)
    spent = 0
    for _ in range(ROUNDS):
        before = ctx.progress
        hungry = 0
        for step in range(ctx.warps):
            n = turn(ctx, step)
            warp = pointer(Warp, block.warps + widen(i64, n * ctx.warp_bytes))
            if warp.done == 0:
                ctx.fuel = ctx.fuel_slice
                status = run_warp(ctx, block, warp)
                if status == DONE:
                    warp.done = 1
                    block.done += 1
                    ctx.progress += 1
                elif status == OUT_OF_FUEL:
                    hungry += 1
                elif status != BLOCKED:
                    return status
        if block.done == ctx.warps:
            return DONE
        spent += hungry
        if spent > HUNGRY_TURNS:
            return OUT_OF_FUEL
        if ctx.progress == before:
            if hungry == 0:
                return STUCK
            return OUT_OF_FUEL
    return OUT_OF_FUEL


def turn(ctx: Context, step: i32) -> i32:
    """The warp that has the turn `step` of a round: in order, or in an order that the seed shuffles."""
    if ctx.order == 0:
        return step
    rounded = ctx.order * 0x9E3779B1 + ctx.progress * 0x85EBCA6B
    return (step + (rounded >> 8)) % ctx.warps


def run_warp(ctx: Context, block: Block, warp: Warp) -> i32:
    """Runs a warp until it ends, waits, or has used up its fuel."""
    while 1:
        pcs = load(V[i32], warp.pc)
        low = least(pcs)
        if warp.leader != NOBODY:
            low = led(warp, low)
        if low >= PARKED:
            if low == EXITED:
                return DONE
            if not release_parked(ctx, warp, pcs):
                return BLOCKED
            continue
        mask = bits(pcs == splat(low))
        if mask == FULL:
            # All lanes run, so whoever was waited for has come: what they looked like then may come again in a loop.
            warp.tried = 0
            status = call_address(ctx.full, ctx, warp, low)
        else:
            if ctx.masked == 0:
                return NEED_MASKED
            limit = least(select(pcs == splat(low), splat(widen(i32, EXITED)), pcs))
            if warp.leader != NOBODY:
                limit = 0
            status = call_address(ctx.masked, ctx, warp, low, mask, limit)
        if status == OUT_OF_FUEL:
            if mask != FULL:
                change_leader(warp, low)
            return status
        if status != GO_ON:
            return status
    return DONE


def led(warp: Warp, low: i32) -> i32:
    """The counter of the leader's group; its lead ends when it waits, or has had its share."""
    own = warp.pc[warp.leader]
    warp.patience -= 1
    if own >= PARKED or warp.patience == 0:
        warp.leader = NOBODY
        return low
    return own


def change_leader(warp: Warp, low: i32) -> None:
    """The next group of lanes by program counter, from the first again behind the last."""
    pcs = load(V[i32], warp.pc)
    current = low
    if warp.leader != NOBODY:
        current = warp.pc[warp.leader]
    later = (pcs > splat(current)) & (pcs < splat(widen(i32, PARKED)))
    best = least(select(later, pcs, splat(widen(i32, EXITED))))
    if best == EXITED:
        warp.leader = NOBODY
        return
    warp.leader = trailing_zeros(bits(pcs == splat(best)))
    warp.patience = LEADER_STEPS


def release_parked(ctx: Context, warp: Warp, pcs: V[i32]) -> i1:
    """Lanes that wait for others of their mask try again, once any lane came to them or left since.

    `warp.tried` keeps what the lanes looked like when all of them last failed.
    """
    parked = (pcs >= splat(widen(i32, PARKED))) & (pcs < splat(widen(i32, WAITING)))
    who = bits(parked)
    if who == 0:
        return 0
    if warp.tried == hash_of(pcs):
        return 0
    warp.tried = hash_of(pcs)
    store(warp.pc, select(parked, pcs & PC_MASK, pcs))
    return 1


def hash_of(pcs: V[i32]) -> i64:
    """Differs when a lane moved."""
    each = array(i32, 32)
    store(each, pcs)
    total = widen(i64, 1)
    for n in range(32):
        total = total * 1099511628211 + widen(i64, each[n])
    return total


def leave(ctx: Context, warp: Warp, number: i32, mask: i32) -> i32:
    """Lanes end. Threads that ended count as arrived at every barrier of the block."""
    pcs = load(V[i32], warp.pc)
    store(warp.pc, select(lanes(mask), splat(widen(i32, EXITED)), pcs))
    block = pointer(Block, warp.block)
    block.exited += population(mask)
    if ctx.level > 1:
        note_step(ctx, warp, number, EXIT, mask)
    for n in range(BARRIERS):
        barrier = block.barriers + n
        if barrier.arrived != 0:
            if barrier.expected == 0:
                if barrier.arrived >= ctx.threads - block.exited:
                    open_barrier(ctx, warp, number, n)
            else:
                stand_in(warp, barrier, n, 0)
                if barrier.arrived >= barrier.expected:
                    open_barrier(ctx, warp, number, n)
    return GO_ON


def stand_in(warp: Warp, barrier: Barrier, id: i32, arriving: i32) -> None:
    """A barrier with a count counts whole warps: with the last live lane of a partial one come those it has not.

    (PTX ISA, "bar, barrier": the count is a multiple of the warp size.)
    """
    pcs = load(V[i32], warp.pc)
    live = bits(pcs != splat(widen(i32, EXITED)))
    waiting = (pcs >= splat(widen(i32, WAITING))) & (load(V[i32], warp.barrier) == splat(id))
    here = (bits(waiting) & live) | arriving
    if live != 0:
        if (here & live) == live:
            barrier.arrived += 32 - population(live)
            barrier.absent += 32 - population(live)


def barrier_wait(
    ctx: Context, warp: Warp, number: i32, ids: P[i32], counts: P[i32], has_count: i32, then: i32, mask: i32
) -> i32:
    """bar.sync: lanes arrive and wait; they go on at `then`."""
    return barrier_any(ctx, warp, number, ids, counts, has_count, then, mask, 0, 1)


def barrier_arrive(ctx: Context, warp: Warp, number: i32, ids: P[i32], counts: P[i32], then: i32, mask: i32) -> i32:
    """bar.arrive: lanes arrive and go on."""
    return barrier_any(ctx, warp, number, ids, counts, 1, then, mask, 0, 0)


def barrier_reduce(
    ctx: Context, warp: Warp, number: i32, ids: P[i32], counts: P[i32], has_count: i32, then: i32, mask: i32, yes: i32
) -> i32:
    """bar.red: as bar.sync; `yes` are the lanes whose predicate holds."""
    return barrier_any(ctx, warp, number, ids, counts, has_count, then, mask, yes, 1)


def barrier_any(
    ctx: Context,
    warp: Warp,
    number: i32,
    ids: P[i32],
    counts: P[i32],
    has_count: i32,
    then: i32,
    mask: i32,
    yes: i32,
    wait: i32,
) -> i32:
    """Lanes of one barrier id at a time."""
    block = pointer(Block, warp.block)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        id = ids[lane]
        wrong = 0
        if id >= BARRIERS:
            wrong = 6
            ctx.fault_address = widen(i64, id)
        if has_count != 0:
            if (counts[lane] == 0) or ((counts[lane] & 31) != 0):
                wrong = 7
                ctx.fault_address = widen(i64, counts[lane])
        if wrong != 0:
            ctx.fault = wrong
            ctx.fault_lane = lane
            ctx.fault_site = number
            ctx.fault_warp = warp.index
            return FAULT
        same = bits(load(V[i32], ids) == splat(ids[lane])) & left
        left = left & ~same
        barrier = block.barriers + id
        barrier.expected = 0
        if has_count != 0:
            barrier.expected = counts[lane]
        if ctx.level > 1:
            note_barrier(ctx, warp, number, ARRIVED, id, barrier.phase, barrier.expected, same)
        barrier.arrived += population(same)
        barrier.count += population(same & yes)
        pcs = load(V[i32], warp.pc)
        if wait != 0:
            store(warp.pc, select(lanes(same), splat(then | WAITING), pcs))
            held = load(V[i32], warp.barrier)
            store(warp.barrier, select(lanes(same), splat(id), held))
        else:
            store(warp.pc, select(lanes(same), splat(then), pcs))
        needed = barrier.expected
        if needed == 0:
            needed = ctx.threads - block.exited
        else:
            stand_in(warp, barrier, id, same)
        if barrier.arrived >= needed:
            open_barrier(ctx, warp, number, id)
    return GO_ON


def open_barrier(ctx: Context, last: Warp, number: i32, id: i32) -> None:
    """Everybody who waits at a barrier goes on: the warp `last` was the last to come, or to end."""
    block = pointer(Block, last.block)
    barrier = block.barriers + id
    if ctx.level > 1:
        note_barrier(ctx, last, number, OPENED, id, barrier.phase, barrier.arrived - barrier.absent, 0)
    result = (barrier.arrived - barrier.absent) * CAME + barrier.count
    barrier.arrived = 0
    barrier.absent = 0
    barrier.count = 0
    barrier.phase += 1
    ctx.progress += 1
    for n in range(ctx.warps):
        warp = pointer(Warp, block.warps + widen(i64, n * ctx.warp_bytes))
        pcs = load(V[i32], warp.pc)
        here = (
            (pcs >= splat(widen(i32, WAITING)))
            & (pcs < splat(widen(i32, EXITED)))
            & (load(V[i32], warp.barrier) == splat(id))
        )
        store(warp.pc, select(here, pcs & PC_MASK, pcs))
        held = load(V[i32], warp.barrier)
        store(warp.barrier, select(here, splat(result), held))


def together(ctx: Context, warp: Warp, members: P[i32], at: i32, mask: i32) -> i32:
    """The lanes of `mask` whose whole member mask has come to the block of instructions `at` (or has ended).

    The others wait there: their counters say so.
    """
    pcs = load(V[i32], warp.pc)
    gone = bits(pcs == splat(widen(i32, EXITED)))
    asked = load(V[i32], members)
    missing = asked & ~splat(mask | gone)
    ready = bits(missing == 0) & mask
    wait = mask & ~ready
    if wait != 0:
        store(warp.pc, select(lanes(wait), splat(at | PARKED), pcs))
    if ready != 0:
        warp.tried = 0
    return ready


def synchronised(ctx: Context, warp: Warp, members: P[i32], at: i32, mask: i32, number: i32) -> i32:
    """As `together`, for bar.warp.sync: the others of a mask may wait at another bar.warp.sync with the same one.

    (PTX ISA, "bar.warp.sync": until all threads of the mask have executed one with the same mask.)
    """
    pcs = load(V[i32], warp.pc)
    gone = bits(pcs == splat(widen(i32, EXITED)))
    ready = mask & warp.met
    warp.met = warp.met & ~mask
    left = mask & ~ready
    while left != 0:
        asked = members[trailing_zeros(left)]
        same = bits(load(V[i32], members) == splat(asked)) & left
        left = left & ~same
        elsewhere = bits(load(V[i32], warp.meeting) == splat(asked)) & ~mask
        if (asked & ~(same | gone | elsewhere)) == 0:
            ready = ready | same
            elsewhere = elsewhere & asked
            warp.met = warp.met | elsewhere
            if ctx.level > 1:
                note_step(ctx, warp, number, WARP_SYNC, same | elsewhere)
            meeting = load(V[i32], warp.meeting)
            store(warp.meeting, select(lanes(elsewhere | same), splat(widen(i32, 0)), meeting))
        else:
            meeting = load(V[i32], warp.meeting)
            store(warp.meeting, select(lanes(same), splat(asked), meeting))
    wait = mask & ~ready
    if wait != 0:
        store(warp.pc, select(lanes(wait), splat(at | PARKED), pcs))
    if ready != 0:
        warp.tried = 0
    return ready
