"""Loops that wait for a value, and loops that end by themselves."""

import subprocess
import sys

import pytest

from undertorch.steps.record.loops import waits


def this(file):
    return file == __file__


def asked():
    """Asks where it was called."""
    return waits(sys._getframe(1), this)


def test_a_while_waits_and_a_for_ends():
    while True:
        assert asked()
        break
    for _ in range(1):
        assert not asked()
    assert not any(asked() for _ in range(1))


def test_the_innermost_loop_counts():
    while True:
        for _ in range(1):
            assert not asked()
        break
    for _ in range(1):
        while asked():
            break


def test_a_loop_up_the_stack_counts_where_the_function_has_none():
    def inside():
        return waits(sys._getframe(), this)

    for _ in range(1):
        assert not inside()
    while True:
        assert inside()
        break


def test_where_no_loop_is_seen_one_waits():
    """Such as code without a source."""
    assert waits(sys._getframe(), lambda file: False)


LOOP = """
import sys
import torch
from undertorch import seeing
from undertorch.steps.record import values
values.MOST_VALUES = 5
lines = []
with seeing(gpu="H200"):
    loss = torch.ones(2, device="cuda").sum()
    {loop}
        lines.append(loss.item())
        if len(lines) == 20:
            break
print(len(lines))
"""


@pytest.mark.parametrize(("loop", "ending"), [("while True:", "EndlessLoop"), ("for _ in range(30):", None)])
def test_more_questions_than_a_waiting_loop_may_ask_are_answered_in_one_that_ends(tmp_path, loop, ending):
    """The limit is set to 5 questions."""
    script = tmp_path / "loop.py"
    script.write_text(LOOP.format(loop=loop))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    if ending is None:
        assert "EndlessLoop" not in done.stderr
        assert "ended without a backward" in done.stderr
    else:
        assert f"{ending}: loop.py:11 asked 5 times" in done.stderr
