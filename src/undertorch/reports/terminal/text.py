"""Rows of the report: paragraphs with a label, heads of parts, and text cut to the cells that a terminal gives it."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from undertorch.records import Environment

LONG = 48
"""Characters of a path from which on it is no title."""

ENDING = re.compile(r"(\.pt)?(\.trace)?\.json(\.gz)?$")
"""As torch.profiler's own handlers end the names of traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Text that goes on below itself, indented, with a label to its left. It leaves no blanks at the ends of rows."""

    text: Text
    indent: int = 2
    label: Text | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label = self.label or Text()
        for row in self.text.wrap(console, max(options.max_width - self.indent, 1), overflow="fold"):
            row.rstrip()
            yield Text.assemble(label, " " * (self.indent - label.cell_len), row)
            label = Text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A table without the blanks that fill its rows."""

    table: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in console.render_lines(self.table, options, pad=False):
            text = Text.assemble(*((segment.text, segment.style or "") for segment in row), no_wrap=True)
            text.rstrip()
            yield text


def title(name: str, explained: str = "") -> Paragraph:
    """An empty row, a part's name, and what its figures mean."""
    text = Text.assemble((name, "bold underline"), (f"  {explained}" if explained else "", "dim"))
    return Paragraph(text=Text("\n") + text, indent=0)


def fact(label: str, said: str) -> Paragraph:
    """A label and what is said to it."""
    return Paragraph(text=Text(said), label=Text(f"  {label}", style="dim"), indent=15)


def command(seen: Environment) -> str:
    """A script and its arguments, or a trace; of a long path that begins at the root the name alone."""
    path = Path(seen.script)
    long = path.is_absolute() and len(seen.script) > LONG
    return " ".join([f"…/{path.name}" if long else shlex.quote(seen.script), *map(shlex.quote, seen.arguments)])


def cut(text: str, width: int) -> str:
    """The text, cut at its end where it takes more cells than the width."""
    text = text.expandtabs(4)
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "…"


def cut_middle(text: str, width: int) -> str:
    """The text, its middle left out where it takes more cells: names of kernels differ at both ends."""
    if cell_len(text) <= width:
        return text
    head = width // 2
    tail = width - head - 1
    return f"{set_cell_size(text, head)}…{set_cell_size(text[::-1], tail)[::-1]}"


def padded(text: str, width: int) -> str:
    """The text, filled with blanks to the width in cells."""
    return text + " " * max(width - cell_len(text), 0)


def told_apart(files: Sequence[str]) -> list[str]:
    """Names of files without the folders that all have in common; of traces without their endings, where these are
    not what tells them apart."""
    if len(set(files)) < 2 or len({Path(file).is_absolute() for file in files}) > 1:
        return list(files)
    common = commonpath([str(Path(file).parent) for file in files])
    names = [str(Path(file).relative_to(common)) for file in files]
    short = [ENDING.sub("", name) for name in names]
    return short if len(set(short)) == len(set(names)) else names
