"""A warp's access: most are quick, 32 neighbouring words that nobody fights for, or one word that all read."""


def access(d: Detector, slot: Slot, row: Event, facts: Facts, kind: i32) -> i32:
    """Looks at the words of each lane. SYNC: `d.sync_lanes` released or met a message."""
    now = touch(d, slot)
    d.site = row.site
    d.flags = facts.flags
    d.element = facts.element
    d.shared = 0
    d.empty = 0
    first = trailing_zeros(row.mask)
    start = row.addresses[first]
    if row.space == SHARED:
        d.shared = 1
        d.planes = slot.planes
        d.stride = slot.stride
    elif not find_region(d, start):
        return GO
    if d.lane == 0:
        if d.word == 0:
            if quick(d, slot, row, now, start, first, kind):
                return GO
    left = row.mask & ~((1 << d.lane) - 1)
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        d.lane = lane
        if lane_access(d, slot, row, lane, kind) == ASK:
            return ASK
        d.word = 0
    if d.sync_lanes != 0:
        return SYNC
    return GO


def find_region(d: Detector, at: i64) -> i1:
    """The buffer of an address; none of what may only be read."""
    regions = pointer(Region, d.regions)
    region = regions + d.last_region
    if (at - region.base) >= region.bytes:
        n = 0
        while n < d.region_count:
            region = regions + n
            if (at - region.base) < region.bytes:
                break
            n += 1
        if n == d.region_count:
            return 0
        d.last_region = n
    d.planes = region.planes
    d.stride = region.stride
    d.empty = narrow(i32, region.flags) & EMPTY
    return 1


def word_of(d: Detector, at: i64) -> i64:
    """The number of an address's word in its region, or in shared memory."""
    if d.shared != 0:
        return at >> 2
    region = pointer(Region, d.regions) + d.last_region
    return (at - (region.base & ~3)) >> 2


def lane_access(d: Detector, slot: Slot, row: Event, lane: i32, kind: i32) -> i32:
    """Word by word."""
    at = row.addresses[lane]
    if d.shared == 0:
        if not find_region(d, at):
            return GO
    size = row.bytes
    d.thread = row.warp * 32 + lane
    facts = pointer(Facts, d.facts) + row.site
    d.flags = facts.flags
    if (d.flags & CAS) != 0:
        if ((row.count >> lane) & 1) == 0:
            d.flags = d.flags & ~WRITES
    words = (size + 3) >> 2
    while d.word < words:
        n = d.word
        place = at + widen(i64, n * 4)
        d.address = place
        d.mask = MASK_BITS
        shift = 0
        if size < 4:
            shift = narrow(i32, at & 3)
            d.mask = ((1 << size) - 1) << shift
        d.value = 0
        d.valued = 0
        if kind == ISSUED:
            d.value = row.number
        elif has_values(d, row):
            values = row + (1 + (n >> 1))
            d.value = narrow(i32, values.addresses[lane] >> widen(i64, (n & 1) * 32)) << (shift * 8)
            d.valued = 1
        if touch_word(d, slot, word_of(d, place)) == ASK:
            return ASK
        d.word += 1
    return GO


def has_values(d: Detector, row: Event) -> i1:
    """Whether rows follow that say what is stored."""
    if (row + 1).kind != VALUES:
        return 0
    return (d.flags & (WRITES | ATOMIC)) == WRITES


def quick(d: Detector, slot: Slot, row: Event, now: i32, start: i64, first: i32, kind: i32) -> i1:
    """Whether the access was one that a few vectors tell to be harmless, and is remembered."""
    size = row.bytes
    if (size > 16) or (d.empty != 0) or ((d.flags & ATOMIC) != 0):
        return 0
    if ((d.flags & STRONG) != 0) and (d.syncs != 0):
        return 0
    mask = row.mask
    if ((size & 3) != 0) or ((start & 3) != 0):
        if (d.flags & WRITES) != 0:
            return 0
        return quick_scattered(d, slot, row, now, size, kind)
    addresses = load(V[i64], row.addresses)
    distance = (lane_numbers(i64) - splat(widen(i64, first))) * splat(widen(i64, size))
    if (bits((addresses - splat(start)) == distance) | ~mask) != FULL:
        if ((bits(addresses == splat(start)) | ~mask) == FULL) and ((d.flags & WRITES) == 0):
            return quick_uniform(d, slot, row, now, start, first)
        return quick_scattered(d, slot, row, now, size, kind)
    if size != 4:
        if mask != FULL:
            return quick_scattered(d, slot, row, now, size, kind)
    if d.shared == 0:
        region = pointer(Region, d.regions) + d.last_region
        if (start - region.base) + widen(i64, size * 32) > region.bytes:
            last = 31 - leading_zeros(mask)
            if (row.addresses[last] - region.base) >= region.bytes:
                return 0
    at = word_of(d, start) - widen(i64, first * (size >> 2))
    chunks = size >> 2
    shift = trailing_zeros(chunks)
    values = array(i32, 128)
    known_values = 0
    if (d.flags & WRITES) != 0:
        if kind == ISSUED:
            for n in range(chunks):
                store(values + 32 * n, splat(row.number))
        elif has_values(d, row):
            known_values = 0xF0
            gather_values(row, values, size)
    for n in range(chunks):
        thread = splat(row.warp * 32) + ((lane_numbers(i32) + splat(n * 32)) >> splat(shift))
        what = (thread << splat(widen(i32, THREAD_SHIFT))) | splat(common_identity(d))
        w = pointer(i32, d.planes) + (at + widen(i64, n * 32))
        if (d.flags & WRITES) != 0:
            new = load(V[i32], values + 32 * n)
            if not quick_write(d, slot, w, d.stride >> 2, mask, what, now, new, known_values):
                return 0
        elif not quick_read(d, slot, w, d.stride >> 2, mask, what, now):
            return 0
    return 1


def common_identity(d: Detector) -> i32:
    """What lanes share of how their accesses are remembered."""
    d.mask = MASK_BITS
    d.thread = 0
    return identity(d)


def gather_values(row: Event, values: P[i32], size: i32) -> None:
    """What a store writes, word by word in the order of memory."""
    one = row + 1
    if size == 4:
        store(values, narrow(i32, load(V[i64], one.addresses)))
    if size == 8:
        copy(values, one.addresses, 256)
    if size == 16:
        two = row + 2
        both = pointer(i64, values)
        for lane in range(32):
            both[2 * lane] = one.addresses[lane]
            both[2 * lane + 1] = two.addresses[lane]


def quick_uniform(d: Detector, slot: Slot, row: Event, now: i32, start: i64, first: i32) -> i1:
    """All lanes read the same words: where the last write is known to all, two lanes stand for them."""
    last = 31 - leading_zeros(row.mask)
    step = d.stride >> 2
    at = word_of(d, start)
    for n in range(row.bytes >> 2):
        w = pointer(i32, d.planes) + (at + widen(i64, n))
        stamp = w[0]
        if d.shared != 0:
            if (stamp > slot.floor) or (stamp <= slot.start) or ((w[step * 7] & MASK_BITS) != MASK_BITS):
                return 0
        elif stamp != 0:
            return 0
        for k in range(2):
            entry = step * widen(i64, 2 + 2 * k)
            if ((w[entry + step] & WRITE_BIT) != 0) and alive(d, slot, w[entry]):
                return 0
    d.mask = MASK_BITS
    for n in range(row.bytes >> 2):
        w = pointer(i32, d.planes) + (at + widen(i64, n))
        second = w[step * 4]
        if not settled(d, slot, second, w[step * 5]):
            d.thread = row.warp * 32 + first
            remember_read(d, slot, w, step)
            d.thread = row.warp * 32 + last
            remember_read(d, slot, w, step)
    return 1


def settled(d: Detector, slot: Slot, stamp: i32, what: i32) -> i1:
    """Whether two readers of the whole word are remembered already who still matter."""
    if (what & MASK_BITS) != MASK_BITS:
        return 0
    if d.shared != 0:
        return stamp > slot.floor
    return (stamp != 0) and ((stamp < slot.start) or (stamp > slot.floor))


def quick_read(d: Detector, slot: Slot, w: P[i32], step: i64, mask: i32, what: V[i32], now: i32) -> i1:
    """Each lane reads a word of its own whose last write all of the block know."""
    floor = splat(slot.floor)
    begun = splat(slot.start)
    zero = splat(widen(i32, 0))
    ws = load(V[i32], w)
    fine = ws == zero
    if d.shared != 0:
        written = load(V[i32], w + step * 7) & splat(widen(i32, MASK_BITS))
        fine = (ws <= floor) & (ws > begun) & (written == splat(widen(i32, MASK_BITS)))
    if (bits(fine) | ~mask) != FULL:
        if d.shared != 0:
            own = ((load(V[i32], w + step) ^ what) & splat(widen(i32, THREAD_BITS))) == zero
            fine = fine | (
                own & (ws > floor) & (ws < splat(widen(i32, PENDING))) & (written == splat(widen(i32, MASK_BITS)))
            )
        else:
            if (d.flags & NC) != 0:
                return 0
            fine = fine | safe(d, slot, ws, load(V[i32], w + step), what, mask)
        if (bits(fine) | ~mask) != FULL:
            return 0
    s1 = load(V[i32], w + step * 2)
    w1 = load(V[i32], w + step * 3)
    s2 = load(V[i32], w + step * 4)
    w2 = load(V[i32], w + step * 5)
    live1 = s1 > floor
    live2 = s2 > floor
    if d.shared == 0:
        live1 = (s1 != zero) & (live1 | (s1 < begun))
        live2 = (s2 != zero) & (live2 | (s2 < begun))
    writes = splat(widen(i32, WRITE_BIT))
    fighting = (live1 & ((w1 & writes) != zero)) | (live2 & ((w2 & writes) != zero))
    if (bits(fighting) & mask) != 0:
        return 0
    full = splat(widen(i32, MASK_BITS))
    enough = live1 & live2 & ((w2 & full) == full)
    if (bits(enough) | ~mask) == FULL:
        return 1
    same = live1 & (((w1 ^ what) & splat(widen(i32, THREAD_BITS))) == zero)
    if d.shared == 0:
        if (bits(same & (s1 != splat(now)) & ((s1 > begun) | (s1 == begun))) & mask) != 0:
            return 0
        same = same & (s1 == splat(now))
    here = bits(same | ~live1) & mask
    there = bits(live1 & ~same & ~enough) & mask
    store_some(w + step * 2, splat(now), here)
    store_some(w + step * 3, what, here)
    if there != 0:
        store_some(w + step * 4, splat(now), there)
        store_some(w + step * 5, what, there)
    return 1


def safe(d: Detector, slot: Slot, stamps: V[i32], others: V[i32], what: V[i32], mask: i32) -> V[i1]:
    """Remembered accesses to global memory that are the block's, and known to all of it or the thread's own."""
    zero = splat(widen(i32, 0))
    owners = gather(i32, splat(d.owner) + (widen(i64, stamps) << splat(widen(i64, 2))), lanes(mask))
    ours = owners == splat(narrow(i32, slot.block))
    own = ((others ^ what) & splat(widen(i32, THREAD_BITS))) == zero
    return (stamps == zero) | (ours & (own | (stamps <= splat(slot.floor))))


def store_some(at: P[i32], value: V[i32], mask: i32) -> None:
    """The lanes of a mask."""
    if mask == FULL:
        store(at, value)
    else:
        masked_store(at, value, lanes(mask))


def quick_write(
    d: Detector, slot: Slot, w: P[i32], step: i64, mask: i32, what: V[i32], now: i32, new: V[i32], known_values: i32
) -> i1:
    """Each lane writes a word of its own, and all of the block know who accessed it before, or it was the lane."""
    floor = splat(slot.floor)
    zero = splat(widen(i32, 0))
    threads = splat(widen(i32, THREAD_BITS))
    s0 = load(V[i32], w)
    w0 = load(V[i32], w + step)
    s1 = load(V[i32], w + step * 2)
    w1 = load(V[i32], w + step * 3)
    s2 = load(V[i32], w + step * 4)
    w2 = load(V[i32], w + step * 5)
    nc = splat(widen(i32, NC_BIT))
    if d.shared != 0:
        fine = (s0 <= floor) | ((s0 < splat(widen(i32, PENDING))) & (((w0 ^ what) & threads) == zero))
        fine = fine & ((s1 <= floor) | (((w1 ^ what) & threads) == zero))
        fine = fine & ((s2 <= floor) | (((w2 ^ what) & threads) == zero))
    else:
        fine = (s0 == zero) & (s1 == zero) & (s2 == zero)
        if (bits(fine) | ~mask) != FULL:
            fine = safe(d, slot, s0, w0, what, mask) & safe(d, slot, s1, w1, what, mask)
            fine = fine & safe(d, slot, s2, w2, what, mask)
            if d.has_nc != 0:
                fine = fine & (((w1 | w2) & nc) == zero)
    if (bits(fine) | ~mask) != FULL:
        return 0
    stamp = now
    if (d.flags & ASYNC) != 0:
        stamp = now | PENDING
    store_some(w, splat(stamp), mask)
    store_some(w + step, what, mask)
    if (bits(s1 == zero) | ~mask) != FULL:
        store_some(w + step * 2, zero, mask)
    if (bits(s2 == zero) | ~mask) != FULL:
        store_some(w + step * 4, zero, mask)
    store_some(w + step * 6, new, mask)
    store_some(w + step * 7, splat(MASK_BITS | known_values), mask)
    return 1


def quick_scattered(d: Detector, slot: Slot, row: Event, now: i32, size: i32, kind: i32) -> i1:
    """As the other quick ones, of words wherever they lie; of writes each lane's has to be its own."""
    mask = row.mask
    addresses = load(V[i64], row.addresses)
    words = addresses >> splat(widen(i64, 2))
    if d.shared == 0:
        region = pointer(Region, d.regions) + d.last_region
        if (bits((addresses - splat(region.base)) < splat(region.bytes)) | ~mask) != FULL:
            return 0
        words = (addresses - splat(region.base & ~3)) >> splat(widen(i64, 2))
    bytes = splat(widen(i32, MASK_BITS))
    if size < 4:
        bytes = splat((1 << size) - 1) << narrow(i32, addresses & splat(widen(i64, 3)))
    thread = splat(row.warp * 32) + lane_numbers(i32)
    what = (thread << splat(widen(i32, THREAD_SHIFT))) | splat(common_identity(d) & ~MASK_BITS) | bytes
    count = (size + 3) >> 2
    if (d.flags & WRITES) != 0:
        if kind != ISSUED:
            if not has_values(d, row):
                return 0
        for n in range(count):
            values = splat(widen(i32, row.number))
            marks = splat(widen(i32, MASK_BITS))
            if kind != ISSUED:
                one = row + (1 + (n >> 1))
                values = narrow(i32, load(V[i64], one.addresses) >> splat(widen(i64, (n & 1) * 32)))
                marks = splat(widen(i32, 0xFF))
            at = splat(d.planes) + ((words + splat(widen(i64, n))) << splat(widen(i64, 2)))
            if not scattered_write(d, slot, at, mask, what, now, values, marks):
                return 0
    else:
        for n in range(count):
            if not scattered_read(d, slot, row, words + splat(widen(i64, n)), mask, what, bytes):
                return 0
    return 1


def plane(d: Detector, at: V[i64], number: i64, mask: i32) -> V[i32]:
    """Of each lane's word."""
    return gather(i32, at + splat(number * d.stride), lanes(mask))


def scattered_read(d: Detector, slot: Slot, row: Event, words: V[i64], mask: i32, what: V[i32], bytes: V[i32]) -> i1:
    """Lanes read words whose last write all of the block know, or it was the lane's own."""
    at = splat(d.planes) + (words << splat(widen(i64, 2)))
    floor = splat(slot.floor)
    begun = splat(slot.start)
    zero = splat(widen(i32, 0))
    threads = splat(widen(i32, THREAD_BITS))
    ws = plane(d, at, 0, mask)
    fine = ws == zero
    if d.shared != 0:
        written = (plane(d, at, 7, mask) & bytes) == bytes
        fine = (ws <= floor) & (ws > begun) & written
        if (bits(fine) | ~mask) != FULL:
            own = ((plane(d, at, 1, mask) ^ what) & threads) == zero
            fine = fine | (own & (ws > floor) & (ws < splat(widen(i32, PENDING))) & written)
    elif (bits(fine) | ~mask) != FULL:
        if (d.flags & NC) != 0:
            return 0
        fine = safe(d, slot, ws, plane(d, at, 1, mask), what, mask)
    if (bits(fine) | ~mask) != FULL:
        return 0
    s1 = plane(d, at, 2, mask)
    w1 = plane(d, at, 3, mask)
    s2 = plane(d, at, 4, mask)
    w2 = plane(d, at, 5, mask)
    live1 = s1 > floor
    live2 = s2 > floor
    if d.shared == 0:
        live1 = (s1 != zero) & (live1 | (s1 < begun))
        live2 = (s2 != zero) & (live2 | (s2 < begun))
    writes = splat(widen(i32, WRITE_BIT))
    fighting = (live1 & ((w1 & writes) != zero)) | (live2 & ((w2 & writes) != zero))
    if (bits(fighting) & mask) != 0:
        return 0
    enough = live1 & live2 & ((w2 & bytes) == bytes)
    left = mask & ~bits(enough)
    if left != 0:
        each = array(i64, 32)
        store(each, at)
        masks = array(i32, 32)
        store(masks, bytes)
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            d.thread = row.warp * 32 + lane
            d.mask = masks[lane]
            remember_read(d, slot, pointer(i32, each[lane]), d.stride >> 2)
    return 1


def scattered_write(
    d: Detector, slot: Slot, at: V[i64], mask: i32, what: V[i32], now: i32, values: V[i32], marks: V[i32]
) -> i1:
    """Lanes write words, each one of its own, that nobody else may still be at."""
    floor = splat(slot.floor)
    zero = splat(widen(i32, 0))
    threads = splat(widen(i32, THREAD_BITS))
    s0 = plane(d, at, 0, mask)
    s1 = plane(d, at, 2, mask)
    s2 = plane(d, at, 4, mask)
    fine = (s0 == zero) & (s1 == zero) & (s2 == zero)
    if d.shared != 0:
        fine = (s0 <= floor) & (s1 <= floor) & (s2 <= floor)
    if (bits(fine) | ~mask) != FULL:
        w0 = plane(d, at, 1, mask)
        w1 = plane(d, at, 3, mask)
        w2 = plane(d, at, 5, mask)
        if d.shared != 0:
            fine = (s0 <= floor) | ((s0 < splat(widen(i32, PENDING))) & (((w0 ^ what) & threads) == zero))
            fine = fine & ((s1 <= floor) | (((w1 ^ what) & threads) == zero))
            fine = fine & ((s2 <= floor) | (((w2 ^ what) & threads) == zero))
        else:
            fine = safe(d, slot, s0, w0, what, mask) & safe(d, slot, s1, w1, what, mask)
            fine = fine & safe(d, slot, s2, w2, what, mask)
            if d.has_nc != 0:
                fine = fine & (((w1 | w2) & splat(widen(i32, NC_BIT))) == zero)
    if (bits(fine) | ~mask) != FULL:
        return 0
    # Where two lanes write one word, one of them does not find its mark again. What is lost nobody needs.
    scatter(what, at + splat(d.stride), lanes(mask))
    if (bits(plane(d, at, 1, mask) == what) | ~mask) != FULL:
        return 0
    stamp = now
    if (d.flags & ASYNC) != 0:
        stamp = now | PENDING
    scatter(splat(stamp), at, lanes(mask))
    if (bits(s1 == zero) | ~mask) != FULL:
        scatter(zero, at + splat(2 * d.stride), lanes(mask))
    if (bits(s2 == zero) | ~mask) != FULL:
        scatter(zero, at + splat(4 * d.stride), lanes(mask))
    scatter(values, at + splat(6 * d.stride), lanes(mask))
    scatter(marks, at + splat(7 * d.stride), lanes(mask))
    return 1
