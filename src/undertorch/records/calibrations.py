"""A Calibration: the ceilings that one GPU reached when it was measured, beside what its sheet promises."""

from dataclasses import dataclass, field
from enum import StrEnum

from undertorch.records.origins import Origin


class Unit(StrEnum):
    """What a ceiling is counted in."""

    BYTES = "B/s"
    OPERATIONS = "FLOP/s"
    """Of int8: operations a second."""
    SECONDS = "s"

    @property
    def more_is_better(self) -> bool:
        """Whether of two ceilings the larger is the better one."""
        return self is not Unit.SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One figure, as it was measured."""

    name: str
    """Such as `global copy` or `matmul tensor-bf16`."""
    value: float
    """From the median of the samples of the best variant."""
    unit: Unit
    best: float
    """From the best sample."""
    spread: float
    """Between the tenth and the ninetieth of a hundred samples, as a share of the median."""
    samples: int
    variant: str
    """Which of several ways it was reached in: `8192³`, `4 loads a thread`."""
    origin: Origin = Origin.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a GPU of this machine reached."""

    gpu: str | None
    """Name of its sheet; None where there is none."""
    gpu_name: str
    """As the driver calls it."""
    driver: str | None
    """Version of the kernel driver, such as `580.159`; None where it does not tell."""
    date: str
    """When, in UTC, as ISO 8601 writes it."""
    versions: dict[str, str] = field(default_factory=dict)
    ceilings: tuple[Ceiling, ...]
    failed: dict[str, str] = field(default_factory=dict)
    """What could not be measured, by name (of a variant, with its variant), and why."""
    seconds: float
    """How long the measuring took."""

    def ceiling(self, name: str) -> Ceiling | None:
        """The one of that name; None where it was not measured."""
        return next((one for one in self.ceilings if one.name == name), None)
