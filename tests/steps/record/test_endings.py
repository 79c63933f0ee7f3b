"""How a script ends, and what undertorch says then."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.records import Phase
from undertorch.steps.record import BadAssumption, MissingScript, NoStep, RecordError, ScriptFailed, record

SCRIPT = "endings.py"


def run(scripts, *arguments, **named):
    return record(scripts / SCRIPT, arguments, gpus.find("H200"), **named)


def test_a_script_that_raises_shows_its_own_traceback_alone(scripts, capfd):
    with pytest.raises(ScriptFailed, match="raised ValueError"):
        run(scripts, "raises")
    shown = capfd.readouterr().err
    assert "ValueError: the learning rate is negative" in shown
    assert "in fail" in shown
    assert "undertorch" not in shown.replace(str(scripts), "")


def test_an_error_inside_an_op_shows_the_line_that_called_it(scripts, capfd, line_of):
    with pytest.raises(ScriptFailed, match="raised RuntimeError"):
        run(scripts, "mismatch")
    shown = capfd.readouterr().err
    assert f'endings.py", line {line_of(SCRIPT, "@ torch.ones")}' in shown
    assert "undertorch/steps" not in shown


def test_an_error_after_values_that_were_made_up_says_so_with_the_place(tmp_path):
    """topk of what is not computed: both indices are 1."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        'y = torch.randn(8, 64, device="cuda", requires_grad=True)\n'
        "top = y.topk(2).indices[0].tolist()\n"
        "assert len(set(top)) == 2\n"
    )
    with pytest.raises(ScriptFailed, match=r"made up, lastly at \S*train.py:3 .*--assume \S*train.py:3=VALUE"):
        record(script, (), gpus.find("H200"))


def test_inference_on_the_gpu_is_not_told_to_go_there(tmp_path):
    script = tmp_path / "run.py"
    script.write_text('import torch\nx = torch.randn(8, 64, device="cuda") @ torch.randn(64, 64, device="cuda")\n')
    with pytest.raises(NoStep, match="computes on the GPU and trains nothing"):
        record(script, (), gpus.find("H200"))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("devices", "Expected all tensors to be on the same device, but found at least two devices"),
        ("convolved", "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"),
    ],
)
def test_tensors_on_two_devices_raise_what_a_gpu_raises(scripts, capfd, how, words):
    """ATen's words, and no class of torch's fake tensors."""
    with pytest.raises(ScriptFailed, match="raised RuntimeError"):
        run(scripts, how)
    shown = capfd.readouterr().err
    assert f"\nRuntimeError: {words}" in shown
    assert "Fake" not in shown


def test_a_profiler_profiles_the_host_and_warns_of_nothing(scripts, capfd):
    """torch would say at every op that it cannot record a CUDA event."""
    recorded = run(scripts, "profiles")
    assert "CUDA event" not in capfd.readouterr().err
    assert any("profiler" in assumption.what for assumption in recorded.assumptions)


def test_a_script_that_ends_itself_says_its_status(scripts):
    with pytest.raises(ScriptFailed, match="ended itself with status 3"):
        run(scripts, "exits")


def test_a_script_without_an_optimizers_step_is_said_to_have_none(scripts):
    with pytest.raises(NoStep, match=r"without calling the step\(\) of an optimizer"):
        run(scripts, "no-step")


def test_a_missing_script_is_named(tmp_path):
    with pytest.raises(MissingScript, match="nowhere"):
        record(tmp_path / "nowhere.py", (), gpus.find("H200"))


def test_steps_are_counted_from_one(scripts):
    with pytest.raises(RecordError, match="no step 0"):
        run(scripts, "ok", step=0)


@pytest.mark.parametrize(("place", "value"), [("twelve", "true"), ("0", "true"), ("12", "maybe"), ("a.py:x", "1")])
def test_an_answer_that_makes_no_sense_is_refused(scripts, place, value):
    with pytest.raises(BadAssumption, match=f"{place}={value}"):
        run(scripts, "ok", assume={place: value})


@pytest.mark.parametrize("how", ["one-step", "quits"])
def test_a_script_of_one_step_shows_that_from_its_first_forward(recording, how):
    """No optimizer state is there yet, and moving the model is no part of it."""
    only = recording(SCRIPT, how)
    assert only.environment.step == 1
    assert only.ops[0].phase is Phase.FORWARD
    assert "aten::_to_copy" not in {op.name for op in only.ops}
    assert any("its only optimizer step" in assumption.what for assumption in only.assumptions)


def test_a_later_step_can_be_asked_for(recording):
    """The third is like the second, so the counting shows in the environment alone."""
    second, third = recording(SCRIPT, "ok"), recording(SCRIPT, "ok", step=3)
    assert (second.environment.step, third.environment.step) == (2, 3)
    assert [op.name for op in second.ops] == [op.name for op in third.ops]


def test_a_step_that_never_comes_is_replaced_by_the_last_one(recording):
    last = recording(SCRIPT, "ok", step=9)
    assert last.environment.step == 4
    said = "ended after 4 optimizer steps: there is no step 9 (--step takes 1 to 4) and step 4 is shown."
    assert any(said in assumption.what for assumption in last.assumptions)


def test_what_the_script_prints_goes_to_standard_error_and_no_finally_runs(scripts, capfd):
    run(scripts, "ok")
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "to standard output" in shown.err
    assert "to standard error" in shown.err
    assert "finally ran" not in shown.err


WAITING = """
from pathlib import Path
from undertorch import gpus
from undertorch.steps.record import record
record(Path({script!r}), ("waits",), gpus.find("H200"))
"""


def test_ctrl_c_ends_the_scripts_process_too(scripts, tmp_path):
    """The signal goes to the parent alone here; a terminal sends it to both."""
    code = WAITING.format(script=str(scripts / SCRIPT))
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    try:
        while b"waiting" not in parent.stderr.readline():
            assert parent.poll() is None
        (child,) = children(parent.pid)
        parent.send_signal(signal.SIGINT)
        shown = parent.stderr.read()
    finally:
        parent.kill()
        parent.wait()
    assert b"KeyboardInterrupt" in shown
    assert not Path(f"/proc/{child}").exists()
    assert list(tmp_path.glob("undertorch*")) == []


def children(process):
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
