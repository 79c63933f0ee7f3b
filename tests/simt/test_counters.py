"""Counters and events against counts by hand.

The rules: NVIDIA's Nsight Compute documentation, "Memory tables": sectors of 32 bytes, 32 banks of 4 bytes.
"""

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import launch
from undertorch.simt.events import EventKind

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def shared_wavefronts(type, offsets):
    """Of one warp's ld.volatile.shared at given byte offsets."""
    width = int(type.rsplit("b", maxsplit=1)[1]) // 8 * (int(type[2]) if type[1] == "v" else 1)
    registers = {4: "%r9", 8: "%d9", 16: "{%r6, %r7, %r8, %r9}", 2: "%h9", 1: "%h9"}[width]
    text = (
        HEAD
        + f""".visible .entry k(.param .u64 k_param_0) {{
    .reg .b32 %r<10>; .reg .b64 %d<10>; .reg .b16 %h<10>;
    .shared .align 16 .b8 s[16384];
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [k_param_0];
    mad.wide.u32 %d1, %r1, 4, %d1;
    ld.global.u32 %r2, [%d1];
    mov.u32 %r3, s;
    add.u32 %r2, %r2, %r3;
    ld.volatile.shared{type} {registers}, [%r2];
    ret;
}}"""
    )
    result = launch(
        text, "k", 1, len(offsets), (np.array(offsets, np.uint32),), gpu=find("H200"), instrument="counters"
    )
    (access,) = (a for a in result.counters.accesses if a.space == "shared")
    return access.wavefronts, access.ideal


@pytest.mark.parametrize(
    ("type", "offsets", "wavefronts", "ideal"),
    [
        (".b32", [4 * n for n in range(32)], 1, 1),
        (".b32", [0] * 32, 1, 1),
        (".b32", [8 * n for n in range(32)], 2, 1),
        (".b32", [128 * n for n in range(32)], 32, 1),
        (".b32", [132 * n for n in range(32)], 1, 1),
        (".b32", [4 * (n ^ 5) for n in range(32)], 1, 1),
        (".b32", [128 * (n % 4) for n in range(32)], 4, 1),
        (".b8", list(range(32)), 1, 1),
        (".b16", [128 * n + 2 for n in range(7)], 7, 1),
        (".b64", [8 * n for n in range(32)], 2, 2),
        (".b64", [128 * n for n in range(32)], 32, 2),
        (".v4.b32", [16 * n for n in range(32)], 4, 4),
        (".v4.b32", [128 * n for n in range(32)], 32, 4),
    ],
)
def test_shared_wavefronts(type, offsets, wavefronts, ideal):
    assert shared_wavefronts(type, offsets) == (wavefronts, ideal)


@pytest.mark.parametrize(
    ("kernel", "wavefronts"), [("conflicting_transpose", 32), ("padded_transpose", 1)], ids=["32 apart", "33 apart"]
)
def test_a_transposes_columns_conflict_unless_padded(run, kernel, wavefronts):
    a = np.zeros((64, 64), np.float32)
    result = run(kernel, (2, 2), (32, 32), a, a.copy(), 64, instrument="counters")
    write, read = (a for a in result.counters.accesses if a.space == "shared")
    assert (write.wavefronts, write.ideal) == (128, 128)
    assert (read.wavefronts, read.ideal) == (128 * wavefronts, 128)


@pytest.mark.parametrize(("shift", "sectors"), [(0, 4), (4, 5), (8, 4), (12, 5), (16, 4)])
def test_sectors_do_not_depend_on_where_the_host_put_an_array(run, shift, sectors):
    """An allocation counts as 512-aligned, as cudaMalloc's are: 32 floats are 4 sectors, a column's 32 are 32.

    A view counts where it lies in its allocation: from a whole sector (8 floats) on or not.
    """
    memory = np.zeros(64 * 64 + 64, np.float32)
    a = memory[shift : shift + 64 * 64].reshape(64, 64)
    result = run("naive_transpose", (2, 2), (32, 32), a, np.zeros_like(a), 64, instrument="counters")
    read, write = result.counters.accesses
    assert (read.sectors, read.ideal, read.requests) == (128 * sectors, 128 * 4, 128)
    assert (write.sectors, write.ideal, write.bytes) == (128 * 32, 128 * 4, 64 * 64 * 4)


def test_instructions_and_lanes_are_counted_by_line(run):
    """doubling on 40 threads with n = 35: both warps execute the line, the second with 8 lanes, then with 3."""
    x = np.zeros(64, np.float32)
    result = run("doubling", 1, 40, x, 35, instrument="counters")
    source = (__import__("pathlib").Path(__file__).parent / "kernels" / "classics.cu").read_text().splitlines()
    at = next(n for n, line in enumerate(source, 1) if "x[i] = 2.0f" in line)
    (line,) = (line for line in result.counters.lines if line.line == at)
    assert line.file == "classics.cu"
    load, store = result.counters.accesses
    assert (load.requests, load.lanes, load.bytes) == (2, 35, 140)
    assert (store.requests, store.lanes) == (2, 35)
    assert result.counters.thread_instructions == sum(line.thread_instructions for line in result.counters.lines)


def test_half_a_warp_parts_and_both_halves_are_counted(run):
    """parted_shuffles: either way half a warp executes a shuffle, so lanes a warp instruction lie below 32."""
    x = np.zeros(32, np.int32)
    counters = run("parted_shuffles", 1, 32, x, x.copy(), instrument="counters").counters
    assert 16 < counters.thread_instructions / counters.warp_instructions < 32


def test_events_say_who_touched_what(run):
    x = np.zeros(70, np.float32)
    seen = []

    def take(events, sites):
        for e in events[events["kind"] == EventKind.ACCESS]:
            seen.append(
                (sites[e["site"]].writes, int(e["block"]), int(e["warp"]), int(e["mask"]), e["addresses"].copy())
            )

    run("doubling", 2, 40, x, 70, instrument="events", on_events=take)
    active = [(0, 0), (0, 1), (1, 0)]  # of the second block's second warp no thread is below 70
    assert [(w, b, n) for w, b, n, _, _ in seen] == [(w, b, n) for b, n in active for w in (False, True)]
    for _, block, warp, mask, addresses in seen:
        lanes = [n for n in range(32) if mask >> n & 1]
        assert [int(addresses[n]) - x.ctypes.data for n in lanes] == [4 * (40 * block + 32 * warp + n) for n in lanes]
    assert sum(bin(mask).count("1") for *_, mask, _ in seen) == 2 * 70


def test_more_events_than_the_buffer_holds_all_arrive(run):
    n = 64
    a = np.zeros((n, n), np.float32)
    count = 0

    def take(events, sites):
        nonlocal count
        count += int((events["kind"] == EventKind.ACCESS).sum())

    result = run("naive_matmul", (2, 8), (32, 8), a, a, a.copy(), n, instrument="events", on_events=take)
    assert count == sum(a.requests for a in result.counters.accesses) == 128 * (2 * n + 1)


def test_what_a_consumer_of_events_raises_ends_the_launch_as_it_is(run):
    def take(events, sites):
        raise ZeroDivisionError("mine")

    a = np.zeros((64, 64), np.float32)
    with pytest.raises(ZeroDivisionError, match="mine"):
        run("naive_matmul", (2, 8), (32, 8), a, a, a.copy(), 64, instrument="events", on_events=take)
