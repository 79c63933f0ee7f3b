"""A Launch: one run of a Kernel."""

from dataclasses import dataclass

from undertorch.records.kernels import Kernel
from undertorch.records.kinds import Bound, Limiter, Phase
from undertorch.records.origins import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One run of a Kernel on a stream of a device."""

    kernel: Kernel
    ops: tuple[int, ...]
    """Ids of the Ops it served; a fused kernel serves several, and its figures count at the first.
    Empty: no Op is known."""
    phase: Phase
    device: int = 0
    stream: int
    start_us: float
    """From the start of the step, in microseconds."""
    time_us: float
    """Microseconds on the GPU."""
    time_origin: Origin
    """Of start_us, time_us and bound."""
    bound: Bound | None = None
    occupancy: float | None = None
    """Resident warps over the most an SM can hold, 0 to 1, from the kernel's resources (theoretical occupancy)."""
    limiter: Limiter | None = None
    """What limits the occupancy."""
    occupancy_origin: Origin | None = None

    @property
    def end_us(self) -> float:
        """Start and time together."""
        return self.start_us + self.time_us
