"""Scripts as people write them: each runs as it is, in a process of its own, with its lines and phases."""

from collections import Counter

import pytest

from undertorch.costs import kernels
from undertorch.gpus import find
from undertorch.records import Phase
from undertorch.records.steps import WRITTEN_BY_INDUCTOR
from undertorch.steps.record import MissingScript, ScriptFailed

H200 = find("H200")


def at(ops, line):
    return [op for op in ops if op.where is not None and op.where.line == line]


def names(ops, *phases):
    return [op.name for op in ops if op.phase in phases]


def said(recording):
    return [assumption.what for assumption in recording.assumptions]


def without_cost(recording):
    return {op.name for op in recording.ops if kernels(op, H200) is None}


def test_what_is_compiled_becomes_inductors_kernels(recording, line_of):
    """A GELU by hand is one kernel; a model, a part of it, a function and an update compile in the same step."""
    recorded = recording("wild/compiled.py")
    line = line_of("wild/compiled.py", "return 0.5 * x")
    assert names(at(recorded.ops, line), Phase.FORWARD) == ["inductor::fused_add_mul_pow_tanh"]
    assert sum(op.name == "aten::addmm" for op in recorded.ops) == 2
    (update,) = (op for op in recorded.ops if op.name == "aten::_fused_adamw_")
    assert update.phase is Phase.UPDATE
    assert update.where.line == line_of("wild/compiled.py", "optimizer.step()")


def test_each_form_of_compiling_is_said_at_its_line(recording, line_of):
    recorded = recording("wild/compiled.py")
    compiled = {a.where.line for a in recorded.assumptions if a.what.startswith(WRITTEN_BY_INDUCTOR)}
    texts = ("@torch.compile(mode=", "self.down.compile()", "model = torch.compile(", "@torch.compile(full")
    assert {line_of("wild/compiled.py", text) for text in texts} < compiled
    assert len(compiled) == len(texts) + 1
    assert any("torch.jit.script left" in what for what in said(recorded))


def test_workers_load_in_the_process_as_the_first_of_them(recording, line_of):
    """The script asserts what it reads: the first worker's share of the stream, in pinned memory, in both epochs."""
    recorded = recording("wild/workers.py", step=4)
    assert recorded.environment.step == 4
    assert recorded.samples == 8
    copied = [op for op in recorded.ops if op.inputs and op.inputs[0].device == "cpu"]
    assert {op.where.line for op in copied} == {line_of("wild/workers.py", "value.cuda(non_blocking=True)")}
    assert len(copied) == 2


def test_a_side_stream_brings_a_batch_and_events_time_the_step(recording, line_of):
    recorded = recording("wild/streams.py")
    (copy,) = at(recorded.ops, line_of("wild/streams.py", "torch.randn(8, 3, 32, 32)"))
    assert (copy.name, copy.inputs[0].device, copy.results[0].device) == ("aten::_to_copy", "cpu", "cuda:0")
    assert copy.phase is Phase.OTHER
    times = [a for a in recorded.assumptions if "two CUDA events" in a.what]
    assert [a.where.line for a in times] == [line_of("wild/streams.py", "start.elapsed_time(end)")]


def test_what_a_closure_runs_is_forward_and_backward_and_not_the_update(recording, line_of):
    recorded = recording("wild/closures.py")
    loss = at(recorded.ops, line_of("wild/closures.py", "F.mse_loss(model(x), y)"))
    assert names(loss, Phase.FORWARD) == ["aten::t", "aten::addmm", "aten::tanh", "aten::t", "aten::addmm"]
    assert names(loss, Phase.LOSS) == ["aten::mse_loss"]
    assert len(names(loss, Phase.BACKWARD)) > 8
    step = at(recorded.ops, line_of("wild/closures.py", "optimizer.step(closure)"))
    assert {op.phase for op in step} == {Phase.UPDATE}
    assert "aten::dot" in names(step, Phase.UPDATE)
    assert recorded.samples == 64


def test_an_optimizer_of_ones_own_updates_at_the_line_of_its_step(recording, line_of):
    """Three launches a parameter: mul_ and add_ of the momentum, sign, add_ to the parameter."""
    recorded = recording("wild/own_optimizer.py")
    step = at(recorded.ops, line_of("wild/own_optimizer.py", "    optimizer.step()"))
    assert Counter(names(step, Phase.UPDATE)) == {"aten::mul_": 4, "aten::add_": 8, "aten::sign": 4}


def test_a_step_without_an_optimizer_ends_with_its_last_write(recording, line_of):
    recorded = recording("wild/by_hand.py")
    assert any("makes no optimizer" in what for what in said(recorded))
    updates = [(op.name, op.where.line) for op in recorded.ops if op.phase is Phase.UPDATE]
    momentum, change, write, clear = (
        line_of("wild/by_hand.py", text) for text in ("momentum.mul_", "change =", "parameter -=", "grad.zero_()")
    )
    of_one = [
        ("aten::mul_", momentum),
        ("aten::add_", momentum),
        ("aten::mul", change),
        ("aten::sub_", write),
        ("aten::zero_", clear),
    ]
    assert updates == of_one * 2
    assert recorded.ops[-1].where.line == clear
    (logged,) = (op for op in recorded.ops if op.name == "aten::_local_scalar_dense")
    assert logged.phase is Phase.OTHER
    assert len(names(recorded.ops, Phase.ACCUMULATE)) == 2


def test_where_nothing_is_updated_a_step_ends_with_its_backward(recording):
    recorded = recording("wild/only_backward.py")
    assert recorded.environment.step == 5
    assert any("nothing updates" in what for what in said(recorded))
    assert names(recorded.ops, Phase.FORWARD) == ["aten::t", "aten::addmm", "aten::sum"]
    assert {op.phase for op in recorded.ops} == {Phase.FORWARD, Phase.BACKWARD}


def test_layers_of_all_sorts_have_their_lines_and_kernels(recording, line_of):
    recorded = recording("wild/layers.py")
    assert without_cost(recorded) == set()
    packed = at(recorded.ops, line_of("wild/layers.py", "pack_padded_sequence(bags"))
    assert "aten::cat" in names(packed, Phase.FORWARD)
    lstm, gru = (op for op in recorded.ops if op.name == "aten::_cudnn_rnn")
    assert (lstm.module, gru.module) == ("lstm", "gru")
    backward = [op for op in recorded.ops if op.name == "aten::_cudnn_rnn_backward"]
    assert [op.forward for op in backward] == [gru.id, lstm.id]
    assert {op.where.line for op in backward} == {lstm.where.line, gru.where.line}
    assert "aten::_cudnn_rnn" not in names(recorded.ops, Phase.OTHER)
    assert len(names(recorded.ops, Phase.CLIP)) > 3


def test_a_custom_op_written_in_python_is_what_it_calls(recording, line_of):
    recorded = recording("wild/custom_ops.py")
    inside = at(recorded.ops, line_of("wild/custom_ops.py", "return torch.sin(x) * by"))
    assert names(inside, Phase.FORWARD) == ["aten::sin", "aten::mul"]
    assert names(at(recorded.ops, line_of("wild/custom_ops.py", "return torch.exp(x)")), Phase.FORWARD) == ["aten::exp"]
    (older,) = at(recorded.ops, line_of("wild/custom_ops.py", "lambda x: x * 2"))
    assert (older.name, older.phase) == ("aten::mul", Phase.OTHER)


def test_a_custom_op_that_cannot_run_stays_one_op_without_a_cost(recording):
    recorded = recording("wild/custom_ops.py")
    assert without_cost(recorded) == {"wild::opaque"}


def test_a_script_in_a_package_runs_as_python_m_runs_it(recording, scripts, monkeypatch, line_of):
    monkeypatch.chdir(scripts / "wild")
    recorded = recording("package.train", "--steps", "3", as_module=True)
    assert recorded.environment.script == "package/train.py"
    assert {op.where.file for op in recorded.ops if op.phase is Phase.FORWARD} == {
        "package/parts/model.py",
        "package/train.py",
    }


def test_a_relative_import_without_its_package_is_told_how_to_run(recording):
    with pytest.raises(ScriptFailed, match=r"name it as `python -m` does"):
        recording("wild/package/train.py")


def test_a_module_that_is_not_there_is_named(recording):
    with pytest.raises(MissingScript, match=r"package\.nothing"):
        recording("package.nothing", as_module=True)


@pytest.mark.parametrize(
    ("package", "remedy"),
    [
        ("flash_attn", "scaled_dot_product_attention"),
        ("no_such_package", "Install no_such_package"),
    ],
)
def test_a_package_that_is_missing_is_told_what_to_do_without(recording, package, remedy):
    """What is said of others: test_remedies.py."""
    with pytest.raises(ScriptFailed, match=rf"ModuleNotFoundError; its traceback is above\. .*{remedy}"):
        recording("wild/needs_a_gpu.py", package)
