"""A Step in a notebook: one sentence and a small table of its longest lines."""

from html import escape

from undertorch.records import Gpu, Step
from undertorch.records.totals import busy_us, lines
from undertorch.reports.terminal.numbers import UNKNOWN, count, flops, percent, ratio, size, time

SHOWN = 12
"""Lines in the table; the rest is summed up in its last row."""

HEADINGS = ("", "time", "%", "launches", "bytes", "FLOPs")
CELL = "text-align: right; padding: 0.1em 0.7em; white-space: nowrap"
SOURCE = "text-align: left; padding: 0.1em 0.7em; font-family: monospace; white-space: pre"


def sentence(step: Step) -> str:
    """What step it is, on which GPU, how long it takes."""
    environment = step.environment
    return (
        f"{environment.script}, step {environment.step}, on {step.gpu}: {time(step.step_us)}, busy"
        f" {time(busy_us(step.launches))}, {count(len(step.launches), 'launch', 'launches')}; times {step.time_origin}"
    )


def table(step: Step, gpu: Gpu | None = None) -> str:
    """HTML that takes its colours and font from the page it is put in."""
    whole = busy_us(step.launches)
    found = lines(step)
    rows = [
        (
            f"{line.file}:{line.line}  {line.source or ''}" if line.file is not None else "no line known",
            (
                time(line.time_us),
                percent(ratio(line.time_us, whole)),
                count(line.launches),
                size(line.min_bytes),
                flops(line.flops),
            ),
        )
        for line in found[:SHOWN]
    ]
    if rest := found[SHOWN:]:
        spent = sum(line.time_us for line in rest)
        rows.append(
            (
                count(len(rest), "more line"),
                (time(spent), percent(ratio(spent, whole)), count(sum(line.launches for line in rest)), "", ""),
            )
        )
    head = "".join(f'<th scope="col" style="{CELL}">{name}</th>' for name in HEADINGS)
    body = "".join(_row(source, figures) for source, figures in rows)
    return (
        f"<p>{escape(sentence(step))}. {escape(_memory(step, gpu))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{_left_out(step)}"
    )


def _row(source: str, figures: tuple[str, ...]) -> str:
    cells = "".join(f'<td style="{CELL}">{escape(figure)}</td>' for figure in figures)
    return f'<tr><th scope="row" style="{SOURCE}">{escape(source)}</th>{cells}</tr>'


def _memory(step: Step, gpu: Gpu | None) -> str:
    if step.memory.peak_bytes is None:
        return f"Peak memory {UNKNOWN}."
    of = "" if gpu is None else f" of {size(gpu.memory_bytes)}"
    return f"Peak memory {size(step.memory.peak_bytes)}{of} ({step.memory.origin})."


def _left_out(step: Step) -> str:
    """What the table leaves out and what was assumed, by number and name."""
    accounting = step.accounting
    parts = []
    if accounting.ops_without_cost_count:
        names = ", ".join(accounting.ops_without_cost)
        parts.append(f"{count(accounting.ops_without_cost_count, 'op')} without a cost: {names}.")
    parts.extend(
        f"{one.where.file}:{one.where.line}: {one.what}" if one.where is not None else one.what
        for one in accounting.assumed
    )
    return "".join(f"<p>{escape(part)}</p>" for part in parts)
