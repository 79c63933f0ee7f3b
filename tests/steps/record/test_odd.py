"""What few scripts do and torch allows: it is seen, or one sentence says why not and what to do."""

import subprocess
import sys
from collections import Counter

import pytest

from undertorch import gpus
from undertorch.records import Phase
from undertorch.steps.record import NoStep, NotHandedOver, RecordError, ScriptFailed, record

SCRIPT = "odd.py"
pytestmark = pytest.mark.builds


def counted(recording, how):
    return Counter((op.phase, op.name) for op in recording(SCRIPT, how).ops)


@pytest.mark.parametrize("how", ["closes", "memory", "types", "flaky"])
def test_it_makes_no_difference_to_the_step(recording, how):
    """The script's own assertions hold as well. A step() that fails is none, one that calls that of the class below is
    one.
    """
    plain, odd = counted(recording, "plain"), counted(recording, how)
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE):
        assert {key: n for key, n in odd.items() if key[0] is phase and "empty" not in key[1]} == {
            key: n for key, n in plain.items() if key[0] is phase
        }


def test_a_class_of_tensors_goes_through_a_model(recording):
    extra = counted(recording, "subclass") - counted(recording, "plain")
    assert {name for _, name in extra} <= {"aten::mul", "aten::view", "aten::alias", "aten::detach"}


def test_what_a_wrapping_class_calls_is_seen_at_its_line(recording, line_of):
    (multiplied,) = (op for op in recording(SCRIPT, "wrapper").ops if op.name == "aten::mul")
    assert multiplied.chain[-1].line == line_of(SCRIPT, "# the wrapped op")


@pytest.mark.parametrize("how", ["lazy", "skip-init"])
def test_parameters_without_a_shape_or_without_memory_get_both(recording, how):
    """Moved before they have them; the shapes are asserted in the script."""
    names = counted(recording, how)
    assert names[Phase.FORWARD, "aten::addmm"] == (2 if how == "lazy" else 1)
    assert names[Phase.UPDATE, "aten::_foreach_add_"] == 1


@pytest.mark.parametrize("how", ["checkpoints", "saves-on-the-cpu"])
def test_every_op_has_a_line_where_torch_alone_calls_the_forward_again_or_packs(recording, how):
    """A checkpointed module of torch's has no line of the user's when it is run again: it has that of its first run."""
    ops = recording(SCRIPT, how).ops
    assert all(op.where is not None for op in ops)
    assert any(op.phase is Phase.RECOMPUTE for op in ops) == (how == "checkpoints")


def test_what_packs_a_saved_tensor_is_not_taken_for_the_op_that_saves_it(recording):
    """The backward of a linear layer belongs to its addmm, and not to the copies to the host before it."""
    ops = recording(SCRIPT, "saves-on-the-cpu").ops
    owners = {op.node: ops[op.forward].name for op in ops if op.node is not None and op.node != "AccumulateGrad"}
    assert owners["AddmmBackward0"] == "aten::addmm"
    assert owners["ReluBackward0"] == "aten::relu"


def test_forward_derivatives_are_computed_beside_the_values(recording):
    """Each linear layer multiplies once for the value and once for its derivative; the product with the derivative of
    the weights, which is zero, a GPU skips: that it is shown is said.
    """
    names = counted(recording, "jvp")
    assert (names[Phase.FORWARD, "aten::addmm"], names[Phase.FORWARD, "aten::mm"]) == (2, 2 + 2)
    assert any("ops are shown that a GPU skips" in note.what for note in recording(SCRIPT, "jvp").assumptions)


def test_a_sparse_gradient_is_recorded(recording):
    names = counted(recording, "sparse")
    assert names[Phase.BACKWARD, "aten::_sparse_coo_tensor_with_dims_and_tensors"] >= 1
    assert any(phase is Phase.UPDATE for phase, _ in names)


def test_flex_attention_without_compilation_is_its_own_formula(recording):
    """Scores, a mask, a softmax, a product; two products forward, five backward (one computes the scores anew)."""
    names = counted(recording, "flex")
    assert (names[Phase.FORWARD, "aten::bmm"], names[Phase.BACKWARD, "aten::bmm"]) == (2, 5)


def test_lengths_of_the_ctc_loss_are_taken_to_the_host(recording):
    """They stand in the op as numbers, as on a GPU; log alpha has two states a label and one more."""
    (loss,) = (op for op in recording(SCRIPT, "ctc").ops if op.name == "aten::_ctc_loss")
    assert (loss.arg("input_lengths"), loss.arg("target_lengths")) == ((7, 7, 7), (2, 2, 2))
    assert [result.shape for result in loss.results] == [(3,), (3, 7, 5)]


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("raises-base", ScriptFailed, "raised GeneratorExit; its traceback is above"),
        ("status-70", ScriptFailed, "ended with status 70 before step 2"),
        ("limits", NotHandedOver, "could not be written .*: let the script set no limit to the size of files"),
        ("second-gpu", ScriptFailed, "One GPU is seen, cuda:0"),
        ("too-large", ScriptFailed, "larger than the GPU's memory: make the batch smaller"),
        ("nested", ScriptFailed, "pad the batch"),
        ("no-rule", ScriptFailed, "That op cannot be seen without a GPU"),
        (
            "on-the-cpu",
            NoStep,
            r'trains on the CPU: .* no op ran on the GPU; put its model .*to\("cuda"\)',
        ),
    ],
)
def test_one_sentence_says_why_not_and_what_to_do(scripts, how, error, said):
    with pytest.raises(error, match=said):
        record(scripts / SCRIPT, (how,), gpus.find("H200"))


def test_a_loop_that_waits_for_a_value_ends_and_names_the_answer_it_needs(scripts, line_of, recording):
    line = line_of(SCRIPT, "# the loop")
    with pytest.raises(ScriptFailed, match=f"Pass --assume .*odd.py:{line}=VALUE"):
        record(scripts / SCRIPT, ("endless",), gpus.find("H200"))
    answered = recording(SCRIPT, "endless", assume=(f"{line}=false",))
    assert Counter(op.phase for op in answered.ops)[Phase.UPDATE] == 1


def test_a_folder_that_vanishes_is_said_to_have_vanished(tmp_path):
    """Somebody clears the temporary folder while a script runs."""
    from undertorch.steps.record.exchange import Request
    from undertorch.steps.record.spawn import _result

    gone = str(tmp_path / "gone" / "outcome")
    request = Request(
        script="train.py", arguments=(), gpu=gpus.find("H200"), step=2, assumed=(), guard="", outcome=gone
    )
    with pytest.raises(NotHandedOver, match="was removed or cannot be written: run it again, and set TMPDIR"):
        _result(request, 1)
    assert issubclass(NotHandedOver, RecordError)


def test_a_torch_without_a_name_for_tensors_on_several_devices_is_served():
    """torch 2.11 raises a RuntimeError, for which it has no class."""
    code = (
        "from torch._subclasses import fake_tensor\n"
        "vars(fake_tensor).pop('FakeTensorDeviceMismatchError', None)\n"
        "from undertorch.steps.record import fakes\n"
        "assert fakes.DEVICE_MISMATCH == ()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
