"""`undertorch see train.py` on a machine with a GPU: in place of the run there is what it would have handed over."""

import json
from pathlib import Path

import pytest

from steps.measure.by_hand import Written, kept, mark
from undertorch.cli.main import run
from undertorch.records.files import read_steps
from undertorch.steps import measure
from undertorch.steps.measure import ranks, spawn
from undertorch.steps.record.errors import ScriptFailed

KERNEL = "void at::native::vectorized_elementwise_kernel<4, add>"


def hand_over(folder: Path, collective_ends: float | None = None, **more) -> None:
    """A step with one kernel at line 31; of several ranks, a collective beside it."""
    written = Written()
    written.step(1, 0, 1000)
    written.call("undertorch#0", 10, 20)
    written.call("aten::add", 11, 19)
    written.launch(12, (KERNEL, 100, 110))
    if collective_ends is not None:
        written.launch(30, ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 120, collective_ends))
    kept(folder, written, [mark(31)], sources={"train.py": "\n" * 30 + "    x = x + 1\n"}, **more)


@pytest.fixture
def script(tmp_path, monkeypatch) -> Path:
    """A script, on a machine with a GPU."""
    monkeypatch.setattr(measure, "has_cuda", lambda: True)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("raise SystemExit('nobody runs it')\n")
    return path


def measured_as(monkeypatch, **more) -> None:
    def ran(script, arguments, folder, **_):
        hand_over(folder, **more)
        from undertorch.steps.measure import exchange

        return exchange.read(folder)

    monkeypatch.setattr(spawn, "run_measured", ran)


def test_the_report_says_that_the_script_ran_for_real(script, monkeypatch, capsys):
    measured_as(monkeypatch)
    assert run(["see", str(script)]) == 0
    out, err = capsys.readouterr()
    assert "times measured" in out
    assert "x = x + 1" in out
    assert "the script runs for real on this machine's GPU, and what it writes is written" in err


def test_json_and_page_are_written(script, monkeypatch, tmp_path):
    measured_as(monkeypatch)
    page, file = tmp_path / "step.html", tmp_path / "step.json"
    assert run(["see", "--page", str(page), "--json", str(file), str(script)]) == 0
    (step,) = read_steps(file)
    assert step.time_origin == "measured"
    assert [(op.where.file, op.where.line) for op in step.ops] == [("train.py", 31)]
    assert "train.py" in page.read_text()


def test_an_answer_is_for_predicted_steps(script, monkeypatch, capsys):
    measured_as(monkeypatch)
    assert run(["see", "--assume", "31=true", str(script)]) == 2
    assert "here the script runs for real" in capsys.readouterr().err


def test_a_script_that_fails_is_one_sentence(script, monkeypatch, capsys):
    def fails(*_, **__):
        raise ScriptFailed("train.py raised ValueError; its traceback is above.")

    monkeypatch.setattr(spawn, "run_measured", fails)
    assert run(["see", str(script)]) == 2
    assert "train.py raised ValueError; its traceback is above." in capsys.readouterr().err


def test_the_first_rank_shows_what_all_measured(script, monkeypatch, tmp_path, capsys):
    """Rank 1's collective begins with rank 0's and ends with it: both are drawn, in one report."""
    monkeypatch.setattr(ranks.tempfile, "gettempdir", lambda: str(tmp_path))
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for rank in (1, 0):
        measured_as(monkeypatch, rank=rank, world_size=2, collective_ends=150)
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        file = tmp_path / f"{rank}.json"
        assert run(["see", "--json", str(file), str(script)]) == 0
        assert bool(capsys.readouterr().out) is (rank == 0)
    assert not (tmp_path / "1.json").exists()
    assert len(json.loads((tmp_path / "0.json").read_text())) == 2


def test_a_rank_that_failed_is_named(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ranks.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")

    def fails(*_, **__):
        raise ScriptFailed("train.py raised ValueError; its traceback is above.")

    monkeypatch.setattr(spawn, "run_measured", fails)
    assert run(["see", str(script)]) == 2
    measured_as(monkeypatch, rank=0, world_size=2)
    monkeypatch.setenv("RANK", "0")
    assert run(["see", str(script)]) == 2
    assert "rank 1: train.py raised ValueError" in capsys.readouterr().err
