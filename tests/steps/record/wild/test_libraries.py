"""Models and loops of libraries that stand on torch. `make test-wild` installs these (requirements-wild.txt)."""

from collections import Counter

import pytest

from undertorch.costs import kernels
from undertorch.gpus import find
from undertorch.records import Phase
from undertorch.steps.record import ScriptFailed

pytestmark = pytest.mark.wild
H200 = find("H200")


def phases(recorded):
    return Counter(op.phase for op in recorded.ops)


def without_cost(recorded):
    return {op.name for op in recorded.ops if kernels(op, H200) is None}


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_hugging_face_model_is_made_from_its_config(recording, kind):
    """Two layers each; the attention of torch, forward and backward; the lines are those of the model's source."""
    recorded = recording("wild/hugging_face.py", kind)
    attention = [op for op in recorded.ops if "scaled_dot_product" in op.name and op.phase is Phase.FORWARD]
    assert len(attention) == 2
    assert all(f"/models/{kind}/" in "".join(frame.file for frame in op.chain) for op in attention)
    assert without_cost(recorded) == set()
    assert phases(recorded)[Phase.RECOMPUTE] > 0 if kind == "gpt2" else Phase.RECOMPUTE not in phases(recorded)
    assert recorded.samples == 4


def test_the_hugging_face_trainer_accumulates_clips_and_updates(recording):
    recorded = recording("wild/hugging_face_trainer.py")
    found = phases(recorded)
    assert all(found[phase] for phase in (Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.ACCUMULATE, Phase.CLIP))
    assert {op.microbatch for op in recorded.ops} == {None, 0, 1}
    assert recorded.samples == 2 * 4
    assert without_cost(recorded) == set()


def test_weights_that_are_not_there_are_told_to_be_needless(recording):
    with pytest.raises(ScriptFailed, match=r"the values of weights are not needed.*from_config"):
        recording("wild/hugging_face_weights.py")


def test_accelerate_brings_batches_accumulates_and_clips(recording, line_of):
    recorded = recording("wild/accelerated.py")
    assert {op.microbatch for op in recorded.ops} == {None, 0, 1}
    assert recorded.samples == 2 * 8
    loss = line_of("wild/accelerated.py", "loss = F.cross_entropy(model(inputs), targets)")
    forward = [op for op in recorded.ops if op.phase is Phase.FORWARD and op.name == "aten::addmm"]
    assert {op.where.line for op in forward} == {loss}
    assert {tensor.dtype for op in forward for tensor in op.results} == {"bfloat16"}
    assert phases(recorded)[Phase.CLIP] > 0


def test_a_step_of_lightnings_loop_runs_in_the_optimizers_closure(recording, line_of):
    recorded = recording("wild/lightning_loop.py")
    training = line_of("wild/lightning_loop.py", "loss = F.cross_entropy(self.layers(inputs), targets)")
    forward = [op for op in recorded.ops if op.where.line == training and op.where.file.endswith("lightning_loop.py")]
    assert {op.phase for op in forward} == {Phase.FORWARD, Phase.LOSS, Phase.BACKWARD}
    found = phases(recorded)
    assert found[Phase.UPDATE] > 0
    assert found[Phase.CLIP] > 0
    assert recorded.samples == 8


def test_timms_model_optimizer_and_average_of_weights(recording):
    pytest.importorskip("torchvision", reason="timm stands on torchvision", exc_type=(ImportError, RuntimeError))
    recorded = recording("wild/timm_model.py")
    assert without_cost(recorded) == set()
    assert phases(recorded)[Phase.UPDATE] > 0
    assert recorded.samples == 4
