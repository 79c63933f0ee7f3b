"""Several ranks of one step on a terminal: a row each, who waits for whom, and what communication is exposed."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records.ranks import ExposedLine, RankFigures, RanksReport
from undertorch.reports.terminal.numbers import UNKNOWN, count, time
from undertorch.reports.terminal.text import Paragraph, cut, cut_middle, title

HEADINGS = ("step", "compute", "comm.", "exposed", "of it moving", "waits", "waited for")
WIDTHS = (9, 9, 9, 9, 13, 9, 11)
SHOWN_WAITS = 5
SHOWN_LINES = 8
SHOWN_MISSING = 8


def ranks(report: RanksReport, width: int) -> RenderableType:
    """Waits and clocks that are not known are dashes."""
    rows: list[RenderableType] = [
        title("Ranks", "communication: exposed while nothing else runs; moving once all came"),
        Text(cut(" " * 10 + _cells(HEADINGS), width), style="dim", no_wrap=True),
    ]
    rows += [Text(cut(_row(figures), width), no_wrap=True) for figures in report.ranks]
    said = list(waits(report))
    if said:
        rows.append(title("Who waits for whom", "in collectives, from its start to that of the last to come"))
        rows += [Paragraph(text=Text(sentence), indent=2) for sentence in said]
    if report.lines:
        rows.append(title("Exposed communication", "the mean over the ranks, and how much of it waits"))
        rows.append(Text(cut(f"  {'exposed':>9}  {'waiting':>9}  of", width), style="dim", no_wrap=True))
        rows += [Text(cut(_line(line, width), width), no_wrap=True) for line in report.lines[:SHOWN_LINES]]
        if len(report.lines) > SHOWN_LINES:
            rows.append(Text(f"  and {count(len(report.lines) - SHOWN_LINES, 'line')} more, in the JSON."))
    rows += [Paragraph(text=Text(sentence, style="dim"), indent=2) for sentence in left_out(report)]
    return Group(*rows)


def waits(report: RanksReport) -> Iterator[str]:
    """The longest, a sentence each; and how many more there are."""
    for wait in report.waits[:SHOWN_WAITS]:
        if wait.time_us > 0:
            within = count(wait.collectives, "collective")
            yield f"Rank {wait.rank} waits {time(wait.time_us)} for rank {wait.for_rank}, in {within}."
    rest = report.waits[SHOWN_WAITS:]
    if rest:
        yield f"{count(len(rest), 'more pair')} of ranks: {time(sum(wait.time_us for wait in rest))} in all."


def placed(line: ExposedLine) -> str:
    """Its line, otherwise its module."""
    if line.where is not None:
        return f"{line.where.file}:{line.where.line} {line.where.function}".rstrip()
    return line.module or "no line"


def left_out(report: RanksReport) -> Iterator[str]:
    """What the reader has to know of what is not here, a sentence each."""
    if report.missing:
        named = ", ".join(map(str, report.missing[:SHOWN_MISSING]))
        more = len(report.missing) - SHOWN_MISSING
        rest = f" and {more} more" if more > 0 else ""
        yield f"Of {len(report.missing)} ranks nothing is here: {named}{rest}."
    if report.unmatched:
        what = ", ".join(f"{number:,} {name}" for name, number in report.unmatched.items())
        yield f"Not matched to another rank: {what}."
    errors = [one.clock_error_us for one in report.ranks if one.clock_error_us is not None]
    if errors:
        yield f"Clocks are aligned by the ends of collectives, which agree within {time(max(errors))} in the median."
    yield from unprofiled(report)
    yield from report.notes


def unprofiled(report: RanksReport) -> Iterator[str]:
    """Which of the times hold without the profiler, where some do."""
    ranks = [one for one in report.ranks if one.unprofiled_us is not None and one.step_us is not None]
    if ranks:
        without = f"rank {ranks[0].rank}" if len(ranks) == 1 else "each rank"
        lengths = ", ".join(time(one.step_us) for one in ranks[:SHOWN_MISSING] if one.step_us is not None)
        if all(one.gpu_only for one in ranks):
            yield (
                f"The step's time is that of {without} without the profiler; all else is of a step in which the"
                f" profiler followed the GPU alone, which takes {lengths}. That slows the CPUs, too, but far less than"
                " a profiler of every call."
            )
            return
        yield (
            f"The step's time is that of {without} without the profiler; all else is of the profiled step, which takes"
            f" {lengths}. The profiler slows the CPUs, so that ranks may wait there for what they do not wait for"
            " otherwise."
        )


def _row(figures: RankFigures) -> str:
    cells = (
        figures.step_us if figures.unprofiled_us is None else figures.unprofiled_us,
        figures.compute_us,
        figures.communication_us,
        figures.exposed_us,
        None if figures.exposed_waiting_us is None else max(0.0, figures.exposed_us - figures.exposed_waiting_us),
        figures.waited_us,
        figures.waited_for_us,
    )
    return f"  rank {figures.rank:<3}{_cells([UNKNOWN if one is None else time(one) for one in cells])}"


def _line(line: ExposedLine, width: int) -> str:
    waiting = UNKNOWN if line.waiting_us is None else time(line.waiting_us)
    figures = (
        f"  {time(line.exposed_us):>9}  {waiting:>9}  {time(line.time_us):<9} {line.operation} × {line.launches}  "
    )
    return figures + cut_middle(placed(line), max(width - len(figures), 12))


def _cells(cells: tuple[str, ...] | list[str]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))
