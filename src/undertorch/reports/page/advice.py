"""What is worth changing in the script, with what each would save."""

from dataclasses import dataclass

from undertorch.records import Step, Where
from undertorch.reports.terminal.advice import IDLE
from undertorch.reports.terminal.numbers import ratio

LINES = 8
"""Lines named, at most; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """One piece of advice."""

    kind: str
    what: str
    saves_us: float | None
    share: float | None
    """Of the busy time, or of the step where what is saved is idle time."""
    of: str
    """Which of the two."""
    saves_bytes: int | None
    lines: tuple[Where, ...]
    """Each place once."""
    more: int
    """Lines that are not named."""


def advised(step: Step, busy_us: float) -> tuple[Advised, ...]:
    """In the order given. Savings are predictions."""
    found = []
    for one in step.advice:
        idle = one.kind in IDLE
        lines = tuple({(where.file, where.line): where for where in one.lines}.values())
        found.append(
            Advised(
                kind=one.kind,
                what=one.what,
                saves_us=one.saves_us,
                share=ratio(one.saves_us, step.step_us if idle else busy_us),
                of="the step" if idle else "the busy time",
                saves_bytes=one.saves_bytes,
                lines=lines[:LINES],
                more=len(lines[LINES:]),
            )
        )
    return tuple(found)
