"""Lanes of one warp that wait for each other at different instructions: the message says which, and what to do.

CUDA C++ Programming Guide, "Warp Shuffle Functions": all non-exited threads named in the mask must execute the same
intrinsic with the same mask, or the result is undefined. `__syncwarp` meets any other one with the same mask.
"""

import numpy as np
import pytest

import undertorch

SOURCE = """
extern "C" __global__ void shuffles(int* x) {
    int t = threadIdx.x, v;
    if (t & 1)
        v = __shfl_xor_sync(0xffffffff, t, 1) + 1;  // first
    else
        v = __shfl_down_sync(0xffffffff, t, 1) * 3;  // second
    x[t] = v;
}
extern "C" __global__ void a_vote_and_a_shuffle(int* x) {
    int t = threadIdx.x;
    if (t < 8)
        x[t] = __ballot_sync(0xffffffff, t & 1);  // first
    else
        x[t] = __shfl_sync(0xffffffff, t, 3);  // second
}
extern "C" __global__ void lanes_that_never_come(int* x) {
    if (threadIdx.x < 8) x[threadIdx.x] = __ballot_sync(0xffff, 1);
    else __syncthreads();
}
extern "C" __global__ void masks_of_each_arm(int* x) {
    int t = threadIdx.x;
    if (t & 1) x[t] = __shfl_xor_sync(0xaaaaaaaa, t, 2);
    else x[t] = __shfl_xor_sync(0x55555555, t, 2);
}
extern "C" __global__ void syncs(int* x) {
    if (threadIdx.x & 1) { __syncwarp(); x[threadIdx.x] = 1; } else { x[threadIdx.x] = 2; __syncwarp(); }
}
"""
LINES = {what: [n for n, line in enumerate(SOURCE.split("\n"), 1) if what in line] for what in ("first", "second")}


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


@pytest.mark.parametrize(("kernel", "names"), [
    ("shuffles", ("shfl.sync", "shfl.sync")),
    ("a_vote_and_a_shuffle", ("vote.sync", "shfl.sync")),
])  # fmt: skip
def test_two_exchanges_that_would_have_to_be_one_are_both_named(kernels, kernel, names):
    number = [file.split("(")[0].split()[-1] for file in SOURCE.splitlines() if "__global__" in file].index(kernel)
    with pytest.raises(undertorch.Deadlock) as caught:
        kernels[kernel][1, 32](np.zeros(32, np.int32))
    said = str(caught.value)
    assert "Lanes of one warp wait for each other at different instructions" in said
    for name, lines in zip(names, LINES.values(), strict=True):
        assert f"{name} at kernel.cu:{lines[number]}" in said.split("different instructions")[1]
    assert "take it out of the branch" in said


def test_lanes_that_never_come_are_another_thing(kernels):
    with pytest.raises(undertorch.Deadlock) as caught:
        kernels["lanes_that_never_come"][1, 32](np.zeros(32, np.int32))
    assert "different instructions" not in str(caught.value)


def test_each_arm_may_have_its_own_mask(kernels):
    x = np.zeros(32, np.int32)
    kernels["masks_of_each_arm"][1, 32](x)
    assert np.array_equal(x, np.arange(32) ^ 2)


def test_a_syncwarp_in_each_arm_is_one(kernels):
    x = np.zeros(32, np.int32)
    kernels["syncs"][1, 32](x)
    assert np.array_equal(x, np.where(np.arange(32) % 2, 1, 2))


ARM_IN_FRONT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 rounds) {
  .reg .pred %p<4>;
  .reg .b32 %r<9>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %tid.x;
  ld.param.u32 %r2, [rounds];
  mov.u32 %r3, 0;
  mov.u32 %r4, 0;
  bra.uni LOOP;
ARM:
  add.u32 %r5, %r1, 100;
JOIN:
  shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;
  add.u32 %r4, %r4, %r6;
  add.u32 %r3, %r3, 1;
  setp.eq.u32 %p1, %r3, %r2;
  @%p1 bra END;
LOOP:
  and.b32 %r7, %r1, 1;
  setp.eq.u32 %p2, %r7, 1;
  @%p2 bra ARM;
  mov.u32 %r5, %r1;
  bra.uni JOIN;
END:
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d1, %d1, %d2;
  st.global.u32 [%d1], %r4;
  ret;
}
"""
"""As LLVM lays out some loops of Triton's: an arm of the branch stands in front of it."""


def test_lanes_meet_round_after_round_where_an_arm_is_in_front_of_its_branch():
    x, lanes = np.zeros(32, np.int32), np.arange(32)
    undertorch.ptx(ARM_IN_FRONT)["k"][1, 32](x, 3)
    given = lanes + 100 * (lanes % 2)
    assert np.array_equal(x, 3 * given[lanes ^ 1])
