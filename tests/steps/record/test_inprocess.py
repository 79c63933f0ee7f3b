"""A step of a loop in the process that runs it: what is seen, and that nothing is left behind."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from undertorch.gpus import find
from undertorch.steps.record import record

SCRIPT = Path(__file__).parent / "scripts" / "own_loop.py"
pytestmark = pytest.mark.builds


@cache
def ran(*before):
    done = subprocess.run([sys.executable, SCRIPT, *before], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=[(), ("backward",), ("available",)], ids=["at first", "after a backward", "after asking"])
def shown(request):
    return ran(*request.param)


def test_the_wanted_step_is_seen_and_the_block_left(shown):
    assert shown["step"] == 3
    assert "went on" not in shown
    assert "after the loop" not in shown


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What a script of the same loop records."""
    lines = SCRIPT.read_text().splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if line.startswith("def train"))
    end = next(number for number, line in enumerate(lines) if line.startswith("head ="))
    script = tmp_path_factory.mktemp("loop") / "train.py"
    script.write_text(
        "".join(
            ("import torch\nfrom torch import nn\nshown = {}\nhead = nn.Linear(8, 2)\n", *lines[begin:end], "train()\n")
        )
    )
    return record(script, (), find("H200"), step=3)


def test_its_ops_are_those_that_a_script_of_the_same_loop_records(shown, recorded):
    """The one runs its backward in threads of the engine, the other in its own."""
    assert shown["ops"] == [op.name for op in recorded.ops]


def test_its_lines_are_those_of_the_loop(shown, line_of):
    texts = ("torch.randn(4, 8", "loss.backward()\n", "    optimizer.step()\n")
    lines = SCRIPT.read_text().splitlines(keepends=True)
    first = [next(number for number, line in enumerate(lines, 1) if text in line) for text in texts[:1]]
    assert first[0] in shown["lines"]
    assert shown["script"].endswith("own_loop.py")


def test_frames_above_the_block_are_nobodys(shown):
    assert shown["outermost"] == ["<module>"]


def test_everything_that_was_replaced_is_put_back(shown):
    assert shown["put back"]
    assert shown["put back at the end"]
    assert shown["cuda"] == [False, False, "cpu"]
    assert "cuda tensor" in shown


def test_a_model_from_before_the_block_keeps_its_values_and_learns_on(shown):
    assert shown["same weight"]
    assert shown["kind"] == "Parameter"
    assert shown["learns"]


def test_a_second_block_inside_the_first_is_refused(shown):
    assert "one step is seen at a time" in shown["second block"]


def test_an_error_of_the_block_is_its_own(shown):
    assert shown["failed"] == "the block's own"
    assert "if the block did not fail" in shown["no step"]


def test_a_block_that_trains_nothing_says_so(shown):
    assert "without a backward" in shown["empty"]
