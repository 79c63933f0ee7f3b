"""One script for several GPUs: each in the order given, as many at a time as there are cores, none lost to another."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from steps_by_hand import STEP
from undertorch import gpus
from undertorch.steps import see as steps
from undertorch.steps.record import RecordError
from undertorch.steps.see import see_many

GPUS = [gpus.find(name) for name in ("H200", "L4", "T4", "A10")]


@pytest.fixture
def asked(monkeypatch):
    """Stands in for see: keeps what it was asked, refuses the T4."""
    calls = []

    def see(script, arguments, gpu, step=2, assume=None, progress=None):
        calls.append((script, tuple(arguments), gpu.name, step, dict(assume or {})))
        if progress:
            progress("a stage")
        if gpu.name == "T4":
            raise RecordError("train.py raised ValueError; its traceback is above.")
        return replace(STEP, gpu=gpu.name)

    monkeypatch.setattr(steps, "see", see)
    return calls


def test_every_gpu_gets_the_same_script_arguments_and_assumptions(asked):
    see_many(Path("train.py"), ["--batch", "8"], GPUS, step=3, assume={"7": "true"})
    assert sorted(asked) == sorted((Path("train.py"), ("--batch", "8"), gpu.name, 3, {"7": "true"}) for gpu in GPUS)


def test_outcomes_stand_in_the_order_given_and_one_failure_takes_nobody_else_along(asked):
    outcomes = see_many(Path("train.py"), [], GPUS)
    assert [one.gpu.name for one in outcomes] == ["H200", "L4", "T4", "A10"]
    assert [one.step and one.step.gpu for one in outcomes] == ["H200", "L4", None, "A10"]
    assert [one.failure for one in outcomes if one.failure] == ["train.py raised ValueError; its traceback is above."]


def test_each_stage_is_told_with_its_gpu(asked):
    told = []
    see_many(Path("train.py"), [], GPUS[:2], progress=told.append)
    assert sorted(told) == ["H200: a stage", "L4: a stage"]


def test_no_more_run_at_a_time_than_there_are_cores(monkeypatch):
    """Three scripts wait for each other: with three cores they meet, and a fourth is never beside them."""
    meeting = threading.Barrier(3, timeout=10)
    running, most, lock = 0, 0, threading.Lock()

    def see(script, arguments, gpu, step=2, assume=None, progress=None):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait()
        with lock:
            running -= 1
        return STEP

    monkeypatch.setattr(steps, "see", see)
    monkeypatch.setattr(steps, "cores", lambda: 3)
    see_many(Path("train.py"), [], [*GPUS, *GPUS[:2]])
    assert most == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_is_no_fault_of_the_script_ends_it_all(monkeypatch, error):

    def see(script, arguments, gpu, step=2, assume=None, progress=None):
        raise error

    monkeypatch.setattr(steps, "see", see)
    monkeypatch.setattr(steps, "cores", lambda: 1)
    with pytest.raises(error):
        see_many(Path("train.py"), [], GPUS)


SCRIPT = """
import torch
if torch.cuda.get_device_properties(0).total_memory < 20e9:
    raise RuntimeError("this GPU is too small")
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_a_script_that_asks_which_gpu_it_has_fails_for_the_one_that_it_refuses(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    large, small = see_many(script, [], [gpus.find("H200"), gpus.find("T4")])
    assert (large.step.gpu, large.failure) == ("H200", None)
    assert small.step is None
    assert "RuntimeError" in small.failure
