"""Measurements of tests/golden/measured that are kept whole, laid out again as the profiler left them."""

import gzip
import json
from pathlib import Path

from undertorch.records import Step
from undertorch.steps.measure import exchange
from undertorch.steps.measure.reading import read_measured

GOLDEN = Path(__file__).parent / "golden" / "measured"


def laid_out(name: str, folder: Path) -> exchange.Measured:
    """Puts the files of NAME.json.gz into a folder, as `exchange` has them."""
    content = json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))
    for file, trace in content["files"].items():
        (folder / file).write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    (folder / exchange.MEASURED).write_text(json.dumps(content["measured"]))
    measured = exchange.read(folder)
    assert measured is not None
    return measured


def step_of(name: str, folder: Path) -> Step:
    """The step that NAME.json.gz is of."""
    return read_measured(folder, laid_out(name, folder))[0]
