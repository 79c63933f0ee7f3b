"""Several traces beside each other (of ranks, or before and after an edit): a row each."""

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Step
from undertorch.records.totals import lines
from undertorch.reports.terminal.numbers import percent, ratio, size, time
from undertorch.reports.terminal.runs import Run, busy, by_kernel, runs
from undertorch.reports.terminal.text import cut, cut_middle, padded, title, told_apart

HEADINGS = ("step", "busy", "idle", "peak")
WIDTHS = (9, 9, 8, 9)
"""Cells of each figure; the name and the line stand to the left and right of them."""
LINE = 20
"""Cells that the line has at least."""
NARROWEST, WIDEST = 12, 40
"""Cells of a name."""


def traces_compared(steps: Sequence[Step], width: int) -> RenderableType:
    """Wall and busy time, the share that is idle, peak memory, and the line that takes most of the busy time."""
    gpus = list(dict.fromkeys(step.gpu for step in steps))
    on = ["" if len(gpus) == 1 else f" · {step.gpu}" for step in steps]
    names = told_apart([step.environment.script for step in steps])
    longest = max(cell_len(name + gpu) for name, gpu in zip(names, on, strict=True))
    room = max(min(longest, width - 2 - sum(WIDTHS) - 2 - LINE, WIDEST), NARROWEST)
    left = max(width - 2 - room - sum(WIDTHS) - 2, 1)
    rows: list[RenderableType] = [
        title("Traces", f"{f'{gpus[0]}; ' if len(gpus) == 1 else ''}times measured; the line that takes most of busy"),
        Text(cut(" " * (2 + room) + _cells(HEADINGS) + "  line", width), style="dim", no_wrap=True),
    ]
    for step, name, gpu in zip(steps, names, on, strict=True):
        named = cut(cut_middle(name, max(room - cell_len(gpu), 4)) + gpu, room)
        rows.append(Text(cut(f"  {padded(named, room)}{_figures(step, left)}", width), no_wrap=True))
    return Group(*rows)


def _cells(cells: Sequence[str]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def _figures(step: Step, left: int) -> str:
    all_runs = runs(step)
    spent = busy(all_runs)
    idle = sum(one.time_us for one in step.idle)
    cells = (time(step.step_us), time(spent), percent(ratio(idle, step.step_us)), size(step.memory.peak_bytes))
    return f"{_cells(cells)}  {_top(step, all_runs, spent, left)}"


def _top(step: Step, all_runs: Sequence[Run], whole: float, left: int) -> str:
    """`55.0 % layer.py:1696`; of a trace without lines the kernel that takes most."""
    first = next((line for line in lines(step) if line.file is not None), None)
    if first is not None and first.file is not None:
        spent, name = first.time_us, f"{Path(first.file).name}:{first.line}"
    else:
        longest = by_kernel(all_runs)[0]
        spent, name = busy(longest), longest[0].launch.kernel.name
    share = f"{percent(ratio(spent, whole))} "
    return share + cut_middle(name, max(left - cell_len(share), 1))
