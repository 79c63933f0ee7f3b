"""What ran on the GPU as Kernels: geometry and resources as measured. figures.py adds what a call's cost says."""

import re
from collections.abc import Iterable
from math import prod

import msgspec

from undertorch.gpus.occupancy import occupancy
from undertorch.records import Dim3, Gpu, Kernel, Kind, Limiter, Origin
from undertorch.records.kernels import OVER_LINK
from undertorch.steps.traces.fields import Is, number
from undertorch.steps.traces.names import short, told
from undertorch.steps.traces.nesting import outwards
from undertorch.steps.traces.reading import Seen

IN_THREADS = "hipExtModuleLaunchKernel"
"""Begins the name of the launch whose grid counts threads and not blocks (hip_ext.h, globalWorkSizeX)."""

TRITON = "triton/runtime/"
"""Begins the names of the Python functions that launch a Triton kernel."""

SIZE = re.compile(r"\d+")

CONCATENATES = re.compile(r"CatArrayBatchedCopy.*?OpaqueType<(\d+)u?>")
"""A kernel of `cat` and the bytes of its elements (ATen/native/cuda/Shape.cu)."""

ONE_LAUNCH = 64
"""Tensors that go into one launch of it, whatever their strides (half of CAT_ARRAY_BATCH_SIZE)."""


def plain(on_gpu: Seen, launch: Seen | None, call: Seen | None = None) -> Kernel:
    """What the trace alone tells; bytes and FLOPs are unknown but for copies and memsets. `call`: that it belongs to,
    where it was launched elsewhere, by the replay of a graph.

    Where AMD's profiler writes no geometry beside the kernel, its launch may have it.
    """
    args = on_gpu.args
    if on_gpu.kind is not Is.KERNEL:
        return _by_driver(on_gpu, launch)
    kind, library = told(on_gpu.name)
    if library == "unknown" and any(around.name.startswith(TRITON) for around in outwards(launch)):
        library = "Triton"
    beside = args if launch is None or args.grid is not None else launch.args
    grid, block = _dim3(beside.grid), _dim3(beside.block)
    if launch is not None and launch.name.startswith(IN_THREADS) and grid is not None and block is not None:
        grid = (-(-grid[0] // block[0]), -(-grid[1] // block[1]), -(-grid[2] // block[2]))
    registers, shared = number(args.registers), number(beside.shared)
    if launch is None and registers is None:
        grid = None  # AMD's profiler, which knows no registers: of threads or of blocks, only the launch tells
    joined = _concatenated(on_gpu, (*outwards(launch), *(() if call is None else (call,))))
    return Kernel(
        name=short(on_gpu.name),
        kind=kind,
        library=library,
        grid=grid,
        block=block,
        geometry_origin=None if grid is None else Origin.MEASURED,
        registers=registers,
        shared_bytes=shared,
        resources_origin=None if registers is None and shared is None else Origin.MEASURED,
        min_bytes_read=joined,
        min_bytes_written=joined,
        flops=None if joined is None else 0,
        bytes_origin=None if joined is None else Origin.COMPUTED,
    )


def _concatenated(on_gpu: Seen, calls: Iterable[Seen]) -> int | None:
    """Bytes that a kernel of `cat` reads, and writes: by its tensors' shapes, and the size of an element that its name
    has (of lists the profiler leaves out the dtypes). None for another kernel, or where it is one of several.
    """
    size = CONCATENATES.search(on_gpu.name)
    call = next((one for one in calls if one.name in ("aten::cat", "aten::stack")), None) if size else None
    if size is None or call is None:
        return None
    try:
        tensors = msgspec.json.decode(call.args.shapes, type=list[msgspec.Raw])[0]
        shapes = msgspec.json.decode(tensors, type=list[list[int]])
    except (msgspec.DecodeError, IndexError):
        return None
    return None if not 0 < len(shapes) <= ONE_LAUNCH else sum(map(prod, shapes)) * int(size[1])


def _by_driver(on_gpu: Seen, launch: Seen | None) -> Kernel:
    """`Memset (Device)`, `Memcpy HtoD (Pinned -> Device)`: the driver, or a copy engine."""
    moved = number(on_gpu.args.bytes)
    if moved is None and launch is not None:
        moved = number(launch.args.size)
    memset = on_gpu.kind is Is.MEMSET
    once = memset or bool(OVER_LINK.search(on_gpu.name))
    return Kernel(
        name="Memset" if memset else on_gpu.name,
        kind=Kind.MEMSET if memset else Kind.MEMCPY,
        library="driver",
        grid=None,
        block=None,
        geometry_origin=None,
        min_bytes_read=None if moved is None else 0 if once else moved,
        min_bytes_written=moved,
        flops=0,
        bytes_origin=None if moved is None else Origin.MEASURED,
    )


def resident(kernel: Kernel, gpu: Gpu) -> tuple[float, Limiter] | None:
    """Occupancy and what limits it; None where the trace lacks registers or shared memory (AMD)."""
    if not kernel.threads or kernel.registers is None or kernel.shared_bytes is None:
        return None
    found = occupancy(gpu, kernel.registers, kernel.shared_bytes, kernel.threads)
    return (found.share, found.limiter) if found.blocks_per_sm else None


def _dim3(sizes: list[int] | str | None) -> Dim3 | None:
    """Older versions of the profiler write the sizes as a text. A grid of nothing is none."""
    if isinstance(sizes, str):
        sizes = [int(size) for size in SIZE.findall(sizes)]
    return (sizes[0], sizes[1], sizes[2]) if sizes and len(sizes) == 3 and min(sizes) > 0 else None
