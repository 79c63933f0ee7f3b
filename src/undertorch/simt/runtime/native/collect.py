"""What lanes of one warp do together: shuffles, votes, matches, reductions (PTX ISA, "Parallel Synchronization")."""


def branch(warp: Warp, taken: i32, target: i32, other: i32, mask: i32) -> None:
    """Lanes of `mask` go on at `target` where `taken` says so, else at `other`."""
    pcs = load(V[i32], warp.pc)
    new = select(lanes(taken), splat(target), splat(other))
    store(warp.pc, select(lanes(mask), new, pcs))


def shuffle(warp: Warp, out: P[i32], valid: P[i32], a: P[i32], b: P[i32], c: P[i32], mask: i32) -> None:
    """shfl.sync, as its pseudo code in the PTX ISA. MODE: 0 up, 1 down, 2 bfly, 3 idx."""
    found = array(i32, 32)
    good = 0
    for lane in range(32):
        step = b[lane] & 31
        bound = c[lane]
        segment = (bound >> 8) & 31
        last = (lane & segment) | (bound & 31 & ~segment)
        first = lane & segment
        source = lane
        inside = widen(i1, 0)
        if MODE == 0:
            source = lane - step
            inside = not signed_less(source, last)
        if MODE == 1:
            source = lane + step
            inside = source <= last
        if MODE == 2:
            source = lane ^ step
            inside = source <= last
        if MODE == 3:
            source = first | (step & ~segment)
            inside = source <= last
        if inside:
            good = good | (1 << lane)
        else:
            source = lane
        found[lane] = a[source & 31]
    store(out, select(lanes(mask), load(V[i32], found), load(V[i32], out)))
    store(valid, (load(i32, valid) & ~mask) | (good & mask))


def same_mask(members: P[i32], left: i32) -> i32:
    """Of the lanes `left` those with the member mask of the first of them."""
    return bits(load(V[i32], members) == splat(members[trailing_zeros(left)])) & left


def vote(out: P[i32], value: i32, mask: i32) -> None:
    """vote.sync. MODE: 0 all, 1 any, 2 uni, 3 ballot (a number for each lane; the others are predicates)."""
    yes = value & mask
    if MODE == 3:
        store(out, select(lanes(mask), splat(yes), load(V[i32], out)))
    else:
        holds = widen(i1, 0)
        if MODE == 0:
            holds = yes == mask
        if MODE == 1:
            holds = yes != 0
        if MODE == 2:
            holds = (yes == 0) or (yes == mask)
        whole = load(i32, out) & ~mask
        if holds:
            whole = whole | mask
        store(out, whole)


def match_any(out: P[i32], valid: P[i32], a: P[A], mask: i32) -> None:
    """For each lane the lanes with the same value."""
    values = load(V[A], a)
    found = array(i32, 32)
    for lane in range(32):
        found[lane] = bits(values == splat(a[lane])) & mask
    store(out, select(lanes(mask), load(V[i32], found), load(V[i32], out)))


def match_all(out: P[i32], valid: P[i32], a: P[A], mask: i32) -> None:
    """The mask where all lanes have the same value, else 0; and whether they have."""
    values = load(V[A], a)
    one = a[trailing_zeros(mask)]
    all_same = (bits(values == splat(one)) | ~mask) == FULL
    result = select(all_same, mask, mask & ~mask)
    store(out, select(lanes(mask), splat(result), load(V[i32], out)))
    store(valid, (load(i32, valid) & ~mask) | result)


def active_mask(out: P[i32], mask: i32) -> None:
    """The lanes that run together here."""
    store(out, select(lanes(mask), splat(mask), load(V[i32], out)))


def reduce(out: P[i32], a: P[i32], mask: i32) -> None:
    """redux.sync. OP names the operation."""
    left = mask
    total = a[trailing_zeros(mask)]
    left = left & (left - 1)
    while left != 0:
        value = a[trailing_zeros(left)]
        left = left & (left - 1)
        if MODE == 0:
            total = total + value
        if MODE == 1:
            total = select(value < total, value, total)
        if MODE == 2:
            total = select(value > total, value, total)
        if MODE == 3:
            total = select(signed_less(value, total), value, total)
        if MODE == 4:
            total = select(signed_less(total, value), value, total)
        if MODE == 5:
            total = total & value
        if MODE == 6:
            total = total | value
        if MODE == 7:
            total = total ^ value
    store(out, select(lanes(mask), splat(total), load(V[i32], out)))


def barrier_result(warp: Warp, out: P[i32], mask: i32) -> None:
    """What bar.red came to, as each lane was told when its barrier opened. MODE: 0 popc, 1 and, 2 or."""
    told = load(V[i32], warp.barrier)
    count = told & (CAME - 1)
    if MODE == 0:
        store(out, select(lanes(mask), count, load(V[i32], out)))
    else:
        holds = bits(count != splat(widen(i32, 0)))
        if MODE == 1:
            holds = bits(count * CAME + count == told)
        store(out, (load(i32, out) & ~mask) | (holds & mask))


def trap(ctx: Context, warp: Warp, number: i32, mask: i32) -> i32:
    """The launch ends."""
    ctx.fault = 3
    ctx.fault_lane = trailing_zeros(mask)
    ctx.fault_site = number
    ctx.fault_warp = warp.index
    ctx.fault_address = 0
    return FAULT
