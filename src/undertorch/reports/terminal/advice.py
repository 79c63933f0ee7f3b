"""What is worth changing in the script, with what each would save."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Advice, Step, Where
from undertorch.reports.terminal.numbers import UNKNOWN, count, percent, ratio, size, time
from undertorch.reports.terminal.runs import Run, busy
from undertorch.reports.terminal.text import Paragraph, title

INDENT = 18
IDLE = frozenset({"launching", "foreach", "update-loop", "sync"})
"""Kinds that save time in which the GPU does nothing: a share of the step and not of the busy time."""
LINES = 4
"""Places named, at most; the rest is counted."""


def advice(step: Step, all_runs: Sequence[Run]) -> list[RenderableType]:
    """A part of the report; none where nothing is advised."""
    if not step.advice:
        return []
    whole = busy(all_runs)
    explained = "what each would save; %: of the busy time, or of the step where the GPU is idle"
    rows: list[RenderableType] = [title("Advice", explained)]
    for one in step.advice:
        rows.extend(_rows(one, step.step_us if one.kind in IDLE else whole))
    if any(one.kind == "launching" for one in step.advice):
        late = "The GPU waits for launches: what saves its time shortens the step only once that is mended."
        rows.append(Paragraph(text=Text(late, style="dim")))
    return [Group(*rows)]


def _rows(one: Advice, whole: float | None) -> Iterator[Paragraph]:
    """Saving and what to do; bytes and places beneath."""
    share = percent(ratio(one.saves_us, whole))
    label = Text.assemble((f"{time(one.saves_us):>8}", "bold"), f"{share:>8}")
    yield Paragraph(text=Text(one.what), label=label, indent=INDENT)
    moved = [f"{size(one.saves_bytes)} less moved"] if one.saves_bytes else []
    yield Paragraph(text=Text(" · ".join([one.kind, *moved, _places(one.lines)]), style="dim"), indent=INDENT)


def _places(lines: Sequence[Where]) -> str:
    """Each place once, one name a file: `train.py:59, 60 and model.py:3`."""
    places = list(dict.fromkeys((where.file, where.line) for where in lines))
    if not places:
        return UNKNOWN
    files: dict[str, list[int]] = {}
    for file, line in places[:LINES]:
        files.setdefault(file, []).append(line)
    named = [f"{file}:{', '.join(map(str, numbers))}" for file, numbers in files.items()]
    rest = len(places) - LINES
    return "; ".join(named) + (f" and {count(rest, 'more line')}" if rest > 0 else "")
