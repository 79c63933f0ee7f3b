"""How a report says what was kept off the disk."""

from undertorch.steps.record.overlay.events import Told
from undertorch.steps.record.overlay.sentences import all_else, on_the_disk


def test_changes_of_the_disk_are_counted_by_file():
    """A file written ten times is one file."""
    told = {Told.WROTE: {"/a": 10, "/b": 1}, Told.REMOVED: {"/c": 1}, Told.RENAMED: {"/d": 2}}
    assert on_the_disk(told) == "2 files written, 1 renamed and 1 removed, in a throw-away copy of the disk."


def test_one_change_is_said_in_the_singular():
    assert on_the_disk({Told.WROTE: {"/a": 1}}) == "1 file written, in a throw-away copy of the disk."


def test_without_a_change_nothing_is_said():
    assert on_the_disk({Told.RAN: {"git": 1}}) is None


def test_the_first_names_stand_for_many():
    told = {Told.NOT_LOOKED_UP: {"a.org": 2, "b.org": 1, "c.org": 1, "d.org": 1, "e.org": 1}}
    (said,) = all_else(told)
    assert said.startswith("did not look up a.org (2×), b.org, c.org and 2 more:")


def test_a_long_command_stands_on_one_line():
    (said,) = all_else({Told.RAN: {"python -c import os\nprint(" + "1" * 300: 1}})
    assert "ran python -c import os print(111" in said
    assert len(said) < 200


def test_a_program_far_down_in_folders_is_told_by_its_name():
    (said,) = all_else({Told.RAN: {f"/{'lib/' * 20}bin/ptxas --gpu-name=sm_90a x.ptx": 2}})
    assert said.startswith("ran …/ptxas --gpu-name=sm_90a x.ptx (2×); what it wrote")
