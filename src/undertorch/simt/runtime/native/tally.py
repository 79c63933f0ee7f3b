"""What a request takes of the memory's hardware: sectors of 32 bytes, or wavefronts of shared memory's 32 banks."""


def learn(
    ctx: Context,
    warp: Warp,
    site: Site,
    each: P[i64],
    mask: i32,
    start: i64,
    origin: i64,
    size: i32,
    space: i32,
) -> None:
    """Keeps the pattern of an access that was found good, with what makes another one of it good, and counts it.

    Another one is good where its first address, seen from `origin`, is one of the `room` from `low` on.
    """
    find_room(ctx, site, each, mask, start, origin, size, space)
    find_shape(site, each, mask, start, size)
    keep_pattern(site, each, mask)
    if (ctx.level > 0) and (space != LOCAL):
        phase = narrow(i32, start & 3)
        if space == HOST:
            phase = narrow(i32, (start + site.delta) & 31)
        tally(warp, site, each, mask, phase, size, space)


def find_room(
    ctx: Context, site: Site, each: P[i64], mask: i32, start: i64, origin: i64, size: i32, space: i32
) -> None:
    """Where a pattern may start so that all lanes stay inside: local memory's lanes each inside their own."""
    base = widen(i64, 0)
    limit = widen(i64, ctx.shared_bytes) - widen(i64, size) + 1
    stride = 0
    if space == HOST:
        base = site.base
        limit = site.bytes
    if space == LOCAL:
        stride = ctx.local_bytes
        limit = widen(i64, stride) - widen(i64, size) + 1
    lowest = widen(i64, 0) - widen(i64, trailing_zeros(mask) * stride)
    highest = lowest
    inside = widen(i1, 1)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        distance = each[lane] - start - widen(i64, lane * stride)
        inside = inside and ((start - origin + distance - base) < limit)
        lowest = select(signed_less(distance, lowest), distance, lowest)
        highest = select(signed_less(highest, distance), distance, highest)
    site.low = base - lowest
    site.room = select(inside, limit - (highest - lowest), limit ^ limit)


def find_shape(site: Site, each: P[i64], mask: i32, start: i64, size: i32) -> None:
    """Whether lanes access neighbours, or all the same."""
    neighbours = widen(i1, 1)
    uniform = widen(i1, 1)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        neighbours = neighbours and (each[lane] - start == widen(i64, (lane - trailing_zeros(mask)) * size))
        uniform = uniform and (each[lane] == start)
    site.shape = SCATTERED
    if neighbours:
        site.shape = NEIGHBOURS
    if uniform:
        site.shape = UNIFORM


def keep_pattern(site: Site, each: P[i64], mask: i32) -> None:
    """Distances from the first lane's address."""
    store(site.pattern, load(V[i64], each) - splat(each[trailing_zeros(mask)]))
    site.pattern_mask = mask


def tally(warp: Warp, site: Site, each: P[i64], mask: i32, phase: i32, size: i32, space: i32) -> None:
    """Counts a request whose pattern of addresses is not the last one's, and keeps the pattern."""
    where = load(V[i64], each)
    units = widen(i64, 0)
    least = widen(i64, (population(mask) * size + 31) >> 5)
    if space == SHARED:
        block = pointer(Block, warp.block)
        units = widen(i64, wavefronts(where - splat(block.shared), mask, size))
        least = widen(i64, ideal_wavefronts(mask, size))
    else:
        units = widen(i64, distinct((where + splat(site.delta)) >> 5, mask))
    least = select(units < least, units, least)
    keep_pattern(site, each, mask)
    site.pattern_phase = phase
    site.pattern_units = units
    site.pattern_ideal = least
    site.units += units
    site.ideal += least


def passes_of(size: i32) -> i32:
    """Of up to 4 bytes a lane one pass of 32 lanes, of 8 bytes two of 16, of 16 bytes four of 8."""
    if size <= 4:
        return 1
    return size >> 2


def ideal_wavefronts(mask: i32, size: i32) -> i32:
    """128 bytes each."""
    return (population(mask) * size + 127) >> 7


def first_lanes(count: i32) -> i32:
    """A mask of the first lanes."""
    return narrow(i32, (widen(i64, 1) << widen(i64, count)) - 1)


def wavefronts(offsets: V[i64], mask: i32, size: i32) -> i32:
    """Each pass takes as many wavefronts as the most distinct words that fall into one bank (of the pass's width).

    Pairs of passes are one where the warp's lanes share addresses by neighbours (checks/banks.py: how that was found).
    """
    passes = passes_of(size)
    shift = 2
    if size > 4:
        shift = trailing_zeros(size)
    words = offsets >> splat(widen(i64, shift))
    if passes == 1:
        return busiest(words, mask, 32)
    each = array(i64, 32)
    store(each, words)
    banks = 32 // passes
    lanes_of_pass = banks
    if shared_by(each, mask, 1) or shared_by(each, mask, 2):
        lanes_of_pass = 2 * banks
    total = 0
    for group in range(32 // lanes_of_pass):
        total += busiest(words, mask & (first_lanes(lanes_of_pass) << (group * lanes_of_pass)), banks)
    return total


def shared_by(each: P[i64], mask: i32, distance: i32) -> i1:
    """Whether each lane's address is that of the lane whose number differs in one bit, where that one is active."""
    same = widen(i1, 1)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        if ((mask >> (lane ^ distance)) & 1) != 0:
            same = same and (each[lane] == each[lane ^ distance])
    return same


def busiest(words: V[i64], mask: i32, count: i32) -> i32:
    """The most distinct words in one of `count` banks."""
    each = array(i64, 32)
    store(each, words)
    left = mask
    banks = array(i32, 32)
    most = 0
    while left != 0:
        word = each[trailing_zeros(left)]
        left = left & ~bits(words == splat(word))
        bank = narrow(i32, word) & (count - 1)
        banks[bank] += 1
        most = select(banks[bank] > most, banks[bank], most)
    return most


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
