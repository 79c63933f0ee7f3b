"""One script on several GPUs: a row each."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Gpu, Step
from undertorch.reports.terminal.numbers import UNKNOWN, count, percent, ratio, size, time
from undertorch.reports.terminal.runs import Run, bounds, busy, runs
from undertorch.reports.terminal.text import Paragraph, cut, title

NAME = 14
HEADINGS = ("step", "busy", "idle", "samples/s", "peak", "memory left")
WIDTHS = (8, 8, 8, 10, 8, 13)
"""Cells of each figure; the name and the bound stand to the left and right of them."""


def gpus_compared(seen: Sequence[tuple[Gpu, Step]], failed: Sequence[Gpu] = ()) -> RenderableType:
    """Wall and busy time, the share of the step that the GPU is idle, samples a second, peak memory and whether the GPU
    has it, what bounds most of the busy time.

    GPUs for which the script failed have a row that says so; why is said elsewhere.
    """
    origins = ", ".join(dict.fromkeys(str(step.time_origin) for _, step in seen))
    rows: list[RenderableType] = [title("GPUs", f"times {origins}" if origins else ""), _row("", HEADINGS, "bound")]
    rows.extend(_gpu(gpu, step) for gpu, step in seen)
    rows.extend(Text(f"  {cut(gpu.name, NAME):<{NAME}} the script failed", style="red") for gpu in failed)
    if any(gpu.verified for gpu, _ in seen):
        told = "✓ predicted times were compared with times measured on that GPU; on the others they were not."
        rows.append(Paragraph(text=Text(told, style="dim")))
    return Group(*rows)


def _row(name: str, cells: Sequence[str], last: str) -> Text:
    aligned = "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    return Text(f"  {cut(name, NAME):<{NAME}}{aligned}  {last}", style="" if name else "dim", no_wrap=True)


def _gpu(gpu: Gpu, step: Step) -> Text:
    all_runs = runs(step)
    rate = ratio(step.samples, step.step_us)
    cells = (
        time(step.step_us),
        time(busy(all_runs)),
        percent(ratio(sum(idle.time_us for idle in step.idle), step.step_us)),
        count(None if rate is None else round(rate * 1e6)),
        size(step.memory.peak_bytes),
        _left(gpu, step),
    )
    row = _row(gpu.name + (" ✓" if gpu.verified else ""), cells, _bound(all_runs))
    if "short" in cells[-1]:
        row.stylize("red")
    return row


def _bound(all_runs: Sequence[Run]) -> str:
    """The word for most of the busy time."""
    if not all_runs:
        return "nothing"
    (most, _), *_ = bounds(all_runs)
    return str(most or UNKNOWN)


def _left(gpu: Gpu, step: Step) -> str:
    """What the peak leaves of the GPU's memory, or how much it lacks."""
    if step.memory.peak_bytes is None:
        return "unknown"
    left = gpu.memory_bytes - step.memory.peak_bytes
    return size(left) if left >= 0 else f"{size(-left)} short"
