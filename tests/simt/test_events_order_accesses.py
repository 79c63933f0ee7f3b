"""Events alone say whether two accesses are ordered: a small detector of races, by vector clocks (Lamport 1978, Mattern
1989), that sees nothing but them."""

from collections import defaultdict

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import launch
from undertorch.simt.events import SPACES, EventKind

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %d<19>;
.shared .align 16 .b8 s[2048];
ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, s;
mad.lo.u32 %r4, %r1, 4, %r3; mad.wide.u32 %d2, %r1, 4, %d1;
add.u32 %r5, %r1, 1; rem.u32 %r5, %r5, %r2; mad.lo.u32 %r6, %r5, 4, %r3;
"""
WRITE, READ_NEXT, READ_OWN = "st.shared.u32 [%r4], 1;", "ld.shared.u32 %r7, [%r6];", "ld.shared.u32 %r7, [%r4];"
COPY, WAIT = "cp.async.ca.shared.global [%r4], [%d2], 4; cp.async.commit_group;", "cp.async.wait_group 0;"
BARRIER, WARP_BARRIER = "bar.sync 0;", "bar.warp.sync -1;"
SIGNAL = "setp.lt.u32 %p1, %r1, 32; @%p1 bra low; bar.sync 1, 64; bra done; low: bar.arrive 1, 64; done:"


class Races:
    """Of one block's shared memory, byte by byte."""

    def __init__(self, threads):
        self.clocks = np.eye(threads, dtype=int)
        self.seen = defaultdict(list)  # byte: (thread, its time, whether it wrote)
        self.copies = {}  # byte: (thread, group) of a copy on its way
        self.arrived = defaultdict(list)
        self.found = 0

    def take(self, rows, sites):
        for row in rows:
            kind, site = EventKind(row["kind"]), sites[row["site"]]
            lanes = [n for n in range(32) if int(row["mask"]) >> n & 1]
            threads = [32 * int(row["warp"]) + n for n in lanes]
            shared = SPACES[row["space"]] == "shared"
            if kind in {EventKind.ACCESS, EventKind.ISSUED} and shared:
                for lane, thread in zip(lanes, threads, strict=True):
                    at = int(row["addresses"][lane])
                    for byte in range(at, at + int(row["bytes"])):
                        if kind is EventKind.ACCESS:
                            self.access(thread, byte, site.writes)
                        else:
                            self.copies[byte] = (thread, int(row["number"]))
            elif kind is EventKind.COMPLETED:
                for byte, (thread, group) in list(self.copies.items()):
                    if thread in threads and group < row["number"]:
                        del self.copies[byte]
                        self.access(thread, byte, True)
            elif kind is EventKind.ARRIVED:
                waits = site.instruction.name != "bar.arrive"
                self.arrived[int(row["number"])] += [(t, self.clocks[t].copy(), waits) for t in threads]
                self.clocks[threads, threads] += 1
            elif kind is EventKind.OPENED:
                came = self.arrived.pop(int(row["number"]))
                self.join([t for t, _, waits in came if waits], [clock for _, clock, _ in came])
            elif kind is EventKind.WARP_SYNC:
                clocks = list(self.clocks[threads].copy())
                self.clocks[threads, threads] += 1
                self.join(threads, clocks)

    def join(self, threads, clocks):
        for thread in threads:
            self.clocks[thread] = np.maximum(self.clocks[thread], np.max(clocks, axis=0))

    def access(self, thread, byte, writes):
        on_its_way = byte in self.copies
        unordered = any(
            other != thread and (wrote or writes) and self.clocks[thread, other] < time
            for other, time, wrote in self.seen[byte]
        )
        self.found += on_its_way or unordered
        self.seen[byte].append((thread, self.clocks[thread, thread], writes))


@pytest.mark.parametrize(
    ("pieces", "threads", "races"),
    [
        ((WRITE, READ_NEXT), 64, True),
        ((WRITE, BARRIER, READ_NEXT), 64, False),
        ((WRITE, READ_OWN), 64, False),
        ((WRITE, BARRIER, READ_NEXT, WRITE), 64, True),  # written again while others still read
        ((WRITE, BARRIER, READ_NEXT, BARRIER, WRITE), 64, False),
        ((WRITE, READ_NEXT), 32, True),  # lanes of a warp race as any threads do
        ((WRITE, WARP_BARRIER, READ_NEXT), 32, False),
        ((WRITE, WARP_BARRIER, READ_NEXT), 64, True),  # the last lane reads the next warp's
        ((WRITE, SIGNAL, READ_NEXT), 64, True),  # who only signals waits for nobody
        ((COPY, READ_OWN), 64, True),
        ((COPY, WAIT, READ_OWN), 64, False),
        ((COPY, WAIT, READ_NEXT), 64, True),
        ((COPY, WAIT, BARRIER, READ_NEXT), 64, False),
        ((COPY, BARRIER, READ_NEXT), 64, True),
    ],
)
@pytest.mark.parametrize("seed", [None, 1])
def test_races_are_found_where_nothing_orders_two_accesses(pieces, threads, races, seed):
    """PTX ISA, "Memory Consistency Model": barriers order, a wait for copies orders them for its own thread only."""
    found = Races(threads)
    text = HEAD + "\n".join(pieces) + "\nret;\n}"
    launch(text, "k", 1, threads, (np.zeros(64, np.uint32),), gpu=find("A100-80GB"), instrument="events", seed=seed,
           on_events=found.take)  # fmt: skip
    assert bool(found.found) is races
