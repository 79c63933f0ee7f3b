"""Putting something of ours in the place of something of torch's, and back."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_ABSENT = object()
_undo: list[Callable[[], object]] = []
"""What undoes each change of this process, in the order they were made. Replacing is a fact about the whole process,
and so is this list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """An attribute that was replaced."""

    home: Any
    name: str
    before: Any
    value: Any

    @property
    def in_place(self) -> bool:
        """Whether it stands where it was put."""
        return vars(self.home).get(self.name) is self.value

    def __call__(self) -> None:
        """Puts back what was there."""
        if self.before is _ABSENT:
            delattr(self.home, self.name)
        else:
            setattr(self.home, self.name, self.before)


def put(home: Any, name: str, value: Any) -> None:
    """Replaces an attribute of a module or a class, until `put_back`."""
    # As it is stored: a class answers for its static methods with something else.
    before = vars(home).get(name, _ABSENT)
    setattr(home, name, value)
    _undo.append(Replaced(home=home, name=name, before=before, value=value))


def undone_by(undo: Callable[[], object]) -> None:
    """A change of another kind was made, which `undo` takes back."""
    _undo.append(undo)


@contextmanager
def as_ever(attributes: Collection[tuple[Any, str]]) -> Iterator[None]:
    """While it lasts, these attributes are torch's own."""
    found = [
        one
        for one in _undo
        if isinstance(one, Replaced) and (one.home, one.name) in attributes and one.in_place  # may be so already
    ]
    for one in reversed(found):
        one()
    try:
        yield
    finally:
        for one in found:
            setattr(one.home, one.name, one.value)


def changes() -> int:
    """How many are made."""
    return len(_undo)


def put_back(but: int = 0) -> None:
    """Undoes every change, the last first, but so many of the first."""
    while len(_undo) > but:
        _undo.pop()()
