"""Events alone say whether two accesses are ordered: a small detector of races sees nothing but them."""

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import launch
from vector_clocks import VectorClocks

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
    found = VectorClocks(threads)
    text = HEAD + "\n".join(pieces) + "\nret;\n}"
    launch(text, "k", 1, threads, (np.zeros(64, np.uint32),), gpu=find("A100-80GB"), instrument="events", seed=seed,
           on_events=found.take)  # fmt: skip
    assert bool(found.races) is races
