"""What was answered without being computed, each kind once a line, with how often."""

import sys
from collections import Counter
from collections.abc import Callable

from undertorch.records import Assumption, Where
from undertorch.steps.record.places import Places


class Notes:
    """Collects assumptions in the order they are met."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._counts: Counter[tuple[Where | None, str]] = Counter()
        self._told_at_the_end: Callable[[], tuple[Assumption, ...]] = tuple

    def note(self, what: str, where: Where | None = None) -> None:
        """One more of these, at a line; without one, at the line of the user's that is running."""
        self._counts[where or self._places.look(sys._getframe(1)).where, what] += 1

    def note_at(self, function: Callable[..., object], what: str) -> bool:
        """One more of these, where a function of the user's begins. Whether it is one."""
        where = self._places.beginning(function)
        if where is not None:
            self.note(what, where)
        return where is not None

    def also(self, told: Callable[[], tuple[Assumption, ...]]) -> None:
        """Those that somebody else collects, and tells at the end."""
        self._told_at_the_end = told

    def all(self) -> tuple[Assumption, ...]:
        """All of them."""
        own = (Assumption(where=where, what=what, count=count) for (where, what), count in self._counts.items())
        return (*own, *self._told_at_the_end())
