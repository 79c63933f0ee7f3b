"""PTX text into tokens. PTX is line-free: only the line of each token is kept, for messages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from undertorch.simt.errors import PtxError

TOKEN = re.compile(
    r"""
    (?P<blank>\s+ | //[^\n]* | /\*.*?\*/)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<float>0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16} | \d+\.\d*(?:[eE][+-]?\d+)?
      | \d+[eE][+-]?\d+ | \.\d+(?:[eE][+-]?\d+)?)
  | (?P<int>0[xX][0-9a-fA-F]+U? | 0[bB][01]+U? | \d+U?)
  | (?P<word>[%A-Za-z_$][\w$%]*(?:(?:\.|::)\w+)*)
  | (?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
  | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[{}\[\]();,:@!|<>=+*/&^~?%-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `kind` is the name of its pattern."""

    kind: str
    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    """Every token of a file. Raises PtxError at a character that PTX does not know."""
    at, line, end = 0, 1, len(text)
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            raise PtxError(f"PTX line {line}: {text[at]!r} is no PTX.")
        kind, piece = found.lastgroup or "", found.group()
        if kind != "blank":
            yield Token(kind, piece, line)
        line += piece.count("\n")
        at = found.end()
