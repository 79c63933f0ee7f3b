"""Cooperative groups: tiles of many warps, copies of a block, the whole grid."""

from pathlib import Path

import numpy as np
import pytest

from undertorch.gpus import find
from undertorch.simt import BadLaunch, Deadlock, launch

PTX = Path(__file__).parent / "kernels" / "cooperative.ptx"
ORDERS = [(1, None), (1, 5), (2, None), (2, 9), (5, 2)]
"""Threads of the host (5 do not share 216 blocks evenly), and seeds."""


def integers(seed, *shape):
    return np.random.default_rng(seed).integers(-50, 50, shape, np.int32)


@pytest.mark.parametrize(("threads", "seed"), ORDERS)
@pytest.mark.parametrize(("blocks", "block"), [(1, 33), (7, 96), (216, 1024)])
def test_a_grid_waits_for_all_its_blocks(run, blocks, block, threads, seed):
    """216 blocks of 1024 threads: all that an A100 holds (2048 threads on each of 108 SMs)."""
    x, rounds = integers(1, 20_011), 3
    sums, totals = np.zeros(blocks, np.int32), np.zeros((rounds, blocks), np.int32)
    run("grid_sums", blocks, block, x, x.size, sums, totals, rounds, threads=threads, seed=seed)
    assert np.array_equal(totals, np.full((rounds, blocks), x.sum()) * np.arange(1, rounds + 1)[:, None])


def test_each_launch_has_a_workspace_of_its_own(run):
    """A barrier word that the launch before left flipped would let nobody wait."""
    for seed in range(4):
        test_a_grid_waits_for_all_its_blocks(run, 5, 64, 1, seed)


def test_ranks_in_a_grid_of_three_dimensions(run):
    grid, block = (3, 2, 5), (16, 4)
    out = np.zeros((30 * 64, 3), np.uint64)
    run("grid_ranks", grid, block, out)
    assert np.all(out[:, 0] == 30)
    assert np.array_equal(out[:, 1], np.arange(30 * 64) // 64)
    assert np.all(out[:, 2] == 30 * 64)


def test_a_grid_that_cannot_be_resident_is_refused(run):
    with pytest.raises(BadLaunch, match=r"all its 217 blocks .* A100-80GB holds 216 of 1024 threads"):
        run("grid_ranks", 217, 1024, np.zeros(3 * 217 * 1024, np.uint64))


def test_a_part_of_the_grid_that_does_not_come_is_a_deadlock(run):
    with pytest.raises(Deadlock, match=r"block \(1, 0, 0\) warp 0 lanes 0 run at PTX line"):
        run("grid_waits_in_vain", 3, 64, patience=0.3)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_barrier_of_ones_own_over_more_blocks_than_are_resident_is_a_deadlock(run, threads):
    arrived = np.zeros(1, np.int32)
    with pytest.raises(Deadlock, match="no warp ended and no barrier opened"):
        run("own_grid_barrier", 217, 1024, arrived, patience=1, threads=threads)
    assert arrived[0] == 216
    arrived[0] = 0
    run("own_grid_barrier", 216, 1024, arrived, threads=threads)
    assert arrived[0] == 216


@pytest.mark.parametrize("size", [16, 64, 256])
@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("instrument", ["none", "counters"])
def test_tiles_reduce_scan_and_vote(run, size, seed, instrument):
    x, out = integers(size, 3, 512), np.zeros((3, 8, 512), np.int32)
    run(f"tiles_of_{size}", 3, 512, x, out, seed=seed, instrument=instrument)
    v = x.reshape(-1, size)
    whole = np.zeros_like(v)
    want = [
        v.sum(1)[:, None] + whole,
        v.max(1)[:, None] + whole,
        v.cumsum(1),
        np.bitwise_xor.accumulate(v, 1) ^ v,
        v[:, 7:8] + whole,
        ((v == 3).any(1) + 2 * (v >= -49).all(1))[:, None] + whole,
        np.tile(np.arange(size) + 1000 * np.arange(512 // size)[:, None], (3, 1)),
        np.roll(v, -(size // 2), 1),
    ]
    for number, rows in enumerate(want):
        assert np.array_equal(out[:, number].reshape(v.shape), rows), number


def test_a_tile_waits_for_its_own_warps_only(run):
    out = np.zeros(64, np.int32)
    run("one_tile_of_two", 1, 128, out)
    assert np.all(out == sum(range(64)))


@pytest.mark.parametrize("n", [1, 96, 1000])
def test_a_block_copies_into_shared_memory(run, n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    out = np.zeros_like(x)
    run("copies", 1, 96, x, out, n, dynamic_shared=4 * 96)
    assert np.array_equal(out, np.concatenate([2 * x[at : at + 96][::-1] for at in range(0, n, 96)]))


def test_reserved_shared_memory_lies_before_the_kernels_own_and_is_not_its_share(run):
    """PTX ISA, "Special Registers": the region's begin, end and size; total_smem_size is without it."""
    out = np.zeros(8, np.uint32)
    run("smem_registers", 1, 10, out, dynamic_shared=64)
    begin, end, size, first, second, total, static, dynamic = out.tolist()
    assert (begin, end, size) == (0, 1024, 1024)  # 1 KiB: CUDA C++ Programming Guide, "Compute Capability 8.x"
    assert begin <= first < second
    assert second + 288 <= end  # what cooperative groups may expect: details/memory.h
    assert static >= end
    assert dynamic >= static + 40
    assert total == dynamic + 64 - end


def test_reserved_memory_takes_nothing_from_the_limit_and_older_gpus_have_none(run, a100):
    out = np.zeros(8, np.uint32)
    most = a100.shared_per_block_optin
    run("smem_registers", 1, 10, out, dynamic_shared=most - 48)
    with pytest.raises(BadLaunch, match="shared memory a block"):
        run("smem_registers", 1, 10, out, dynamic_shared=most - 32)
    with pytest.raises(BadLaunch, match="T4 reserves none"):
        launch(PTX.read_text(), "smem_registers", 1, 10, (out,), gpu=find("T4"))


def test_a_grid_that_waits_in_a_function_behind_a_pointer_is_known_too():
    text = """.version 8.0
.target sm_80
.address_size 64
.func f(.param .b64 p) {
.reg .b32 %hi, %lo; .reg .b64 %a, %w;
ld.param.b64 %a, [p]; mov.u32 %hi, %envreg1; mov.u32 %lo, %envreg2; mov.b64 %w, {%lo, %hi}; ld.global.u32 %lo, [%w];
st.global.u32 [%a], %lo; ret;
}
.global .u64 table[1] = {f};
.visible .entry kernel(.param .u64 out) {
.reg .b64 %a, %f; .param .b64 x; ld.param.b64 %a, [out]; st.param.b64 [x], %a; ld.global.u64 %f, [table];
p: .callprototype _ (.param .b64 _); call %f, (x), p; ret;
}
"""
    out = np.ones(1, np.int32)
    launch(text, "kernel", 1, 1, (out,), gpu=find("H200"))
    assert out[0] == 0
    with pytest.raises(BadLaunch, match="to be resident at once"):
        launch(text, "kernel", 132 * 2 + 1, 1024, (out,), gpu=find("H200"))  # 132 SMs of 2048 threads
