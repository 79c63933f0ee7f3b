"""`undertorch.see`, as a person calls it from Python."""

from dataclasses import replace
from pathlib import Path

import pytest

import undertorch
from steps_by_hand import STEP
from undertorch.gpus import UnknownGpu, find
from undertorch.steps import see as steps
from undertorch.steps.record import MissingScript


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def see(script, arguments, gpu, step=2, assume=None, progress=None):
        calls.append((script, tuple(arguments), gpu.name, step, dict(assume or {})))
        return (
            STEP
            if step in (None, STEP.environment.step)
            else replace(STEP, environment=replace(STEP.environment, step=step))
        )

    monkeypatch.setattr(steps, "see", see)
    return calls


def test_a_script_with_nothing_else_is_predicted_for_the_h200(asked):
    assert undertorch.see("train.py") is STEP
    assert asked == [(Path("train.py"), (), "H200", None, {})]


@pytest.mark.parametrize("gpu", ["a10", find("A10")], ids=["by name", "as a Gpu"])
def test_everything_reaches_the_work(asked, gpu):
    undertorch.see(Path("train.py"), ["--batch", "8"], gpu=gpu, step=3, assume={"7": "true"})
    assert asked == [(Path("train.py"), ("--batch", "8"), "A10", 3, {"7": "true"})]


def test_what_is_wrong_is_raised_as_its_own_error():
    with pytest.raises(UnknownGpu, match="H2OO"):
        undertorch.see("train.py", gpu="H2OO")
    with pytest.raises(MissingScript, match=r"no_such\.py"):
        undertorch.see("no_such.py")
