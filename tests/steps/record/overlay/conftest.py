"""Runs Python code in a watched process without torch, and says what became of the disk."""

import hashlib
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from undertorch.steps.record.overlay.library import served
from undertorch.steps.record.overlay.scratch import Scratch

BEGINNING = """
import sys
from undertorch.steps.record.overlay.events import Library
library = Library()
library.begin({room}, lambda: None)
def told():
    return [(event.told.name, event.text) for event in library.events()]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How the code ended."""

    status: int
    out: str
    err: str


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that a folder holds: name, kind and mode, time of the last change, contents."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted((folder, *folder.rglob("*"))):
        entry = path.lstat()
        if path.is_symlink():
            holds = str(path.readlink())
        elif path.is_file():
            holds = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            holds = ""
        found[str(path.relative_to(folder))] = (entry.st_mode, entry.st_mtime_ns, entry.st_nlink, holds)
    return found


def watched(code: str, folder: Path, *arguments: str, room: int = 1 << 30, stdin: int | None = None) -> Ran:
    """Runs code in a process of which nothing reaches the disk. `told()` answers in it what the library told."""
    with Scratch() as scratch:
        text = BEGINNING.format(room=room) + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-P", "-c", text, *arguments],
            cwd=folder,
            env=scratch.environment(os.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    return Ran(status=done.returncode, out=done.stdout, err=done.stderr)


@pytest.fixture(name="watched", scope="session")
def _watched():
    if not served():
        pytest.skip("only Linux loads a library before libc")
    return watched


@pytest.fixture(name="tree", scope="session")
def _tree():
    return tree


@pytest.fixture
def unchanged(tmp_path, watched):
    """Runs code in `tmp_path`, which has to hold afterwards what it held before; the code's assertions have to hold."""

    def run(code: str, *arguments: str, **named: int) -> Ran:
        before = tree(tmp_path)
        ran = watched(code, tmp_path, *arguments, **named)
        assert ran.status == 0, ran.err
        assert tree(tmp_path) == before
        return ran

    return run
