"""The roofline: what a kernel can reach at best, from the bytes it moves and the operations it does.

Williams, Waterman, Patterson: Roofline (CACM 52(4), 2009): rate ≤ min(peak of the unit, intensity × bandwidth), where
the intensity is operations a byte. It is a ceiling, no prediction: real kernels stay under it.
"""

from enum import StrEnum

from undertorch.records import Bound, Gpu, Math


class Distance(StrEnum):
    """How far from the SM the bytes lie. Each has a bandwidth, so each has a roof of its own."""

    GLOBAL = "global"
    L2 = "l2"
    SHARED = "shared"


def bandwidth(gpu: Gpu, distance: Distance = Distance.GLOBAL) -> float | None:
    """Bytes a second of the whole GPU over that distance, as specified; None: the sheet does not know it."""
    match distance:
        case Distance.GLOBAL:
            return gpu.memory_bandwidth
        case Distance.L2:
            return gpu.l2_bandwidth
        case Distance.SHARED:
            return gpu.shared_bandwidth


def attainable(gpu: Gpu, intensity: float, math: Math, distance: Distance = Distance.GLOBAL) -> float | None:
    """Operations a second that a kernel of this intensity (operations a byte) can reach.

    None: the sheet has no peak for the unit, or no bandwidth for the distance. Raises ValueError for an intensity
    below 0.
    """
    if intensity < 0:
        raise ValueError(f"intensity is {intensity}; operations a byte are 0 or more")
    peak, rate = gpu.peaks.get(math), bandwidth(gpu, distance)
    return None if peak is None or rate is None else min(peak, intensity * rate)


def ridge(gpu: Gpu, math: Math, distance: Distance = Distance.GLOBAL) -> float | None:
    """The intensity (operations a byte) from which on the unit is the limit and no longer the memory.

    None: the sheet has no peak for the unit, or no bandwidth for the distance.
    """
    peak, rate = gpu.peaks.get(math), bandwidth(gpu, distance)
    return None if peak is None or rate is None else peak / rate


def bound(gpu: Gpu, flops: int, bytes: int, math: Math) -> Bound | None:
    """Which takes longer at best: moving the bytes to and from global memory, or doing the operations.

    None: the sheet has no peak for the unit, or the kernel does neither. Raises ValueError for figures below 0.
    """
    if flops < 0 or bytes < 0:
        raise ValueError(f"flops is {flops} and bytes is {bytes}; both are 0 or more")
    if flops == 0:
        return Bound.MEMORY if bytes else None
    peak = gpu.peaks.get(math)
    if peak is None:
        return None
    return Bound.COMPUTE if flops / peak > bytes / gpu.memory_bandwidth else Bound.MEMORY
