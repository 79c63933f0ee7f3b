"""`undertorch gpus --calibrate` as its user meets it."""

import json

import pytest
import torch

from gpus.calibrating.made_up import MadeUp
from undertorch.cli.main import run
from undertorch.gpus.calibrating import on_cuda
from undertorch.gpus.calibrating.kept import folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def gpu(monkeypatch):
    """In the place of the one that is not here."""
    made_up = MadeUp(
        rate=3e12, rates={"global copy": 4.27e12, "launch call": 2e-6}, broken={"l2 read": "it does not compile"}
    )
    monkeypatch.setattr(on_cuda, "OnCuda", lambda: made_up)
    return made_up


def test_the_table_has_what_was_measured_beside_the_sheet_and_says_what_was_kept(gpu, capsys):
    """4.27 of 4.8 TB/s are 89.0 %."""
    assert run(["gpus", "--calibrate"]) == 0
    out = capsys.readouterr().out
    (copy,) = [row for row in out.splitlines() if row.strip().startswith("global copy")]
    assert copy.split()[2:11] == ["4.27", "TB/s", "8.0", "%", "4.8", "TB/s", "89.0", "%", "1"]
    assert max(map(len, (row for row in out.splitlines() if "/" not in row))) <= 80
    assert "launch call" in out
    assert "2 µs" in out
    assert "l2 read, of 8.25 MiB: it does not compile." in out
    (kept,) = folder().glob("*.json")
    assert f"Kept in {kept}\n" in out
    (sheet,) = folder().glob("*.toml")
    assert run(["gpus", str(sheet)]) == 0


def test_afterwards_gpus_shows_it_beside_the_sheet(gpu, capsys):
    run(["gpus", "--calibrate"])
    capsys.readouterr()
    assert run(["gpus", "H200"]) == 0
    assert "Measured on this machine" in capsys.readouterr().out
    assert run(["gpus", "L4"]) == 0
    assert "Measured on this machine" not in capsys.readouterr().out


def test_json_has_it_too(gpu, capsysbinary):
    run(["gpus", "--calibrate"])
    capsysbinary.readouterr()
    run(["gpus", "H200", "--json"])
    said = json.loads(capsysbinary.readouterr().out)["calibration"]
    assert {one["name"]: one["value"] for one in said["ceilings"]}["global copy"] == pytest.approx(4.27e12)
    assert {one["origin"] for one in said["ceilings"]} == {"measured"}
    run(["gpus", "L4", "--json"])
    assert json.loads(capsysbinary.readouterr().out)["calibration"] is None


def test_json_goes_to_the_file_that_is_named(gpu, tmp_path, capsys):
    file = tmp_path / "calibration.json"
    assert run(["gpus", "--calibrate", "--json", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(file.read_text())["calibration"]["gpu_name"] == "NVIDIA H200"


def test_ctrl_c_keeps_nothing(gpu, monkeypatch, capsys, tmp_path):
    def interrupted(probe):
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu.__class__, "seconds", lambda *_: interrupted(None))
    assert run(["gpus", "--calibrate", "--json", str(tmp_path / "c.json")]) == 130
    assert not folder().exists()
    assert not (tmp_path / "c.json").exists()


def test_where_nothing_can_be_measured_it_is_one_sentence(gpu, monkeypatch, capsys):
    def refused(self, probe):
        raise on_cuda.ProbeFailed("out of memory")

    monkeypatch.setattr(gpu.__class__, "seconds", refused)
    assert run(["gpus", "--calibrate"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "undertorch: Nothing of the NVIDIA H200 could be measured, and nothing was kept: out of memory.\n"
    assert not folder().exists()


@pytest.mark.parametrize(
    ("arguments", "said"), [(["H200"], "takes no name"), (["--json", "no/such/folder/c.json"], "there is no folder")]
)
def test_wrong_use_is_one_sentence_before_anything_is_measured(gpu, arguments, said, capsys):
    assert run(["gpus", "--calibrate", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert gpu.ran == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is said where there is no GPU")
def test_without_cuda_it_is_one_sentence(capsys):
    assert run(["gpus", "--calibrate"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("undertorch: --calibrate measures the GPU of this machine, and torch")
    assert err.count("\n") == 1


def test_a_cache_that_cannot_be_written_costs_no_figures(gpu, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run(["gpus", "--calibrate"]) == 0
    out, err = capsys.readouterr()
    assert "global copy" in out
    assert "is not kept" in err
