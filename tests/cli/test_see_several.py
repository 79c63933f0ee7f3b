"""`undertorch see --gpu A,B`: a run for each, one table, the first in full, and no failure that goes unsaid."""

import json
from dataclasses import replace

import pytest

from steps_by_hand import STEP
from undertorch.cli.main import run
from undertorch.records.files import read_steps
from undertorch.steps import see as steps
from undertorch.steps.record.errors import RecordError


@pytest.fixture
def asked(monkeypatch):
    """Stands in for the work: answers STEP on each GPU, and fails on the T4."""
    names = []

    def see(script, arguments, gpu, step=2, assume=None, progress=None):
        names.append(gpu.name)
        if gpu.name == "T4":
            raise RecordError("train.py raised ValueError; its traceback is above.")
        return replace(STEP, gpu=gpu.name)

    monkeypatch.setattr(steps, "see", see)
    return names


def test_each_gpu_runs_once_and_the_table_names_them_in_order(asked, capsys):
    assert run(["see", "--gpu", "L4,h200, RTX 4090,L4", "train.py"]) == 0
    out, err = capsys.readouterr()
    assert sorted(asked) == ["H200", "L4", "RTX4090"]
    table = out[: out.index("train.py --batch 32 · step 2")]
    rows = [row.split()[0] for row in table.splitlines() if " ms " in row]
    assert rows == ["L4", "H200", "RTX4090"]
    assert err == ""


def test_the_first_is_shown_in_full_and_how_to_see_the_others_is_said(asked, capsys):
    assert run(["see", "--gpu", "L4,H200", "train.py"]) == 0
    out = capsys.readouterr().out
    assert "step 2 · L4" in out
    assert "step 2 · H200" not in out
    assert "This was the L4, line by line; --gpu with one name shows another: H200." in " ".join(out.split())


def test_one_that_fails_is_named_the_others_are_shown_and_the_status_is_2(asked, capsys):
    assert run(["see", "--gpu", "T4,H200", "train.py"]) == 2
    out, err = capsys.readouterr()
    assert "step 2 · H200" in out
    assert "T4" in out
    assert err == "undertorch: T4: train.py raised ValueError; its traceback is above.\n"


def test_where_all_fail_for_one_reason_it_is_said_once(asked, capsys, monkeypatch):
    def fails(script, arguments, gpu, step=2, assume=None, progress=None):
        raise RecordError("no_such.py: there is no such file; name the training script to run.")

    monkeypatch.setattr(steps, "see", fails)
    assert run(["see", "--gpu", "L4,H200", "no_such.py"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "undertorch: no_such.py: there is no such file; name the training script to run.\n"


@pytest.mark.parametrize(("gpu", "kept"), [("L4,H200", ["L4", "H200"]), ("T4,H200", ["H200"])])
def test_json_is_a_list_whatever_is_left(asked, tmp_path, gpu, kept):
    path = tmp_path / "steps.json"
    run(["see", "--gpu", gpu, "--json", str(path), "train.py"])
    assert [step["gpu"] for step in json.loads(path.read_bytes())] == kept
    assert [step.gpu for step in read_steps(path)] == kept


def test_json_to_standard_output_is_json_and_nothing_else(asked, capfd):
    assert run(["see", "--gpu", "L4,H200", "--json", "-", "train.py"]) == 0
    assert len(json.loads(capfd.readouterr().out)) == 2


@pytest.mark.parametrize("gpu", ["H200,H2OO", "H200,", ",H200", "H200,nowhere.toml"])
def test_a_name_that_nobody_knows_is_said_before_the_script_runs(asked, capsys, gpu):
    assert run(["see", "--gpu", gpu, "train.py"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("undertorch: ")
    assert err.count("\n") == 1
    assert asked == []


def test_what_several_gpus_wrote_can_be_compared(asked, tmp_path):
    path = tmp_path / "steps.json"
    run(["see", "--gpu", "L4,H200", "--json", str(path), "train.py"])
    assert run(["compare", str(path), str(path), "--fail-on", "step+0%,memory+0%"]) == 0
