"""Python source with a little colour: comments, strings, numbers, keywords, the names that are defined."""

import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape

from undertorch.records.totals import source_rows
from undertorch.reports.page.text import shown

KINDS = {tokenize.COMMENT: "c", tokenize.STRING: "s", tokenize.NUMBER: "n"}
KINDS |= {
    getattr(tokenize, name): "s"  # the parts that Python 3.12 and later take an f-string into
    for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")
    if hasattr(tokenize, name)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Colour:
    """Characters of one row, from `begin` up to `end`, and the class of their colour."""

    row: int
    begin: int
    end: int
    kind: str


def highlighted(file: str, text: str) -> list[Markup]:
    """One Markup a source line, escaped. A file that is not Python stands as it is, one that breaks off from there."""
    rows = source_rows(text)
    of_row: dict[int, list[Colour]] = defaultdict(list)
    if file.endswith(".py"):
        for colour in _colours(rows):
            of_row[colour.row].append(colour)
    return [_marked(row, of_row.get(number, [])) for number, row in enumerate(rows)]


def _colours(rows: list[str]) -> Iterator[Colour]:
    before = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO("".join(f"{row}\n" for row in rows)).readline):
            kind = _kind(token, before)
            before = token.string
            if kind is not None:
                yield from _rows(token, kind, rows)
    except (tokenize.TokenError, SyntaxError):
        return  # a file that Python could not read has no more colours


def _kind(token: tokenize.TokenInfo, before: str) -> str | None:
    if token.type != tokenize.NAME:
        return KINDS.get(token.type)
    if before in ("def", "class"):
        return "f"
    return "k" if keyword.iskeyword(token.string) else None


def _rows(token: tokenize.TokenInfo, kind: str, rows: list[str]) -> Iterator[Colour]:
    """A token's characters row by row: a string may go over several."""
    (first, begin), (last, end) = token.start, token.end
    for row in range(first - 1, min(last, len(rows))):
        from_, to = (begin if row == first - 1 else 0), (end if row == last - 1 else len(rows[row]))
        if from_ < to:
            yield Colour(row=row, begin=from_, end=to, kind=kind)


def _marked(row: str, colours: list[Colour]) -> Markup:
    parts = [Markup()]
    at = 0
    for colour in colours:
        parts.append(escape(shown(row[at : colour.begin])))
        parts.append(Markup('<span class="{}">{}</span>').format(colour.kind, shown(row[colour.begin : colour.end])))
        at = colour.end
    parts.append(escape(shown(row[at:])))
    return Markup().join(parts)
