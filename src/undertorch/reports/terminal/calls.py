"""The calls into ATen, the busiest first: what there is to go by where a trace has no lines."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from undertorch.records.totals import longest_first
from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.numbers import UNKNOWN, bar, count, percent, ratio, time
from undertorch.reports.terminal.runs import Run, busy, grouped
from undertorch.reports.terminal.text import cut, title

SHOWN = 12
"""Calls that get a row of their own."""
HEAT = 8
"""Cells of the bar."""


def calls(all_runs: Sequence[Run], width: int) -> list[RenderableType]:
    """A part of the report; none where a line is known, or no call is. Times sum to the busy time."""
    if any(run.where is not None for run in all_runs) or all(run.op is None for run in all_runs):
        return []
    whole = busy(all_runs)
    groups = grouped(all_runs, lambda run: "no call known" if run.op is None else run.op.name)
    ordered = longest_first(groups.items(), lambda item: busy(item[1]))
    most = busy(ordered[0][1])
    rows: list[RenderableType] = [
        title("Calls", "no lines are known; the calls that launched, the busiest first"),
        Text(f"  {'':<{HEAT}} {'time':>8} {'%':>6} {'launches':>8}  call", style="dim", no_wrap=True),
    ]
    for name, some in ordered[:SHOWN]:
        what = bound(some)
        said = name if what == UNKNOWN else f"{name} · {what}"
        rows.append(_row(some, ratio(busy(some), most) or 0.0, whole, said, width))
    rest = [run for _, some in ordered[SHOWN:] for run in some]
    if rest:
        rows.append(_row(rest, 0.0, whole, count(len(ordered) - SHOWN, "more call"), width))
    return rows


def _row(some: Sequence[Run], heat: float, whole: float, said: str, width: int) -> Text:
    share = percent(ratio(busy(some), whole)).removesuffix(" %")
    row = f"  {bar(heat, HEAT):<{HEAT}} {time(busy(some)):>8} {share:>6} {count(len(some)):>8}  {said}"
    return Text(cut(row, width), no_wrap=True)
