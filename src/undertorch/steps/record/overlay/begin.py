"""Begins the watch, in the process that is about to run the script."""

import sys
from pathlib import Path

from undertorch.steps.record.overlay import linking
from undertorch.steps.record.overlay.changes import Changes
from undertorch.steps.record.overlay.events import Library
from undertorch.steps.record.overlay.refusing import Refusing
from undertorch.steps.record.overlay.scratch import PROGRAMS
from undertorch.steps.record.places import Places


def begin(folder: str, room: int, places: Places) -> Changes | Refusing:
    """From here on the script's changes go to the copy in the run's folder, of which at most `room` bytes come off the
    disk. What is answered tells, at the end, what they were.
    """
    # The compiled forms of modules would be written to the copy alone, for nobody to read.
    sys.dont_write_bytecode = True
    try:
        library = Library()
        changes = Changes(library, places, Path(folder) / PROGRAMS)
        changes.begin(room)
    except LookupError:
        return Refusing.begin(folder, places)
    linking.follow(library)
    return changes
