"""Triton kernels of the norm of many tensors."""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def squares(
    pointers, sizes, tensor_of_block, start_of_block, partial, tensors,
    DTYPE: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of squares of a chunk."""
    block = tl.program_id(0)
    which = tl.load(tensor_of_block + block)
    start = tl.load(start_of_block + block)
    size = tl.load(sizes + which)
    begin = tl.load(pointers + which).to(tl.pointer_type(DTYPE)) + start
    if ALIGNED:
        begin = tl.multiple_of(begin, 16)
    left = tl.minimum(size - start, CHUNK).to(tl.int32)
    total = tl.zeros((BLOCK,), tl.float32)
    # Whole pieces need no mask, and a mask that is no multiple of a vector would make loads narrow.
    whole = left // BLOCK * BLOCK
    for at in range(0, whole, BLOCK):
        value = tl.load(begin + at + tl.arange(0, BLOCK)).to(tl.float32)
        total += value * value
    if whole < left:
        element = whole + tl.arange(0, BLOCK)
        value = tl.load(begin + element, mask=element < left, other=0.0).to(tl.float32)
        total += value * value
    tl.store(partial + block, tl.sum(total, axis=0))


@triton.jit
def root(partial, out, count, ROOT: tl.constexpr, BLOCK: tl.constexpr):
    """The root of the sum, by one block."""
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, count, BLOCK):
        element = begin + tl.arange(0, BLOCK)
        total += tl.load(partial + element, mask=element < count, other=0.0)
    result = tl.sum(total, axis=0)
    if ROOT:
        result = tl.sqrt(result)
    tl.store(out, result)
