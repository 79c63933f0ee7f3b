"""Putting something of ours in the place of something of torch's, and back."""

from collections.abc import Callable
from typing import Any

_ABSENT = object()
_undo: list[Callable[[], object]] = []
"""What undoes each change of this process, in the order they were made. Replacing is a fact about the whole process,
and so is this list."""


def put(home: Any, name: str, value: Any) -> None:
    """Replaces an attribute of a module or a class, until `put_back`."""
    # As it is stored: a class answers for its static methods with something else.
    before = vars(home).get(name, _ABSENT)
    setattr(home, name, value)
    _undo.append(lambda: delattr(home, name) if before is _ABSENT else setattr(home, name, before))


def undone_by(undo: Callable[[], object]) -> None:
    """A change of another kind was made, which `undo` takes back."""
    _undo.append(undo)


def changes() -> int:
    """How many are made."""
    return len(_undo)


def put_back(but: int = 0) -> None:
    """Undoes every change, the last first, but so many of the first."""
    while len(_undo) > but:
        _undo.pop()()
