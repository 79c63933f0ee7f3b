"""Where a source that is no file stands: as a text in a file of Python, for who shows findings beside that."""

import ast
import linecache
from pathlib import Path
from types import FrameType

from undertorch.records import TextOrigin


def origin_of(source: str, caller: FrameType) -> TextOrigin | None:
    """The text in the caller's file, or else the line that calls; None where the caller's code is in no file."""
    file = caller.f_code.co_filename
    if not Path(file).is_file():
        return None
    found = _text(source, linecache.getlines(file))
    if found is None:
        return TextOrigin(file=file, line=caller.f_lineno)
    line, whole = found
    return TextOrigin(file=file, line=line, whole=whole)


def _text(source: str, lines: list[str]) -> tuple[int, bool] | None:
    """Where a text of that value begins, and whether its lines are the file's: no escape stands for a line's end."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == source and node.end_lineno is not None:
            start = node.lineno
            if lines[start - 1].rstrip("\n").endswith(('"\\', "'\\")):
                start += 1  # the text begins behind a backslash, on the next line
            return start, node.end_lineno - start == source.count("\n")
    return None
