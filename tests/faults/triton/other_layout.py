# fault: race-global   mended by: a barrier between the two layouts of one tile
import torch
import triton
import triton.language as tl


@triton.jit
def flipped(x, scratch, y, MENDED: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(scratch + at, tl.load(x + at))  # <-
    if MENDED:
        tl.debug_barrier()
    tl.store(y + at, tl.load(scratch + N - 1 - at))  # <- reads what other threads have stored


def launched(mended):
    flipped[(1,)](torch.randn(512), torch.zeros(512), torch.zeros(512), MENDED=mended, N=512)
