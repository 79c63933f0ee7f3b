"""A Step as the terminal report draws it, as plain text."""

from io import StringIO

from rich.console import Console

from undertorch.records import Gpu, Step
from undertorch.reports.terminal import show

TITLES = (
    *("Lines", "Modules", "Calls", "Advice", "Kernels", "Phases", "Totals", "Accounting", "Assumptions"),
    "Notes",
)


def drawn(step: Step, width: int = 80, gpu: Gpu | None = None, terminal: bool = False) -> str:
    """What `show` prints on a screen of that width; with colours where it is a terminal."""
    page = StringIO()
    colours = "truecolor" if terminal else None
    show(step, gpu, Console(file=page, width=width, force_terminal=terminal, color_system=colours))
    return page.getvalue()


def part(text: str, name: str) -> list[str]:
    """The rows of one part of the report: from its title to the next one's."""
    rows = text.splitlines()
    begin = next(number for number, row in enumerate(rows) if row.split("  ")[0] == name)
    found = []
    for row in rows[begin + 1 :]:
        if row.split("  ")[0] in TITLES:
            break
        found.append(row)
    return found


def one_row(rows: list[str]) -> str:
    """Rows that were wrapped, as one."""
    return " ".join(" ".join(rows).split())
