# fault: race-global   mended by: an atomic addition
import torch
import triton
import triton.language as tl


@triton.jit
def total(x, out, n, MENDED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    if MENDED:
        tl.atomic_add(out, part)
    else:
        tl.store(out, tl.load(out) + part)  # <- programs take turns in any order, and lose what another added


def launched(mended):
    total[(4,)](torch.ones(1000), torch.zeros(1), 1000, MENDED=mended, BLOCK=256)
