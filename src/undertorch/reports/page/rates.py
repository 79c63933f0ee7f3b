"""How near the GPU's peaks a kernel comes: bytes and operations a second, from its least bytes and its FLOPs."""

from collections.abc import Sequence
from dataclasses import dataclass

from undertorch.records import Gpu, Kernel, Launch
from undertorch.reports.terminal.numbers import flops, percent, ratio, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of one kernel over some time. Unknown is None; shares are of the GPU's peaks, 0 to 1."""

    bytes_a_second: float | None
    flops_a_second: float | None
    bytes_share: float | None
    flops_share: float | None
    intensity: float | None
    """FLOPs a byte; None too where either is 0: it has no place on a logarithmic axis."""
    unit: str | None
    """That does the FLOPs."""
    over_link: bool = False
    """Whether its bytes go between host and GPU: then `bytes_share` is of the link."""

    @property
    def share(self) -> float | None:
        """Of the two the one nearer to its peak; None where neither is known."""
        known = [share for share in (self.bytes_share, self.flops_share) if share is not None]
        return max(known) if known else None

    @property
    def by_flops(self) -> bool:
        """Whether the operations come nearer to their peak than the bytes to theirs."""
        return bool(self.flops_a_second) and (self.flops_share or 0) > (self.bytes_share or 0)

    @property
    def reached(self) -> str | None:
        """The nearer one as `4.15 TB/s`."""
        if self.by_flops:
            return f"{flops(self.flops_a_second)}/s"
        return None if self.bytes_a_second is None else f"{size(self.bytes_a_second)}/s"

    @property
    def of_peak(self) -> str | None:
        """And its share as `86.4 % of memory bandwidth`."""
        if self.share is None:
            return None
        moving = "the link's bandwidth" if self.over_link else "memory bandwidth"
        return f"{percent(self.share)} of {f'{self.unit} peak' if self.by_flops else moving}"


def rates(kernel: Kernel, mean_us: float, gpu: Gpu | None) -> Rates:
    """Of a kernel that takes `mean_us` microseconds a launch."""
    seconds = mean_us * 1e-6
    known = kernel.min_bytes and kernel.flops
    intensity = ratio(kernel.flops, kernel.min_bytes) if known else None
    return _rates(kernel, ratio(kernel.min_bytes, seconds), ratio(kernel.flops, seconds), intensity, gpu)


def rates_together(launches: Sequence[Launch], longest: Launch, gpu: Gpu | None) -> Rates:
    """Of launches of one name, whose shapes may differ: the sum of what is known over the time of those it is known of.
    The unit is that of the longest."""
    moved, moving_us = _known([(launch.kernel.min_bytes, launch.time_us) for launch in launches])
    done, doing_us = _known([(launch.kernel.flops, launch.time_us) for launch in launches])
    intensity = ratio(done, moved) if done else None
    return _rates(longest.kernel, ratio(moved, moving_us * 1e-6), ratio(done, doing_us * 1e-6), intensity, gpu)


def _known(figures: Sequence[tuple[int | None, float]]) -> tuple[int | None, float]:
    known = [(figure, spent) for figure, spent in figures if figure is not None]
    return (sum(figure for figure, _ in known) if known else None), sum(spent for _, spent in known)


def _rates(kernel: Kernel, moved: float | None, done: float | None, intensity: float | None, gpu: Gpu | None) -> Rates:
    peak = None if gpu is None else gpu.pcie_bandwidth if kernel.over_link else gpu.memory_bandwidth
    return Rates(
        bytes_a_second=moved,
        flops_a_second=done,
        bytes_share=ratio(moved, peak),
        flops_share=None if gpu is None or kernel.math is None else ratio(done, gpu.peaks.get(kernel.math)),
        intensity=intensity,
        unit=kernel.math,
        over_link=kernel.over_link,
    )
