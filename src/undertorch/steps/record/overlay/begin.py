"""Begins the watch, in the process that is about to run the script."""

import sys
from collections.abc import Callable

from undertorch.records import Assumption
from undertorch.steps.record.overlay import linking, refusing
from undertorch.steps.record.overlay.changes import Changes
from undertorch.steps.record.overlay.events import Library
from undertorch.steps.record.places import Places


def begin(folder: str, room: int, places: Places) -> Callable[[], tuple[Assumption, ...]]:
    """From here on the script's changes go to the copy in the run's folder, of which at most `room` bytes come off the
    disk. Answers what tells, at the end, what they were.
    """
    # The compiled forms of modules would be written to the copy alone, for nobody to read.
    sys.dont_write_bytecode = True
    try:
        library = Library()
        changes = Changes(library, places)
        changes.begin(room)
    except LookupError:
        return refusing.begin(folder, places)
    linking.follow(library)
    return changes.assumptions
