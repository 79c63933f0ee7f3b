"""A Comparison on a terminal: the whole first, then the lines that changed most, phases, kinds of kernels, budgets."""

import shlex
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from undertorch.records.comparisons import (
    Change,
    Comparison,
    Figures,
    IdleLineChange,
    Judged,
    LineChange,
    Match,
    Metric,
    Side,
    SourceLine,
    Verdict,
)
from undertorch.reports.terminal.numbers import UNKNOWN, count, flops, percent, ratio, size, time
from undertorch.reports.terminal.text import Paragraph, cut, title

SHOWN = 0.001
"""Lines that change by less than this share of the busy time are summed up in one row."""

IDLE_SHOWN = 0.01
"""Lines whose idle time changes by less than this share of the step are counted together."""
IDLE_LINES = 5
"""Lines of idle time that get rows of their own."""

ROUNDING = 1e-9
"""Share of a sum that rounding can make: sums of floats in another order."""

Human = Callable[[float | None], str]

FIGURES: dict[str, Human] = {"step": time, "busy": time, "bytes": size, "memory": size}
"""How the figure of a budget is written; launches are counted."""

WIDTHS = (11, 11, 12, 9, 10, 9)
"""Cells of before, after, change, %, bytes, launches; the name before them gets what is left of 80 columns."""
HEADINGS = ("before", "after", "change", "%", "bytes", "launches")
NAME = 80 - sum(WIDTHS)


def show_comparison(comparison: Comparison, budgets: Sequence[Judged] = (), console: Console | None = None) -> None:
    """Draws what changed, and how the budgets fared. The summary stands at the end."""
    console = console or Console()
    doubt = _doubt(comparison)
    parts = (
        *_header(comparison),
        _whole(comparison, doubt),
        _lines(comparison, doubt, console.width),
        *_idle_lines(comparison, doubt, console.width),
        _groups("Phases", doubt, [(str(one.phase), one) for one in comparison.phases]),
        _groups("Kernels by kind", doubt, [(str(one.kind), one) for one in comparison.kinds]),
        *([_budgets(budgets, doubt)] if budgets else []),
        Paragraph(text=Text("\n" + summary(comparison), style="bold"), indent=0),
    )
    for part in parts:
        console.print(part, highlight=False)


def budget_sentence(judged: Judged) -> str:
    """What is wrong with a budget that does not hold."""
    budget = f"the budget {judged.budget.text}"
    if judged.verdict is Verdict.UNKNOWN or judged.change is None:
        return f"{judged.gpu}: {budget} cannot be judged: {judged.why}."
    figure = _figure(judged)
    instead = "" if judged.figure == judged.budget.metric else f" ({judged.budget.metric} is not known)"
    return (
        f"{judged.gpu}: {judged.figure}{instead} went from {figure(judged.change.before)} to "
        f"{figure(judged.change.after)}, {_signed(judged.change.difference, figure)}{_in_percent(judged.change)}: "
        f"over {budget}."
    )


def summary(comparison: Comparison) -> str:
    """One sentence: how the step's time, bytes, launches and memory changed, and what that leaves out."""
    wall = comparison.step_us.difference is not None
    name, change = ("step", comparison.step_us) if wall else ("busy time", comparison.busy_us)
    said = [
        _said(name.capitalize(), change, time),
        _said("least bytes", comparison.min_bytes, size),
        _said("launches", comparison.launches, count_of),
        _said("peak memory", comparison.peak_bytes, size),
    ]
    gpus = "" if comparison.one_gpu else f" from {comparison.before.gpu} to {comparison.after.gpu}, another GPU"
    mixed = f" ({_doubt(comparison)})" if comparison.mixed else ""
    return f"{', '.join(said)}{gpus}{mixed}{_left_out(comparison)}."


def count_of(number: float | None) -> str:
    """A figure that is a count."""
    return count(None if number is None else round(number))


def _said(name: str, change: Change, human: Human) -> str:
    if change.difference is None:
        return f"{name} not known"
    difference = _beyond_rounding(change)
    if not difference:
        return f"{name} unchanged"
    return f"{name} {_signed(difference, human)}{_in_percent(change)}"


def _left_out(comparison: Comparison) -> str:
    sides = {"before": comparison.before, "after": comparison.after}
    if comparison.same_left_out:
        ops = comparison.before.ops_without_cost_count
        same = "is the same and left out" if ops == 1 else "are the same on both sides and left out"
        return f"; {count(ops, 'op')} whose kernels are not known {same}" if ops else ""
    parts = [f"{count(side.ops_without_cost_count, 'op')} {name}" for name, side in sides.items()]
    lost = [f"; {count(side.lost_launches, 'launch', 'launches')} lost {name}" for name, side in sides.items()]
    return (
        f"; NOT the same are the ops whose kernels are not known, which every sum leaves out: {', '.join(parts)}"
        if comparison.before.ops_without_cost or comparison.after.ops_without_cost
        else ""
    ) + "".join(one for one, side in zip(lost, sides.values(), strict=True) if side.lost_launches)


def _header(comparison: Comparison) -> Iterator[RenderableType]:
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        yield Paragraph(text=_of(side), label=Text(name, style="dim"), indent=8)
    yield Rule(style="dim")
    if not comparison.one_gpu:
        gpus = f"{comparison.before.gpu} before, {comparison.after.gpu} after"
        yield _warning(f"Two different GPUs: {gpus}. What follows is the change of both, GPU and script.")
    if comparison.mixed:
        yield _warning(f"{_doubt(comparison).capitalize()}: the model's errors are part of every difference.")
    was, now = comparison.before.versions, comparison.after.versions
    other = [name for name in was.keys() | now.keys() if was.get(name) != now.get(name)]
    if other:
        named = ", ".join(f"{name} {was.get(name, UNKNOWN)} → {now.get(name, UNKNOWN)}" for name in sorted(other))
        yield _warning(f"Other versions: {named}.")


def _of(side: Side) -> Text:
    script = shlex.join((side.script, *side.arguments))
    return Text.assemble(
        (script, "bold"), f" · step {side.step} · ", (side.gpu, "bold"), f" · times {side.time_origin}"
    )


def _warning(sentence: str) -> Paragraph:
    return Paragraph(text=Text(sentence, style="yellow"), indent=0)


def _doubt(comparison: Comparison) -> str:
    """What every table of a mixed comparison says; empty where like stands beside like."""
    if not comparison.mixed:
        return ""
    return f"times before {comparison.before.time_origin}, after {comparison.after.time_origin}"


def _whole(comparison: Comparison, doubt: str) -> RenderableType:
    was, now = comparison.before, comparison.after
    step = comparison.step_us
    rates = [
        None if (rate := ratio(side.samples, wall)) is None else rate * 1e6
        for side, wall in ((was, step.before), (now, step.after))
    ]
    both = None if rates[0] is None or rates[1] is None else rates[1] - rates[0]
    neutral = ("samples", "  a second", "FLOPs")
    rows: list[tuple[str, Change, Human]] = [
        ("step", step, time),
        ("busy", comparison.busy_us, time),
        *([("idle", _idle(comparison), time)] if comparison.idle else []),
        *((f"  {one.cause}", one.time_us, time) for one in comparison.idle),
        *(
            [
                ("samples", _exact(was.samples, now.samples), count_of),
                ("  a second", Change(before=rates[0], after=rates[1], difference=both), count_of),
            ]
            if was.samples is not None or now.samples is not None
            else []
        ),
        ("least bytes", comparison.min_bytes, size),
        ("FLOPs", comparison.flops, flops),
        ("launches", comparison.launches, count_of),
        ("peak memory", comparison.peak_bytes, size),
    ]
    return Group(
        title("Step", doubt),
        _cells("", HEADINGS[:4], style="dim"),
        *(
            _cells(name, _change_cells(change, human), of=None if name in neutral else change)
            for name, change, human in rows
        ),
    )


def _idle(comparison: Comparison) -> Change:
    """Of all causes."""
    before = sum(one.time_us.before or 0.0 for one in comparison.idle)
    after = sum(one.time_us.after or 0.0 for one in comparison.idle)
    return Change(before=before, after=after, difference=after - before)


def _exact(before: int | None, after: int | None) -> Change:
    difference = None if before is None or after is None else after - before
    return Change(before=before, after=after, difference=difference)


def _cells(name: str, cells: Sequence[str], style: str = "", of: Change | None = None) -> Text:
    """A row of figures under HEADINGS; `of` is the change whose more is worse and whose less is better."""
    text = Text(f"{cut('  ' + name, NAME):<{NAME}}", style=style, no_wrap=True)
    for column, (cell, width) in enumerate(zip(cells, WIDTHS, strict=False)):
        text.append(f"{cell:>{width}}", style=_colour(of) if column in (2, 3) else "")
    text.rstrip()
    return text


def _colour(change: Change | None) -> str:
    difference = None if change is None else _beyond_rounding(change)
    if not difference:
        return ""
    return "red" if difference > 0 else "green"


def _beyond_rounding(change: Change) -> float | None:
    """The difference; 0 where it is only what adding floats in another order makes of equal sums."""
    if change.difference is None:
        return None
    return 0.0 if abs(change.difference) <= ROUNDING * max(change.before or 0, change.after or 0) else change.difference


def _change_cells(change: Change, human: Human) -> tuple[str, str, str, str]:
    """Before and after, with `>` where launches are missing from the sum; the change; in percent."""
    before = _at_least(change.before, change.before_missing, human)
    after = _at_least(change.after, change.after_missing, human)
    return before, after, _signed(_beyond_rounding(change), human), _percent(change)


def _at_least(figure: float | None, missing: int, human: Human) -> str:
    """A sum that is zero but for what is missing says nothing."""
    return (">" if figure else "") + human(figure or None) if missing else human(figure)


def _signed(difference: float | None, human: Human) -> str:
    if difference is None:
        return UNKNOWN
    if not difference:
        return "0"
    return ("+" if difference > 0 else "−") + human(abs(difference))


def _percent(change: Change) -> str:
    if change.ratio is None or not _beyond_rounding(change):
        return "" if change.difference is not None else UNKNOWN
    return ("+" if change.ratio > 0 else "−") + percent(abs(change.ratio))


def _in_percent(change: Change) -> str:
    return f" ({_percent(change)})" if _percent(change) not in ("", UNKNOWN) else ""


def _row(name: str, figures: Figures) -> Text:
    cells = (
        *_change_cells(figures.time_us, time),
        _signed(figures.min_bytes.difference, size),
        _signed(figures.launches.difference, count_of),
    )
    return _cells(name, cells, of=figures.time_us)


def _groups(name: str, doubt: str, groups: Sequence[tuple[str, Figures]]) -> RenderableType:
    """Those that changed; how many did not."""
    rows = [_row(label, figures) for label, figures in groups if _changed(figures)]
    still = len(groups) - len(rows)
    if still or not groups:
        rows.append(Text(f"  {count(still)} unchanged" if groups else "  none", style="dim"))
    return Group(title(name, doubt), _cells("", HEADINGS, style="dim"), *rows)


def _changed(figures: Figures) -> bool:
    """In any figure; one that is not known may have."""
    changes = (figures.time_us, figures.min_bytes, figures.launches)
    return any(_beyond_rounding(change) != 0 for change in changes)


def _lines(comparison: Comparison, doubt: str, width: int) -> RenderableType:
    """A line in two rows or three: its figures, its place, its text (both texts where it was edited)."""
    least = SHOWN * max(comparison.busy_us.before or 0.0, comparison.busy_us.after or 0.0)
    shown = [line for line in comparison.lines if _matters(line, least)]
    rest = [line for line in comparison.lines if not _matters(line, least)]
    explained = "the largest change first" + (f"; {doubt}" if doubt else "")
    rows: list[RenderableType] = [title("Lines", explained), _cells("", HEADINGS, style="dim")]
    for line in shown:
        rows.append(_row(str(line.match), line))
        rows.extend(Text(cut(f"    {row}", width), style=style, no_wrap=True) for row, style in _said_of(line))
    if rest:
        change = sum(line.time_us.difference or 0.0 for line in rest)
        change = 0.0 if abs(change) <= ROUNDING * least / SHOWN else change
        said = f"  {count(len(rest), 'line')} that changed by less than {time(least)}: {_signed(change, time)} in all"
        rows.append(Text(said, style="dim"))
    if not comparison.lines:
        rows.append(Text("  none", style="dim"))
    return Group(*rows)


def _idle_lines(comparison: Comparison, doubt: str, width: int) -> list[RenderableType]:
    """The lines of which the GPU's waiting changed by more than a hundredth of the step: no part where none did."""
    least = IDLE_SHOWN * max(comparison.step_us.before or 0.0, comparison.step_us.after or 0.0)
    changed = [one for one in comparison.idle_lines if abs(one.time_us.difference or 0.0) >= max(least, 1e-9)]
    if not changed:
        return []
    explained = "by the line that causes it, the largest change first" + (f"; {doubt}" if doubt else "")
    rows: list[RenderableType] = [title("Idle", explained), _cells("", HEADINGS[:4], style="dim")]
    for line in changed[:IDLE_LINES]:
        rows.append(_cells(str(line.match), _change_cells(line.time_us, time), of=line.time_us))
        rows.extend(Text(cut(f"    {row}", width), style=style, no_wrap=True) for row, style in _said_of(line))
    rest = [one for one in comparison.idle_lines if one not in changed[:IDLE_LINES]]
    if rest:
        change = sum(one.time_us.difference or 0.0 for one in rest)
        change = 0.0 if abs(change) <= ROUNDING * least / IDLE_SHOWN else change
        rows.append(Text(f"  {count(len(rest), 'more line')}: {_signed(change, time)} in all", style="dim"))
    return [Group(*rows)]


def _matters(line: LineChange, least: float) -> bool:
    return bool(line.time_us.difference) and abs(line.time_us.difference or 0.0) >= least


def _said_of(line: LineChange | IdleLineChange) -> Iterator[tuple[str, str]]:
    """Rows of text with their styles."""
    was, now = line.before, line.after
    if was is None and now is None:
        yield "launches without a source line" if isinstance(line, LineChange) else "no source line", "dim"
        return
    yield _place(was, now), "dim"
    if line.match is Match.EDITED and was is not None and now is not None:
        yield f"- {_source(was)}", "red"
        yield f"+ {_source(now)}", "green"
        return
    one = now or was
    if one is not None and (one.source is not None or not one.function):
        yield _source(one), ""


def _source(line: SourceLine) -> str:
    return "(source not found)" if line.source is None else line.source


def _place(was: SourceLine | None, now: SourceLine | None) -> str:
    if was is None or now is None:
        one = was or now
        return "" if one is None else f"{one.file}:{one.line} {one.function}"
    if was.file != now.file:
        return f"{was.file}:{was.line} → {now.file}:{now.line} {now.function}"
    number = str(now.line) if was.line == now.line else f"{was.line} → {now.line}"
    return f"{now.file}:{number} {now.function}"


def _budgets(budgets: Sequence[Judged], doubt: str) -> RenderableType:
    rows = []
    for judged in budgets:
        change = judged.change
        cells = ("", "", "", "") if change is None else _change_cells(change, _figure(judged))
        style = "" if judged.verdict is Verdict.HOLDS else "red"
        text = _cells(judged.budget.text, cells)
        rows.append(text.append(f"   {judged.verdict}", style=style))
    return Group(title("Budgets", doubt), _cells("", HEADINGS[:4], style="dim"), *rows)


def _figure(judged: Judged) -> Human:
    return count_of if judged.budget.metric is Metric.LAUNCHES else FIGURES[judged.figure]
