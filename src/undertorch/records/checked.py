"""What a check of one kernel came to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from undertorch.records.findings import Finding, Place, Severity, TextOrigin
from undertorch.records.kernels import Dim3


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """A finding that the project accepts."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of the launches that were looked at, summed. TextOrigin: counted (PTX)."""

    warp_instructions: int
    thread_instructions: int
    """Active lanes, summed: over `warp_instructions` 0 to 32."""
    wavefronts: int
    """Turns of shared memory's banks."""
    ideal_wavefronts: int
    """The fewest that the same lanes could have taken."""
    sectors: int
    """Of 32 bytes of global memory."""
    ideal_sectors: int

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A kernel under all checks: one launch of it, or all that a program made, perhaps with several orders of warps."""

    kernel: str
    file: str | None = None
    """Its source file, where that is known."""
    grid: Dim3
    """Of the first launch in which something was found; else of the first."""
    block: Dim3
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
    origins: Mapping[str, TextOrigin] = field(default_factory=dict)
    """Of sources that are no files, by the names that findings have."""
    launches: int = 1
    """That the program made."""
    watched: int = 1
    """How many of them were looked at; the others equal one that was, or could not be."""
    sizes: tuple[tuple[Dim3, Dim3], ...] = ()
    """Different pairs of grid and block among those that were looked at."""
    missed: str | None = None
    """Why some could not be looked at."""
    counts: Counts | None = None
    """None: none was looked at to its end."""
    skipped: str | None = None
    """What was not looked for in any, and why."""
    suppressed: tuple[Suppressed, ...] = ()

    def __repr__(self) -> str:
        return f"<{self._head()}>"

    def __str__(self) -> str:
        """What was found, as text: `undertorch check` and rich draw it with its source lines."""
        rows = [self._head()]
        for finding in self.findings:
            places = [p for p in (finding.place, finding.other) if p is not None]
            where = " and ".join(dict.fromkeys(f"{p.file}:{p.line}" for p in map(self.standing, places)))
            rows += [f"{where}: {finding.severity}: {finding.kind}: {finding.message}", f"  seen: {finding.evidence}"]
            rows += [f"  cost: {finding.cost}"] if finding.cost is not None else []
            rows += [f"  remedy: {finding.remedy}"]
        return "\n".join(rows)

    def _head(self) -> str:
        """`reduce (4, 1, 1) × (256, 1, 1): 1 error, 2 notes (sm_80 code as on A100-80GB)`."""
        counts = [(s, sum(f.severity is s for f in self.findings)) for s in Severity]
        found = ", ".join(f"{n} {s}{'' if n == 1 else 's'}" for s, n in counts if n)
        found = found or ("nothing found" if self.watched else "not checked")
        return f"{self.kernel} {self.grid} × {self.block}: {found} ({self.target} code as on {self.gpu})"

    def standing(self, place: Place) -> Place:
        """Where a place is in a file."""
        origin = self.origins.get(place.file)
        return place if origin is None else origin.place(place)

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """Findings as grave as that or graver."""
        order = list(Severity)
        return tuple(f for f in self.findings if order.index(f.severity) <= order.index(severity))
