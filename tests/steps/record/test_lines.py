"""Every Op of GPT-2's step has the line, the module and the forward Op it belongs to."""

import pytest

from undertorch.records import Phase

SCRIPT = "gpt2.py"
LAYERS = 12


@pytest.fixture(scope="module")
def gpt2(recording):
    return recording(SCRIPT)


def test_every_op_has_a_line_of_the_script(gpt2):
    assert all(op.where is not None and op.where.file.endswith(SCRIPT) for op in gpt2.ops)


def test_the_backward_has_two_matmuls_for_each_of_the_forward(gpt2):
    """A linear layer y = x Wᵀ needs dL/dx and dL/dW: one matrix product each. 4 layers a block, and the head."""
    linears = [op for op in gpt2.ops if op.phase is Phase.FORWARD and op.name in {"aten::addmm", "aten::mm"}]
    products = [op for op in gpt2.ops if op.phase is Phase.BACKWARD and op.name == "aten::mm"]
    assert len(linears) == 4 * LAYERS + 1
    assert sorted(op.forward for op in products) == sorted([op.id for op in linears] * 2)


def test_a_backward_op_has_the_line_and_the_chain_and_the_module_of_its_forward(gpt2):
    belonging = [op for op in gpt2.ops if op.forward is not None]
    assert len(belonging) > 900
    for op in belonging:
        forward = gpt2.ops[op.forward]
        assert forward.phase in {Phase.FORWARD, Phase.LOSS}
        assert (op.where, op.chain) == (forward.where, forward.chain)
        assert op.module == forward.module or op.node == "AccumulateGrad"


def test_the_only_backward_op_at_the_line_of_backward_is_the_gradient_of_the_loss(gpt2, line_of):
    at_the_call = [op for op in gpt2.ops if op.where.line == line_of(SCRIPT, "loss.backward()")]
    assert [(op.name, op.phase, op.forward) for op in at_the_call] == [("aten::ones_like", Phase.BACKWARD, None)]


def test_a_linear_layer_is_found_at_its_call_below_the_calls_that_led_to_it(gpt2, line_of):
    (op,) = (op for op in gpt2.ops if op.name == "aten::addmm" and op.module == "blocks.7.proj")
    assert (op.where.function, op.where.line) == ("Block.forward", line_of(SCRIPT, "x = x + self.proj("))
    assert [frame.line for frame in op.chain] == [
        line_of(SCRIPT, "h = block(h)"),
        line_of(SCRIPT, "loss = model(x, y)"),
    ]
    assert [frame.function for frame in op.chain] == ["GPT.forward", "<module>"]


def test_clipping_and_update_stand_at_their_calls(gpt2, line_of):
    clip = {op.where.line for op in gpt2.ops if op.phase is Phase.CLIP}
    update = {op.where.line for op in gpt2.ops if op.phase is Phase.UPDATE}
    assert clip == {line_of(SCRIPT, "clip_grad_norm_")}
    assert update == {line_of(SCRIPT, "optimizer.step()")}


def test_a_gradient_is_kept_under_its_parameters_name_at_the_line_that_used_it(gpt2):
    kept = {op.module: op for op in gpt2.ops if op.node == "AccumulateGrad"}
    assert len(kept) == 2 + 12 * LAYERS + 2  # two embeddings; two norms and four linear layers a block; the last norm
    assert kept["blocks.3.fc.weight"].where == next(op.where for op in gpt2.ops if op.module == "blocks.3.fc")


def test_nothing_is_detached_but_gradients(gpt2):
    """As the GPU's trace has it: 148 aten::detach, one a parameter. Fake tensors are detached oftener, unseen."""
    assert {op.node for op in gpt2.ops if op.name == "aten::detach"} == {"AccumulateGrad"}
    assert sum(op.name == "aten::detach" for op in gpt2.ops) == 148


def test_the_phases_follow_one_another(gpt2):
    order = [Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.CLIP, Phase.UPDATE]
    assert [op.phase for op in gpt2.ops] == sorted((op.phase for op in gpt2.ops), key=order.index)


def test_the_loss_is_what_cross_entropy_does(gpt2):
    assert [op.name for op in gpt2.ops if op.phase is Phase.LOSS] == ["aten::_log_softmax", "aten::nll_loss_forward"]


def test_ids_are_positions_and_a_step_is_one_microbatch_of_its_batch(gpt2):
    assert [op.id for op in gpt2.ops] == list(range(len(gpt2.ops)))
    assert {op.microbatch for op in gpt2.ops if op.phase is Phase.BACKWARD} == {0}
    assert gpt2.samples == 32


def test_what_an_op_reads_was_written_by_an_op_before_it_or_before_the_step(gpt2):
    """A storage is numbered when it is first met, so those made in the step have higher numbers than all before it."""
    made: set[int] = set()
    first = min(tensor.storage for op in gpt2.ops for tensor in op.results if op.name == "aten::embedding")
    for op in gpt2.ops:
        assert all(tensor.storage in made or tensor.storage < first for tensor in op.inputs)
        made |= {tensor.storage for tensor in op.results}


def test_an_in_place_write_counts_the_version_up(gpt2):
    additions = [op for op in gpt2.ops if op.name == "aten::add_"]
    assert len(additions) == 2 * LAYERS  # the residual stream's gradient, twice a block
    for op in additions:
        (written,) = op.results
        read = op.tensor("self")
        assert written.storage == read.storage
        assert written.version == read.version + 1


def test_the_recording_names_what_it_holds_for(gpt2, scripts):
    environment = gpt2.environment
    assert (environment.step, environment.arguments, gpt2.gpu) == (2, (), "H200")
    assert set(environment.versions) == {"undertorch", "python", "torch"}
    assert list(environment.sources.values()) == [(scripts / SCRIPT).read_text()]
    assert gpt2.assumptions == ()
