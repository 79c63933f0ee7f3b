"""The phases of the step as bars. They sum to the busy time."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.numbers import bar, count, percent, ratio, time
from undertorch.reports.terminal.runs import Run, busy, by_phase
from undertorch.reports.terminal.text import Paragraph, title

COLOURS = ("cyan", "blue", "magenta", "red", "yellow", "green")

REST = 2 + 12 + 9 + 8 + 16 + 2
"""Cells of a row besides its bar and what bounds it."""


def phases(all_runs: Sequence[Run], width: int) -> RenderableType:
    """A row a phase: bar, time, share, launches, bound."""
    whole = busy(all_runs)
    found = by_phase(all_runs)
    bounds = [bound(some) for _, some in found]
    room = max(min(width - REST - max(map(len, bounds), default=0), 60), 1)
    rows: list[RenderableType] = [title("Phases")]
    for number, ((phase, some), why) in enumerate(zip(found, bounds, strict=True)):
        part = ratio(busy(some), whole) or 0.0
        text = Text(f"  {phase:<12}", no_wrap=True)
        text.append(f"{bar(part, room):<{room}}", style=COLOURS[number % len(COLOURS)])
        text.append(f" {time(busy(some)):>8} {percent(part):>7}  {count(len(some), 'launch', 'launches'):>14}  ")
        text.append(why, style="dim")
        rows.append(text)
    if len(rows) == 1:
        rows.append(Paragraph(text=Text("none", style="dim")))
    return Group(*rows)
