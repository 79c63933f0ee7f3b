"""Each change is said at the line that made it, on whatever thread."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from undertorch.steps.record.overlay.library import served
from undertorch.steps.record.overlay.scratch import Scratch

SCRIPT = Path(__file__).with_name("scripts") / "lines.py"


def test_every_change_stands_at_its_line(tmp_path):
    """The script's comments say what is to be said of their lines. (tempfile first tries where it may write.)"""
    if not served():
        pytest.skip("only Linux loads a library before libc")
    with Scratch() as scratch:
        done = subprocess.run(
            [sys.executable, "-P", str(SCRIPT)],
            cwd=tmp_path,
            env=scratch.environment(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = {int(line.partition(" ")[0]): line.partition(" ")[2] for line in done.stdout.splitlines()}
    wanted = {
        number: line.rpartition("  # ")[2]
        for number, line in enumerate(SCRIPT.read_text().splitlines(), 1)
        if "  # " in line
    }
    assert said.keys() == wanted.keys()
    for number, what in wanted.items():
        assert said[number].startswith(what)
