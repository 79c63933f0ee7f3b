"""Python source with a little colour: comments, strings, keywords, numbers, the names that are defined."""

from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Token, _TokenType

from undertorch.reports.page.text import shown, source_rows

CLASSES = {
    Token.Comment: "c",
    Token.Literal.String: "s",
    Token.Literal.Number: "n",
    Token.Keyword: "k",
    Token.Operator.Word: "k",
    Token.Name.Function: "f",
    Token.Name.Class: "f",
    Token.Name.Decorator: "d",
}


def highlighted(file: str, text: str) -> list[Markup]:
    """One Markup a source line, escaped. A file that is not Python stands as it is."""
    rows = source_rows(text)
    if not file.endswith(".py"):
        return [escape(shown(row)) for row in rows]
    marked: list[list[Markup]] = [[]]
    # The lexer would drop blank lines at the ends, and with them the count.
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens("\n".join(rows)):
        name = _class(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                marked.append([])
            if part:
                safe = escape(shown(part))
                marked[-1].append(Markup('<span class="{}">{}</span>').format(name, safe) if name else safe)
    return [Markup("").join(parts) for parts in marked][: len(rows)]


def _class(kind: _TokenType) -> str | None:
    return next((name for token, name in CLASSES.items() if kind in token), None)
