"""What ran on the GPU as Kernels: geometry and resources as measured, least bytes and FLOPs by what the call does."""

import re
from dataclasses import replace
from math import prod

import msgspec

from undertorch import costs
from undertorch.gpus.occupancy import occupancy
from undertorch.records import Dim3, Gpu, Kernel, Kind, Limiter, Op, Origin
from undertorch.records.kernels import OVER_LINK
from undertorch.steps.traces.fields import Is, number
from undertorch.steps.traces.names import short, told
from undertorch.steps.traces.nesting import outwards
from undertorch.steps.traces.reading import Seen

COST_FAILS = (LookupError, TypeError, ValueError, AttributeError)
"""What a cost raises for a call whose arguments the trace describes in part."""

IN_THREADS = "hipExtModuleLaunchKernel"
"""Begins the name of the launch whose grid counts threads and not blocks (hip_ext.h, globalWorkSizeX)."""

TRITON = "triton/runtime/"
"""Begins the names of the Python functions that launch a Triton kernel."""

OWN = "undertorch::"
"""Begins the names of undertorch's own ops. Their kernels are called in a trace as their costs call them."""

CONCATENATES = re.compile(r"CatArrayBatchedCopy.*?OpaqueType<(\d+)u?>")
"""A kernel of `cat` and the bytes of its elements (ATen/native/cuda/Shape.cu)."""

ONE_LAUNCH = 64
"""Tensors that go into one launch of it, whatever their strides (half of CAT_ARRAY_BATCH_SIZE)."""

PRODUCTS = (Kind.MATMUL, Kind.ATTENTION, Kind.CONVOLUTION)


def plain(on_gpu: Seen, launch: Seen | None) -> Kernel:
    """What the trace alone tells; bytes and FLOPs are unknown but for copies and memsets.

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
    joined = _concatenated(on_gpu, launch)
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


def _concatenated(on_gpu: Seen, launch: Seen | None) -> int | None:
    """Bytes that a kernel of `cat` reads, and writes: by its tensors' shapes, and the size of an element that its name
    has (of lists the profiler leaves out the dtypes). None for another kernel, or where it is one of several.
    """
    size = CONCATENATES.search(on_gpu.name)
    call = next((one for one in outwards(launch) if one.name == "aten::cat"), None) if size else None
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


def with_costs(op: Op, ran: list[Kernel], times: list[float], gpu: Gpu) -> list[Kernel]:
    """The kernels that a call launched, with the figures of those that its cost names.

    Where both are as many, they are the same in order. Otherwise only products have figures, which follow from the
    call's shapes however many kernels a library cuts them into: those of the largest stand at the kernel that ran
    longest, and so on.
    """
    if not op.arguments:
        return ran
    try:
        expected = costs.kernels(op, gpu)
    except COST_FAILS:
        return ran
    if not expected:
        return ran
    if len(expected) == len(ran) and all(_alike(a, b) for a, b in zip(expected, ran, strict=True)):
        return [_figures(a, b) for a, b in zip(expected, ran, strict=True)]
    if op.name.startswith(OWN):
        return _by_name(expected, ran)
    products = sorted(
        (kernel for kernel in expected if kernel.kind in PRODUCTS and kernel.flops and _multiplies(kernel, expected)),
        key=lambda kernel: -(kernel.flops or 0),
    )
    likely = sorted(
        (place for place, kernel in enumerate(ran) if kernel.kind in PRODUCTS), key=lambda place: -times[place]
    )
    if len(likely) < len(products):
        return ran
    paired = dict(zip(likely, products, strict=False))
    return [_figures(paired[place], kernel) if place in paired else kernel for place, kernel in enumerate(ran)]


def _by_name(expected: tuple[Kernel, ...], ran: list[Kernel]) -> list[Kernel]:
    """What an own op launched itself, in order, among what its cost names: the calls into ATen that it makes stand
    apart, with figures of their own."""
    left = list(expected)
    found = []
    for kernel in ran:
        place = next((place for place, one in enumerate(left) if one.name == kernel.name), None)
        if place is None:
            found.append(kernel)
        else:
            found.append(_figures(left[place], kernel))
            del left[: place + 1]
    return found


def _multiplies(kernel: Kernel, expected: tuple[Kernel, ...]) -> bool:
    """Whether it is one of the large ones: what only adds up split products does a few FLOPs beside them."""
    return (kernel.flops or 0) * 10 > max(other.flops or 0 for other in expected)


def _alike(expected: Kernel, ran: Kernel) -> bool:
    """Whether one can be the other: the driver's work is no kernel's."""
    return (expected.grid is None) == (ran.library == "driver")


def _figures(expected: Kernel, ran: Kernel) -> Kernel:
    if ran.library == "driver":
        return ran
    return replace(
        ran,
        kind=expected.kind,
        library=expected.library if ran.library in ("Triton", "unknown") else ran.library,
        min_bytes_read=expected.min_bytes_read,
        min_bytes_written=expected.min_bytes_written,
        flops=expected.flops,
        math=expected.math,
        bytes_origin=expected.bytes_origin,
        note=expected.note if expected.kind in PRODUCTS else None,
    )


def resident(kernel: Kernel, gpu: Gpu) -> tuple[float, Limiter] | None:
    """Occupancy and what limits it; None where the trace lacks registers or shared memory (AMD)."""
    if not kernel.threads or kernel.registers is None or kernel.shared_bytes is None:
        return None
    found = occupancy(gpu, kernel.registers, kernel.shared_bytes, kernel.threads)
    return (found.share, found.limiter) if found.blocks_per_sm else None


def _dim3(sizes: list[int] | str | None) -> Dim3 | None:
    return (sizes[0], sizes[1], sizes[2]) if isinstance(sizes, list) and len(sizes) == 3 else None
