# fault: none   a tile smaller than the program: threads hold copies of its elements, which is no race
import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, n, MENDED: tl.constexpr, BLOCK: tl.constexpr):
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def launched(mended):
    scaled[(1,)](torch.ones(200), 200, MENDED=mended, BLOCK=64, num_warps=8)
