# fault: out-of-bounds   mended by: a mask
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, y, n, MENDED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    if MENDED:
        tl.store(y + at, tl.load(x + at, mask=inside) * 2, mask=inside)
    else:
        tl.store(y + at, tl.load(x + at) * 2)  # <- 1000 elements are no multiple of 256


def launched(mended):
    doubled[(4,)](torch.ones(1000), torch.zeros(1000), 1000, MENDED=mended, BLOCK=256)
