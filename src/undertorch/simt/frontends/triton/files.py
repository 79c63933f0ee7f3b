"""What the files of a Triton kernel are called now.

Triton's cache tells functions apart by their text and first line and not by their file. So PTX that it kept may name
the files of another folder, or those of before a renaming, for the kernel and for each function that it calls.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from triton.runtime.jit import JITFunction

from undertorch.compilers.file_names import unescaped

FILE = re.compile(r'(?m)^(\s*\.file\s+(\d+)\s+)"([^"\n]*)"')
LOC = re.compile(r"(?m)^\s*\.loc\s+(\d+)\s+(\d+)\s")


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a function of Triton's stands."""

    file: str
    first: int
    last: int


def with_files_of(function: Any, ptx: str, entry: str) -> str:
    """PTX with the names that the files of a kernel, and of what it calls, have now. `entry`: its name there."""
    own = LOC.search(ptx, max(0, ptx.find(f".entry {entry}(")))
    lines: dict[str, set[int]] = {}
    for number, line in LOC.findall(ptx):
        lines.setdefault(number, set()).add(int(line))
    called = [_placed(one) for one in _called(function)]

    def named(found: "re.Match[str]") -> str:
        start, number, path = found.groups()
        if own is not None and number == own[1]:
            return f'{start}"{_placed(function).file}"'
        return f'{start}"{_now(unescaped(path), lines.get(number, set()), called) or path}"'

    return FILE.sub(named, ptx)


def _now(path: str, lines: set[int], called: Iterable[_Placed]) -> str | None:
    """The file in which functions that are called have these lines, where it is one; None where it is not known."""
    files: dict[str, set[int]] = {}
    for one in called:
        files.setdefault(one.file, set()).update(range(one.first, one.last + 1))
    fitting = [file for file, its in files.items() if lines <= its]
    if path in fitting:
        return path
    alike = [file for file in fitting if Path(file).name == Path(path).name] or fitting
    return alike[0] if len(alike) == 1 else None


def _placed(function: Any) -> _Placed:
    code = function.fn.__code__
    lines = [line for *_, line in code.co_lines() if line is not None]
    return _Placed(file=code.co_filename, first=code.co_firstlineno, last=max(lines, default=code.co_firstlineno))


def _called(function: Any) -> list[Any]:
    """The functions of Triton's that a kernel can reach by the names in its code."""
    found: dict[int, Any] = {}
    left: list[tuple[Any, tuple[str, ...]]] = [(function, ())]
    seen = set()
    while left:
        one, names = left.pop()
        if (id(one), names) in seen:
            continue
        seen.add((id(one), names))
        if isinstance(one, JITFunction):
            found[id(one)] = one
            code = one.fn.__code__
            held = {**one.fn.__globals__, **_captured(one.fn)}
            names = code.co_names
            left += [(held[name], names) for name in (*names, *code.co_freevars) if name in held]
        elif isinstance(one, ModuleType):
            left += [(vars(one)[name], names) for name in names if name in vars(one)]
    return list(found.values())


def _captured(function: Any) -> dict[str, Any]:
    """What a function takes from the function around it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {}
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found
