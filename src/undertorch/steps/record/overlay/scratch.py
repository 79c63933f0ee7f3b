"""The folder of a run, in the process that waits for it: made, bounded, and removed whatever becomes of the script."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from undertorch.records import Gpu
from undertorch.steps.record.errors import ScriptFailed
from undertorch.steps.record.overlay import library, offline, processes
from undertorch.steps.record.overlay.named_gpu import put_nvidia_smi

PREFIX = "undertorch-"
RUN = "UNDERTORCH_RUN"
"""Environment variable with the run's folder; every process of the run has it (shim/state.c)."""
PROGRAMS = "programs"
"""Folder of the run's folder that stands first in PATH."""
COPY = "copy"
"""The throw-away copy's root in the folder (shim/state.c)."""
LINKS = "links"
"""Folder with links to folders of the copy (shim/network.c)."""
STATE_BYTES = 1 << 20
"""Of the page that the run's processes share: more than `struct shared` of shim/shared.h takes."""
MOST_BYTES = 16 << 30
"""What a script may write in all: several checkpoints of a model that a laptop runs a step of. Never more than half of
what is free."""
PAUSE_S = 1.0
"""Between two looks at how much was written; longer where a look takes long."""
SHARE_OF_LOOKING = 0.05


class Scratch:
    """`with Scratch() as scratch:` makes the folder and removes it at the end, with every process that the script left
    behind.
    """

    def __init__(self, progress: Callable[[str], None] | None = None, most_bytes: int = MOST_BYTES) -> None:
        """Compiles the library where that is still to do. Raises NoCompiler."""
        self._library = library.build(progress) if library.served() else None
        self._most = most_bytes
        self.folder = Path()
        """Its real path, while the folder is there."""
        self.room = 0
        """Bytes that may be written."""

    def __enter__(self) -> "Scratch":
        place = Path(tempfile.gettempdir()).resolve()
        _remove_abandoned(place)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._lock = _locked(self.folder)
        for name in (COPY, LINKS):
            (self.folder / name).mkdir()
        with (self.folder / "state").open("wb") as state:
            state.truncate(STATE_BYTES)
        self.room = min(self._most, shutil.disk_usage(self.folder).free // 2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes.end(f"{RUN}={self.folder}")
        _remove(self.folder)
        os.close(self._lock)

    def environment(self, given: Mapping[str, str], gpu: Gpu | None = None) -> dict[str, str]:
        """The environment of the process that is to run the script. Called once a run. `nvidia-smi` answers for `gpu`
        there.
        """
        made = {RUN: ""} | dict(given) | offline.settings(given) | {RUN: str(self.folder)}  # first, for shim/signal.c
        if self._library is not None:
            if gpu is not None:
                put_nvidia_smi(self.folder / PROGRAMS, gpu)
                made["PATH"] = os.pathsep.join((str(self.folder / PROGRAMS), given.get("PATH", os.defpath)))
            made["LD_PRELOAD"] = ":".join(filter(None, (str(self._library), given.get("LD_PRELOAD"))))
        return made

    def wait(self, child: "subprocess.Popen[bytes]", script: str) -> int:
        """The child's exit status, negative for the signal that killed it. Raises ScriptFailed, with the child ended,
        where it wrote more than it may.
        """
        pause = PAUSE_S
        while True:
            try:
                return child.wait(timeout=pause)
            except subprocess.TimeoutExpired:
                began = time.monotonic()
                written = bytes_in(self.folder / COPY)
                pause = max(PAUSE_S, (time.monotonic() - began) / SHARE_OF_LOOKING)
            if written > self.room:
                child.kill()
                child.wait()
                raise ScriptFailed(
                    f"{script} wrote {written / 1e9:.1f} GB before its step was recorded, and its throw-away copy of"
                    f" the disk holds {self.room / 1e9:.1f} GB at most: let it write less, or set TMPDIR to a folder"
                    " on a larger disk."
                )


def bytes_in(folder: Path) -> int:
    """What a folder's files take on the disk; files that come and go meanwhile may be left out."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += bytes_in(Path(entry))
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512  # stat(2) counts in these
    except OSError:
        pass
    return total


def _locked(folder: Path) -> int:
    """A lock on the folder that ends with this process, however it ends."""
    making = folder / "lock.part"
    lock = os.open(making, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    making.rename(folder / "lock")
    return lock


def _remove_abandoned(place: Path) -> None:
    """Folders of runs whose process was killed: nobody holds their lock."""
    for lock in place.glob(f"{PREFIX}*/lock"):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:
            continue  # another user's, or gone meanwhile
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            processes.end(f"{RUN}={lock.parent}")
            _remove(lock.parent)
        finally:
            os.close(descriptor)


def _remove(folder: Path) -> None:
    """With folders that the script took its own rights to away. A process that is ending may remove some meanwhile."""
    for inside, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(inside, name)
            if not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
