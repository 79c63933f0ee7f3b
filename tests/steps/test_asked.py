"""What is asked for from Python and makes no sense is one sentence of a class that the docstrings name."""

import os
import subprocess
import sys
import warnings
from functools import partial

import numpy
import pytest

import undertorch
from undertorch.gpus import UnknownGpu, find
from undertorch.steps import see as steps
from undertorch.steps.asked import asked_gpu, asked_step
from undertorch.steps.record.errors import BadAssumption, RecordError

WRONG = [
    *(pytest.param({"step": step}, RecordError, id=f"step {step!r}") for step in (0, -1, "x", 1.5, True, [2])),
    *(pytest.param({"gpu": gpu}, UnknownGpu, id=f"gpu {gpu!r}") for gpu in (None, 3, "", "H200,L4", b"H200")),
    *(pytest.param({"assume": answers}, BadAssumption, id=f"assume {answers!r}") for answers in ("q", [1], {"x": 1})),
]


def inside(block, **asked) -> None:
    with block(**asked):
        pass


@pytest.mark.parametrize(("asked", "kind"), WRONG)
@pytest.mark.parametrize("function", ["see", "seeing"])
def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path, asked, kind, function):
    script = tmp_path / "train.py"
    script.write_text("")
    call = {"see": partial(undertorch.see, script), "seeing": partial(inside, undertorch.seeing)}[function]
    with pytest.raises(kind) as refused:
        call(**asked)
    message = str(refused.value)
    assert message.endswith(".")
    assert "\n" not in message


def test_whole_numbers_of_numpy_paths_and_records_are_taken(tmp_path):
    assert asked_step(numpy.int64(3)) == 3
    with pytest.raises(RecordError):
        asked_step(None)
    sheet = tmp_path / "mine.toml"
    sheet.write_text('like = "H200"\nname = "Mine"')
    assert asked_gpu(sheet).name == "Mine"
    assert asked_gpu(find("L4")) is find("L4")


LOOP = """
import warnings
import torch
import undertorch
from torch import nn

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    with undertorch.seeing(step=10**9) as seen:
        model = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(5):
            model(torch.randn(4, 8, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
print(seen.step.environment.step, [str(one.message) for one in warned if one.filename == __file__])
"""


def test_a_loop_that_ends_before_the_step_says_how_many_there_were(tmp_path):
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, env={**os.environ})
    said = "there is no step 1000000000: the script ended after step 5, which is shown."
    assert done.stdout.splitlines()[-1] == f"5 {[said]}"


def test_a_script_that_ends_before_the_step_says_so_too(monkeypatch):
    from steps_by_hand import STEP

    ended = STEP.environment.step
    assert ended is not None
    monkeypatch.setattr(steps, "see", lambda *anything, **options: STEP)
    with pytest.warns(UserWarning, match=f"there is no step 50: the script ended after step {ended}, which is shown"):
        undertorch.see("train.py", step=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        undertorch.see("train.py", step=ended)
