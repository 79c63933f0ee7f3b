"""The modules of a line that holds much of the step: `self.body(x)` of an nn.Sequential is one, and all the model."""

from collections import defaultdict
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from undertorch.records.totals import longest_first
from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.numbers import UNKNOWN, bar, count, percent, ratio, time
from undertorch.reports.terminal.runs import Run, busy, grouped
from undertorch.reports.terminal.text import cut, title

MOST = 0.4
"""Share of the busy time from which on a line is taken apart."""
SHOWN = 12
"""Modules that get a row of their own."""
HEAT = 8
"""Cells of the bar."""


def modules(all_runs: Sequence[Run], width: int) -> list[RenderableType]:
    """A part of the report for each line with so much of the busy time and several modules; times sum to its own.
    The longest module stands first, and those that tie as they come in the step."""
    whole = busy(all_runs)
    found: list[RenderableType] = []
    for where, some in grouped(
        all_runs, lambda run: None if run.where is None else (run.where.file, run.where.line)
    ).items():
        if where is not None and busy(some) >= MOST * whole:
            found += _of_line(f"{where[0]}:{where[1]}", some, whole, width)
    return found


def _of_line(place: str, some: Sequence[Run], whole: float, width: int) -> list[RenderableType]:
    groups = _groups(some)
    if len(groups) < 2:
        return []
    ordered = longest_first(groups.items(), lambda item: busy(item[1]))
    most = busy(ordered[0][1])
    rows: list[RenderableType] = [
        title("Modules", f"of {place}, {percent(ratio(busy(some), whole))} of the busy time"),
        Text(f"  {'':<{HEAT}} {'time':>8} {'%':>6} {'launches':>8}  module", style="dim", no_wrap=True),
    ]
    for name, its in ordered[:SHOWN]:
        what = bound(its)
        rows.append(_row(its, most, whole, name if what == UNKNOWN else f"{name} · {what}", width))
    rest = [run for _, its in ordered[SHOWN:] for run in its]
    if rest:
        rows.append(_row(rest, most, whole, count(len(ordered) - SHOWN, "more module"), width))
    return rows


def _groups(some: Sequence[Run]) -> dict[str, list[Run]]:
    """By as much of the modules' names as gives no more rows than are shown: with the numbers of the layers, or else
    over all layers (`layers.*.attn`). Where neither does, by as little of them as tells any apart."""
    names = [run.op.module.split(".") if run.op is not None and run.op.module else [] for run in some]
    deepest = max(map(len, names))
    alike = [["*" if part.isdigit() else part for part in name] for name in names]
    cut_names = [[tuple(name[:depth]) for name in told] for told in (names, alike) for depth in range(deepest, 0, -1)]
    few = (told for told in cut_names if 2 <= len(set(told)) <= SHOWN)
    many = (told for told in reversed(cut_names) if len(set(told)) >= 2)
    chosen = next(few, None) or next(many, [()] * len(some))
    groups: dict[str, list[Run]] = defaultdict(list)
    for run, name in zip(some, chosen, strict=True):
        groups[".".join(name) or "no module"].append(run)
    return groups


def _row(some: Sequence[Run], most: float, whole: float, said: str, width: int) -> Text:
    share = percent(ratio(busy(some), whole)).removesuffix(" %")
    heat = bar(ratio(busy(some), most) or 0.0, HEAT)
    row = f"  {heat:<{HEAT}} {time(busy(some)):>8} {share:>6} {count(len(some)):>8}  {said}"
    return Text(cut(row, width), no_wrap=True)
