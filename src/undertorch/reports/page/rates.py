"""How near the GPU's peaks a kernel comes: bytes and operations a second, from its least bytes and its FLOPs."""

from dataclasses import dataclass

from undertorch.records import Gpu, Kernel
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
        return f"{percent(self.share)} of {f'{self.unit} peak' if self.by_flops else 'memory bandwidth'}"


def rates(kernel: Kernel, mean_us: float, gpu: Gpu | None) -> Rates:
    """Of a kernel that takes `mean_us` microseconds a launch."""
    seconds = mean_us * 1e-6
    moved, done = ratio(kernel.min_bytes, seconds), ratio(kernel.flops, seconds)
    known = kernel.min_bytes and kernel.flops
    return Rates(
        bytes_a_second=moved,
        flops_a_second=done,
        bytes_share=None if gpu is None else ratio(moved, gpu.memory_bandwidth),
        flops_share=None if gpu is None or kernel.math is None else ratio(done, gpu.peaks.get(kernel.math)),
        intensity=ratio(kernel.flops, kernel.min_bytes) if known else None,
        unit=kernel.math,
    )
