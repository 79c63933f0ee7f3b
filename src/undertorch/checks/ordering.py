"""What fences, releases and acquires order: rare things, kept in Python.

A strong write after a fence, or one that releases, leaves a message at its location; whoever reads it there by a strong
read that acquires, or fences afterwards, knows what the writer knew (PTX ISA, "Memory Consistency Model": release and
acquire patterns; an atomic that reads a message passes it on with its own). A message holds only with scopes that hold
both threads.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from undertorch.checks import layout
from undertorch.simt.runtime import layout as machine_layout
from undertorch.simt.runtime.layout import WARP

if TYPE_CHECKING:
    from undertorch.checks.detector import Detector, Slot

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What one thread knew when it released, or several messages together (`thread` is -1)."""

    block: int
    thread: int
    stamp: int
    """Of the thread itself."""
    floor: int
    """Of all threads of its block."""
    warp_floor: int
    row: Array | None
    """Of each thread of its block, where it knew some better than others."""
    before: tuple["Message", ...]
    wide: bool
    """Whether threads of other blocks may acquire it; of several: all of it."""
    number: int
    """Messages are numbered as they come; what was released later than a message is in none before it."""
    born: int
    """The launch's last stamp then."""

    def tells(self, block: int, thread: int, stamp: int) -> bool:
        """Whether it says by itself that an access happened."""
        if self.thread < 0 or self.block != block:
            return False
        if stamp <= self.floor or (thread == self.thread and stamp <= self.stamp):
            return True
        if thread // WARP == self.thread // WARP and stamp <= self.warp_floor:
            return True
        return self.row is not None and int(self.row[thread]) >= stamp


def reaches(messages: tuple[Message, ...], block: int, thread: int, stamp: int) -> Message | None:
    """The message that tells of an access, among those given and those that their writers had acquired."""
    seen: set[int] = set()
    left = list(messages)
    while left:
        message = left.pop()
        if id(message) in seen or message.born < stamp:
            continue
        seen.add(id(message))
        if message.tells(block, thread, stamp):
            return message
        left += message.before
    return None


@dataclass(slots=True)
class Ordering:
    """Messages of a launch, and who acquired which."""

    detector: "Detector"
    messages: dict[int, Message] = field(default_factory=dict)
    """Of locations, by the number that stands in their shadow."""
    pending: dict[tuple[int, int], list[tuple[Message, bool]]] = field(default_factory=dict)
    """Read by a thread of a block and not yet acquired; whether the read was of a wide scope."""
    acquired: dict[tuple[int, int], tuple[Message, ...]] = field(default_factory=dict)
    by_block: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    """Acquired by all threads of a block."""
    count: int = 0

    def known(self, row: "np.void") -> bool:
        """Whether the access that the detector asks about happened before this one."""
        d = self.detector.state[0]
        block, thread = int(row["block"]), int(d["thread"])
        other, by, stamp = int(d["asked_block"]), int(d["asked_thread"]), int(d["asked_stamp"])
        whole = reaches(self.by_block.get(block, ()), other, by, stamp)
        if whole is not None:
            if other != block:
                known = self._slot(block).known
                known[other] = max(int(known[other]), whole.floor)
            return True
        return reaches(self.acquired.get((block, thread), ()), other, by, stamp) is not None

    def sync(self, row: "np.void", facts: "np.void", lanes: int) -> None:
        """What a row does besides what native code did of it."""
        kind = int(row["kind"])
        block = int(row["block"])
        if kind == machine_layout.FENCE:
            self._acquire_by_fence(row, bool(int(facts["flags"]) & layout.WIDE))
        elif kind == machine_layout.OPENED:
            warps = self.detector.schedule.warps
            met = self.detector.met
            waiting = list(_threads(met[:warps]))
            self._pass_on(block, waiting, [*waiting, *_threads(met[warps : 2 * warps])], bool(self._d("met_all")))
        elif kind == machine_layout.WARP_SYNC:
            first = int(row["warp"]) * WARP
            members = [first + lane for lane in range(WARP) if int(row["mask"]) >> lane & 1]
            self._pass_on(block, members, members, False)
        else:
            for lane in range(WARP):
                if lanes >> lane & 1:
                    flags = int(facts["flags"])
                    failed = flags & layout.CAS and not int(row["count"]) >> lane & 1
                    self._access(row, flags & ~layout.WRITES if failed else flags, lane)

    def ended(self, block: int, slot: int) -> None:
        """A block that had acquired something is gone."""
        self.detector.slots[slot].known[:] = 0
        self.by_block.pop(block, None)
        for thread in range(self.detector.width):
            self.acquired.pop((block, thread), None)
            self.pending.pop((block, thread), None)

    # -- accesses

    def _access(self, row: "np.void", flags: int, lane: int) -> None:
        block, thread = int(row["block"]), int(row["warp"]) * WARP + lane
        words, at = self.detector.message_word(row, lane)
        number = int(words[at]) >> layout.MESSAGE_SHIFT
        found = self.messages.get(number)
        slot = self._slot(block)
        wide = bool(flags & layout.WIDE)
        if found is not None and flags & layout.READS:
            if flags & layout.ACQUIRES:
                self._acquire(block, thread, [(found, wide)])
            else:
                read = self.pending.setdefault((block, thread), [])
                read[:] = [(m, far) for m, far in read if not (far <= wide and _holds(found, m))] + [(found, wide)]
                slot.pending[thread // WARP] |= np.uint32(1 << lane)
            slot.seen[thread] = number
        if flags & layout.WRITES:
            own = self._released(block, thread, slot, flags, wide)
            passed_on = found if flags & layout.ATOMIC else None
            if own is None and passed_on is not None:
                return
            self.messages.pop(number, None)
            left = own
            if own is not None and passed_on is not None and not _holds(own, passed_on):
                left = self._joined(own, passed_on)
            new = 0
            if left is not None:
                self.count += 1
                new = self.count & 0xFFFFFF
                self.messages[new] = left
                slot.seen[thread] = new if flags & layout.READS == 0 else 0
            words[at] = (int(words[at]) & ((1 << layout.MESSAGE_SHIFT) - 1)) | new << layout.MESSAGE_SHIFT

    def _released(self, block: int, thread: int, slot: "Slot", flags: int, wide: bool) -> Message | None:
        """What a strong write leaves: by its own order all until now, else all until the thread's last fence."""
        rows = self.detector.rows[self.detector.slot_number(block)]
        if flags & layout.RELEASES:
            stamp, floor, warp_floor = int(rows["now"]), int(rows["floor"]), int(slot.warp_floor[thread // WARP])
            rows["passed"] = 1
        else:
            bit = 1 << thread % WARP
            if not int(slot.fenced[0, thread // WARP]) & bit:
                return None
            wide = wide and bool(int(slot.fenced[1, thread // WARP]) & bit)
            stamp, floor, warp_floor = (int(n) for n in slot.fences[3 * wide : 3 * wide + 3, thread])
        before = (*self.by_block.get(block, ()), *self.acquired.get((block, thread), ()))
        row = slot.know[thread].copy() if int(rows["apart"]) else None
        return Message(block, thread, stamp, floor, warp_floor, row, before, wide, self.count, self._d("stamp"))

    def _joined(self, *messages: Message) -> Message:
        wide = all(m.wide for m in messages)
        return Message(-1, -1, 0, 0, 0, None, messages, wide, self.count, self._d("stamp"))

    # -- who learns

    def _acquire_by_fence(self, row: "np.void", wide: bool) -> None:
        block, first = int(row["block"]), int(row["warp"]) * WARP
        slot = self._slot(block)
        for lane in range(WARP):
            if int(row["mask"]) >> lane & 1:
                found = self.pending.pop((block, first + lane), [])
                self._acquire(block, first + lane, [(message, wide and far) for message, far in found])
        slot.pending[first // WARP] &= ~np.uint32(int(row["mask"]))

    def _acquire(self, block: int, thread: int, found: list[tuple[Message, bool]]) -> None:
        """Messages with scopes that hold both: of another block both sides' scopes have to be wide."""
        new = [part for message, wide in found for part in _parts(message, block, wide)]
        if not new:
            return
        self.detector.rows[self.detector.slot_number(block)]["foreign"] = 1
        old = [m for m in self.acquired.get((block, thread), ()) if not any(_holds(n, m) for n in new)]
        self.acquired[block, thread] = self._merged((*old, *new))

    def _pass_on(self, block: int, to: list[int], of: list[int], everybody: bool) -> None:
        """Threads that met know what those who came had acquired."""
        came = [message for thread in of for message in self.acquired.get((block, thread), ())]
        messages = tuple({id(message): message for message in came}.values())
        if not messages:
            return
        if everybody:
            self.by_block[block] = self._merged((*self.by_block.get(block, ()), *messages))
            for thread in range(self.detector.width):
                self.acquired.pop((block, thread), None)
        else:
            merged = self._merged(messages)
            for thread in to:
                self.acquired[block, thread] = merged

    def _merged(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """As one where they are many."""
        unique = tuple({id(message): message for message in messages}.values())
        return unique if len(unique) <= FEW else (self._joined(*unique),)

    def _slot(self, block: int) -> "Slot":
        return self.detector.slots[self.detector.slot_number(block)]

    def _d(self, name: str) -> int:
        return int(self.detector.state[0][name])


FEW = 8


def _holds(message: Message, other: Message) -> bool:
    """Whether one says all that another does, as far as that is seen at once."""
    return message is other or any(m is other for m in message.before)


def _parts(message: Message, block: int, wide: bool) -> Iterator[Message]:
    """What a thread of `block` may acquire of a message: all, or those of its parts whose scopes hold both threads."""
    left, seen = [message], set()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if (wide and one.wide) or one.block == block:
            yield one
        elif one.thread < 0:
            left += one.before


def _threads(masks: Array) -> Iterator[int]:
    for warp, mask in enumerate(masks):
        for lane in range(WARP):
            if int(mask) >> lane & 1:
                yield WARP * warp + lane
