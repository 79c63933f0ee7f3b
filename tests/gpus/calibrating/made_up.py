"""A GPU made up for tests: it moves bytes and multiplies at given rates, and the clock goes on as its runs last."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from undertorch.gpus.calibrating import Facts, ProbeFailed
from undertorch.gpus.calibrating.probes import Probe

GIB = 1 << 30

H200 = Facts(
    gpu_name="NVIDIA H200",
    driver="580.159",
    sms=132,
    memory_bytes=139 * GIB,
    l2_bytes=60 << 20,
    versions={"torch": "2.11.0"},
)


@dataclass(slots=True)
class MadeUp:
    """A Backend: rates by ceiling, `rate` where none is given. Times are work over rate, samples 10 % apart."""

    known: Facts = H200
    rate: float = 1e12
    launch: float = 2e-6
    """Seconds of whatever is a time and no rate, where `rates` gives none."""
    rates: dict[str, float] = field(default_factory=dict)
    """By ceiling, or by ceiling and variant with a comma between."""
    broken: dict[str, str] = field(default_factory=dict)
    """Of a ceiling, how it fails."""
    now: float = 0.0
    ran: list[str] = field(default_factory=list)

    def facts(self) -> Facts:
        return self.known

    def seconds(self, probe: Probe) -> Sequence[float]:
        what = f"{probe.ceiling}, {probe.variant}"
        self.ran.append(what)
        if probe.ceiling in self.broken:
            raise ProbeFailed(self.broken[probe.ceiling])
        rate = self.rates.get(
            what, self.rates.get(probe.ceiling, self.rate if probe.unit.more_is_better else self.launch)
        )
        lasts = probe.work / rate if probe.unit.more_is_better else probe.work * rate
        self.now += 3 * lasts
        return [0.9 * lasts, lasts, 1.1 * lasts]

    def clock(self) -> float:
        return self.now
