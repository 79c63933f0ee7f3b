"""The full name of the function that a line stands in, as `__qualname__` has it, told from the source alone."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


def qualname(file: str, line: int) -> str | None:
    """`Block.forward`, `main.<locals>.step`; `<module>` outside of any; None where the file cannot be read."""
    spans = _spans(file)
    if spans is None:
        return None
    inside = [span for span in spans if span[0] <= line <= span[1]]
    return min(inside, key=lambda span: span[1] - span[0])[2] if inside else "<module>"


@cache
def _spans(file: str) -> tuple[tuple[int, int, str], ...] | None:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    return tuple(_functions(tree, ""))


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
    """First and last line, and name, of each function below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            name = f"{prefix}{child.name}"
            yield child.lineno, child.end_lineno or child.lineno, name
            yield from _functions(child, f"{name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)
