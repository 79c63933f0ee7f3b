"""The terminal that reports are drawn on: how wide it is, and what stands for characters that it has not."""

import codecs
import os
import sys
import unicodedata
from io import TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

USUAL = 80
"""Columns where nobody knows better: those of the VT100, which terminals and rich take too."""
ROWS = 25
"""Nothing that is drawn here depends on them."""
NARROWEST, WIDEST = 40, 10_000
"""Columns that a report is drawn for: in fewer its tables hold nothing, and more no screen has."""

LOOK_ALIKES = {
    "·": "-", "×": "x", "…": "~", "µ": "u", "μ": "u", "–": "-", "—": "-", "−": "-", "─": "-", "━": "-", "│": "|",
    "→": ">", "←": "<", "≤": "<", "≥": ">", "±": "~", "≈": "~", "√": "v", "π": "p", "✓": "+", "✗": "x", "█": "#",
    "▉": "#", "▊": "#", "▋": "#", "▌": "#", "▍": "#", "▎": "#", "▏": "#", "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip
"""One ASCII character for one of the report's, so that columns stay where they are."""

REPLACING = "undertorch.look_alikes"
"""Name of the error handler that `accept_every_character` registers."""


def terminal(stderr: bool = False) -> "Console":
    """Standard output (or error) as rich draws on it. COLUMNS says how wide it is, where that is a number above 0."""
    from rich.console import Console

    wide = _columns(os.environ.get("COLUMNS", "")) or _of_the_terminal() or USUAL
    # With both sizes given rich does not read the environment, where it fails on what is no number to int().
    return Console(width=min(max(wide, NARROWEST), WIDEST), height=ROWS, stderr=stderr)


def _of_the_terminal() -> int:
    """Columns of the terminal that any of the three standard streams is; 0 where none is one, or it does not say.

    Any of them: a report that goes through a pager is read on the terminal that the errors go to.
    """
    for stream in range(3):
        try:
            return os.get_terminal_size(stream).columns
        except OSError:
            continue
    return 0


def _columns(text: str) -> int:
    """0 where it is no number."""
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit():
        return 0
    return WIDEST if len(digits) > len(str(WIDEST)) else int(digits)


def accept_every_character() -> None:
    """From here on no character that standard output or error cannot encode is an error: a look-alike stands for it."""
    codecs.register_error(REPLACING, _look_alikes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=REPLACING)


def _look_alikes(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(map(_look_alike, wrong)), error.end


def _look_alike(character: str) -> str:
    """As many cells wide as the character: letters lose their accents, and what looks like nothing is `?`."""
    if character in LOOK_ALIKES:
        return LOOK_ALIKES[character]
    if unicodedata.combining(character):
        return ""
    plain = unicodedata.normalize("NFKD", character)[:1]
    if plain.isascii():
        return plain
    return "??" if unicodedata.east_asian_width(character) in "WF" else "?"
