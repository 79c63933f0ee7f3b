"""Names of the steps in a page: short, and no two alike."""

from dataclasses import replace

from steps_by_hand import STEP
from undertorch.reports.page.comparison import labels


def on(gpu="H200", arguments=(), step=2):
    return replace(STEP, gpu=gpu, environment=replace(STEP.environment, arguments=arguments, step=step))


def test_a_gpu_names_its_step_where_that_is_enough():
    assert labels([on("H200"), on("A100-40GB")]) == ("H200", "A100-40GB")


def test_the_same_gpu_twice_says_what_differs():
    assert labels([on(), on(arguments=("--batch", "8")), on("L4")]) == (
        "H200 · train.py",
        "H200 · train.py --batch 8",
        "L4",
    )
    assert labels([on(step=2), on(step=3)]) == ("H200 · train.py · step 2", "H200 · train.py · step 3")


def test_the_same_step_twice_is_numbered():
    assert labels([on(), on()]) == ("H200 · train.py · step 2 #1", "H200 · train.py · step 2 #2")
