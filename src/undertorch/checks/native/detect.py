"""Rows of events, one after the other. State: layout.py; what a race is: words.py."""


def detect(d: Detector) -> i32:
    """Takes rows until they are used up, or until Python has to do something (layout.py says what)."""
    while d.at < d.count:
        row = pointer(Event, d.rows) + d.at
        kind = row.kind
        if kind != VALUES:
            numbers = pointer(i32, d.slot_of)
            number = numbers[row.block]
            if number == 0:
                if d.free_count == 0:
                    return NEW_BLOCK
                number = begin(d, row.block)
            slot = pointer(Slot, d.slots) + (number - 1)
            if d.pair_count > PAIRS - 64:
                return CROWDED
            status = take(d, slot, row, kind)
            if status != GO:
                return status
        following(d)
    return GO


def following(d: Detector) -> None:
    """On to the next row."""
    d.at += 1
    d.lane = 0
    d.word = 0
    d.sync_lanes = 0
    forget_answers(d)


def forget_answers(d: Detector) -> None:
    """Of another word."""
    d.answers[0] = 0
    d.answers[1] = 0
    d.answers[2] = 0


def take(d: Detector, slot: Slot, row: Event, kind: i32) -> i32:
    """One row."""
    facts = pointer(Facts, d.facts) + row.site
    if kind == ACCESS or kind == ISSUED:
        if (facts.flags & IGNORED) != 0 or row.space == LOCAL:
            return GO
        if kind == ISSUED and row.space == HOST:
            return GO
        return access(d, slot, row, facts, kind)
    if kind == ARRIVED:
        arrive(d, slot, row, facts)
        return GO
    if kind == OPENED:
        return let_go(d, slot, row)
    if kind == WARP_SYNC:
        return warp_sync(d, slot, row)
    if kind == COMPLETED:
        complete(d, slot, row)
        return GO
    if kind == FENCE:
        return fence(d, slot, row, facts)
    if kind == MEMBERS:
        members(d, slot, row)
        return GO
    if kind == EXIT:
        return leave(d, slot, row)
    return GO


def begin(d: Detector, block: i64) -> i32:
    """Gives a free slot to a block; the number of the slot from 1."""
    d.free_count -= 1
    free = pointer(i32, d.free)
    number = free[d.free_count]
    numbers = pointer(i32, d.slot_of)
    numbers[block] = number + 1
    slot = pointer(Slot, d.slots) + number
    slot.block = block
    slot.passed = 1
    slot.exited = 0
    slot.apart = 0
    slot.foreign = 0
    slot.start = touch(d, slot)
    slot.floor = slot.start
    slot.passed = 1
    warps = d.warps
    lanes_of_block = widen(i64, warps) * 32
    floors = pointer(i32, slot.warp_floor)
    for n in range(warps):
        floors[n] = slot.start
    fill(pointer(i8, slot.fenced), 0, widen(i64, warps) * 8)
    fill(pointer(i8, slot.pending), 0, widen(i64, warps) * 4)
    fill(pointer(i8, slot.seen), 0, lanes_of_block * 4)
    fill(pointer(i8, slot.done), 0, lanes_of_block * 4)
    fill(pointer(i8, slot.waiters), 0, widen(i64, warps) * (4 * BARRIERS))
    fill(pointer(i8, slot.arrivers), 0, widen(i64, warps) * (4 * BARRIERS))
    fill(slot.meetings, 0, BARRIERS * MEETING_BYTES)
    return number + 1


def touch(d: Detector, slot: Slot) -> i32:
    """The stamp of what happens now in the block."""
    if slot.passed != 0:
        d.stamp += 1
        owners = pointer(i32, d.owner)
        owners[d.stamp] = narrow(i32, slot.block)
        slot.now = d.stamp
        slot.passed = 0
    return slot.now


def report(
    d: Detector,
    kind: i32,
    level: i32,
    same: i32,
    first: i32,
    first_thread: i32,
    first_block: i64,
    second: i32,
    second_thread: i32,
    second_block: i64,
    address: i64,
    pending: i32,
) -> None:
    """Counts a pair of instructions; the first example of each is kept."""
    hash = (((first * 31 + second) * 31 + kind) * 31 + level) * 2 + same
    hash = (hash ^ (hash >> 15)) * 0x9E3779B1
    at = (hash >> 16) & (PAIRS - 1)
    while 1:
        pair = pointer(Pair, d.pairs) + at
        if pair.used == 0:
            pair.used = 1
            pair.kind = kind
            pair.level = level
            pair.same = same
            pair.first = first
            pair.second = second
            pair.first_thread = first_thread
            pair.second_thread = second_thread
            pair.first_block = first_block
            pair.second_block = second_block
            pair.address = address
            pair.shared = d.shared
            pair.bytes = d.mask
            pair.pending = pending
            pair.count = 1
            d.pair_count += 1
            return
        known = (pair.kind == kind) and (pair.level == level) and (pair.same == same)
        if known and (pair.first == first) and (pair.second == second):
            pair.count += 1
            return
        at = (at + 1) & (PAIRS - 1)
