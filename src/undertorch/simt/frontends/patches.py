"""Attributes put in the place of others, and back."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

_ABSENT = object()


@dataclass(slots=True)
class Patches:
    """Changes of modules and classes, in the order they were made."""

    made: list[tuple[Any, str, Any]] = field(default_factory=list)

    left: list[AbstractContextManager[Any]] = field(default_factory=list)
    """Contexts that were entered."""

    def put(self, home: Any, name: str, value: Any) -> None:
        """Replaces an attribute until `undo`."""
        self.made.append((home, name, vars(home).get(name, _ABSENT)))  # as stored: a class would bind it
        setattr(home, name, value)

    def enter(self, context: AbstractContextManager[Any]) -> None:
        """Enters a context until `undo`."""
        context.__enter__()
        self.left.append(context)

    def undo(self) -> None:
        """Puts all back, the last first."""
        while self.left:
            self.left.pop().__exit__(None, None, None)
        while self.made:
            home, name, before = self.made.pop()
            if before is _ABSENT:
                delattr(home, name)
            else:
                setattr(home, name, before)
