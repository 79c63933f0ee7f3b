"""A large file is looked over in another process, with the same result and the same words."""

from pathlib import Path

import numpy as np
import pytest

from undertorch.steps.traces import BadTrace, ahead, look_over

GOLDEN = Path(__file__).parents[2] / "golden" / "traces"


@pytest.fixture
def large(monkeypatch):
    """Every file is."""
    monkeypatch.setattr(ahead, "LARGE", 1)


def test_another_process_sees_the_same(large):
    path = GOLDEN / "mi250_toy_train.json.gz"
    there, here = ahead.look_over_ahead(path), look_over(path)
    assert (there.steps, there.pieces, there.spans, there.middle) == (here.steps, here.pieces, here.spans, here.middle)
    assert np.array_equal(there.correlations, here.correlations)
    assert there.on_gpu(there.steps[0]) == here.on_gpu(here.steps[0])


def test_what_is_wrong_with_a_large_file_is_said_as_of_a_small_one(large, tmp_path):
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [{"ph": "X"')
    with pytest.raises(BadTrace, match="it ends in the middle"):
        ahead.look_over_ahead(path)
    with pytest.raises(BadTrace, match=r"absent\.json cannot be read"):
        ahead.look_over_ahead(tmp_path / "absent.json")


def test_a_small_file_starts_no_process(monkeypatch):
    monkeypatch.setattr(ahead.subprocess, "Popen", None)
    assert ahead.look_over_ahead(GOLDEN / "mi250_toy_train.json.gz").steps
