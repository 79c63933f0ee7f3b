# fault: race-global   mended by: an atomic addition
import torch
import triton
import triton.language as tl


@triton.jit
def histogram(bins, weights, sums, MENDED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place, weight = sums + tl.load(bins + at), tl.load(weights + at)
    if MENDED:
        tl.atomic_add(place, weight)
    else:
        tl.store(place, tl.load(place) + weight)  # <- elements of one tile with one bin overwrite each other


def launched(mended):
    bins, weights = torch.arange(256, dtype=torch.int32) * 7 % 16, torch.arange(256.0)
    histogram[(1,)](bins, weights, torch.zeros(16), MENDED=mended, BLOCK=256)
