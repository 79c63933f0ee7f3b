"""Where the library that keeps the copy cannot be loaded: what a script would change or send is refused.

Only Linux loads a library before libc as shim/ needs it. Elsewhere Python itself tells of what is about to be done
(audit hooks), and that can be refused with a sentence, but not led elsewhere. Temporary files, which the run's folder
takes, are let through; so are devices, pipes and what is open already. Native code is not seen.
"""

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from undertorch.records import Assumption, Where
from undertorch.steps.record.places import Places

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PATHS = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.removexattr": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.setxattr": 1,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.utime": 1,
    "sqlite3.connect": 1,
}
"""Events of a change of the disk, each with how many of its arguments are paths (Python's table of audit events)."""
SENDING = frozenset(
    {
        *("socket.connect", "socket.sendto", "socket.sendmsg"),
        *("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"),
    }
)
RUNNING = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.kill", "os.killpg"})
REFUSED = "undertorch refused {what}: while a script is seen nothing is changed or sent, and on this system there is no"
REFUSED += " throw-away copy to write to."


class Refusing:
    """The audit hook."""

    def __init__(self, folder: Path, places: Places) -> None:
        self._folder = os.path.realpath(folder)
        self._places = places
        self._counts: Counter[tuple[Where | None, str]] = Counter()

    @classmethod
    def begin(cls, folder: str, places: Places) -> "Refusing":
        """Refuses from here on; it tells, at the end, what was refused."""
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        tempfile.tempdir = str(temporary)
        refusing = cls(Path(folder), places)
        sys.addaudithook(refusing)
        return refusing

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raises PermissionError for what would change or send something."""
        if event == "open":
            path, _, flags = arguments
            if flags & WRITING and not self._may_change(path):
                self._refuse(f"to write {os.fsdecode(path)}")
        elif event in PATHS:
            for path in arguments[: PATHS[event]]:
                if not self._may_change(path):
                    self._refuse(f"{event} of {os.fsdecode(path)}")
        elif event in SENDING:
            self._refuse(f"{event} ({arguments[-1] if event.startswith('socket.get') else arguments[1]})")
        elif event in RUNNING:
            self._refuse(f"{event} ({arguments[0]})")

    def assumptions(self) -> tuple[Assumption, ...]:
        """What was refused, each with its line."""
        return tuple(
            Assumption(where=where, what=REFUSED.format(what=what), count=count)
            for (where, what), count in self._counts.items()
        )

    def refused(self) -> str:
        """For a script that failed: its own traceback has a sentence already."""
        return ""

    def _may_change(self, path: Any) -> bool:
        if isinstance(path, int):
            return True  # open already
        if path == ":memory:":
            return True
        real = os.path.realpath(os.fsdecode(path))
        inside = real.startswith((f"{self._folder}/", "/dev/", "/proc/self/"))
        return inside or (os.path.lexists(real) and not os.path.isfile(real) and not os.path.isdir(real))  # noqa: PTH112, PTH113

    def _refuse(self, what: str) -> None:
        self._counts[self._places.look(sys._getframe(2)).where, what] += 1
        raise PermissionError(REFUSED.format(what=what))
