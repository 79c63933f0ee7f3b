"""ldmatrix, stmatrix, movmatrix: what they count, what they tell, where they fault. (Values: conformance/tensor.py.)"""

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import Deadlock, Fault, PtxError, launch
from undertorch.simt.events import EventKind

KERNEL = """.version 8.8
.target sm_90
.address_size 64
.shared .align 16 .b8 room[4096];
.visible .entry k(.param .u64 rows, .param .u64 out) {{
.reg .b32 %r<20>, %t, %s; .reg .b64 %g, %o; .reg .pred %p;
mov.u32 %t, %tid.x;
ld.param.u64 %g, [rows]; mad.wide.u32 %g, %t, 4, %g; ld.global.b32 %s, [%g]; mov.u32 %r19, room; add.u32 %s, %s, %r19;
ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 4, %o;
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;
{body}
st.global.b32 [%o], %r0; st.global.b32 [%o+128], %r1; st.global.b32 [%o+256], %r2; st.global.b32 [%o+384], %r3;
ret;
}}"""
LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%s];"


def run(body, rows, **options):
    out = np.zeros((4, 32), np.uint32)
    result = launch(
        KERNEL.format(body=body), "k", 1, 32, (np.asarray(rows, np.int32), out), gpu=find("H200"), **options
    )
    return out, result


def shared_access(body, rows):
    _, result = run(body, rows, instrument="counters")
    (access,) = [a for a in result.counters.accesses if a.space == "shared"]
    return access


@pytest.mark.parametrize(
    ("count", "rows", "wavefronts"),
    [
        (4, [16 * lane for lane in range(32)], 4),  # 8 rows one behind the other: 128 bytes, all banks once
        (4, [128 * (lane % 8) + 16 * (lane // 8) for lane in range(32)], 32),  # rows 128 bytes apart: the same banks
        (4, [128 * (lane % 8) + 16 * (lane % 8 ^ lane // 8) for lane in range(32)], 4),  # swizzled
        (4, [144 * (lane % 8) + 16 * (lane // 8) for lane in range(32)], 4),  # padded by 16 bytes
        (2, [256 * (lane % 8) for lane in range(32)], 16),  # two matrices of rows on the same banks
        (1, [64 * lane for lane in range(8)] + [0] * 24, 4),  # two rows to 128 bytes
    ],
)
def test_a_matrix_takes_a_wavefront_for_rows_that_share_no_bank(count, rows, wavefronts):
    """A phase reads 8 rows of 16 bytes, 4 banks each; it takes as many wavefronts as rows share a bank."""
    registers = ", ".join(f"%r{n}" for n in range(count))
    access = shared_access(f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{registers}}}, [%s];", rows)
    assert (access.requests, access.lanes, access.bytes) == (1, 8 * count, 128 * count)
    assert (access.wavefronts, access.ideal) == (wavefronts, count)


def test_events_name_the_lanes_that_give_addresses_and_their_rows():
    rows = [16 * (31 - lane) for lane in range(32)]
    seen = []

    def look(events, sites):
        for event in events:
            if event["kind"] in {EventKind.ACCESS, EventKind.VALUES} and sites[event["site"]].space == "shared":
                seen.append(
                    (EventKind(event["kind"]), int(event["mask"]), int(event["bytes"]), event["addresses"].copy())
                )

    run("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%s];", rows, instrument="events", on_events=look)
    ((kind, mask, size, addresses),) = seen
    assert (kind, mask, size) == (EventKind.ACCESS, 0xFFFF, 16)
    assert addresses[:16].tolist() == rows[:16]
    seen.clear()
    body = "mov.u32 %r0, %t; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%s], {%r0}; mov.u32 %r0, 0;"
    run(body, rows, instrument="events", on_events=look)
    assert [(kind, mask) for kind, mask, *_ in seen] == [
        (EventKind.ACCESS, 0xFF), (EventKind.VALUES, 0xFF), (EventKind.VALUES, 0xFF)
    ]  # fmt: skip
    for half in range(2):  # row r is lanes 4r to 4r + 3, a word each
        want = [(4 * row + 2 * half) | (4 * row + 2 * half + 1) << 32 for row in range(8)]
        assert seen[1 + half][3][:8].tolist() == want


def test_only_rows_that_are_read_may_fault():
    """x2 takes addresses of lanes 0 to 15; the others' are not looked at."""
    wild = [16 * lane for lane in range(16)] + [1 << 30] * 16
    run("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%s];", wild)
    with pytest.raises(Fault) as fault:
        run(LOAD, wild)
    assert (fault.value.kind, fault.value.thread.thread) == ("out-of-bounds", (16, 0, 0))
    with pytest.raises(Fault) as fault:
        run(LOAD, [16 * lane + (8 if lane == 5 else 0) for lane in range(32)])
    assert (fault.value.kind, fault.value.thread.thread) == ("misaligned", (5, 0, 0))
    with pytest.raises(Fault) as fault:
        run(LOAD, [4080 if lane < 31 else 4096 for lane in range(32)])
    assert fault.value.thread.thread == (31, 0, 0)


def test_lanes_that_come_by_different_ways_read_together():
    rows = [16 * lane for lane in range(32)]
    body = f"""mad.lo.u32 %r9, %t, 16, %r19; st.shared.v4.b32 [%r9], {{%t, %t, %t, %t}};
    setp.lt.u32 %p, %t, 13; @%p bra low; add.u32 %s, %s, 0; bra both; low: bar.warp.sync 0x1fff;
    both: {LOAD}"""
    out, _ = run(body, rows)
    assert out.ravel().tolist() == [row for row in range(32) for _ in range(4)]


def test_lanes_that_never_come_are_a_deadlock():
    """Half of the warp waits at another instruction that asks for all lanes."""
    body = f"setp.lt.u32 %p, %t, 16; @%p bra low; bar.warp.sync -1; bra both; low: {LOAD} both:"
    with pytest.raises(Deadlock) as dead:
        run(body, [16 * lane for lane in range(32)])
    assert [waiting.split(" wait ")[0] for waiting in dead.value.waiting] == [
        f"block (0, 0, 0) warp 0 lanes {lanes}" for lanes in ("0-15", "16-31")
    ]


def test_a_wrong_number_of_registers_is_refused():
    with pytest.raises(PtxError, match="names 3 registers for its matrices; it has 4"):
        run("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2}, [%s];", range(32))
