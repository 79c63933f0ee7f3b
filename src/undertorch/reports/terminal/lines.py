"""The source lines in file order, each with what it asks of the GPU and its longest kernels beneath."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Origin, Step
from undertorch.records.totals import Line, idle_us, lines, source_line, without_kernels
from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.names import short_names
from undertorch.reports.terminal.numbers import (
    UNKNOWN,
    bar,
    count,
    flops,
    geometry,
    percent,
    ratio,
    size,
    time,
)
from undertorch.reports.terminal.runs import Run, bounds, busy, by_kernel, by_phase, grouped, longest
from undertorch.reports.terminal.text import Paragraph, cut, padded, title

WIDE = 120
"""Columns from which on a line's source stands beside its figures instead of above them."""
HEAT = 8
"""Cells of the heat bar."""
SHOWN = 0.001
"""Lines below this share of the busy time are summed up in one row a file."""
OPENED = 0.01
"""Lines from this share on show their kernels."""
WORTH_SAYING = 0.01
"""Idle time that a line causes is shown from this share of the step on."""
IDLE = 1 / 3
"""Where the GPU is idle for a larger share of the step than this, lines stand by their time and the idle time that they
cause, and not by number."""
KERNELS = 3
"""Kernels shown beneath a line, at most."""
NARROWEST = 8
"""Cells that a kernel's name gets on any screen; below 80 columns its row is cut at the end instead."""

EXPLAINED = "bytes: the least; >: some are not known"
BY_IDLE = "most time + idle first; "
TILES = "; ~: a predicted tile"
HEADINGS = ("heat", "time", "%", "launches", "bytes", "FLOPs", "bound")
WIDTHS = (HEAT, 8, 6, 8, 9, 11, 13)
"""Cells of each figure; together with the gaps between them they leave 9 of 80 columns."""
FIGURES = sum(WIDTHS) + len(WIDTHS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A source line, its function, and the runs of its launches."""

    line: Line
    function: str
    runs: tuple[Run, ...]
    unknown: Mapping[str, int]
    """Ops of the line whose kernels are not known, by name, and how many of each."""
    idle_us: float
    """In which the GPU waits because of it."""

    @property
    def instead(self) -> str:
        """What stands where the line's text is not known: the function that it is in."""
        return f"in {self.function}" if self.function else "(source not found)"

    @property
    def least_time(self) -> str:
        """With `>` before it where the line has Ops whose kernels are not known."""
        return (">" if self.unknown else "") + time(self.line.time_us)

    @property
    def least_bytes(self) -> str:
        """With `>` before it where the bytes of some launches are not known."""
        missing = any(run.launch.kernel.min_bytes is None for run in self.runs)
        return (">" if missing and self.line.min_bytes is not None else "") + size(self.line.min_bytes)

    @property
    def operations(self) -> str:
        """Likewise the FLOPs."""
        missing = any(run.launch.kernel.flops is None for run in self.runs)
        if missing and not self.line.flops:
            return flops(None)
        return (">" if missing else "") + flops(self.line.flops)


def source_lines(step: Step, all_runs: Sequence[Run], width: int) -> RenderableType:
    """Every line with launches. Times sum to the busy time: what is too short to show or has no line has a row."""
    whole = busy(all_runs)
    seen = seen_lines(step, all_runs)
    shown = {(one.line.file, one.line.line) for one in seen}
    least_idle = WORTH_SAYING * (step.step_us or whole)
    waits = {place: spent for place, spent in idle_us(step).items() if spent >= least_idle}
    unknown = without_kernels(step)
    silent: dict[tuple[str, int], Mapping[str, int]] = {
        place: unknown.get(place, {}) for place in (*unknown, *waits) if place not in shown
    }
    digits = max((len(str(line)) for _, line in (*shown, *silent)), default=1)
    by_idle = sum(idle.time_us for idle in step.idle) > IDLE * (step.step_us or math.inf)
    page = _Page(
        whole=whole,
        most=max((_weight(one, by_idle) for one in seen), default=0.0),
        least_idle=least_idle,
        by_idle=by_idle,
        indent=digits + 3,
        width=width,
    )
    guessed = any(run.launch.kernel.geometry_origin is Origin.PREDICTED for run in all_runs)
    explained = (BY_IDLE if by_idle else "") + EXPLAINED + (TILES if guessed else "")
    rows: list[RenderableType] = [title("Lines", explained)]
    if not seen and not silent:
        return Group(*rows, Paragraph(text=Text("none", style="dim")))
    rows.extend(page.headings())
    for file in dict.fromkeys([*(one.line.file for one in seen), *(file for file, _ in silent)]):
        of_name = [one for one in seen if one.line.file == file]
        rows.extend(page.file(file, sorted(of_name, key=lambda one: -_weight(one, True)) if by_idle else of_name))
        of_file = {line: ops for (name, line), ops in silent.items() if name == file}
        for line in sorted(of_file):
            text = source_line(step.environment.sources, file or "", line)
            rows.extend(page.silent(line, text, of_file[line], waits.get((file or "", line))))
    return Group(*rows)


def seen_lines(step: Step, all_runs: Sequence[Run]) -> list[Seen]:
    """The script's own lines first, then those of other files, the busiest first; in a file by line. No line: last."""
    of_line = grouped(all_runs, lambda run: None if run.where is None else (run.where.file, run.where.line))
    unknown, idle = without_kernels(step), idle_us(step)
    found = []
    for line in lines(step):
        place = None if line.file is None else (line.file, line.line)
        waits = 0.0 if place is None else idle.get(place, 0.0)
        found.append(_seen(line, of_line[place], {} if place is None else unknown.get(place, {}), waits))
    spent = {one.line.file: 0.0 for one in found}
    for one in found:
        spent[one.line.file] += one.line.time_us
    script = step.environment.script

    def order(one: Seen) -> tuple[bool, bool, float, str, int]:
        file = one.line.file
        return file is None, file != script, -spent[file], file or "", one.line.line

    return sorted(found, key=order)


def _seen(line: Line, of_line: list[Run], unknown: Mapping[str, int], idle: float) -> Seen:
    """Where a line stands in several functions (a comprehension, a lambda), the one with the longest launch counts."""
    first = max(of_line, key=lambda run: run.time_us)
    function = "" if first.where is None else first.where.function
    return Seen(line=line, function=function, runs=tuple(of_line), unknown=unknown, idle_us=idle)


def _weight(one: Seen, by_idle: bool) -> float:
    """What a line's bar is as long as."""
    return one.line.time_us + (one.idle_us if by_idle else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """What every row has to know: the whole busy time, the line with the longest bar, and how wide things are."""

    whole: float
    most: float
    least_idle: float
    by_idle: bool
    indent: int
    width: int

    @property
    def wide(self) -> bool:
        return self.width >= WIDE

    def headings(self) -> Iterator[Text]:
        """Of a line's figures, and of the kernels beneath it."""
        yield Text(" " * self.left() + self.cells(HEADINGS), style="dim", no_wrap=True)
        left = f"{'time':>{self.indent + 2 + 8}}  often kernel"
        right = "grid × block, occupancy, bound"
        yield Text(left + right.rjust(self.width - len(left)), style="dim", no_wrap=True)

    def left(self) -> int:
        """Columns before the figures."""
        return self.width - FIGURES if self.wide else self.indent

    def cells(self, cells: Sequence[str]) -> str:
        """Figures under their headings: the bar and the bound to the left, numbers to the right."""
        first, *numbers, last = cells
        aligned = [text.rjust(width) for text, width in zip(numbers, WIDTHS[1:-1], strict=True)]
        return " ".join([first.ljust(WIDTHS[0]), *aligned, last])

    def file(self, file: str | None, seen: list[Seen]) -> Iterator[Text]:
        """A file's name, then its functions with their lines, then the rest."""
        yield Text()
        yield Text("no source line known" if file is None else cut(file, self.width), style="bold", no_wrap=True)
        function = None
        least = SHOWN * self.whole if file is not None else 0.0
        small = [one for one in seen if one.line.time_us < least and one.idle_us < self.least_idle]
        for one in (one for one in seen if one not in small):
            if one.function != function and one.function and one.line.source is not None:
                function = one.function
                yield Text(" " + cut(function, self.width - 1), style="cyan", no_wrap=True)
            yield from self.line(one)
        if small:
            spent = sum(one.line.time_us for one in small)
            launches = sum(one.line.launches for one in small)
            what = count(len(small), "shorter line"), time(spent), count(launches, "launch", "launches")
            yield Text(" " * self.indent + "and {}: {}, {}".format(*what), style="dim", no_wrap=True)

    def line(self, one: Seen) -> Iterator[Text]:
        """Source and figures, the split by phase, the longest kernels."""
        line = one.line
        number = "" if line.file is None else str(line.line)
        left = number.rjust(self.indent - 2) + "  "
        source = line.source if line.source is not None else "" if line.file is None else one.instead
        figures = self.figures(one)
        if self.wide:
            room = self.left() - self.indent - 1
            yield Text.assemble((left, "dim"), padded(cut(source, room), room + 1), figures, no_wrap=True)
        else:
            if line.file is not None:
                yield Text.assemble((left, "dim"), cut(source, self.width - self.indent), no_wrap=True)
            yield Text.assemble(" " * self.indent, figures, no_wrap=True)
        yield from self.phases(one)
        if one.unknown:
            yield self.unknown(one.unknown)
        if line.time_us >= OPENED * self.whole or line.file is None:
            yield from self.kernels(one)

    def silent(self, line: int, source: str | None, ops: Mapping[str, int], waits: float | None) -> Iterator[Text]:
        """A line of which no launch is known, or which launches nothing and makes the GPU wait."""
        left = str(line).rjust(self.indent - 2) + "  "
        text = cut(source or "(source not found)", self.width - self.indent)
        yield Text.assemble((left, "dim"), text, no_wrap=True)
        if waits:
            yield Text(" " * (self.indent + 2) + f"+{time(waits)} idle", style="bold", no_wrap=True)
        if ops:
            yield self.unknown(ops)

    def unknown(self, ops: Mapping[str, int]) -> Text:
        names = ", ".join(f"{name} ({times:,}×)" if times > 1 else name for name, times in ops.items())
        text = " " * (self.indent + 2) + f"time not known: {names}"
        return Text(cut(text, self.width), style="yellow", no_wrap=True)

    def figures(self, one: Seen) -> Text:
        line = one.line
        cells = (
            bar(ratio(_weight(one, self.by_idle), self.most) or 0.0, HEAT),
            one.least_time,
            percent(ratio(line.time_us, self.whole)).removesuffix(" %"),
            count(line.launches),
            one.least_bytes,
            one.operations,
            bound(one.runs),
        )
        text = Text(self.cells(cells))
        text.stylize(_heat(ratio(line.time_us, self.whole) or 0.0), 0, HEAT)
        text.stylize("bold", HEAT, HEAT + 1 + WIDTHS[1])
        return text

    def phases(self, one: Seen) -> Iterator[Text]:
        """What each phase takes, in as many rows as that needs."""
        parts = [f"{phase} {time(busy(some))} ({count(len(some))}×)" for phase, some in by_phase(one.runs)]
        waits = f"+{time(one.idle_us)} idle" if one.idle_us >= self.least_idle and one.idle_us else ""
        left = " " * (self.indent + 2)
        rows = [left + waits]
        for part in parts:
            longer = rows[-1] + (" · " if rows[-1].strip() else "") + part
            if cell_len(longer) <= self.width or not rows[-1].strip():
                rows[-1] = longer
            else:
                rows.append(left + part)
        for number, row in enumerate(rows):
            text = Text(cut(row, self.width), style="dim", no_wrap=True)
            if number == 0:
                text.stylize("not dim bold", len(left), len(left) + len(waits))
            yield text

    def kernels(self, one: Seen) -> Iterator[Text]:
        """Time, how often, name, grid × block of the longest, its occupancy, what bounds them."""
        groups = by_kernel(one.runs)
        rows = [_kernel_cells(group) for group in groups[:KERNELS]]
        grids, fills, whys = (max(len(row[column]) for row in rows) for column in (3, 4, 5))
        room = max(self.width - self.indent - 2 - 8 - 1 - 6 - 1 - (grids + fills + whys) - 3, NARROWEST)
        names = short_names([row[2] for row in rows], room)
        for name, (spent, times, _, grid, filled, why) in zip(names, rows, strict=True):
            text = Text(" " * (self.indent + 2) + f"{spent:>8} {times:>6} ", style="dim", no_wrap=True)
            text.append(padded(name, room), style="not dim")
            text.append(f" {grid:>{grids}} {filled:>{fills}} {why}")
            yield text
        rest = groups[KERNELS:]
        if rest:
            spent, launches = time(sum(busy(group) for group in rest)), sum(len(group) for group in rest)
            more = f"{spent:>8} {count(launches):>5}× {count(len(rest), 'more kernel')}"
            yield Text(" " * (self.indent + 2) + more, style="dim", no_wrap=True)


def _kernel_cells(group: list[Run]) -> tuple[str, str, str, str, str, str]:
    launch = longest(group)
    filled = UNKNOWN if launch.occupancy is None else f"{launch.occupancy:.0%}".replace("%", " %")
    (why, _), *_ = bounds(group)
    times = f"{count(len(group))}×"
    return time(busy(group)), times, launch.kernel.name, geometry(launch.kernel), filled, str(why or UNKNOWN)


def _heat(share: float) -> str:
    """The colour of a line's bar, by its share of the busy time."""
    return "red" if share >= 0.1 else "yellow" if share >= 0.03 else "green"
