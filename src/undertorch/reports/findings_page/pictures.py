"""Pictures of findings, as SVG: banks by wavefront, sectors of a request, lanes over a kernel's lines."""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape

from undertorch.records import Finding, FindingKind, Request
from undertorch.records.findings import LineLanes

WARP, BANKS, BANK, SECTOR, LINE = 32, 32, 4, 32, 128
"""Lanes; shared memory's banks and their bytes; bytes of a sector and of a line of global memory (CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory" and "Shared Memory and Memory Banks")."""
CELL, GAP, LEFT, TOP = 20, 2, 92, 22
STEP = CELL + GAP


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One."""

    svg: Markup
    said: str
    """What it shows, in a sentence: its caption, and what stands for it where it cannot be seen."""


def picture(finding: Finding) -> Picture | None:
    """That of a finding; None where there is nothing to draw."""
    figures = finding.figures
    if figures is None:
        return None
    if finding.kind is FindingKind.BANK_CONFLICT and figures.example is not None and figures.example.banks:
        return banks(figures.example)
    if finding.kind is FindingKind.UNCOALESCED and figures.example is not None:
        return sectors(figures.example)
    if finding.kind is FindingKind.DIVERGENCE and figures.lines:
        return lanes(figures.lines)
    return None


def banks(request: Request) -> Picture:
    """A column a bank, a row a wavefront. In a cell: the lanes that the bank serves then."""
    rows = max(request.taken, 1)
    served = _served(request)
    cells = []
    for bank in range(BANKS):
        for row in range(rows):
            busy = row < request.banks[bank]
            words = served.get(bank, [])
            lanes = words[row] if row < len(words) else []
            over = row >= request.ideal
            kind = ("late" if over else "on") if busy else "off"
            cells.append(_cell(LEFT + bank * STEP, TOP + row * STEP, kind, _lanes(lanes)))
    heads = [_text(LEFT + bank * STEP + CELL / 2, TOP - 7, bank, "head") for bank in range(BANKS)]
    names = [_text(LEFT - 8, TOP + row * STEP + 14, f"wavefront {row + 1}", "row") for row in range(rows)]
    said = (
        f"One request of a warp, {request.bytes} bytes a lane, as {_count(request.taken, 'wavefront')} where "
        f"{_count(request.ideal, 'would do', 'would do')}: each column is a bank of shared memory, in a cell stands "
        "which lanes it serves in that wavefront."
    )
    return Picture(svg=_svg(LEFT + BANKS * STEP, TOP + rows * STEP, said, [*heads, *names, *cells]), said=said)


def _served(request: Request) -> dict[int, list[list[int]]]:
    """Of each bank, the lanes of each of its words: one word a wavefront. A wide access is shown by its first word."""
    words: dict[int, dict[int, list[int]]] = {}
    for lane, address in enumerate(request.addresses):
        if address is None:
            continue
        for word in range(address // BANK, (address + request.bytes - 1) // BANK + 1):
            words.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    return {bank: [of_word[word] for word in sorted(of_word)] for bank, of_word in words.items()}


def sectors(request: Request) -> Picture:
    """A row a line of 128 bytes, four sectors each of 32 bytes; used bytes filled in."""
    used: set[int] = set()
    for address in request.addresses:
        if address is not None:
            used.update(range(address, address + request.bytes))
    fetched = sorted({byte // SECTOR for byte in used})
    lines = sorted({sector * SECTOR // LINE for sector in fetched})
    shown = lines[:MOST_LINES]
    wide = 5
    parts = []
    for row, line in enumerate(shown):
        top = TOP + row * STEP
        parts.append(_text(LEFT - 8, top + 14, f"+{line * LINE}", "row"))
        for sector in range(LINE // SECTOR):
            x = LEFT + sector * (SECTOR * wide + 6)
            kind = "fetched" if line * 4 + sector in fetched else "off"
            parts.append(_rect(x, top, SECTOR * wide, CELL, kind))
            first = line * LINE + sector * SECTOR
            for start, length in _runs([byte - first for byte in range(first, first + SECTOR) if byte in used]):
                parts.append(_rect(x + start * wide, top, length * wide, CELL, "on"))
    left_out = "" if len(shown) == len(lines) else f" {len(lines) - len(shown)} further lines are left out."
    said = (
        f"One request of a warp, {request.bytes} bytes a lane: {_count(request.taken, 'sector')} of 32 bytes where "
        f"{_count(request.ideal, 'would do', 'would do')}, each fetched whole; filled are the bytes that lanes use."
        f"{left_out}"
    )
    return Picture(svg=_svg(LEFT + 4 * (SECTOR * wide + 6), TOP + len(shown) * STEP, said, parts), said=said)


MOST_LINES = 32


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Of rising numbers each stretch without a gap: its start and length."""
    start = last = None
    for number in [*numbers, None]:
        if start is not None and last is not None and number != last + 1:
            yield start, last - start + 1
            start = None
        if number is not None and start is None:
            start = number
        last = number


def lanes(lines: tuple[LineLanes, ...]) -> Picture:
    """A row a source line, in order: of 32 lanes how many were active on average, and how often warps came there."""
    most = max((line.warp_instructions for line in lines), default=1) or 1
    parts = []
    wide = 8
    for row, line in enumerate(lines):
        top = TOP + row * STEP
        active = line.thread_instructions / line.warp_instructions if line.warp_instructions else 0.0
        parts.append(_text(LEFT - 8, top + 14, f"line {line.line}", "row"))
        for lane in range(WARP):
            share = min(max(active - lane, 0.0), 1.0)
            x = LEFT + lane * (wide + 1)
            parts.append(_rect(x, top, wide, CELL, "off"))
            if share:
                parts.append(_rect(x, top, wide * share, CELL, "on"))
        x = LEFT + WARP * (wide + 1) + 10
        parts.append(_text(x, top + 14, f"{active:.1f} of 32", "number"))
        parts.append(_rect(x + 82, top + 6, 120 * line.warp_instructions / most, CELL - 12, "late"))
        parts.append(_text(x + 208, top + 14, f"{line.warp_instructions:,}", "number"))
    heads = [_text(LEFT, TOP - 7, "active lanes", "left"),
             _text(LEFT + WARP * (wide + 1) + 92, TOP - 7, "warp instructions", "left")]  # fmt: skip
    said = (
        "Lines under the branch, in the order of the source: how many of a warp's 32 lanes work on average, and how "
        "many instructions warps spend there."
    )
    width = LEFT + WARP * (wide + 1) + 300
    return Picture(svg=_svg(width, TOP + len(lines) * STEP, said, [*heads, *parts]), said=said)


def _lanes(numbers: list[int]) -> str:
    return "" if not numbers else str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}…"


def _cell(x: float, y: float, kind: str, text: str) -> Markup:
    rect = _rect(x, y, CELL, CELL, kind)
    return rect + (_text(x + CELL / 2, y + 14, text, "in") if text and kind != "off" else Markup())


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        kind, _short(x), _short(y), _short(width), _short(height)
    )


def _text(x: float, y: float, said: object, kind: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, _short(x), _short(y), said)


def _svg(width: float, height: float, said: str, parts: list[Markup]) -> Markup:
    """With a description for who cannot see it."""
    return Markup('<svg viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">{3}</svg>').format(
        _short(width), _short(height + 4), escape(said), Markup().join(parts)
    )


def _short(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
