"""Accesses that repeat a pattern of addresses, until one of them is no longer allowed."""

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import Fault, launch

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 rounds) {
.reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %d<19>;
.shared .align 16 .b8 s[4096];
.local .align 4 .b8 own[256];
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [out]; ld.param.u32 %r3, [rounds];
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r9, 0;
"""
LOOP = "again:\n{}\nadd.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r3; @%p1 bra again;\n"
TAIL = "mad.wide.u32 %d9, %r1, 4, %d3; st.global.u32 [%d9], %r9;\nret;\n}"


def run(body, a, b=None, rounds=1000, threads=32, instrument="none"):
    out = np.zeros(threads, np.uint32)
    b = np.zeros(8, np.uint32) if b is None else b
    launch(HEAD + LOOP.format(body) + TAIL, "k", 1, threads, (a, b, out, rounds), gpu=find("T4"), instrument=instrument)
    return out


@pytest.mark.parametrize("instrument", ["none", "counters", "events"])
@pytest.mark.parametrize(
    ("step", "threads", "lane"),
    [(128, 32, 8), (4, 32, 31), (128, 21, 8)],
    ids=["row by row", "element by element", "some lanes"],
)
def test_the_first_lane_behind_the_end_is_named(instrument, step, threads, lane):
    """1000 floats read `step` bytes on each round: the round whose last lanes lie behind them faults."""
    a = np.zeros(1000, np.uint32)
    body = f"mad.lo.u32 %r4, %r2, {step // 4}, %r1; mad.wide.u32 %d4, %r4, 4, %d1; ld.global.u32 %r5, [%d4];"
    with pytest.raises(Fault) as fault:
        run(body, a, threads=threads, instrument=instrument)
    assert (fault.value.kind, fault.value.thread.thread) == ("out-of-bounds", (lane, 0, 0))
    good = (1000 - threads) * 4 // step + 1  # rounds that stay inside
    run(body, a, rounds=good, threads=threads, instrument=instrument)
    with pytest.raises(Fault):
        run(body, a, rounds=good + 1, threads=threads, instrument=instrument)


def test_bytes_end_at_the_last_one():
    a = np.zeros(100, np.uint8)
    body = "add.u32 %r4, %r2, %r1; cvt.u64.u32 %d4, %r4; add.u64 %d4, %d4, %d1; ld.global.u8 %r5, [%d4];"
    run(body, a, rounds=69)
    with pytest.raises(Fault):
        run(body, a, rounds=70)


def test_a_pattern_that_moves_down_faults_below_the_start():
    """Lane n reads element 990 - 10 * round - n: lane 31 is below 0 first."""
    a = np.zeros(1000, np.uint32)
    body = ("mul.lo.u32 %r4, %r2, 10; add.u32 %r4, %r4, %r1; sub.s32 %r4, 990, %r4;"
            "mad.wide.s32 %d4, %r4, 4, %d1; ld.global.u32 %r5, [%d4];")  # fmt: skip
    run(body, a, rounds=96)  # 990 - 950 - 31 = 9
    with pytest.raises(Fault) as fault:
        run(body, a, rounds=97)  # 990 - 960 - 31 = -1
    assert (fault.value.kind, fault.value.thread.thread[0]) == ("out-of-bounds", 31)


@pytest.mark.parametrize("instrument", ["none", "counters"])
def test_a_pattern_that_moves_off_its_alignment_is_misaligned(instrument):
    a = np.zeros(1000, np.uint32)
    body = ("mad.wide.u32 %d4, %r1, 8, %d1; mul.wide.u32 %d5, %r2, 4; shr.u64 %d5, %d5, 3; shl.b64 %d5, %d5, 2;"
            "add.u64 %d4, %d4, %d5; ld.global.u64 %d6, [%d4];")  # fmt: skip
    run(body, a, rounds=2, instrument=instrument)
    with pytest.raises(Fault) as fault:
        run(body, a, rounds=3, instrument=instrument)
    assert fault.value.kind == "misaligned"


def test_the_same_pattern_in_another_buffer_reads_that_one():
    """Rounds alternate between two arrays, more often than patterns are learned."""
    a, b = np.arange(32, dtype=np.uint32), 1000 * np.arange(32, dtype=np.uint32)
    body = ("and.b32 %r4, %r2, 1; setp.eq.u32 %p2, %r4, 0; selp.b64 %d4, %d1, %d2, %p2;"
            "mad.wide.u32 %d4, %r1, 4, %d4; ld.global.u32 %r5, [%d4]; add.u32 %r9, %r9, %r5;")  # fmt: skip
    assert np.array_equal(run(body, a, b, rounds=600), 300 * (a + b))


def test_the_same_pattern_in_memory_that_is_read_only_is_refused():
    a, b = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    body = ("setp.lt.u32 %p2, %r2, 500; selp.b64 %d4, %d1, %d2, %p2;"
            "mad.wide.u32 %d4, %r1, 4, %d4; st.global.u32 [%d4], %r2;")  # fmt: skip
    run(body, a, b, rounds=501)
    assert np.all(b == 500)
    b.flags.writeable = False
    with pytest.raises(Fault):
        run(body, a, b, rounds=501)
    assert np.all(b == 500)


def test_patterns_that_never_repeat_are_read_right():
    """Each round another permutation of 32 elements: (lane * (2 * round + 1) + round) mod 1024."""
    a = np.random.default_rng(1).integers(0, 1 << 30, 1024, np.uint32)
    body = ("shl.b32 %r4, %r2, 1; add.u32 %r4, %r4, 1; mad.lo.u32 %r4, %r4, %r1, %r2; and.b32 %r4, %r4, 1023;"
            "mad.wide.u32 %d4, %r4, 4, %d1; ld.global.u32 %r5, [%d4]; mad.lo.u32 %r9, %r9, 3, %r5;")  # fmt: skip
    lanes, wanted = np.arange(32), np.zeros(32, np.uint32)
    for n in range(300):
        wanted = wanted * np.uint32(3) + a[(lanes * (2 * n + 1) + n) % 1024]
    assert np.array_equal(run(body, a, rounds=300), wanted)


@pytest.mark.parametrize(
    ("space", "address", "last"),
    [
        ("shared", "mov.u32 %r6, s; mad.lo.u32 %r6, %r4, 4, %r6;", 1024),
        ("local", "mov.u32 %r6, own; mad.lo.u32 %r6, %r4, 4, %r6;", 64),
    ],
)
def test_shared_and_local_memory_end_where_they_end(space, address, last):
    """Lane n writes element n + round of the block's shared, its own local memory; it reads it back."""
    body = (f"add.u32 %r4, %r1, %r2; {address} st.{space}.u32 [%r6], %r4; ld.{space}.u32 %r5, [%r6];"
            "add.u32 %r9, %r9, %r5;")  # fmt: skip
    a = np.zeros(1, np.uint32)
    rounds = last - 31
    lanes = np.arange(32)
    wanted = sum((lanes + n for n in range(rounds)), np.zeros(32, int))
    assert np.array_equal(run(body, a, rounds=rounds), wanted)
    with pytest.raises(Fault) as fault:
        run(body, a, rounds=rounds + 1)
    assert (fault.value.kind, fault.value.thread.thread[0]) == ("out-of-bounds", 31)


def test_uniform_reads_and_writes_by_lanes_that_change():
    """In round r only lanes above r % 32 take part: masks differ while addresses stay."""
    a, b = np.array([7], np.uint32), np.zeros(1, np.uint32)
    body = ("and.b32 %r4, %r2, 31; setp.lt.u32 %p2, %r1, %r4; @!%p2 ld.global.u32 %r5, [%d1];"
            "@!%p2 add.u32 %r9, %r9, %r5; @!%p2 st.global.u32 [%d2], %r1;")  # fmt: skip
    wanted = 7 * np.array([sum(n >= r % 32 for r in range(200)) for n in range(32)])
    assert np.array_equal(run(body, a, b, rounds=200), wanted)
    assert b[0] == 31  # of equal addresses the highest lane's value stays
