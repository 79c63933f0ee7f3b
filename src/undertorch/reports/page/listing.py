"""The source with what its lines do. Lines that do something stand out; the rest is quiet, long stretches are gaps."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from undertorch.records import Gpu, Step
from undertorch.records.totals import longest_first, source_rows
from undertorch.reports.page.highlight import highlighted
from undertorch.reports.page.launched import Origins, PhasePart, by_phases, origins
from undertorch.reports.page.marks import Mark, Place, marks
from undertorch.reports.page.span import Span, Strip, strip
from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.lines import Seen, seen_lines
from undertorch.reports.terminal.numbers import ratio
from undertorch.reports.terminal.runs import Run, busy

HOTTEST = 3
"""Lines that the head names."""
AROUND = 2
"""Quiet lines that stay above and below one that does something."""
SHORTEST_GAP = 5
"""Lines that it takes for a gap: fewer are not worth a click."""

DEFINES = re.compile(r"\s*(async\s+def|def|class)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class HotLine:
    """A line with launches."""

    id: str
    number: int
    """0 where the launches have no line."""
    code: Markup | None
    """None where the source is not there."""
    seen: Seen
    share: float | None
    """Of the busy time, 0 to 1."""
    heat: float
    """Of the busiest line's time, 0 to 1."""
    bound: str
    marks: tuple[Mark, ...]
    phases: tuple[PhasePart, ...]
    strip: Strip
    origins: Origins


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietLine:
    """A line without launches that stands near one with some, or is marked."""

    number: int
    code: Markup
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Lines that are left out until they are asked for."""

    first: int
    last: int

    @property
    def count(self) -> int:
        """How many lines."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file; the launches without a line stand in one without a name."""

    name: str | None
    time_us: float
    share: float | None
    lines: int
    launches: int
    text: str | None
    """None where it is not known."""
    rows: tuple[HotLine | QuietLine | Gap, ...]


def listing(step: Step, runs: Sequence[Run], gpu: Gpu | None, whole: Span, prefix: str) -> tuple[SourceFile, ...]:
    """The script first, then the files that take most time; what has no line is last. Ids begin with the prefix."""
    seen = seen_lines(step, runs)
    hottest = max((one.line.time_us for one in seen), default=0.0)
    files = tuple(dict.fromkeys(one.line.file for one in seen))
    said = marks(step)
    return tuple(
        _file(
            name,
            step.environment.sources.get(name) if name is not None else None,
            [
                _hot(one, line_id(prefix, number, one.line.line), busy(runs), hottest, said, gpu, whole)
                for one in seen
                if one.line.file == name
            ],
            said,
        )
        for number, name in enumerate(files)
    )


def hottest(files: Iterable[SourceFile]) -> tuple[tuple[SourceFile, HotLine], ...]:
    """The lines that take most time, with their files, the longest first."""
    found = [(file, row) for file in files for row in file.rows if isinstance(row, HotLine) and file.name is not None]
    return tuple(longest_first(found, lambda pair: pair[1].seen.line.time_us)[:HOTTEST])


def line_id(prefix: str, file: int, line: int) -> str:
    """Of a line's row in the page: files are counted in the order in which the page shows them."""
    return f"{prefix}-f{file}-l{line}"


def _hot(
    seen: Seen,
    name: str,
    whole_us: float,
    hottest: float,
    said: Mapping[Place, tuple[Mark, ...]],
    gpu: Gpu | None,
    whole: Span,
) -> HotLine:
    line = seen.line
    return HotLine(
        id=name,
        number=line.line,
        code=None,
        seen=seen,
        share=ratio(line.time_us, whole_us),
        heat=ratio(line.time_us, hottest) or 0.0,
        bound=bound(seen.runs),
        marks=said.get((line.file, line.line), ()) if line.file is not None else (),
        phases=by_phases(seen.runs, gpu),
        strip=strip(seen.runs, whole),
        origins=origins(seen.runs),
    )


def _file(
    name: str | None, text: str | None, hot: Sequence[HotLine], said: Mapping[Place, tuple[Mark, ...]]
) -> SourceFile:
    rows: Iterable[HotLine | QuietLine | Gap] = hot
    if name is not None and text is not None:
        of_file = {line: some for (file, line), some in said.items() if file == name}
        rows = _rows(name, text, hot, of_file)
    shares = [line.share for line in hot if line.share is not None]
    return SourceFile(
        name=name,
        time_us=sum(line.seen.line.time_us for line in hot),
        share=sum(shares) if shares else None,
        lines=len(hot),
        launches=sum(line.seen.line.launches for line in hot),
        text=text,
        rows=tuple(rows),
    )


def _rows(
    name: str, text: str, hot: Sequence[HotLine], said: Mapping[int, tuple[Mark, ...]]
) -> Iterator[HotLine | QuietLine | Gap]:
    """The file from its first line to its last. Lines that it does not have, since it changed, follow."""
    code = highlighted(name, text)
    by_number = {line.number: line for line in hot}
    near = shown_lines(source_rows(text), by_number.keys() | said.keys())
    number = 1
    while number <= len(code):
        if number in by_number:
            yield replace(by_number[number], code=code[number - 1])
        elif number in near:
            yield QuietLine(number=number, code=code[number - 1], marks=said.get(number, ()))
        else:
            last = number
            while last < len(code) and last + 1 not in near:
                last += 1
            yield Gap(first=number, last=last)
            number = last
        number += 1
    yield from (line for line in hot if not 1 <= line.number <= len(code))


def shown_lines(rows: Sequence[str], busy_lines: Iterable[int]) -> set[int]:
    """Numbers of the lines that stay: those given, some around them, the `def` and `class` that they stand in, and
    stretches too short for a gap."""
    shown: set[int] = set()
    for number in busy_lines:
        if 1 <= number <= len(rows):
            shown.update(range(max(1, number - AROUND), min(len(rows), number + AROUND) + 1))
            shown.update(_enclosing(rows, number))
    before = 0
    for number in [*sorted(shown), len(rows) + 1]:
        if number - before - 1 < SHORTEST_GAP:
            shown.update(range(before + 1, number))
        before = number
    return shown


def _enclosing(rows: Sequence[str], number: int) -> Iterator[int]:
    """Headers of the functions and classes that a line stands in, by indentation."""
    indent = _indent(rows[number - 1])
    for above in range(number - 1, 0, -1):
        if indent == 0:
            return
        row = rows[above - 1]
        if row.strip() and not row.lstrip().startswith("#") and _indent(row) < indent:
            indent = _indent(row)
            if DEFINES.match(row):
                yield above


def _indent(row: str) -> int:
    row = row.expandtabs()
    return len(row) - len(row.lstrip())
