"""One access of one thread to one word of memory: what it conflicts with, and what is remembered of it.

A word remembers its last write and two other accesses: readers since then, or writes of other bytes, or other threads'
atomics. Three are not all: where more readers are unordered with a later write, those that were forgotten go unreported
while others at the same line are.
"""


def touch_word(d: Detector, slot: Slot, index: i64) -> i32:
    """Looks for conflicts of the access in `d`, then remembers it. ASK: Python is to say whether two are ordered."""
    step = d.stride >> 2
    w = pointer(i32, d.planes) + index
    settle_copy(d, slot, w, step)
    extra = w[step * 7]
    written = extra & MASK_BITS
    live = 1
    if d.shared != 0:
        if (w[0] & ~PENDING) <= slot.start:
            live = 0
            written = 0
            extra = 0
            w[step * 7] = 0
    if w[0] == 0:
        live = 0
    if (d.flags & READS) != 0:
        system = (d.shared != 0) and (d.address < widen(i64, d.reserved))
        if ((d.mask & ~written) != 0) and ((d.shared | d.empty) != 0) and (not system):
            if d.answers[3] == 0:
                report(
                    d,
                    UNINITIALIZED,
                    SAME_BLOCK,
                    0,
                    d.site,
                    d.thread,
                    slot.block,
                    d.site,
                    d.thread,
                    slot.block,
                    d.address,
                    0,
                )
    d.answers[3] = 1
    if live != 0:
        if (w[step] & d.mask) != 0:
            if conflict(d, slot, 0, w, step) == ASK:
                return ASK
    for k in range(2):
        at = step * widen(i64, 2 + 2 * k)
        other = w[at + step]
        if alive(d, slot, w[at]) and ((other & d.mask) != 0):
            if ((d.flags & WRITES) | (other & WRITE_BIT)) != 0:
                if conflict(d, slot, k + 1, w, step) == ASK:
                    return ASK
    d.answers[3] = 0
    forget_answers(d)
    if (d.flags & WRITES) != 0:
        remember_write(d, slot, w, step, live, extra)
    else:
        remember_read(d, slot, w, step)
    if d.syncs != 0:
        message(d, slot, w + step * 7)
    return GO


def settle_copy(d: Detector, slot: Slot, w: P[i32], step: i64) -> None:
    """A copy that was completed since is a write of that time; one of a block before is nothing."""
    if (w[0] & PENDING) == 0 or d.shared == 0:
        return
    if (w[0] & ~PENDING) <= slot.start:
        w[0] = 0
        return
    thread = (w[step] & THREAD_BITS) >> THREAD_SHIFT
    group = w[step * 6]
    done = pointer(i32, slot.done)
    if group < done[thread]:
        completed = pointer(i32, slot.completed)
        stamp = completed[thread * RING + (group & (RING - 1))]
        if done[thread] - group > RING:
            stamp = w[0] & ~PENDING
        w[0] = stamp


def alive(d: Detector, slot: Slot, stamp: i32) -> i1:
    """Whether a remembered access is of this launch, and of this block's shared memory."""
    if d.shared != 0:
        return stamp > slot.start
    return stamp != 0


def conflict(d: Detector, slot: Slot, k: i32, w: P[i32], step: i64) -> i32:
    """Two overlapping accesses, one a write: ordered, or morally strong (PTX ISA, "Memory Consistency Model"), or else
    reported."""
    if d.answers[k] == 1:
        return GO
    at = step * widen(i64, 2 * k)
    stamp = w[at]
    what = w[at + step]
    first = what >> SITE_SHIFT
    facts = pointer(Facts, d.facts) + first
    thread = (what & THREAD_BITS) >> THREAD_SHIFT
    pending = stamp & PENDING
    owners = pointer(i32, d.owner)
    block = owners[stamp & ~PENDING]
    own = block == narrow(i32, slot.block)
    level = OTHER_BLOCK + 0
    if own:
        level = SAME_BLOCK + 0
        if (thread >> 5) == (d.thread >> 5):
            level = SAME_WARP + 0
    if ((what & NC_BIT) != 0) or ((d.flags & NC) != 0):
        found(d, slot, NC_WRITE, k, level, 0, first, thread, block, 0)
        return GO
    if pending == 0:
        if own and (thread == d.thread):
            return GO
        if known(d, slot, stamp, thread, block, own):
            return GO
    kind = RACE + 0
    if ((facts.flags & d.flags) & STRONG) != 0:
        if own or (((facts.flags & d.flags) & WIDE) != 0):
            kind = PARTIAL + 0
            if (facts.element == d.element) and ((what & MASK_BITS) == d.mask):
                if not lockstep(d, level, facts.flags):
                    return GO
                kind = RACE + 0
    if pending == 0:
        if slot.foreign != 0:
            if d.answers[k] == 0:
                d.asked = k
                d.asked_stamp = stamp
                d.asked_thread = thread
                d.asked_block = widen(i64, block)
                return ASK
    same = 0
    if (d.valued != 0) and ((w[step * 7] & (d.mask << 4)) == (d.mask << 4)):
        if (what & d.mask) == d.mask:
            if ((w[step * 6] ^ d.value) & spread(d.mask)) == 0:
                same = 1
    if ((d.flags & READS) != 0) or ((facts.flags & READS) != 0):
        same = 0
    found(d, slot, kind, k, level, same, first, thread, block, pending >> 31)
    return GO


def lockstep(d: Detector, level: i32, flags: i32) -> i1:
    """Volatile accesses of lanes of one warp to shared memory: no race by the letter, and written for warps whose lanes
    ran in lockstep, which they do not since sm_70."""
    return (level == SAME_WARP) and (d.shared != 0) and ((flags & d.flags & VOLATILE) != 0)


def found(
    d: Detector, slot: Slot, kind: i32, k: i32, level: i32, same: i32, first: i32, thread: i32, block: i32, pending: i32
) -> None:
    """Reports it, once even where the word is looked at again after a question."""
    report(d, kind, level, same, first, thread, widen(i64, block), d.site, d.thread, slot.block, d.address, pending)
    d.answers[k] = 1


def known(d: Detector, slot: Slot, stamp: i32, thread: i32, block: i32, own: i1) -> i1:
    """Whether an access happened before, by barriers of the block, or by what the whole block knows of another."""
    if not own:
        if slot.foreign != 0:
            others = pointer(i32, slot.known)
            return others[block] >= stamp
        return 0
    if stamp <= slot.floor:
        return 1
    if (thread >> 5) == (d.thread >> 5):
        floors = pointer(i32, slot.warp_floor)
        if stamp <= floors[thread >> 5]:
            return 1
    know = pointer(i32, slot.know)
    return know[widen(i64, d.thread) * widen(i64, d.warps * 32) + widen(i64, thread)] >= stamp


def spread(mask: i32) -> i32:
    """Bits of the bytes of a mask."""
    return ((mask & 1) | ((mask & 2) << 7) | ((mask & 4) << 14) | ((mask & 8) << 21)) * 255


def identity(d: Detector) -> i32:
    """The access as a word remembers it."""
    out = d.mask | (d.thread << THREAD_SHIFT) | (d.site << SITE_SHIFT)
    if (d.flags & NC) != 0:
        out = out | NC_BIT
    if (d.flags & WRITES) != 0:
        out = out | WRITE_BIT
    return out


def matters(d: Detector, slot: Slot, stamp: i32) -> i1:
    """Whether somebody may still race with a remembered access: not all of its block know it, or it is another's."""
    if d.shared != 0:
        return stamp > slot.floor
    owners = pointer(i32, d.owner)
    return (stamp != 0) and ((stamp > slot.floor) or (owners[stamp] != narrow(i32, slot.block)))


def is_own(d: Detector, slot: Slot, stamp: i32, what: i32) -> i1:
    """Whether it is the same thread's."""
    same = ((what & THREAD_BITS) >> THREAD_SHIFT) == d.thread
    if d.shared != 0:
        return same
    owners = pointer(i32, d.owner)
    return same and (owners[stamp] == narrow(i32, slot.block))


def remember_read(d: Detector, slot: Slot, w: P[i32], step: i64) -> None:
    """In a place that nobody needs any more, or that is the thread's own; a third reader is not kept."""
    what = identity(d)
    for k in range(2):
        at = step * widen(i64, 2 + 2 * k)
        old = w[at + step]
        needed = matters(d, slot, w[at])
        own = needed and is_own(d, slot, w[at], old) and ((old & WRITE_BIT) == 0)
        if own:
            what = what | (old & MASK_BITS)
        if own or (not needed):
            w[at] = slot.now
            w[at + step] = what
            return


def remember_write(d: Detector, slot: Slot, w: P[i32], step: i64, live: i32, extra: i32) -> None:
    """As the last write. What it does not cover of the one before, and an atomic of another thread, is kept besides."""
    old_stamp = w[0]
    old = w[step]
    kept = old & MASK_BITS & ~d.mask
    if (d.flags & ATOMIC) != 0:
        if not is_own(d, slot, old_stamp & ~PENDING, old):
            kept = old & MASK_BITS
    else:
        for k in range(2):
            at = step * widen(i64, 2 + 2 * k)
            rest = w[at + step] & ~d.mask
            w[at + step] = rest
            if (rest & MASK_BITS) == 0:
                w[at] = 0
    if (live != 0) and (kept != 0) and ((old_stamp & PENDING) == 0):
        if matters(d, slot, old_stamp):
            keep_write(d, slot, w, step, old_stamp, (old & ~MASK_BITS) | kept)
    w[0] = slot.now
    if (d.flags & ASYNC) != 0:
        w[0] = slot.now | PENDING
    w[step] = identity(d)
    bytes = spread(d.mask)
    w[step * 6] = (w[step * 6] & ~bytes) | (d.value & bytes)
    if (d.flags & ASYNC) != 0:
        w[step * 6] = d.value
    extra = (extra | d.mask) & ~(d.mask << 4)
    if d.valued != 0:
        extra = extra | (d.mask << 4)
    w[step * 7] = extra


def keep_write(d: Detector, slot: Slot, w: P[i32], step: i64, stamp: i32, what: i32) -> None:
    """In the first place that nobody needs any more; else it is forgotten."""
    for k in range(2):
        at = step * widen(i64, 2 + 2 * k)
        if not matters(d, slot, w[at]):
            w[at] = stamp
            w[at + step] = what
            return


def message(d: Detector, slot: Slot, extra: P[i32]) -> None:
    """Strong accesses that leave or meet a message are Python's to follow; a weak write takes the message away."""
    number = extra[0] >> MESSAGE_SHIFT
    if (d.flags & STRONG) == 0:
        if (d.flags & WRITES) != 0:
            extra[0] = extra[0] & ((1 << MESSAGE_SHIFT) - 1)
        return
    wanted = widen(i1, 0)
    if (d.flags & WRITES) != 0:
        fenced = pointer(i32, slot.fenced)
        lanes_fenced = fenced[d.thread >> 5]
        wanted = ((d.flags & RELEASES) != 0) or (((lanes_fenced >> (d.thread & 31)) & 1) != 0)
        if (not wanted) and ((d.flags & READS) == 0):
            extra[0] = extra[0] & ((1 << MESSAGE_SHIFT) - 1)
            return
    if (d.flags & READS) != 0:
        seen = pointer(i32, slot.seen)
        wanted = wanted or ((number != 0) and (seen[d.thread] != number))
    if wanted:
        d.sync_lanes = d.sync_lanes | (1 << (d.thread & 31))
