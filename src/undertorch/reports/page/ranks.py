"""Several ranks of one step on the page."""

from dataclasses import dataclass

from undertorch.records.ranks import CollectiveFigures, RanksReport
from undertorch.records.totals import longest_first
from undertorch.reports.terminal.ranks import left_out, placed, waits

SHOWN_LINES = 20
SHOWN_COLLECTIVES = 50
"""On the page; the JSON has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """Exposed communication of a line."""

    name: str
    operation: str
    launches: int
    exposed_us: float
    waiting_us: float | None
    time_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksView:
    """What the template draws."""

    report: RanksReport
    waits: tuple[str, ...]
    lines: tuple[LineView, ...]
    collectives: tuple[CollectiveFigures, ...]
    notes: tuple[str, ...]


def ranks_view(report: RanksReport) -> RanksView:
    """The longest of each part; what is left out is counted in the notes."""
    collectives = longest_first(report.collectives, lambda one: one.exposed_us)
    more = len(collectives) - SHOWN_COLLECTIVES
    notes = [f"{more:,} more collectives are in the JSON."] if more > 0 else []
    return RanksView(
        report=report,
        waits=tuple(waits(report)),
        lines=tuple(
            LineView(
                name=placed(line),
                operation=line.operation,
                launches=line.launches,
                exposed_us=line.exposed_us,
                waiting_us=line.waiting_us,
                time_us=line.time_us,
            )
            for line in report.lines[:SHOWN_LINES]
        ),
        collectives=tuple(collectives[:SHOWN_COLLECTIVES]),
        notes=(*notes, *left_out(report)),
    )
