"""Scripts that are measured on the CPU alone: the markers, the boundaries and the joins are those of a GPU's run."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

from undertorch.steps.measure import exchange
from undertorch.steps.measure.exchange import Measured
from undertorch.steps.measure.lines import Lines
from undertorch.steps.measure.spawn import run_measured
from undertorch.steps.measure.tracefile import joined

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A script that was measured, and the same script alone."""

    folder: Path
    measured: Measured

    @property
    def seen(self) -> dict:
        """What the script wrote when it was seen."""
        return json.loads((self.folder / "seen.json").read_text())

    @property
    def alone(self) -> dict:
        """What it wrote by itself."""
        return json.loads((self.folder / "alone.json").read_text())

    @property
    def lines(self) -> Lines:
        """The joins of its trace."""
        return Lines(joined=joined(self.folder / exchange.TRACE), measured=self.measured)


@cache
def line(text: str) -> int:
    """Of `everything.py`: the line that ends in a comment."""
    rows = (SCRIPTS / "everything.py").read_text().splitlines()
    (found,) = [number for number, row in enumerate(rows, 1) if row.endswith(f"# {text}")]
    return found


def everything(folder: Path, *backend: str) -> Run:
    """Measures the script, and runs it alone; once, whatever the number of pytest's workers."""
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            aside = folder.with_name(f"{folder.name}.part")
            aside.mkdir()
            script = SCRIPTS / "everything.py"
            run_measured(script, [str(aside / "seen.json"), *backend], aside, without_gpu=True)
            subprocess.run([sys.executable, script, aside / "alone.json", *backend], check=True)
            aside.rename(folder)
    measured = exchange.read(folder)
    assert measured is not None
    return Run(folder=folder, measured=measured)


def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all of pytest's workers have."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
