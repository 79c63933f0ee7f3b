"""What threads of the script do on the GPU is seen as what its main thread does."""

from collections import Counter

import pytest

from undertorch.records import Phase

SCRIPT = "threads.py"


def names(recording, *phases):
    return [op.name for op in recording.ops if op.phase in phases]


@pytest.mark.parametrize("how", ["trains", "prefetches", "pool"])
def test_threads_change_nothing_of_the_training(recording, how):
    """Forward, backward and update of one loop; only what comes before the model's call differs."""
    plain, threaded = recording(SCRIPT, "plain"), recording(SCRIPT, how)
    for phase in (Phase.BACKWARD, Phase.UPDATE):
        assert names(threaded, phase) == names(plain, phase)
    assert "aten::addmm" in names(threaded, Phase.FORWARD)


def test_what_a_thread_loads_stands_at_its_line_and_in_no_phase_of_the_training(recording, line_of):
    """It runs while the main thread is in its forward or backward, and belongs to neither."""
    line = line_of(SCRIPT, "# loading")
    loading = [op for op in recording(SCRIPT, "prefetches").ops if op.where.line == line]
    assert {op.name for op in loading} <= {"aten::_to_copy", "aten::mul"}
    assert not {op.phase for op in loading} & {Phase.BACKWARD, Phase.UPDATE}


def test_each_op_of_several_threads_is_recorded_once(recording):
    """16 rows are copied to the GPU and added to by four threads, and joined by the main one."""
    counts = Counter(op.name for op in recording(SCRIPT, "pool").ops)
    assert (counts["aten::_to_copy"], counts["aten::add"], counts["aten::cat"]) == (16, 16, 1)


def test_what_runs_on_a_thread_without_a_line_of_its_own_has_that_of_its_start(recording, line_of):
    updates = [op for op in recording(SCRIPT, "pool").ops if op.phase is Phase.UPDATE]
    assert {op.where.line for op in updates} == {line_of(SCRIPT, "# the update")}
