"""What was kept off the disk and off the network, by the line that wanted it."""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from undertorch.records import Assumption, Where
from undertorch.steps.record.overlay.events import Event, Library, Told
from undertorch.steps.record.overlay.sentences import ON_THE_DISK, all_else, on_the_disk
from undertorch.steps.record.places import Places

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty"})
"""Audit events just before a process is made that will run another program."""
MOST_LINES = 12
"""Lines of which each gets a sentence of its own for what it changed on the disk."""
INSTALLED = ("/site-packages/", "/dist-packages/")


class Changes:
    """Listens to the library and keeps what it tells."""

    def __init__(self, library: Library, places: Places) -> None:
        self._library = library
        self._places = places
        self._told: dict[Where | None, dict[Told, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        self._by_programs: set[str] = set()
        self._starting: Where | None = None
        self._recorder = os.getpid()

    def begin(self, room: int) -> None:
        """Begins the watch. Raises LookupError where the library is not there."""
        self._library.begin(room, self.listen)
        sys.addaudithook(self._started)

    def listen(self) -> None:
        """Takes what was told since the last time."""
        frame = sys._getframe(1)
        for event in self._library.events():
            self._take(event, frame)

    def assumptions(self) -> tuple[Assumption, ...]:
        """One a line and kind of thing: what changed in the copy, what was refused, what was run."""
        self.listen()
        found = [*self._on_the_disk()]
        for where, told in self._told.items():
            found += (Assumption(where=where, what=what) for what in all_else(told))
        if count := len(self._by_programs):
            files = "a file" if count == 1 else f"{count:,} files"
            what = f"programs that the script started changed {files}, in its throw-away copy of the disk."
            found.append(Assumption(where=None, what=what))
        if lost := self._library.lost():
            what = "changes of the throw-away copy are not listed: there were too many at once."
            found.append(Assumption(where=None, what=what, count=lost))
        return tuple(found)

    def _on_the_disk(self) -> Iterator[Assumption]:
        """The first few lines one by one, the others together."""
        lines = [(where, told, what) for where, told in self._told.items() if (what := on_the_disk(told)) is not None]
        for where, _, what in lines[:MOST_LINES]:
            yield Assumption(where=where, what=what)
        left = lines[MOST_LINES:]
        together: dict[Told, dict[str, int]] = defaultdict(dict)
        for _, told, _ in left:
            for kind, counts in told.items():
                together[kind].update(counts)
        what = on_the_disk(together)
        if what is not None:
            lines_left = "1 more line" if len(left) == 1 else f"{len(left):,} more lines"
            yield Assumption(where=None, what=f"at {lines_left}: {what}")

    def _started(self, event: str, _: Any) -> None:
        if event in STARTS:
            self._starting = self._line(sys._getframe(1))

    def _take(self, event: Event, frame: FrameType) -> None:
        if event.process == self._recorder:
            where = self._line(self._frame(event.thread, frame))
        elif event.told in ON_THE_DISK:
            self._by_programs.add(event.text)
            return
        elif event.parent == self._recorder:  # made by the script, about to become another program
            where = self._starting
        elif event.told in (Told.RAN, Told.RAN_CONFINED):
            return  # a program's own programs
        else:
            where = None
        counts = self._told[where][event.told]
        counts[event.text] = counts.get(event.text, 0) + 1

    def _frame(self, thread: int, frame: FrameType) -> FrameType | None:
        """Where the thread is that brought an event about: the listener is called on the main thread."""
        if thread == threading.main_thread().ident:
            return frame
        return sys._current_frames().get(thread)

    def _line(self, frame: FrameType | None) -> Where | None:
        """The user's innermost line; one of an installed package only where there is no other."""
        place = self._places.look(frame)
        lines: Iterable[Where] = (place.where, *place.chain) if place.where is not None else ()
        own = (line for line in lines if not any(folder in line.file for folder in INSTALLED))
        return next(own, place.where)
