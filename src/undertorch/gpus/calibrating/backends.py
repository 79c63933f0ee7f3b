"""What times a probe: a real GPU, or in tests one that is made up."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from undertorch.gpus.calibrating.probes import Probe


class NoGpu(Exception):
    """There is nothing to measure here, said in one sentence."""


class ProbeFailed(Exception):
    """One probe could not be run; the others can. With the reason, in the words of what refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the plan needs to know of the GPU, and what the result says of it."""

    gpu_name: str
    driver: str | None
    sms: int
    memory_bytes: int
    """That are free."""
    l2_bytes: int
    versions: dict[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """Runs probes on one GPU."""

    def facts(self) -> Facts:
        """Raises NoGpu."""

    def seconds(self, probe: Probe) -> Sequence[float]:
        """How long each of several runs took, the warm-up left out; at least one. Raises ProbeFailed."""
