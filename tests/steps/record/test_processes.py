"""Processes that the script starts: the one that trains is seen, the others find a GPU too."""

import pytest

from undertorch import gpus
from undertorch.steps.record import ScriptFailed, record

SCRIPT = "processes.py"


def test_one_process_of_torchs_spawn_is_seen(recording):
    """The ops of the same function called by hand."""
    spawned, called = recording(SCRIPT, "spawn"), recording(SCRIPT, "call")
    assert [(op.name, op.phase) for op in spawned.ops] == [(op.name, op.phase) for op in called.ops]
    assert any("ran its one process within the script's own" in note.what for note in spawned.assumptions)


def test_two_processes_are_refused_with_what_to_do(scripts, capfd):
    with pytest.raises(ScriptFailed):
        record(scripts / SCRIPT, ("two",), gpus.find("H200"))
    assert "2 processes, and one GPU is seen: start one" in capfd.readouterr().err


def test_a_process_that_begins_anew_makes_cuda_tensors_too(recording):
    """It imports the script, whose model lies on the GPU, before it computes."""
    notes = [note.what for note in recording(SCRIPT, "workers").assumptions]
    assert any("what processes of multiprocessing compute" in note for note in notes)
