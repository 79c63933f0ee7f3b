"""Names of kernels in the cells that a terminal has for them: what is left out is what they have in common."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from undertorch.reports.terminal.text import cut, cut_middle

SHORTEST = 4
"""Cells that the name of a template keeps at least."""
TAIL = 8
"""Cells that its end is worth at least beside a tile."""
TILE = re.compile(r"(?<=[_a-z])\d+x\d+(?:x\d+)?(?![a-z\d])")
"""As libraries write it: `nvjet_sm90_tst_192x192_64x4_…`, `…_tilesize32x32x8_stage3_…`."""
BREAKS = re.compile(r"(?<=[_,:<])(?=\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A kernel's whole name beside its figures; where it is too long it goes on below itself."""

    name: str
    label: Text
    indent: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label = self.label
        for row in folded(self.name, max(options.max_width - self.indent, 1)):
            yield Text.assemble(label, " " * (self.indent - label.cell_len), (row, "bold"))
            label = Text()


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Each name in so many cells. Different names that would come out alike are shown from where they differ."""
    short = {name: short_name(name, width) for name in names}
    for text in set(short.values()):
        alike = [name for name in short if short[name] == text]
        if len(alike) > 1:
            short.update((name, _from_difference(name, _in_common(alike), width)) for name in alike)
    return [short[name] for name in names]


def short_name(name: str, width: int) -> str:
    """The name in so many cells. A template's arguments stay whole where they can (`vectorized_…<4, mul>`), since they
    tell kernels apart; so does a library's tile (`nvjet…192x192…_TNN`); otherwise the middle is left out."""
    if cell_len(name) <= width:
        return name
    base, bracket, arguments = name.partition("<")
    room = width - cell_len(bracket + arguments) - 1
    if bracket and room >= SHORTEST:
        return f"{set_cell_size(base, room)}…{bracket}{arguments}"
    tile = TILE.search(name)
    head = name.split("_", maxsplit=1)[0]
    if tile is not None and not bracket:
        room = width - cell_len(head) - cell_len(tile[0]) - 2
        if len(head) < tile.start() and room >= TAIL and len(name) - tile.end() > room:
            return f"{head}…{tile[0]}…{name[-room:]}"
    return cut_middle(name, width)


def _in_common(names: Sequence[str]) -> int:
    """How many characters all of them begin with."""
    return sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False)))


def _from_difference(name: str, same: int, width: int) -> str:
    """The name's first part, then what follows from the part in which it differs."""
    begin = max((found.end() for found in BREAKS.finditer(name) if found.end() <= same), default=0)
    head = re.split(r"[_<:]", name)[0]
    if begin <= len(head) + 1 or width < cell_len(head) + 1 + TAIL:
        return short_name(name, width)
    return f"{head}…{cut(name[begin:], width - cell_len(head) - 1)}"


def folded(name: str, width: int) -> list[str]:
    """The name in rows of so many cells, broken after an underscore or a template's punctuation where it has one."""
    rows = [""]
    for part in BREAKS.split(name):
        if cell_len(rows[-1]) + cell_len(part) <= width:
            rows[-1] += part
        else:
            rows.append(part)
    return [piece for row in rows for piece in _pieces(row, width)]


def _pieces(row: str, width: int) -> list[str]:
    """A part that no row holds is broken where the row ends."""
    pieces = [""]
    for letter in row:
        if pieces[-1] and cell_len(pieces[-1] + letter) > width:
            pieces.append("")
        pieces[-1] += letter
    return [piece for piece in pieces if piece]
