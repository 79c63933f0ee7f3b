"""What is run to find each ceiling, and how many bytes or operations a run of it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undertorch.records import Math
from undertorch.records.calibrations import Unit

if TYPE_CHECKING:
    from undertorch.gpus.calibrating.backends import Facts

VECTOR = 16
"""Bytes that one load or store of a thread moves: the widest that there is on every GPU since Volta."""

GLOBAL_BYTES = 1 << 30
"""Of a buffer in global memory: many times any L2 (the H200's is 60 MiB), so that what is counted left the chip."""

GLOBAL_BLOCK = 256
UNROLLED = (1, 2, 4, 8)
"""Loads that a thread has under way at once; which of them is best depends on the GPU."""

L2_BLOCK = 256
L2_CHUNK = L2_BLOCK * 4 * VECTOR
"""Bytes that a block reads in a pass: four loads a thread."""
L2_PASSES = 1024
L2_BLOCKS_PER_SM = 4
"""Resident at once on every GPU: 1,024 threads, 64 KiB under way."""
L2_CHUNKS = (1, 2, 3)
"""Of each block, which reads them in turn. On the H200 these are 8 to 25 MiB of 60."""
L2_MOST = 7 / 8
"""Of the L2, for the set to stay in it. Since the A100 an L2 has two halves, each with what its side of the chip reads,
so that half of it can be too much; the best set counts."""

SHARED_BLOCK = 256
SHARED_LOADS = 4
"""Of a thread in a pass, each VECTOR bytes: a block holds SHARED_BLOCK * SHARED_LOADS * VECTOR = 16 KiB."""
SHARED_PASSES = 4096
SHARED_BLOCKS_PER_SM = 4

SIZES = (2048, 4096, 8192, 16384)
"""Of square matrices: small ones do not fill a large GPU, large ones make it hot."""
PRODUCTS = (
    Math.TENSOR_FP64,
    Math.FP32,
    Math.TENSOR_TF32,
    Math.TENSOR_BF16,
    Math.TENSOR_FP16,
    Math.TENSOR_FP8,
    Math.TENSOR_INT8,
)

LINK_BYTES = 1 << 28
"""Of a copy between pinned host memory and the GPU."""

LAUNCHES = 200
"""In a row; fewer than fit into the queue between CPU and GPU (1,024 were seen to)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """An argument of a kernel: memory on the GPU."""

    name: str
    """Buffers of one name are the same."""
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """One launch of a kernel of `sources`."""

    source: str
    """Key in `sources.SOURCES`."""
    kernel: str
    grid: int
    block: int
    arguments: tuple[Buffer | int, ...]
    """Numbers are 64 bits wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductRun:
    """One product of two square matrices by torch, and so by the vendor's library."""

    math: Math
    size: int
    fast: bool = False
    """fp8: sums are kept in less than float32 within the tensor core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRun:
    """One copy between pinned host memory and the GPU."""

    bytes: int
    to_gpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRun:
    """Many launches in a row."""

    what: str
    """A key of `LAUNCHING`."""
    launches: int


LAUNCHING = {
    "launch call": "CPU time of a call that launches, through cuda-bindings",
    "torch call": "CPU time of a torch call that launches one kernel (add_ of a number)",
    "launch and wait": "an empty kernel launched on an idle GPU, until the CPU knows that it has ended",
    "empty kernel, stream": "from one empty kernel's start to the next one's, on a stream whose queue is full",
    "empty kernel, graph": "the same within a CUDA graph",
    "kernel boundary, stream": "what it costs to do work in one kernel more, on a stream whose queue is full",
    "kernel boundary, graph": "the same within a CUDA graph",
}
"""What is timed of launches, and what each means. The boundary is (n kernels of c clocks − one kernel of n·c clocks) /
(n − 1): start-up and draining are in it, which a profiler counts to the kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One way to reach one ceiling."""

    ceiling: str
    unit: Unit
    work: float
    """Bytes or operations of a run; of a unit of seconds, what the time of a run is divided by."""
    variant: str
    run: KernelRun | ProductRun | LinkRun | LaunchRun

    def figure(self, seconds: float) -> float:
        """The ceiling that a run of that length tells."""
        return self.work / seconds if self.unit.more_is_better else seconds / self.work


def plan(facts: "Facts") -> tuple[Probe, ...]:
    """Every probe, the variants of a ceiling together, the quick before the slow."""
    return (
        *_global(facts),
        *_l2(facts),
        *_shared(facts),
        *_link(facts),
        *_launches(),
        *_products(facts),
    )


def _global(facts: "Facts") -> Iterator[Probe]:
    """A copy reads each byte and writes it: twice the buffer. Read and write alone: once."""
    a_block = GLOBAL_BLOCK * max(UNROLLED) * VECTOR
    size = min(GLOBAL_BYTES, facts.memory_bytes // 8) // a_block * a_block
    read, written = Buffer(name="read", bytes=size), Buffer(name="written", bytes=size)
    for kernel, moved in (("copy", 2 * size), ("read", size), ("write", size)):
        for loads in UNROLLED:
            yield Probe(
                ceiling=f"global {kernel}",
                unit=Unit.BYTES,
                work=moved,
                variant=f"{loads} × {VECTOR} B",
                run=KernelRun(
                    source=kernel,
                    kernel=f"{kernel}_{loads}",
                    grid=size // (GLOBAL_BLOCK * loads * VECTOR),
                    block=GLOBAL_BLOCK,
                    arguments=(written, read),
                ),
            )


def _l2(facts: "Facts") -> Iterator[Probe]:
    """Blocks × passes × chunk bytes are read, of a set that stays in the L2 and of which each block has a part."""
    grid = facts.sms * L2_BLOCKS_PER_SM
    for chunks in L2_CHUNKS:
        size = grid * chunks * L2_CHUNK
        if size <= L2_MOST * facts.l2_bytes:
            yield Probe(
                ceiling="l2 read",
                unit=Unit.BYTES,
                work=grid * L2_PASSES * L2_CHUNK,
                variant=f"of {size / 2**20:.3g} MiB",
                run=KernelRun(
                    source="l2",
                    kernel="l2_read",
                    grid=grid,
                    block=L2_BLOCK,
                    arguments=(
                        Buffer(name="written", bytes=L2_CHUNK),
                        Buffer(name="set", bytes=size),
                        chunks,
                        L2_PASSES,
                    ),
                ),
            )


def _shared(facts: "Facts") -> Iterator[Probe]:
    """Every thread reads SHARED_LOADS × VECTOR bytes a pass, neighbours side by side: no bank conflicts."""
    grid = facts.sms * SHARED_BLOCKS_PER_SM
    yield Probe(
        ceiling="shared read",
        unit=Unit.BYTES,
        work=grid * SHARED_BLOCK * SHARED_LOADS * VECTOR * SHARED_PASSES,
        variant=f"{SHARED_LOADS} × {VECTOR} B",
        run=KernelRun(
            source="shared",
            kernel="shared_read",
            grid=grid,
            block=SHARED_BLOCK,
            arguments=(Buffer(name="written", bytes=L2_CHUNK), SHARED_PASSES),
        ),
    )


def _link(facts: "Facts") -> Iterator[Probe]:
    size = min(LINK_BYTES, facts.memory_bytes // 8)
    for to_gpu, name in ((True, "host to GPU"), (False, "GPU to host")):
        yield Probe(
            ceiling=name,
            unit=Unit.BYTES,
            work=size,
            variant=f"{size >> 20} MiB",
            run=LinkRun(bytes=size, to_gpu=to_gpu),
        )


def _launches() -> Iterator[Probe]:
    for what in LAUNCHING:
        launches = 1 if what == "launch and wait" else LAUNCHES
        yield Probe(
            ceiling=what,
            unit=Unit.SECONDS,
            work=launches - 1 if what.startswith("kernel boundary") else launches,
            variant=f"× {launches}" if launches > 1 else "alone",
            run=LaunchRun(what=what, launches=launches),
        )


def _products(facts: "Facts") -> Iterator[Probe]:
    """n × n by n × n: n³ multiplications and as many additions. Three matrices of at most 8 bytes have to fit."""
    for math in PRODUCTS:
        for size in SIZES:
            for fast in (False, True) if math is Math.TENSOR_FP8 else (False,):
                if 3 * 8 * size**2 < facts.memory_bytes / 2:
                    yield Probe(
                        ceiling=f"matmul {math}",
                        unit=Unit.OPERATIONS,
                        work=2 * size**3,
                        variant=f"{size:,}³{', fast sums' if fast else ''}",
                        run=ProductRun(math=math, size=size, fast=fast),
                    )
