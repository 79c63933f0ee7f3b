"""Compiled code that computes again in the backward what drew numbers in the forward."""

from collections import Counter

from undertorch import gpus
from undertorch.records import Kind, Phase
from undertorch.steps.predict import predict

SCRIPT = "compiled_checkpoint.py"


def test_checkpointed_attention_runs_again_in_the_backward(recording, line_of):
    """Inductor calls it through an operator that sets the state of the generator (graphsafe_run_with_rng_state): on an
    H200 a compiled Llama has two forwards of attention and a backward a block (tests/golden/measured/compiled.json.gz).
    """
    step = predict(recording(SCRIPT), gpus.find("H200"))
    numbers = {one.ops[0] for one in step.launches if one.kernel.kind is Kind.ATTENTION}
    found = Counter((step.ops[number].phase, step.ops[number].name.endswith("_backward")) for number in numbers)
    assert found == {(Phase.FORWARD, False): 1, (Phase.BACKWARD, False): 1, (Phase.BACKWARD, True): 1}
    (backward,) = (step.ops[number] for number in numbers if step.ops[number].name.endswith("_backward"))
    assert backward.where.line == line_of(SCRIPT, "y = F.scaled_dot")
