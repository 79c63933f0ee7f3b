"""The contract of `undertorch see`: what reaches the function that does the work, what is written where, exit statuses.

The function that runs the script is replaced by one that answers a Step written by hand.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from steps_by_hand import STEP
from undertorch.cli.main import run
from undertorch.records import Gpu
from undertorch.records.files import read_steps
from undertorch.steps import measure
from undertorch.steps import see as steps
from undertorch.steps.record.errors import RecordError


@dataclass
class Seen:
    """Stands in for steps.see.see: keeps what it was asked, answers STEP or raises."""

    asked: list[tuple] = field(default_factory=list)
    raises: BaseException | None = None

    def see(self, script, arguments, gpu, step=2, assume=None, progress=None):
        self.asked.append((script, list(arguments), gpu, step, dict(assume or {})))
        if self.raises is not None:
            raise self.raises
        return STEP


@pytest.fixture
def seen(monkeypatch):
    stand_in = Seen()
    monkeypatch.setattr(steps, "see", stand_in.see)
    return stand_in


def one_sentence(text):
    """Exactly one row on standard error, which says who speaks and ends as a sentence does."""
    return text.startswith("undertorch: ") and text.endswith(".\n") and text.count("\n") == 1


def test_the_scripts_own_arguments_pass_untouched_whatever_they_look_like(seen):
    arguments = ["--batch", "8", "--gpu", "A100", "--help", "--json=x", "--", "-v", "", "a b", "--step"]
    assert run(["see", "--gpu", "H200", "train.py", *arguments]) == 0
    ((script, passed, *_),) = seen.asked
    assert script == Path("train.py")
    assert passed == arguments


@pytest.mark.parametrize(("given", "speed"), [([], None), (["--host-speed", "2.5"], 2.5)])
def test_the_speed_of_the_host_goes_with_the_gpu(seen, given, speed, capsys):
    assert run(["see", "--gpu", "H200", *given, "train.py"]) == 0
    assert seen.asked[0][2].host_speed == speed
    assert seen.asked[0][3] is None, "no step is named"
    capsys.readouterr()


@pytest.mark.parametrize("speed", ["0", "-1", "1000", "fast"])
def test_a_host_of_no_speed_is_refused(seen, speed, capsys):
    assert run(["see", "--gpu", "H200", "--host-speed", speed, "train.py"]) == 2
    assert one_sentence(capsys.readouterr().err)
    assert not seen.asked


def test_a_measured_step_has_its_own_host(monkeypatch, capsys):
    monkeypatch.setattr(measure, "has_cuda", lambda: True)
    assert run(["see", "--host-speed", "2", "train.py"]) == 2
    assert "--host-speed is for a predicted step" in capsys.readouterr().err


@pytest.mark.usefixtures("seen")
def test_a_gpu_that_is_named_behind_the_script_is_spoken_of_where_none_is_named_before(monkeypatch, capsys):
    monkeypatch.setattr(measure, "has_cuda", lambda: False)
    assert run(["see", "train.py", "--gpu", "A100"]) == 0
    said = capsys.readouterr().err
    assert "predicted for the H200" in said
    assert "it got --gpu: put undertorch's options before the script" in said


def test_options_reach_the_work(seen):
    assert (
        run(["see", "--gpu", "h200", "--step", "5", "--assume", "31=true", "--assume", "a.py:7=0.5", "train.py"]) == 0
    )
    ((_, _, gpu, step, assume),) = seen.asked
    assert isinstance(gpu, Gpu)
    assert gpu.name == "H200"
    assert step == 5
    assert assume == {"31": "true", "a.py:7": "0.5"}


def test_without_a_gpu_named_it_predicts_for_the_h200_and_says_so(seen, capsys):
    assert run(["see", "train.py"]) == 0
    assert seen.asked[0][2].name == "H200"
    said = capsys.readouterr().err
    assert "predicted for the H200" in said
    assert one_sentence(said)


def test_with_a_gpu_named_nothing_is_said_beside_the_report(seen, capsys):
    assert run(["see", "--gpu", "H200", "train.py"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "optimizer.step()" in out


def test_json_is_the_step_that_was_seen(seen, tmp_path):
    path = tmp_path / "step.json"
    assert run(["see", "--gpu", "H200", "--json", str(path), "train.py"]) == 0
    assert read_steps(path) == (STEP,)
    assert list(tmp_path.iterdir()) == [path]


def test_json_to_standard_output_is_json_and_nothing_else(seen, capfd):
    assert run(["see", "--gpu", "H200", "--json", "-", "train.py"]) == 0
    assert json.loads(capfd.readouterr().out)["busy_us"] == 1890


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--gpu", "H2OO"], id="a GPU that nobody knows"),
        pytest.param(["--gpu", "nowhere.toml"], id="a sheet that is not there"),
        pytest.param(["--json", "{tmp}/nowhere/step.json"], id="a folder that is not there"),
        pytest.param(["--json", "{tmp}"], id="a folder in place of a file"),
        pytest.param(["--json", "{tmp}/file/step.json"], id="a file in place of a folder"),
        pytest.param(["--json", "/proc/step.json"], id="a folder that takes no files"),
        pytest.param(["--step", "0"], id="steps count from 1"),
        pytest.param(["--step", "two"], id="a step that is no number"),
        pytest.param(["--assume", "31"], id="an assumption without a value"),
        pytest.param(["--assume", "3=true", "--assume", "3=false"], id="two values for a line"),
        pytest.param(["--gpuu", "H200"], id="an option that is none"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2_before_the_script_runs(seen, capsys, tmp_path, options):
    (tmp_path / "file").write_text("")
    options = [option.format(tmp=tmp_path) for option in options]
    if "--gpu" not in options:
        options = ["--gpu", "H200", *options]
    assert run(["see", *options, "train.py"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert one_sentence(err)
    assert seen.asked == []


def test_a_folder_that_is_not_there_is_named(seen, capsys, tmp_path):
    assert run(["see", "--gpu", "H200", "--json", str(tmp_path / "nowhere" / "step.json"), "train.py"]) == 2
    assert f"there is no folder {tmp_path / 'nowhere'}; make it first." in capsys.readouterr().err


def test_a_missing_script_is_said_by_the_real_recorder(capsys):
    assert run(["see", "--gpu", "H200", "no_such_script.py"]) == 2
    err = capsys.readouterr().err
    assert one_sentence(err)
    assert "no_such_script.py" in err


@pytest.mark.parametrize("assumption", ["x=true", "0=true", "31=", "31=perhaps"])
def test_an_assumption_that_makes_no_sense_is_said_by_the_real_recorder(assumption, capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    assert run(["see", "--gpu", "H200", "--assume", assumption, str(script)]) == 2
    err = capsys.readouterr().err
    assert one_sentence(err)
    assert f"--assume {assumption}" in err


def test_no_script_at_all(seen, capsys):
    assert run(["see"]) == 2
    err = capsys.readouterr().err
    assert one_sentence(err)
    assert "SCRIPT" in err


def test_what_the_recorder_refuses_is_its_sentence_and_status_2(seen, capsys, tmp_path):
    seen.raises = RecordError("train.py ended without a training step; give it more steps.")
    assert run(["see", "--gpu", "H200", "--json", str(tmp_path / "step.json"), "train.py"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "undertorch: train.py ended without a training step; give it more steps.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_undertorch_is_status_3_and_says_where_its_traceback_is(seen, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("UNDERTORCH_DEBUG", raising=False)
    seen.raises = ZeroDivisionError("nothing\nto divide by")
    assert run(["see", "--gpu", "H200", "train.py"]) == 3
    err = capsys.readouterr().err
    assert one_sentence(err)
    assert "ZeroDivisionError: nothing to divide by" in err
    (trace,) = tmp_path.iterdir()
    assert str(trace) in err
    assert "Traceback (most recent call last)" in trace.read_text()
    assert "report" in err


def test_with_undertorch_debug_the_traceback_is_printed(seen, capsys, monkeypatch):
    monkeypatch.setenv("UNDERTORCH_DEBUG", "1")
    seen.raises = ZeroDivisionError("nothing")
    assert run(["see", "--gpu", "H200", "train.py"]) == 3
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_ctrl_c_is_status_130_and_one_row(seen, capsys):
    seen.raises = KeyboardInterrupt()
    assert run(["see", "--gpu", "H200", "train.py"]) == 130
    assert capsys.readouterr().err == "undertorch: interrupted.\n"


def test_a_disk_that_is_full_when_the_work_is_done_is_said_after_the_report(seen, capsys, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("undertorch.records.files.write_steps", full)
    assert run(["see", "--gpu", "H200", "--json", str(tmp_path / "step.json"), "train.py"]) == 2
    out, err = capsys.readouterr()
    assert "optimizer.step()" in out
    assert one_sentence(err)
    assert "No space left on device" in err


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from steps_by_hand import STEP
from undertorch.steps import see as steps
def see(script, arguments, gpu, step=2, assume=None, progress=None):
    if progress:
        progress("a stage")
    return STEP
steps.see = see
from undertorch.cli.main import main
main()
"""


def program(*arguments):
    """A command line that runs `undertorch` in a process of its own, with a stand-in for the work."""
    return [sys.executable, "-c", PROGRAM.format(tests=str(Path(__file__).parents[1])), *arguments]


def test_the_program_ends_with_the_status():
    command = program("see", "--gpu", "H200", "--json", "/nowhere/at/all.json", "x.py")
    assert subprocess.run(command, check=False, capture_output=True).returncode == 2
    assert subprocess.run(program("see", "--gpu", "H200", "x.py"), check=False, capture_output=True).returncode == 0


def test_a_reader_that_leaves_early_gets_no_traceback():
    """As `undertorch see … | head -1` does. The reader is gone before the report begins."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(program("see", "--gpu", "H200", "x.py"), check=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 0


def test_progress_is_shown_on_a_terminal_only():
    """Standard error is a pseudo-terminal here, and a pipe there."""
    controller, terminal = os.openpty()
    subprocess.run(program("see", "--gpu", "H200", "x.py"), check=True, stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    assert b"a stage" in os.read(controller, 10_000)
    os.close(controller)
    done = subprocess.run(program("see", "--gpu", "H200", "x.py"), check=True, capture_output=True)
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout


def test_an_option_after_the_script_is_pointed_out_where_the_script_refuses_it(seen, capsys):
    seen.raises = RecordError("train.py ended itself with status 2 before its training step was recorded.")
    assert run(["see", "--gpu", "H200", "train.py", "--json=x.json"]) == 2
    said = capsys.readouterr().err
    assert one_sentence(said.replace("recorded. ", "recorded; "))
    assert "it got --json=x.json: put undertorch's options before the script." in said


def test_a_scripts_own_options_are_not_remarked_on(seen, capsys):
    seen.raises = RecordError("train.py raised ValueError; its traceback is above.")
    assert run(["see", "--gpu", "H200", "train.py", "--steps", "3", "--jsonl"]) == 2
    assert capsys.readouterr().err == "undertorch: train.py raised ValueError; its traceback is above.\n"


def test_another_step_than_the_one_asked_for_is_named(seen, capsys):
    assert run(["see", "--gpu", "H200", "--step", "50", "train.py"]) == 0
    shown = STEP.environment.step
    assert f"there is no step 50: the script ended after step {shown}, which is shown." in capsys.readouterr().err
