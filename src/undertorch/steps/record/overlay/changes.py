"""What was kept off the disk and off the network, by the line that wanted it."""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from undertorch.records import Assumption, Where
from undertorch.steps.record.overlay.events import Event, Library, Told
from undertorch.steps.record.overlay.sentences import ON_THE_DISK, all_else, on_the_disk, refused
from undertorch.steps.record.places import Places

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty"})
"""Audit events just before a process is made that will run another program."""
CHANGES = frozenset(
    f"{home}.{name}"
    for home, names in {
        "os": ("chmod", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "system", "truncate", "utime"),
        "socket": ("connect", "getaddrinfo", "gethostbyname", "sendto"),
        "sqlite3": ("connect",),
    }.items()
    for name in names
)
"""Audit events just before something is told, besides `open`."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
MOST_LINES = 12
"""Lines of which each gets a sentence of its own for what it changed on the disk."""
INSTALLED = ("/site-packages/", "/dist-packages/")


class Changes:
    """Listens to the library and keeps what it tells."""

    def __init__(self, library: Library, places: Places, programs: Path) -> None:
        """`programs`: where the run's own programs are, called by their names alone."""
        self._library = library
        self._programs = programs
        self._places = places
        self._told: dict[Where | None, dict[Told, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        self._by_programs: set[str] = set()
        self._programs_seen: set[int] = set()
        self._starting: Where | None = None
        self._lines: dict[int, Where | None] = {}
        self._recorder = os.getpid()
        self._main = threading.main_thread().ident or 0

    def begin(self, room: int) -> None:
        """Begins the watch. Raises LookupError where the library is not there."""
        self._library.begin(room, self.listen)
        sys.addaudithook(self._about_to)

    def listen(self) -> None:
        """Takes what was told since the last time."""
        frame = sys._getframe(1) if threading.get_ident() == self._main else sys._current_frames().get(self._main)
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

    def refused(self) -> str:
        """For a script that failed: what may have been the cause, each a sentence; empty without one."""
        self.listen()
        return "".join(f" It {what}" for told in self._told.values() for what in refused(told))

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

    def _about_to(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook. The listener is called on the main thread, which other threads do not wait for: their lines
        are kept when they are about to change something.
        """
        if event in STARTS:
            self._starting = self._line(sys._getframe(1))
        elif event in CHANGES or (event == "open" and arguments[2] & WRITING):
            thread = threading.get_ident()
            if thread != self._main:
                self.listen()  # what it did at the line before
                self._lines[thread] = self._line(sys._getframe(1))

    def _take(self, event: Event, frame: FrameType | None) -> None:
        """`frame`: where the main thread is."""
        text = event.text.removeprefix(f"{self._programs}/")
        if event.process == self._recorder:
            where = self._line(frame) if event.thread == self._main else self._line_of(event.thread)
            if where is None and event.thread == self._main:
                return  # before the script began, or after it
        elif event.told in ON_THE_DISK:
            self._by_programs.add(event.text)
            return
        elif event.told in (Told.RAN, Told.RAN_CONFINED) and (
            event.parent != self._recorder or event.process in self._programs_seen
        ):
            return  # a program's own programs, and what a program becomes
        elif event.parent == self._recorder:  # made by the script, about to become another program
            self._programs_seen.add(event.process)
            where = self._starting
        else:
            where = None
        counts = self._told[where][event.told]
        counts[text] = counts.get(text, 0) + 1

    def _line_of(self, thread: int) -> Where | None:
        """Where another thread brought an event about: where it was last about to, or, in native code, where it is."""
        return self._lines.get(thread) or self._line(sys._current_frames().get(thread))

    def _line(self, frame: FrameType | None) -> Where | None:
        """The user's innermost line; one of an installed package only where there is no other."""
        place = self._places.look(frame)
        lines: Iterable[Where] = (place.where, *place.chain) if place.where is not None else ()
        own = (line for line in lines if not any(folder in line.file for folder in INSTALLED))
        return next(own, place.where)
