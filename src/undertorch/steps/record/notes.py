"""What was answered without being computed, each kind once a line, with how often."""

import sys
from collections import Counter

from undertorch.records import Assumption, Where
from undertorch.steps.record.places import Places


class Notes:
    """Collects assumptions in the order they are met."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._counts: Counter[tuple[Where | None, str]] = Counter()

    def note(self, what: str, where: Where | None = None) -> None:
        """One more of these, at a line; without one, at the line of the user's that is running."""
        self._counts[where or self._places.look(sys._getframe(1)).where, what] += 1

    def all(self) -> tuple[Assumption, ...]:
        """All of them."""
        return tuple(Assumption(where=where, what=what, count=count) for (where, what), count in self._counts.items())
