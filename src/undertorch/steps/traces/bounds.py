"""What a measured launch waited for: the share of the memory's and the arithmetic's peak that it reached."""

from undertorch.gpus.roofline import bandwidth
from undertorch.records import Bound, Gpu, Kernel, Kind, Math

BUSY = 0.3
"""Share of a peak from which on that unit is what the launch waits for. Below it in both, neither is."""

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
    if max(memory, arithmetic) < BUSY:
        return Bound.LATENCY
    return Bound.MEMORY if memory >= arithmetic else Bound.COMPUTE


def _of_link(kernel: Kernel, time_us: float, gpu: Gpu) -> Bound | None:
    """A small copy takes as long as it takes to begin. From pageable memory the CPU sets the pace of a long one, well
    below the link's."""
    if kernel.min_bytes is None or gpu.pcie_bandwidth is None or time_us <= 0:
        return None
    reached = kernel.min_bytes / (time_us * 1e-6) / gpu.pcie_bandwidth
    return Bound.LINK if reached >= BUSY or kernel.min_bytes >= LARGE else Bound.LATENCY
