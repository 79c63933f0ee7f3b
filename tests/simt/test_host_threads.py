"""Several threads of the host: launches of one file at once, and `threads=`."""

import threading
import time

import numpy as np

import undertorch

SOURCE = """
__device__ int count = 0;
extern "C" __global__ void counts() { atomicAdd(&count, 1); }
extern "C" __global__ void allocates(int** kept) {
    int* own = (int*)malloc(48);
    own[0] = threadIdx.x;
    kept[threadIdx.x] = own;
}
"""
DIVERGENT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;
ld.param.u64 %rd1,[p]; mov.u32 %r1,%tid.x; and.b32 %r2,%r1,1; setp.eq.u32 %p,%r2,0; mov.u32 %r3,0; @%p bra E;
L: add.u32 %r3,%r3,1; setp.lt.u32 %p,%r3,20000; @%p bra L;
E: mul.wide.u32 %rd2,%r1,4; add.u64 %rd2,%rd1,%rd2; st.global.u32 [%rd2],%r3; ret;
}
"""


def at_once(function, count=8):
    start, out = threading.Barrier(count), [None] * count

    def one(number):
        start.wait()
        out[number] = function(number)

    hosts = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
    return out


def test_threads_that_launch_kernels_of_one_file_share_its_variables():
    for _ in range(5):
        file = undertorch.cuda(SOURCE)
        at_once(lambda number, file=file: file["counts"][4, 32]())
        assert file.variables["count"][0] == 8 * 4 * 32


def test_threads_that_launch_kernels_of_one_file_share_its_heap():
    file = undertorch.cuda(SOURCE)

    def one(number):
        kept = np.zeros(32, np.uint64)
        file["allocates"][1, 32](kept)
        return kept.tolist()

    addresses = [address for kept in at_once(one) for address in kept]
    assert len(set(addresses)) == len(addresses)


def test_the_masked_code_is_made_once_for_all_host_threads():
    """Each host thread asked for it, and the second link unloaded what the first one ran. New text: nothing is kept."""
    y = np.zeros(64, np.int32)
    for number in range(10):
        with undertorch.machine(threads=2):
            undertorch.ptx(f"{DIVERGENT}// {time.time()} {number}\n")["k"][8, 64](y)
        assert y.tolist() == [0, 20000] * 32
