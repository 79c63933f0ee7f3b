"""Events against what the PTX says: each kind, with what a race detector needs of it."""

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import PtxError, launch
from undertorch.simt.events import SPACES, EventKind

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0) {
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<19>; .reg .b64 %d<19>;
.shared .align 16 .b8 s[2048];
ld.param.u64 %d1, [k_param_0];
mov.u32 %r1, %tid.x;
mad.wide.u32 %d2, %r1, 4, %d1;
mov.u32 %r2, s;
mad.lo.u32 %r3, %r1, 4, %r2;
mad.lo.u32 %r4, %r1, 16, %r2;
mad.wide.u32 %d4, %r1, 16, %d1;
"""


def events(body, block, memory=None, grid=1, **options):
    """Rows, each with its site, of a kernel that has its memory's address in %d1, its thread's element in %d2."""
    memory = np.zeros(4096, np.uint32) if memory is None else memory
    seen = []

    def take(rows, sites):
        seen.extend((EventKind(row["kind"]).name, row.copy(), sites[row["site"]]) for row in rows)

    text = HEAD + ".loc 1 7 0\n" + body + '\nret;\n}\n.file 1 "a.cu"\n'
    launch(text, "k", grid, block, (memory,), gpu=find("A100-80GB"), instrument="events", on_events=take, **options)
    return seen


def of(kind, seen):
    return [(row, site) for name, row, site in seen if name == kind]


def lanes(row):
    return [n for n in range(32) if int(row["mask"]) >> n & 1]


def addresses(row):
    return [int(row["addresses"][n]) for n in lanes(row)]


def test_an_access_says_line_thread_block_space_address_bytes_and_direction():
    memory = np.zeros(4096, np.uint32)
    seen = of("ACCESS", events("st.shared.u16 [%r3], 5;\nld.global.v4.u32 {%r5,%r6,%r7,%r8}, [%d4+16];", 40, memory, 2))
    assert [(int(r["block"]), int(r["warp"]), s.writes, s.reads) for r, s in seen] == [
        (block, warp, write, not write) for block in (0, 1) for warp in (0, 1) for write in (True, False)
    ]
    for row, site in seen:
        threads = [32 * int(row["warp"]) + n for n in lanes(row)]
        assert threads == list(range(32) if row["warp"] == 0 else range(32, 40))
        assert (site.instruction.place.file, site.instruction.place.line) == ("a.cu", 7)
        assert (site.order, site.scope, site.atomic, site.proxy) == ("weak", None, False, "generic")
        if site.writes:
            assert (SPACES[row["space"]], row["bytes"], addresses(row)) == ("shared", 2, [4 * t for t in threads])
        else:
            wanted = [memory.ctypes.data + 16 * t + 16 for t in threads]
            assert (SPACES[row["space"]], row["bytes"], addresses(row)) == ("global", 16, wanted)


def test_lanes_that_a_guard_or_a_branch_leaves_out_are_no_part_of_an_event():
    seen = of("ACCESS", events("setp.lt.u32 %p1, %r1, 5;\n@%p1 st.shared.u32 [%r3], 1;\n"
                               "@%p1 bra past;\nst.shared.u32 [%r3], 2;\npast:", 32))  # fmt: skip
    assert [lanes(row) for row, _ in seen] == [list(range(5)), list(range(5, 32))]


def test_a_generic_access_says_which_space_each_lane_reached():
    """Even lanes point into shared memory, odd ones into global memory."""
    memory = np.zeros(4096, np.uint32)
    seen = of("ACCESS", events(
        "cvta.shared.u64 %d5, 0;\ncvt.u64.u32 %d6, %r3;\nadd.u64 %d5, %d5, %d6;\nand.b32 %r9, %r1, 1;\n"
        "setp.eq.u32 %p1, %r9, 0;\nselp.b64 %d7, %d5, %d2, %p1;\nst.u32 [%d7], 1;", 32, memory))  # fmt: skip
    found = {SPACES[row["space"]]: (lanes(row), addresses(row)) for row, _ in seen}
    assert found["shared"] == (list(range(0, 32, 2)), [4 * n for n in range(0, 32, 2)])
    assert found["global"] == (list(range(1, 32, 2)), [memory.ctypes.data + 4 * n for n in range(1, 32, 2)])
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("st.shared.u32 [%r3], %r1;", [lambda n: n]),
        ("cvt.u16.u32 %h1, %r1;\nst.shared.u8 [%r3], %h1;", [lambda n: n]),
        ("st.shared.v2.u32 [%r4], {%r1, 9};", [lambda n: n | 9 << 32]),
        ("st.shared.v4.u32 [%r4], {1, 2, %r1, 4};", [lambda n: 1 | 2 << 32, lambda n: n | 4 << 32]),
        ("cvt.u64.u32 %d9, %r1;\nst.shared.v2.u64 [%r4], {%d9, 7};", [lambda n: n, lambda n: 7]),
        ("cvt.u16.u32 %h1, %r1;\nst.shared.v4.u16 [%r4], {%h1, 1, 2, 3};", [lambda n: n | 1 << 16 | 2 << 32 | 3 << 48]),
        ("cvt.u16.u32 %h1, %r1;\nst.shared.v4.u8 [%r4], {%h1, 1, 2, 3};", [lambda n: n | 1 << 8 | 2 << 16 | 3 << 24]),
    ],
)  # fmt: skip
def test_what_a_store_writes_follows_it(body, rows):
    seen = [(name, row) for name, row, _ in events(body, 32) if name in {"ACCESS", "VALUES"}]
    assert [(name, int(row["number"])) for name, row in seen[1:]] == [("VALUES", n) for n in range(len(rows))]
    for wanted, (_, row) in zip(rows, seen[1:], strict=True):
        assert addresses(row) == [wanted(n) for n in range(32)]


def test_a_store_and_its_values_come_in_one_call():
    """More of them than the buffer has rows: the hand-over falls between instructions."""
    alone = []

    def take(rows, sites):
        alone.append((int(rows["kind"][0]), int(rows["kind"][-1])))

    body = "mov.u32 %r9, 0;\nagain:\nst.shared.v4.u32 [%r4], {1, 2, 3, 4};\nadd.u32 %r9, %r9, 1;\n"
    text = HEAD + body + "setp.lt.u32 %p1, %r9, 20000;\n@%p1 bra again;\nret;\n}"
    launch(text, "k", 1, 32, (np.zeros(9),), gpu=find("T4"), instrument="events", on_events=take)
    assert len(alone) > 3
    assert all(first == EventKind.ACCESS for first, _ in alone)
    assert all(last == EventKind.VALUES for _, last in alone[:-1])


@pytest.mark.parametrize(
    ("text", "order", "scope", "reads", "writes", "atomic"),
    [
        ("ld.global.u32 %r9, [%d2];", "weak", None, True, False, False),
        ("ld.volatile.global.u32 %r9, [%d2];", "volatile", "sys", True, False, False),
        ("ld.acquire.gpu.global.u32 %r9, [%d2];", "acquire", "gpu", True, False, False),
        ("st.release.cta.global.u32 [%d2], 1;", "release", "cta", False, True, False),
        ("st.relaxed.sys.global.u32 [%d2], 1;", "relaxed", "sys", False, True, False),
        ("atom.global.add.u32 %r9, [%d2], 1;", "relaxed", "gpu", True, True, True),
        ("atom.acq_rel.cta.global.exch.b32 %r9, [%d2], 1;", "acq_rel", "cta", True, True, True),
        ("red.release.sys.global.add.u32 [%d2], 1;", "release", "sys", True, True, True),
    ],
)
def test_order_and_scope_of_an_access(text, order, scope, reads, writes, atomic):
    """PTX ISA, "Memory Consistency Model": an atom without qualifiers is relaxed at gpu scope, volatile relaxed.sys."""
    ((_, site),) = of("ACCESS", events(text, 32))
    found = (site.order, site.scope, site.reads, site.writes, site.atomic)
    assert found == (order, scope, reads, writes, atomic)


@pytest.mark.parametrize(
    ("text", "order", "scope"),
    [
        ("membar.cta;", "sc", "cta"),
        ("membar.gl;", "sc", "gpu"),
        ("membar.sys;", "sc", "sys"),
        ("fence.acq_rel.gpu;", "acq_rel", "gpu"),
        ("fence.sc.cta;", "sc", "cta"),
    ],
)
def test_a_fence_has_its_order_and_scope(text, order, scope):
    """PTX ISA: membar is fence.sc of that scope, gl being gpu."""
    seen = events(f"setp.lt.u32 %p1, %r1, 3;\n@%p1 bra past;\n{text}\npast:", 32)
    ((row, site),) = of("FENCE", seen)
    assert (site.order, site.scope, lanes(row)) == (order, scope, list(range(3, 32)))


def test_a_barriers_arrivals_and_opening():
    """Two warps at bar.sync 0 twice: two arrivals and an opening for each phase, between them the accesses."""
    body = "st.shared.u32 [%r3], 1;\nbar.sync 0;\nld.shared.u32 %r9, [%r3];\nbar.sync 0;"
    seen = [(name, row) for name, row, _ in events(body, 48) if name in {"ACCESS", "ARRIVED", "OPENED"}]
    assert [name for name, _ in seen] == ["ACCESS", "ARRIVED"] * 2 + ["OPENED"] + ["ACCESS", "ARRIVED"] * 2 + ["OPENED"]
    arrived = [row for name, row in seen if name == "ARRIVED"]
    assert [(int(r["number"]), int(r["phase"]), int(r["count"]), lanes(r)) for r in arrived] == [
        (0, phase, 0, list(range(n)))
        for phase, n in ((0, 32), (0, 16), (1, 16), (1, 32))  # who opened it goes on
    ]
    assert [(int(r["number"]), int(r["phase"]), int(r["count"])) for name, r in seen if name == "OPENED"] == [
        (0, 0, 48), (0, 1, 48),
    ]  # fmt: skip


def test_barriers_by_number_with_arrivals_that_do_not_wait():
    """The first warp signals barrier 3, the second waits there: 64 threads in all."""
    body = ("setp.gt.u32 %p1, %r1, 31;\n@%p1 bra wait;\nbar.arrive 3, 64;\nbra done;\n"
            "wait:\nbar.sync 3, 64;\ndone:\nbar.red.popc.u32 %r9, 5, %p1;")  # fmt: skip
    seen = [(name, row, site) for name, row, site in events(body, 64) if name in {"ARRIVED", "OPENED"}]
    found = [(name, site.instruction.name, int(row["number"]), int(row["count"])) for name, row, site in seen]
    assert found.count(("ARRIVED", "bar.arrive", 3, 64)) == found.count(("ARRIVED", "bar.sync", 3, 64)) == 1
    assert found.count(("ARRIVED", "bar.red", 5, 0)) == 2
    assert [(number, count) for name, _, number, count in found if name == "OPENED"] == [(3, 64), (5, 64)]


def test_threads_that_end_are_told_before_the_barrier_that_they_open():
    body = "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra wait;\nret;\nwait:\nbar.sync 0;"
    seen = [(name, int(row["warp"]), int(row["count"])) for name, row, _ in events(body, 64) if name != "ACCESS"]
    assert seen == [("ARRIVED", 0, 0), ("EXIT", 1, 0), ("OPENED", 1, 32), ("EXIT", 0, 0)]


def test_lanes_that_meet_at_bar_warp_sync():
    body = ("setp.lt.u32 %p1, %r1, 8;\n@%p1 bra low;\nbar.warp.sync 0xffffff00;\nbra done;\n"
            "low:\nbar.warp.sync 0xff;\ndone:\nbar.warp.sync -1;")  # fmt: skip
    seen = of("WARP_SYNC", events(body, 32))
    assert [lanes(row) for row, _ in seen] == [list(range(8, 32)), list(range(8)), list(range(32))]


COPY = "cp.async.ca.shared.global [%r4], [%d4], 16;\n"


def test_a_copy_is_a_write_and_a_read_of_its_group_until_a_wait_completes_it():
    """Groups 0 and 1 are committed; wait_group 1 leaves the last one open, wait_group 0 none."""
    memory = np.zeros(4096, np.uint32)
    commit = "cp.async.commit_group;\n"
    body = COPY + commit + COPY + commit + "cp.async.wait_group 1;\ncp.async.wait_group 0;"
    seen = [(name, row, site) for name, row, site in events(body, 32, memory) if name != "EXIT"]
    assert [(name, int(row["number"])) for name, row, _ in seen] == [
        ("ISSUED", 0), ("ISSUED", 0), ("COMMITTED", 0), ("ISSUED", 1), ("ISSUED", 1), ("COMMITTED", 1),
        ("COMPLETED", 1), ("COMPLETED", 2),
    ]  # fmt: skip
    (_, write, to), (_, read, source) = seen[:2]
    assert (to.space, to.writes, to.reads, to.proxy, to.completed_by) == ("shared", True, False, "async", "group")
    assert (source.space, source.writes, source.reads, source.proxy) == ("global", False, True, "async")
    assert (SPACES[write["space"]], SPACES[read["space"]]) == ("shared", "global")
    assert addresses(write) == [16 * n for n in range(32)]
    assert addresses(read) == [memory.ctypes.data + 16 * n for n in range(32)]
    assert (write["bytes"], read["bytes"]) == (16, 16)


def test_groups_are_each_threads_own():
    """Eight lanes commit once more than the others, so one wait completes different groups."""
    body = ("setp.lt.u32 %p1, %r1, 8;\n@%p1 cp.async.commit_group;\n" + COPY + "cp.async.commit_group;\n"
            "cp.async.wait_group 0;")  # fmt: skip
    seen = events(body, 32)
    for kind, low, high in (("ISSUED", 1, 0), ("COMPLETED", 2, 1)):
        found = {(int(row["number"]), tuple(lanes(row))) for row, _ in of(kind, seen)}
        assert found == {(low, tuple(range(8))), (high, tuple(range(8, 32)))}


def test_a_wait_for_all_completes_what_was_not_committed_too():
    seen = events(COPY + "cp.async.wait_all;", 32)
    (completed, _), issued = of("COMPLETED", seen)[0], of("ISSUED", seen)
    assert all(int(row["number"]) < int(completed["number"]) for row, _ in issued)


def test_a_copy_of_fewer_bytes_reads_only_these():
    """Lane n reads n % 3 * 4 bytes of its 16; the rest is filled with zeros."""
    copy = COPY.replace("16;", "16, %r9;")
    seen = of("ISSUED", events(f"rem.u32 %r9, %r1, 3;\nshl.b32 %r9, %r9, 2;\n{copy}cp.async.wait_all;", 32))
    reads = {int(row["bytes"]): lanes(row) for row, site in seen if site.reads}
    assert reads == {4: list(range(1, 32, 3)), 8: list(range(2, 32, 3))}
    assert [(int(row["bytes"]), lanes(row)) for row, site in seen if site.writes] == [(16, list(range(32)))]


@pytest.mark.parametrize("size", ["%r9", "5"])
def test_a_copy_of_no_size_is_refused(size):
    with pytest.raises(PtxError, match=r"copies 4, 8 or 16 bytes"):
        events(COPY.replace("16;", f"{size};"), 32)


def test_the_consumer_is_called_by_one_host_thread_at_a_time():
    inside, worst = [], []

    def take(rows, sites):
        inside.append(1)
        worst.append(len(inside))
        assert set(np.unique(rows["kind"])) <= set(EventKind)
        inside.pop()

    body = "mov.u32 %r9, 0;\nagain:\nld.shared.u32 %r8, [%r3];\nadd.u32 %r9, %r9, 1;\n"
    text = HEAD + body + "setp.lt.u32 %p1, %r9, 9000;\n@%p1 bra again;\nret;\n}"
    launch(text, "k", 8, 32, (np.zeros(9),), gpu=find("T4"), instrument="events", on_events=take, threads=2)
    assert max(worst) == 1
