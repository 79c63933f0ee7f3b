"""Phases and microbatches where a step is more than one forward, one backward and an update."""

from collections import Counter

import pytest

from undertorch.records import Phase

PARAMETERS = {"accumulate.py": 16, "checkpointed.py": 10}


@pytest.fixture(scope="module")
def accumulated(recording):
    return recording("accumulate.py")


@pytest.fixture(scope="module", params=[(), ("reentrant",)], ids=["newer", "reentrant"])
def checkpointed(request, recording):
    return recording("checkpointed.py", *request.param)


def test_gradients_are_added_in_place_from_the_second_microbatch_on(accumulated):
    additions = [op for op in accumulated.ops if op.phase is Phase.ACCUMULATE]
    assert Counter(op.microbatch for op in additions) == {
        1: PARAMETERS["accumulate.py"],
        2: PARAMETERS["accumulate.py"],
    }
    assert {op.name for op in additions} == {"aten::add_"}
    assert {"1.norm.weight", "2.down.bias", "3.weight"} <= {op.module for op in additions}


def test_an_accumulation_stands_at_the_line_that_used_the_parameter(accumulated, line_of):
    lines = {op.module: op.where.line for op in accumulated.ops if op.phase is Phase.ACCUMULATE}
    assert lines["1.up.weight"] == line_of("accumulate.py", "return x + self.down(")
    assert lines["0.weight"] == line_of("accumulate.py", "loss = criterion(")


def test_each_microbatch_does_the_same(accumulated):
    def work(number):
        return Counter(
            (op.name, op.phase) for op in accumulated.ops if op.microbatch == number and op.name != "aten::add_"
        )

    first = work(0)
    del first["aten::detach", Phase.BACKWARD]  # the first gradient is kept, later ones are added
    assert first == work(1) == work(2)


def test_samples_are_those_of_all_microbatches(accumulated):
    assert accumulated.samples == 3 * 6


def test_a_loss_module_and_what_follows_it_is_the_loss(accumulated):
    names = [op.name for op in accumulated.ops if op.phase is Phase.LOSS and op.microbatch == 0]
    assert names == ["aten::_log_softmax", "aten::nll_loss_forward", "aten::div"]


def test_making_a_batch_is_no_forward(accumulated):
    made = [op for op in accumulated.ops if op.name in {"aten::randn", "aten::randint"}]
    assert {(op.phase, op.microbatch) for op in made} == {(Phase.OTHER, None)}


def test_checkpointing_runs_the_blocks_forward_again_inside_the_backward(checkpointed):
    """Of a block's two layers the newer form stops before the last, whose result nobody needs; the older runs both."""
    again = [op for op in checkpointed.ops if op.phase is Phase.RECOMPUTE]
    layers = Counter(op.module for op in again if op.name == "aten::addmm")
    reentrant = "reentrant" in checkpointed.environment.arguments
    assert layers == Counter(
        [f"blocks.{n}.{part}" for n in (0, 1) for part in ("up", *(("down",) if reentrant else ()))]
    )
    assert all(op.forward is None and op.node is None for op in again)
    backward = [op.id for op in checkpointed.ops if op.phase is Phase.BACKWARD]
    assert min(backward) < min(op.id for op in again) < max(op.id for op in again) < max(backward)


def test_the_backward_of_a_checkpointed_layer_has_the_layers_line(checkpointed, line_of):
    products = [op for op in checkpointed.ops if op.phase is Phase.BACKWARD and op.name == "aten::mm"]
    lines = Counter((op.module, op.where.line) for op in products)
    for n in (0, 1):
        assert lines[f"blocks.{n}.up", line_of("checkpointed.py", "hidden = F.gelu(")] == 2
        assert lines[f"blocks.{n}.down", line_of("checkpointed.py", "return x + self.down(")] == 2


def test_a_functions_forward_is_forward_and_its_backward_has_the_line_that_called_it(recording, line_of):
    ops = recording("formulas.py").ops
    line = line_of("formulas.py", "scaled = x * factor")
    (product,) = (op for op in ops if op.name == "aten::mul" and op.where.line == line and op.phase is Phase.FORWARD)
    names = [op.name for op in ops if op.node == "ScaleBackward"]
    assert names[:3] == ["aten::mul", "aten::mul", "aten::sum"]
    assert {op.where.line for op in ops if op.node == "ScaleBackward"} == {
        line_of("formulas.py", "Scale.apply(x, x[0])")
    }
    assert {ops[op.forward].id for op in ops if op.node == "ScaleBackward"} == {product.id}
    assert product.module == "Net"


def test_of_two_optimizers_the_first_that_steps_twice_sets_the_pace(recording, line_of):
    """From the end of one discriminator step to the end of the next: the generator's backward and step lie between."""
    ops = recording("adversaries.py").ops
    updates = [op.where.line for op in ops if op.phase is Phase.UPDATE]
    discriminator, generator = (
        line_of("adversaries.py", f"{name}.step()") for name in ("of_discriminator", "of_generator")
    )
    assert set(updates) == {generator, discriminator}
    assert updates[0] == generator
    assert ops[-1].where.line == discriminator


def test_an_evaluation_without_gradients_is_no_part_of_the_training(recording):
    ops = recording("loader.py").ops
    evaluated = [op for op in ops if any(frame.function == "evaluate" for frame in op.chain)]
    assert {op.phase for op in evaluated} == {Phase.OTHER}
    assert {op.microbatch for op in evaluated} == {None}


def test_ops_are_taken_apart_in_inference_mode_as_ever(recording, line_of):
    """A matmul of two matrices is mm, and a dropout that is off is nothing."""
    line = line_of("loader.py", "F.dropout(torch.ones")
    ops = [op for op in recording("loader.py").ops if op.where.line == line]
    assert [op.name for op in ops] == ["aten::ones", "aten::ones", "aten::mm"]
    assert {op.phase for op in ops} == {Phase.OTHER}


def test_a_custom_function_is_forward_where_no_module_runs(recording, line_of):
    """Its forward runs with gradients off. The first op of the training is its, and the backward ends in it."""
    ops = recording("bare.py").ops
    shifted = [op for op in ops if op.where.line == line_of("bare.py", "shifted = x + by") and op.name == "aten::add"]
    evaluated, trained = shifted
    assert (evaluated.phase, evaluated.microbatch) == (Phase.OTHER, None)
    assert (trained.phase, trained.microbatch) == (Phase.FORWARD, 0)
    assert {op.forward for op in ops if op.node == "ShiftBackward"} == {trained.id}


def test_an_evaluation_with_gradients_on_is_no_part_of_the_training(recording):
    """No backward goes back to it."""
    ops = recording("bare.py").ops
    evaluated = [op for op in ops if "evaluate" in {frame.function for frame in (op.where, *op.chain)}]
    assert [op.name for op in evaluated] == ["aten::randn", "aten::add", "aten::mul", "aten::mm", "aten::mean"]
    assert {op.phase for op in evaluated} == {Phase.OTHER}


def test_the_backward_of_a_write_to_a_view_has_the_line_of_the_write(recording, line_of):
    """Autograd makes a second node for it, after the op."""
    ops = recording("bare.py").ops
    (write,) = (op for op in ops if op.name == "aten::mul_" and op.phase is Phase.FORWARD)
    slices = [op for op in ops if op.node == "CopySlices"]
    assert len(slices) > 3
    assert {op.forward for op in slices} == {write.id}
    assert write.where.line == line_of("bare.py", "gated[:, 1:3].mul_(0.5)")
