"""Whether a loop waits for a value, or ends by itself."""

import ast
import linecache
from collections.abc import Callable
from types import FrameType

ENDING = (ast.For, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""These go through what there is."""


def waits(frame: FrameType | None, users: Callable[[str], bool]) -> bool:
    """Whether the innermost loop that a frame runs in, its own or one up the stack, is a `while`. True too where there
    is none to be seen. `users`: whether a file is one of the user's; others are passed over.
    """
    while frame is not None:
        if users(frame.f_code.co_filename):
            loop = _innermost(frame.f_code.co_filename, frame.f_lineno)
            if loop is not None:
                return isinstance(loop, ast.While)
        frame = frame.f_back
    return True


def _innermost(file: str, line: int) -> ast.expr | ast.stmt | None:
    """The innermost loop around a line: of those that hold it, the one that begins last."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.While, *ENDING)) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda node: (node.lineno, node.col_offset), default=None)
