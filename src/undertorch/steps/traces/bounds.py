"""What a measured launch waited for: the share of the memory's and the arithmetic's peak that it reached."""

from undertorch.gpus.occupancy import occupancy
from undertorch.gpus.roofline import bandwidth
from undertorch.records import Bound, Gpu, Kernel, Kind, Math
from undertorch.steps.predict.times import fills, timing

NEAR = 0.6
"""Share of a peak from which on that unit is what the launch waits for (Nsight Compute's "Speed of Light" draws the
line there, too)."""

BUSY = 0.3
"""Share below which a unit that nothing else speaks for is none that the launch waits for."""

EXPLAINED = 0.5
"""Share of a launch's time that the model of its kernel has to come to, for the model's bound to be its own."""

LARGE = 1_000_000
"""Bytes of a copy between host and GPU whose start (some microseconds) is little beside its time on any link."""


def bound(kernel: Kernel, time_us: float, gpu: Gpu) -> Bound | None:
    """None where bytes or FLOPs are not known."""
    if kernel.kind is Kind.COLLECTIVE:
        return Bound.COMMUNICATION
    if kernel.over_link:
        return _of_link(kernel, time_us, gpu)
    if kernel.min_bytes is None or kernel.flops is None or time_us <= 0:
        return None
    memory = kernel.min_bytes / (time_us * 1e-6) / (bandwidth(gpu) or gpu.memory_bandwidth)
    peak = gpu.peaks.get(kernel.math or Math.FP32)
    arithmetic = 0.0 if peak is None else kernel.flops / (time_us * 1e-6) / peak
    reached = max(memory, arithmetic)
    nearer = Bound.MEMORY if memory >= arithmetic else Bound.COMPUTE
    if reached >= NEAR:
        return nearer
    blocks_per_sm = _blocks_per_sm(kernel, gpu)
    if kernel.blocks is None or not fills(kernel, gpu, blocks_per_sm):
        return nearer if reached >= BUSY else Bound.LATENCY
    # Enough blocks are there. Whether memory sets the pace, or the instructions of a cast say, the model tells of
    # kernels that it knows.
    likely = timing(kernel, gpu, blocks_per_sm)
    if likely.time_us >= EXPLAINED * time_us:
        return likely.bound
    return nearer if reached >= BUSY else None


def _blocks_per_sm(kernel: Kernel, gpu: Gpu) -> int | None:
    """None where the trace lacks registers or shared memory (AMD)."""
    if not kernel.threads or kernel.registers is None or kernel.shared_bytes is None:
        return None
    return occupancy(gpu, kernel.registers, kernel.shared_bytes, kernel.threads).blocks_per_sm or None


def _of_link(kernel: Kernel, time_us: float, gpu: Gpu) -> Bound | None:
    """A small copy takes as long as it takes to begin. From pageable memory the CPU sets the pace of a long one, well
    below the link's."""
    if kernel.min_bytes is None or gpu.pcie_bandwidth is None or time_us <= 0:
        return None
    reached = kernel.min_bytes / (time_us * 1e-6) / gpu.pcie_bandwidth
    return Bound.LINK if reached >= BUSY or kernel.min_bytes >= LARGE else Bound.LATENCY
