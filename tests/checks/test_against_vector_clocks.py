"""The detector against a small one that keeps a whole vector clock for each thread and every access of each byte.

Random kernels of stores, loads, atomics, copies and barriers of every kind on a few words. Both see the same events.
Where the small one finds no race the detector must find none; where it finds some, the detector has to find one, too.
"""

import numpy as np
import pytest

from undertorch.checks import layout
from undertorch.checks.check import Watch
from undertorch.gpus import find
from undertorch.simt import Deadlock, launch
from vector_clocks import VectorClocks

THREADS = 64
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .pred %p<9>; .reg .b32 %r<29>; .reg .b64 %d<19>; .reg .b16 %h<9>;
.shared .align 16 .b8 s[2048];
ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r3, s; mov.b16 %h1, 7;
"""


def random_kernel(random):
    """Statements, some of them for half of the threads only."""
    lines = []
    for n in range(int(random.integers(2, 9))):
        # An element by thread: moved, mirrored in a warp, or one for many.
        index = random.choice(["own", "own", "own", "next", "mirrored", "few"])
        lines.append({
            "own": "mov.u32 %r5, %r1;",
            "next": "add.u32 %r5, %r1, 1; and.b32 %r5, %r5, 63;",
            "mirrored": "xor.b32 %r5, %r1, 31;",
            "few": "shr.u32 %r5, %r1, 3;",
        }[index])  # fmt: skip
        lines.append("mad.lo.u32 %r6, %r5, 4, %r3; mad.wide.u32 %d2, %r5, 4, %d1; and.b32 %r7, %r1, 12;")
        lines.append("mad.lo.u32 %r8, %r1, 2, %r3; mad.wide.u32 %d3, %r1, 4, %d1;")
        statement = random.choice([
            "st.shared.u32 [%r6], %r1;", "ld.shared.u32 %r9, [%r6];", "st.global.u32 [%d2], %r1;",
            "ld.global.u32 %r9, [%d2];", "atom.shared.add.u32 %r9, [%r6], 1;", "red.global.add.u32 [%d2], 1;",
            "st.shared.u16 [%r8], %h1;", "ld.shared.u16 %h2, [%r8];",
            "cp.async.ca.shared.global [%r6], [%d3+1024], 4; cp.async.commit_group;", "cp.async.wait_group 0;",
            "cp.async.wait_group 1;", "bar.sync 0;", "bar.sync 0;", "bar.sync 0;", "bar.warp.sync -1;",
            "bar.warp.sync -1;", "HALVES", "SIGNAL",
        ])  # fmt: skip
        if statement == "HALVES":
            lines.append(
                f"and.b32 %r10, %r1, 16; setp.eq.u32 %p2, %r10, 0; @%p2 bra low{n}; bar.warp.sync 0xffff0000; "
                f"bra done{n}; low{n}: bar.warp.sync 0xffff; done{n}:"
            )
        elif statement == "SIGNAL":
            lines.append(
                f"setp.lt.u32 %p1, %r1, 32; @%p1 bra low{n}; bar.sync {n + 1}, 64; bra done{n}; "
                f"low{n}: bar.arrive {n + 1}, 64; "
                f"done{n}: bar.warp.sync -1;"
            )
        elif random.random() < 0.3 and not statement.startswith(("bar", "cp")):
            lines.append(f"setp.ge.u32 %p3, %r1, 32; @%p3 {statement}")
        else:
            lines.append(statement)
    return HEAD + "\n".join(lines) + "\nret;\n}"


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels_race_for_both_or_for_none(seed):
    random = np.random.default_rng(seed)
    text = random_kernel(random)
    watch, clocks = Watch(), VectorClocks(THREADS)

    def take(rows, sites):
        watch.take(rows, sites)
        clocks.take(rows, sites)

    try:
        launch(text, "k", 1, THREADS, (np.zeros(1024, np.uint32),), gpu=find("A100-80GB"), instrument="events",
               seed=seed % 3 or None, on_start=watch.start, on_events=take)  # fmt: skip
    except Deadlock:
        pytest.fail("the kernel was to end")
    kinds = {int(pair["kind"]) for pair in watch.told().pairs}
    found = bool(kinds & {layout.RACE, layout.PARTIAL})
    assert found is bool(clocks.races), text
