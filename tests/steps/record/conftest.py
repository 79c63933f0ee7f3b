"""Recordings of the scripts beside these tests, each made once."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.records import Recording
from undertorch.steps.record import record

SCRIPTS = Path(__file__).parent / "scripts"
GOLDEN = Path(__file__).parents[2] / "golden"


@cache
def recorded(
    script: str,
    *arguments: str,
    gpu: str = "H200",
    step: int = 2,
    assume: tuple[str, ...] = (),
    as_module: bool = False,
) -> Recording:
    """The recording of a script of this folder, or of a module by its dotted name. `assume`: `PLACE=VALUE`."""
    answers = dict(answer.split("=") for answer in assume)
    named = Path(script) if as_module else SCRIPTS / script
    return record(named, arguments, gpus.find(gpu), step=step, assume=answers)


@pytest.fixture(scope="session")
def recording():
    return recorded


@pytest.fixture(scope="session")
def line_of():
    """The number of the line of a script that holds a text."""

    def found(script: str, text: str) -> int:
        lines = (SCRIPTS / script).read_text().splitlines()
        (number,) = (number for number, line in enumerate(lines, 1) if text in line)
        return number

    return found


@pytest.fixture(scope="session")
def scripts():
    return SCRIPTS


@pytest.fixture(scope="session")
def golden():
    """What the H200 answered (benchmarks/golden_steps.py)."""
    with gzip.open(GOLDEN / "h200_steps.json.gz", "rt") as file:
        return json.load(file)
