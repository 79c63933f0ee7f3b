"""Where a command's output goes: to a file that was looked at before the long work began, or to standard output."""

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from undertorch.cli.exits import BadInput

STDOUT = Path("-")
"""The path that means standard output."""


def check_writable(path: Path | None) -> None:
    """Raises BadInput where a file could not be written there, which is tried with a nameless one.

    A device or a pipe is asked for leave alone: to open it would be to write.
    """
    if path is None or path == STDOUT:
        return
    if path.is_dir():
        raise BadInput(f"{path} is a folder; give the path of a file to write.")
    if path.exists() and not path.is_file():
        if not os.access(path, os.W_OK):
            raise BadInput(f"{path} cannot be written: {os.strerror(errno.EACCES)}.")
        return
    try:
        folder = path.resolve().parent
    except RuntimeError as error:
        raise BadInput(f"{path} cannot be written: it is a link that leads back to itself.") from error
    if not folder.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {folder}; make it first.")
    with writing(path), TemporaryFile(dir=folder):
        pass


def refuse_inputs(path: Path | None, inputs: Sequence[Path]) -> None:
    """Raises BadInput where writing there would overwrite one of the files that are read, by whatever name or link."""
    if path is None or path == STDOUT:
        return
    for read in inputs:
        if _is_file(read) and same_file(path, read):
            raise BadInput(f"{path} would be overwritten, and it is read; give what is written a name of its own.")


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same place, whether or not something is there."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    """A script's argument may be longer than any path."""
    try:
        return path.is_file()
    except OSError:
        return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an error of the file system into BadInput."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from error


def write_out(data: bytes) -> None:
    """Bytes and a line's end to standard output. Raises BadInput where that was closed."""
    if sys.stdout is None:
        raise BadInput("standard output is closed; open it, or give the name of a file.")
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Around a report after which there is more to say: its reader may leave before the end (`| head`), which rich
    tells by SystemExit, and that ends the report alone.
    """
    with suppress(SystemExit, BrokenPipeError):
        yield
