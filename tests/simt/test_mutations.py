"""Kernels with mistakes in them, whatever they are, end in a sentence and touch nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("first", [0, 40])
def test_mutated_kernels_neither_crash_nor_hang_nor_touch_other_memory(first):
    """In a process of their own, whose output ends with the seed that killed it."""
    script = Path(__file__).parent / "mutated.py"
    command = [sys.executable, str(script), str(first), "40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-40:] + done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 40
