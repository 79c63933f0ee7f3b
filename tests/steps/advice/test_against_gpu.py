"""Whether what is advised saves what it says: an H200 ran a script with each habit and without (golden_advice.py)."""

import json
from functools import cache
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.records import Step
from undertorch.steps.see import see

HABITS = Path(__file__).with_name("habits.py")
GOLDEN = Path(__file__).parents[2] / "golden" / "h200_advice.json"
EAGER = ("eager-loss", "eager-norms")
MEASURED = {frozenset(one["habits"]): one["step_us"] for one in json.loads(GOLDEN.read_text())["steps"]}


@cache
def seen(*habits: str) -> Step:
    return see(HABITS, habits, gpus.find("H200"))


@pytest.mark.parametrize(
    ("habits", "mended", "kind"),
    [
        pytest.param((*EAGER, "explicit"), EAGER, "attention", id="attention by hand"),
        pytest.param((*EAGER, "unbind"), EAGER, "copies", id="q, k, v from a stack", marks=pytest.mark.slow),
        pytest.param((*EAGER, "odd"), EAGER, "alignment", id="a vocabulary of 50257"),
        pytest.param(
            (*EAGER, "foreach"), EAGER, "optimizer", id="an optimizer of foreach kernels", marks=pytest.mark.slow
        ),
        pytest.param(EAGER, ("eager-loss",), "fuse-norm", id="residual, norm and casts in eager"),
        pytest.param(EAGER, ("eager-norms",), "cross-entropy", id="a loss in eager"),
    ],
)
def test_mending_a_habit_saved_about_what_is_said(habits, mended, kind):
    """Within a quarter. Both steps are bound by the GPU, so that what it saves shortens the step."""
    (said,) = (one for one in seen(*habits).advice if one.kind == kind)
    saved = MEASURED[frozenset(habits)] - MEASURED[frozenset(mended)]
    assert 0.75 * saved < said.saves_us < 1.25 * saved


def test_a_habit_that_is_not_there_is_not_spoken_of():
    kinds = {one.kind for one in seen(*EAGER).advice}
    assert not kinds & {"attention", "copies", "alignment", "optimizer", "tf32", "launching", "sync"}


@pytest.mark.parametrize("habits", [EAGER, (*EAGER, "explicit"), (*EAGER, "foreach")])
def test_no_more_is_saved_than_is_there(habits):
    step = seen(*habits)
    assert sum(one.saves_us for one in step.advice) < step.step_us
    assert sum(one.saves_bytes or 0 for one in step.advice) < sum(one.kernel.min_bytes or 0 for one in step.launches)
