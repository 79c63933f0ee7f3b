"""Barriers with a number and a count, and those of a warp (PTX ISA, "Parallel Synchronization Instructions")."""

import numpy as np
import pytest

import undertorch
from undertorch.simt import Fault, launch
from undertorch.simt.events import EventKind

SOURCE = """
extern "C" __global__ void reused(int* o) {  // warps 0 and 1 meet, then warps 1 and 2, at the same barrier
    int w = threadIdx.x / 32, first = -1, second = -1;
    if (w < 2) asm volatile("{.reg .pred p; setp.ne.u32 p,%1,99; bar.red.popc.u32 %0,1,64,p;}" : "=r"(first) : "r"(w));
    if (w > 0) asm volatile("{.reg .pred p; setp.eq.u32 p,%1,99; bar.red.popc.u32 %0,1,64,p;}" : "=r"(second) : "r"(w));
    o[2 * threadIdx.x] = first; o[2 * threadIdx.x + 1] = second;
}
extern "C" __global__ void partial(int* o) {
    asm volatile("bar.sync 1, 64;");
    o[threadIdx.x] = 5;
}
extern "C" __global__ void both_arms(int* o) {
    if (threadIdx.x < 16) __syncwarp(); else __syncwarp();
    o[threadIdx.x] = 1;
}
extern "C" __global__ void handed_over(int* o) {  // one arm writes before, the other reads behind
    __shared__ int s[32];
    for (int i = 0; i < 4; i++) {
        if (threadIdx.x < 16) { s[threadIdx.x] = i + threadIdx.x; __syncwarp(); __syncwarp(); }
        else { __syncwarp(); o[16 * i + threadIdx.x - 16] = s[threadIdx.x - 16]; __syncwarp(); }
    }
}
extern "C" __global__ void numbered(int id, int count) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(count)); }
extern "C" __global__ void locked(int* lock, volatile int* o) {
    while (atomicCAS(lock, 0, 1) != 0);
    o[0] = o[0] + 1;
    __threadfence();
    atomicExch(lock, 0);
}
"""


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


def test_a_reduction_s_result_is_that_of_its_own_phase(kernels):
    o = np.zeros(192, np.int32)
    kernels["reused"][1, 96](o)
    assert o[::64].tolist() == [64, 64, -1]
    assert o[1::64].tolist() == [-1, 0, 0]


def test_a_partial_warp_counts_as_a_whole_one(kernels):
    """PTX ISA, "bar, barrier": counts are multiples of the warp size; 40 threads are two warps."""
    o = np.zeros(40, np.int32)
    kernels["partial"][1, 40](o)
    assert (o == 5).all()


def test_a_warp_s_barriers_meet_in_both_arms_of_a_branch(kernels):
    """PTX ISA, "bar.warp.sync": until all threads of the mask have executed one with the same mask."""
    o = np.zeros(32, np.int32)
    kernels["both_arms"][1, 32](o)
    assert (o == 1).all()
    o = np.zeros(64, np.int32)
    kernels["handed_over"][1, 32](o)
    assert o.tolist() == [i + t for i in range(4) for t in range(16)]


def test_a_barrier_s_number_and_count_are_held_to_what_there_is(kernels):
    kernels["numbered"][1, 64](15, 64)
    with pytest.raises(Fault, match="names barrier 16"):
        kernels["numbered"][1, 64](16, 64)
    with pytest.raises(Fault, match="counts 33 threads"):
        kernels["numbered"][1, 33](1, 33)


def test_a_lock_that_lanes_of_a_warp_spin_on_is_handed_on(kernels):
    """512 threads took a minute: the spinning lanes had 16,384 tries before the holder's turn."""
    o = np.zeros(1, np.int32)
    with undertorch.machine(instrument="counters") as setting:
        kernels["locked"][1, 512](np.zeros(1, np.int32), o)
    assert o[0] == 512
    tries = max(access.lanes for access in setting.launches[0].counters.accesses if access.site.atomic)
    assert tries < 512 * 512 * 64  # each of 512 threads, through 512 holders, 64 tries of a turn


def test_lanes_that_meet_in_both_arms_are_one_event(kernels):
    """What a race detector has to know: all 32 lanes met, once."""
    rows = []

    def consumer(events, sites):
        rows.extend(int(row["mask"]) for row in events if row["kind"] == EventKind.WARP_SYNC)

    launch(kernels.text, "both_arms", 1, 32, [np.zeros(32, np.int32)], gpu="H200", instrument="events",
           on_events=consumer)  # fmt: skip
    assert rows == [0xFFFFFFFF]
