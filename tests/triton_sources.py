"""Triton kernels that tests compile by themselves (Triton reads their source from this file)."""

import triton
import triton.language as tl


@triton.jit
def scan_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))
