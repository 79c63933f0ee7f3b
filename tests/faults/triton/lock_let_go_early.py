# fault: race-global   mended by: a barrier before the lock is let go
import torch
import triton
import triton.language as tl


@triton.jit
def added(x, out, lock, MENDED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mine = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at) + mine)  # <- of all warps, and one of them lets go
    if MENDED:
        tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def launched(mended):
    added[(4,)](torch.ones(4 * 512), torch.zeros(512), torch.zeros(1, dtype=torch.int32), MENDED=mended, BLOCK=512)
