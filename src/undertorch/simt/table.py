"""Counters as plain text: a row for each source line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from undertorch.simt.faults import source_line
from undertorch.simt.runtime.layout import WARP

if TYPE_CHECKING:
    from undertorch.simt.events import AccessCounters, Counters, LineCounters

HEADINGS = ("line", "warp instructions", "lanes active", "requests", "sectors", "ideal", "wavefronts", "ideal")
TEXT = 72
"""Characters of a source line that are shown."""


def table(counted: "Counters") -> str:
    """Rows by file and line; what has no line comes last. Empty cells: the line touches no memory of that kind."""
    accesses: dict[tuple[str | None, int | None], list[AccessCounters]] = {}
    for access in counted.accesses:
        place = access.place
        accesses.setdefault((place.file, place.line) if place else (None, None), []).append(access)
    known = [line for line in counted.lines if line.line is not None or line.warp_instructions]
    lines = sorted(known, key=lambda line: (line.file is None, line.file or "", line.line or 0))
    rows = [_cells(line, accesses.get((line.file, line.line), [])) for line in lines]
    widths = [max(len(row[n]) for row in (HEADINGS, *rows)) for n in range(len(HEADINGS))]
    return "\n".join(_drawn(lines, rows, widths, counted.sources))


def _drawn(
    lines: Sequence["LineCounters"],
    rows: Sequence[tuple[str, ...]],
    widths: Sequence[int],
    sources: Mapping[str, str],
) -> Iterator[str]:
    yield _row(HEADINGS, widths)
    files = [line.file for line in lines]
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if number == 0 or line.file != files[number - 1]:
            yield line.file or "no line"
        text = source_line(sources, line.file, line.line) or ""
        shown = text if len(text) <= TEXT else text[: TEXT - 1] + "…"
        yield f"{_row(row, widths)}  {shown}".rstrip()


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _cells(line: "LineCounters", accesses: Sequence["AccessCounters"]) -> tuple[str, ...]:
    ran = line.warp_instructions
    sectors = [a for a in accesses if a.sectors is not None]
    wavefronts = [a for a in accesses if a.wavefronts is not None]
    return (
        "" if line.line is None else str(line.line),
        f"{ran:,}",
        f"{line.thread_instructions / (WARP * ran):.0%}" if ran else "",
        f"{sum(a.requests for a in accesses):,}" if accesses else "",
        f"{sum(a.sectors or 0 for a in sectors):,}" if sectors else "",
        f"{sum(a.ideal for a in sectors):,}" if sectors else "",
        f"{sum(a.wavefronts or 0 for a in wavefronts):,}" if wavefronts else "",
        f"{sum(a.ideal for a in wavefronts):,}" if wavefronts else "",
    )
