"""Barriers, __syncwarp, fences, waits for copies, and threads that end: who knows what of whom."""


def arrive(d: Detector, slot: Slot, row: Event, facts: Facts) -> None:
    """Threads come to a barrier of the block."""
    id = row.number
    meeting = slot.meetings + id
    thread = row.warp * 32 + trailing_zeros(row.mask)
    now = touch(d, slot)
    if meeting.came == 0:
        meeting.came = 1
        meeting.site = row.site
        meeting.thread = thread
        meeting.expected = row.count
    else:
        other = pointer(Facts, d.facts) + meeting.site
        if meeting.expected != row.count:
            meet(d, slot, COUNTS, meeting.site, meeting.thread, row.site, thread)
        elif (row.count == 0) and (other.line != facts.line):
            meet(d, slot, PARTED, meeting.site, meeting.thread, row.site, thread)
    if (facts.flags & WAITS) != 0:
        waiters = pointer(i32, slot.waiters) + (id * d.warps + row.warp)
        waiters[0] = waiters[0] | row.mask
        meeting.waiting += population(row.mask)
    else:
        arrivers = pointer(i32, slot.arrivers) + (id * d.warps + row.warp)
        arrivers[0] = arrivers[0] | row.mask
        meeting.arrived += population(row.mask)
        came = pointer(i32, slot.came)
        left = row.mask
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            came[widen(i64, (id * d.warps + row.warp) * 32 + lane)] = now
        slot.passed = 1


def meet(d: Detector, slot: Slot, kind: i32, first: i32, first_thread: i32, second: i32, second_thread: i32) -> None:
    """Reports what is wrong with a barrier."""
    d.shared = 0
    d.mask = 0
    nowhere = widen(i64, 0)
    report(d, kind, SAME_BLOCK, 0, first, first_thread, slot.block, second, second_thread, slot.block, nowhere, 0)


def let_go(d: Detector, slot: Slot, row: Event) -> i32:
    """A barrier lets its threads go on: who waited knows what all knew who came."""
    id = row.number
    meeting = slot.meetings + id
    waiters = pointer(i32, slot.waiters) + id * d.warps
    arrivers = pointer(i32, slot.arrivers) + id * d.warps
    if (slot.exited != 0) and (meeting.expected == 0) and (meeting.came != 0):
        meet(d, slot, ENDED_BEFORE, slot.exit_site, slot.exit_thread, meeting.site, meeting.thread)
    all = (meeting.arrived == 0) and (meeting.waiting + slot.exited == d.threads)
    if all:
        slot.floor = slot.now
    else:
        join_some(d, slot, waiters, arrivers, pointer(i32, slot.came) + id * d.warps * 32)
        slot.apart = 1
    met = pointer(i32, d.met)
    copy(met, waiters, widen(i64, d.warps) * 4)
    copy(met + d.warps, arrivers, widen(i64, d.warps) * 4)
    d.met_all = 0
    if all:
        d.met_all = 1
    fill(waiters, 0, widen(i64, d.warps) * 4)
    fill(arrivers, 0, widen(i64, d.warps) * 4)
    fill(meeting, 0, MEETING_BYTES)
    slot.passed = 1
    if slot.foreign != 0:
        return SYNC
    return GO


def join_some(d: Detector, slot: Slot, waiters: P[i32], arrivers: P[i32], came: P[i32]) -> None:
    """Some of a block's threads met at a barrier."""
    warps = d.warps
    width = widen(i64, warps) * 32
    know = pointer(i32, slot.know)
    floors = pointer(i32, slot.warp_floor)
    joined = array(i32, 1024)
    for warp in range(warps):
        here = waiters[warp] | arrivers[warp]
        left = here
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            join_row(joined, know + widen(i64, warp * 32 + lane) * width, warps)
        if here != 0:
            most = load(V[i32], joined + warp * 32)
            own = splat(floors[warp])
            most = select(most > own, most, own)
            times = load(V[i32], came + warp * 32)
            times = select(lanes(waiters[warp]), splat(slot.now), times)
            store(joined + warp * 32, select(lanes(here) & (times > most), times, most))
    for warp in range(warps):
        left = waiters[warp]
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            copy(know + widen(i64, warp * 32 + lane) * width, joined, width * 4)


def join_row(joined: P[i32], row: P[i32], warps: i32) -> None:
    """What either knows."""
    for n in range(warps):
        a = load(V[i32], joined + n * 32)
        b = load(V[i32], row + n * 32)
        store(joined + n * 32, select(a > b, a, b))


def warp_sync(d: Detector, slot: Slot, row: Event) -> i32:
    """Lanes meet: each knows what the others knew."""
    warp = row.warp
    warps = d.warps
    width = widen(i64, warps) * 32
    know = pointer(i32, slot.know) + widen(i64, warp * 32) * width
    alive_lanes = d.threads - warp * 32
    whole = row.mask == FULL
    if alive_lanes < 32:
        whole = row.mask == (1 << alive_lanes) - 1
    if whole:
        floors = pointer(i32, slot.warp_floor)
        floors[warp] = slot.now
    if (not whole) or (slot.apart != 0):
        first = 0
        count = warps
        if slot.apart == 0:
            first = warp
            count = widen(i32, 1)
        joined = array(i32, 1024)
        left = row.mask
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            join_row(joined, know + (widen(i64, lane) * width + widen(i64, first * 32)), count)
        own = joined + (warp - first) * 32
        store(own, select(lanes(row.mask), splat(slot.now), load(V[i32], own)))
        left = row.mask
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            copy(know + (widen(i64, lane) * width + widen(i64, first * 32)), joined, widen(i64, count) * 128)
    slot.passed = 1
    if slot.foreign != 0:
        return SYNC
    return GO


def complete(d: Detector, slot: Slot, row: Event) -> None:
    """Threads waited for their copies: these are writes of now."""
    now = touch(d, slot)
    done = pointer(i32, slot.done)
    completed = pointer(i32, slot.completed)
    left = row.mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        thread = row.warp * 32 + lane
        group = done[thread]
        if row.number - group > RING and group < row.number:
            group = row.number - RING
        while group < row.number:
            completed[thread * RING + (group & (RING - 1))] = now
            group += 1
        if done[thread] < row.number:
            done[thread] = row.number


def fence(d: Detector, slot: Slot, row: Event, facts: Facts) -> i32:
    """What a thread did until now is released by its later strong writes; what it read before is acquired (SYNC)."""
    now = touch(d, slot)
    width = d.warps * 32
    fences = pointer(i32, slot.fences)
    floors = pointer(i32, slot.warp_floor)
    fenced = pointer(i32, slot.fenced)
    left = row.mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        thread = row.warp * 32 + lane
        fences[thread] = now
        fences[width + thread] = slot.floor
        fences[2 * width + thread] = floors[row.warp]
        if (facts.flags & WIDE) != 0:
            fences[3 * width + thread] = now
            fences[4 * width + thread] = slot.floor
            fences[5 * width + thread] = floors[row.warp]
    fenced[row.warp] = fenced[row.warp] | row.mask
    if (facts.flags & WIDE) != 0:
        fenced[d.warps + row.warp] = fenced[d.warps + row.warp] | row.mask
    slot.passed = 1
    pending = pointer(i32, slot.pending)
    if (pending[row.warp] & row.mask) != 0:
        return SYNC
    return GO


def leave(d: Detector, slot: Slot, row: Event) -> i32:
    """Threads end; with the last one the block."""
    slot.exited += population(row.mask)
    slot.exit_site = row.site
    slot.exit_thread = row.warp * 32 + trailing_zeros(row.mask)
    if slot.exited < d.threads:
        return GO
    for id in range(BARRIERS):
        meeting = slot.meetings + id
        if (meeting.arrived != 0) and (meeting.waiting == 0):
            meet(d, slot, LEFT_OVER, meeting.site, meeting.thread, meeting.site, meeting.thread)
    numbers = pointer(i32, d.slot_of)
    number = numbers[slot.block] - 1
    numbers[slot.block] = 0
    free = pointer(i32, d.free)
    free[d.free_count] = number
    d.free_count += 1
    if slot.foreign != 0:
        return ENDED
    return GO


def members(d: Detector, slot: Slot, row: Event) -> None:
    """A member mask that is wrong: it names lanes that ended (SAME_BLOCK), or leaves out the lane (SAME_WARP)."""
    lane = trailing_zeros(row.mask)
    mask = narrow(i32, row.addresses[lane])
    level = SAME_BLOCK + 0
    if ((mask >> lane) & 1) == 0:
        level = SAME_WARP + 0
    thread = row.warp * 32 + lane
    d.shared = 0
    d.mask = 0
    both = widen(i64, mask) | (widen(i64, row.count) << 32)
    report(d, BAD_MASK, level, 0, row.site, thread, slot.block, row.site, thread, slot.block, both, 0)
