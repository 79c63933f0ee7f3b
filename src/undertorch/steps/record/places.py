"""From a Python frame to the user's line, and to what torch is doing for it.

The frames of torch, of undertorch, of the standard library and of what runs a loop around a model (accelerate,
Lightning) are not the user's; those of other packages are: a line in a model library is a line somebody wrote above
torch.
"""

import linecache
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

from undertorch.records import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an Op was called."""

    where: Where | None
    """The innermost of the user's frames."""
    chain: tuple[Where, ...]
    """The user's frames above it, innermost first."""
    doing: frozenset[str]
    """Marks of torch's own functions that are running (see `Places`)."""
    others: "Chains" = ()
    """Of a call in compiled code, the further lines that it came from."""
    compiled: bool = False
    """Whether a compiler wrote the call."""


Chains = tuple[tuple[Where, ...], ...]
"""What a call came from that a compiler wrote: lines of the user's, each followed by the frames above it."""

ENGINE = "engine"
"""The mark of the function that runs the autograd engine: frames above it called the backward, not the op."""

NOWHERE = Place(where=None, chain=(), doing=frozenset())


class Places:
    """Looks frames up. `mark` says what running a function of torch means, None for most."""

    def __init__(
        self,
        inside: Iterable[Path],
        mark: Callable[[CodeType], str | None],
        start: Path,
        top: CodeType | None = None,
        cell: Callable[[str], str | None] = lambda filename: None,
    ) -> None:
        """`inside`: folders whose frames are not the user's. `start`: files below it are named relative to it. `top`:
        frames above this code's are nobody's. `cell`: what a notebook's cell is called, by the name of its code.
        """
        self._inside = tuple(f"{folder}/" for folder in inside)
        self._stdlib = f"{Path(os.__file__).parent}/"
        self._mark = mark
        self._marks: dict[CodeType, str | None] = {}
        self._start = str(start)
        self._top = top
        self._cell = cell
        self._users: dict[CodeType, str | None] = {}
        self._wheres: dict[tuple[CodeType, int], Where] = {}
        self._files: dict[str, str] = {}
        self._threads = threading.local()
        self._written: dict[str, Mapping[int, Chains]] = {}

    def started_at(self, place: Place) -> None:
        """This thread was started there: the line of what runs on it outside of any function of the user's."""
        self._threads.started = place

    def look(self, frame: FrameType | None) -> Place:
        """The place that a frame, or the nearest of the user's above it, stands for."""
        wheres: list[Where] = []
        doing: set[str] = set()
        while frame is not None:
            code, mark = frame.f_code, None
            chains = self._written.get(code.co_filename, {}).get(frame.f_lineno)
            if chains is not None:
                return _compiled(chains, self.look(frame.f_back))
            name = self._users[code] if code in self._users else self._classify(code)
            if name is not None:
                wheres.append(self._where(code, frame.f_lineno, name))
            elif (mark := self._marks[code]) is not None:
                doing.add(mark)
            if code is self._top or mark == ENGINE:
                break
            frame = frame.f_back
        if not wheres:
            started = getattr(self._threads, "started", NOWHERE)
            return Place(where=started.where, chain=started.chain, doing=frozenset(doing))
        return Place(where=wheres[0], chain=tuple(wheres[1:]), doing=frozenset(doing))

    def written(self, filename: str, lines: Mapping[int, Chains]) -> None:
        """A compiler wrote a file: its frames are not the user's, and what its lines came from stands for them."""
        self._written[filename] = lines

    def beginning(self, function: Callable[..., object]) -> Where | None:
        """Where a function begins; None where it is not the user's."""
        code: CodeType | None = getattr(function, "__code__", None)
        name = None if code is None else self.name(code.co_filename)
        return None if code is None or name is None else self._where(code, code.co_firstlineno, name)

    def name(self, filename: str) -> str | None:
        """What a file is called in a recording; None where its frames are not the user's."""
        if (cell := self._cell(filename)) is not None:
            self._files[cell] = filename
            return cell
        if filename.startswith("<") or filename in self._written:
            return None  # made by exec or by the interpreter: there is no line to show
        path = os.path.abspath(os.path.join(self._start, filename))  # noqa: PTH100, PTH118 - links stay as they are
        if path.startswith(self._inside) or (path.startswith(self._stdlib) and not _third_party(path)):
            return None
        name = os.path.relpath(path, self._start) if path.startswith(f"{self._start}/") else path
        self._files[name] = path
        return name

    def source(self, name: str) -> str | None:
        """The text of a file by that name; None where it cannot be read."""
        path = Path(self._files[name])
        if path.is_file():
            return path.read_text(errors="replace")
        return "".join(linecache.getlines(self._files[name])) or None  # a cell

    def _where(self, code: CodeType, line: int, name: str) -> Where:
        key = (code, line)
        if key not in self._wheres:
            self._wheres[key] = Where(file=name, line=line, function=code.co_qualname)
        return self._wheres[key]

    def _classify(self, code: CodeType) -> str | None:
        """The name of a user's file; None where the code is not the user's."""
        name = self.name(code.co_filename)
        self._users[code] = name
        self._marks[code] = self._mark(code)
        return name


def _compiled(chains: Chains, caller: Place) -> Place:
    """Of a call in compiled code. The innermost of the user's frames around it is that of the function that was
    compiled, which its lines have above them already.
    """
    first, *others = ((*chain, *caller.chain) for chain in chains)
    return Place(where=first[0], chain=first[1:], doing=caller.doing, others=tuple(others), compiled=True)


def _third_party(path: str) -> bool:
    """Outside a virtual environment installed packages lie below the standard library."""
    return "/site-packages/" in path or "/dist-packages/" in path
