"""What a script asks of tensors that have no values is answered, and said."""

import pytest

from undertorch.gpus import find
from undertorch.records import Phase
from undertorch.steps.record import ScriptFailed, record

SCRIPT = "values.py"


@pytest.fixture(scope="module")
def asked(recording):
    return recording(SCRIPT)


def assumed_at(recording, line):
    return [assumption for assumption in recording.assumptions if assumption.where.line == line]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("if loss > 2.0:", "a tensor's truth is asked for"),
        ("value = loss.item()", "a tensor's value is asked for"),
        ("loss {loss:.3f}", "1.0 was answered"),
        ("argmax(-1).tolist()", "6 values are asked for by tolist()"),
        (".cpu().numpy()", "24 values are asked for by numpy()"),
        ("kept = out[out > 0]", "all 24 were taken"),
        ("torch.nonzero(out[:, 0])", "all 6 were taken"),
        ("totals[0] = loss", "copied into a tensor of the host"),
    ],
)
def test_an_answer_is_listed_at_its_line(asked, line_of, text, part):
    (assumption,) = assumed_at(asked, line_of(SCRIPT, text))
    assert part in assumption.what
    assert "without a GPU no values are computed" in assumption.what


def test_nothing_is_nan_and_everything_finite(asked, line_of):
    """Both arms of that `if` are answered so that the script goes on; it raises otherwise."""
    answers = {
        assumption.what.split("; ")[1].split()[0] for assumption in assumed_at(asked, line_of(SCRIPT, "isnan(loss)"))
    }
    assert answers == {"true", "false"}


def test_a_number_that_is_known_is_no_assumption(asked, line_of):
    assert assumed_at(asked, line_of(SCRIPT, "zeros[0].item()")) == []
    assert assumed_at(asked, line_of(SCRIPT, "torch.tensor(2.5")) == []


def test_the_sentence_says_how_to_see_the_other_arm(asked, line_of, recording):
    """And doing so shows it: sin is an op of that arm alone."""
    line = line_of(SCRIPT, "if loss > 2.0:")
    (assumption,) = assumed_at(asked, line)
    assert f"--assume {line}=true" in assumption.what
    other = recording(SCRIPT, assume=(f"{line}=true",))
    inside = line_of(SCRIPT, "loss = loss * torch.sin(loss)")
    assert [op.name for op in other.ops if op.where.line == inside and op.phase is Phase.FORWARD] == [
        "aten::sin",
        "aten::mul",
    ]
    assert "aten::sin" not in {op.name for op in asked.ops}


def test_asking_waits_for_the_gpu_and_is_an_op_that_says_what_was_assumed(asked, line_of):
    (op,) = (op for op in asked.ops if op.where.line == line_of(SCRIPT, "value = loss.item()"))
    assert op.name == "aten::_local_scalar_dense"
    assert op.phase is Phase.OTHER
    (sentence,) = op.assumed
    assert "1.0 was answered" in sentence


def test_a_number_that_is_made_up_is_said_to_be(asked, line_of, recording):
    """The user's own answer is not."""
    line = line_of(SCRIPT, "value = loss.item()")
    (assumption,) = assumed_at(asked, line)
    assert "1.0 was answered, which is made up." in assumption.what
    (given,) = assumed_at(recording(SCRIPT, assume=(f"{line}=7",)), line)
    assert "; 7.0 was answered. " in given.what


def test_one_value_is_spoken_of_as_one(asked, line_of):
    (assumption,) = assumed_at(asked, line_of(SCRIPT, "argmax(0)[:1].tolist()"))
    assert assumption.what.startswith("a value is asked for by tolist(), and without a GPU no values are computed;")


def test_an_answer_that_nobody_asked_for_is_said(recording):
    unused = recording("endings.py", "ok", assume=("1=true",))
    assert any("endings.py:1" in assumption.what for assumption in unused.assumptions)


def test_the_scaler_takes_the_gradients_for_finite_and_steps(recording, line_of):
    ops = recording("scaler.py").ops
    line = line_of("scaler.py", "scaler.step(")
    assert any(op.phase is Phase.UPDATE and op.where.line == line for op in ops)
    (assumption,) = assumed_at(recording("scaler.py"), line)
    assert "a tensor's value is asked for" in assumption.what
    assert "0.0 was answered" in assumption.what


def test_a_shape_error_shows_the_scripts_traceback_and_no_log(tmp_path, capfd):
    """torch logs its own traceback of a failed shape rule, 35 lines of it, before the script's."""
    script = tmp_path / "train.py"
    script.write_text('import torch\ntorch.randn(3, device="cuda") + torch.randn(4, device="cuda")\n')
    with pytest.raises(ScriptFailed, match="raised RuntimeError"):
        record(script, (), find("H200"))
    err = capfd.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.count("Traceback") == 1
    assert f'File "{script}", line 2, in <module>' in err
    assert "RuntimeError: " in err


@pytest.mark.parametrize("layer", [0, 1], ids=["compared", "one_hot"])
def test_tokens_are_taken_to_spread_evenly_over_experts(recording, layer):
    """96 tokens, each sent to 2 of 8 experts: 24 for each."""
    ops = recording("experts.py").ops
    linears = [op for op in ops if op.name == "aten::addmm" and op.module.startswith(f"{layer}.experts.")]
    assert len(linears) == 8 * 2
    assert {op.results[0].shape[0] for op in linears} == {96 * 2 // 8}
