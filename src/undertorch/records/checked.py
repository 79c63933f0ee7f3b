"""What a check of one kernel came to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from undertorch.records.findings import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One launch of a kernel under all checks, perhaps with several orders of its warps."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    gpu: str
    """Whose limits held."""
    target: str
    """What the code was compiled for, such as `sm_80`."""
    runs: int
    """Orders of warps that were tried."""
    findings: tuple[Finding, ...]
    """The gravest first."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Text of source files, by the names that findings have; of files that are not known, nothing."""

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """Findings as grave as that or graver."""
        order = list(Severity)
        return tuple(f for f in self.findings if order.index(f.severity) <= order.index(severity))
