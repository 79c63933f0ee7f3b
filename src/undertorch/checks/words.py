"""What things are called in the language that a kernel is written in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Of one language."""

    block: str
    barrier: str
    """Of the threads of a block."""
    warp_barrier: str
    atomic: str
    wider: str
    """How an atomic operation comes to be one among all blocks."""
    one_writes: str
    """How only one of many threads comes to write."""
    release: str
    """What stands before a flag or lock is written, and behind other threads' writes."""
    acquire: str
    """What stands behind the read of a flag."""
    banks: str | None
    """What mends bank conflicts where the compiler lays shared memory out; None: the author does."""
    arms: str | None
    """What keeps a warp together where the compiler deals elements to lanes; None: the author does."""
    order: str | None
    """What brings neighbouring elements to neighbouring lanes, likewise."""
    guard: str
    """What keeps elements past an array's end from being accessed."""
    bounds: str
    """What makes the compiler keep to `{registers}` registers, with `{threads}` threads a block and `{blocks}` on an
    SM."""


CUDA = Words(
    block="block",
    barrier="__syncthreads()",
    warp_barrier="__syncwarp()",
    atomic="atomicAdd or its like",
    wider="atomicAdd() instead of atomicAdd_block(), thread_scope_device",
    one_writes="let one thread write in {line} (if (threadIdx.x == 0)), or give each an element of its own",
    release="__syncthreads() where other threads wrote too, then __threadfence() before the flag or lock is written",
    acquire="__threadfence()",
    banks=None,
    arms=None,
    order=None,
    guard="guard the access (if (i < n))",
    bounds="__launch_bounds__({threads}, {blocks})",
)
TRITON = Words(
    block="program",
    barrier="tl.debug_barrier()",
    warp_barrier="tl.debug_barrier()",
    atomic="tl.atomic_add or its like",
    wider='scope="gpu" instead of scope="cta"',
    one_writes="let each element be stored once in {line}: indices that repeat overwrite each other in any order",
    release='tl.debug_barrier(), then write the flag or lock by tl.atomic_xchg (sem="release")',
    acquire='reading the flag by an atomic (sem="acquire"), and tl.debug_barrier(),',
    banks="the compiler lays this memory out: try another block size, num_warps or order of axes (tl.trans)",
    arms="a form without a branch (tl.where, or another formula), or blocks of which all elements go one way",
    order="let the axis of a block that runs over neighbouring elements be its last, with tl.arange for it alone, or "
    "load blocks of another shape and tl.trans them",
    guard="give the tl.load or tl.store a mask (mask=offsets < n)",
    bounds="maxnreg={registers}",
)


def words_of(file: str | None) -> Words:
    """Those of Triton for a kernel in a file of Python; else those of CUDA C++."""
    return TRITON if file is not None and file.endswith(".py") else CUDA
