"""Recurrent layers under autocast: what ATen/cudnn/AutocastRNN.cpp casts, and into what."""

import pytest

from undertorch.records import Phase

LSTM = 2 * 4  # two layers, each with two weights and two biases
GRU = 2  # no biases
pytestmark = pytest.mark.builds


@pytest.fixture(scope="module")
def recorded(recording):
    return recording("recurrent.py")


def dtypes(op):
    """Of what is no state of the dropout or room for the backward."""
    return {tensor.dtype for tensor in (*op.inputs, *op.results) if tensor.dtype != "uint8"}


def test_cudnn_runs_in_half_precision_also_where_bfloat16_was_asked_for(recorded):
    """And in float32 where autocast is off."""
    forward = [op for op in recorded.ops if op.name == "aten::_cudnn_rnn"]
    assert [dtypes(op) for op in forward] == [{"float16"}, {"float16"}, {"float32"}]
    backward = [op for op in recorded.ops if op.name == "aten::_cudnn_rnn_backward"]
    assert [dtypes(op) for op in backward] == [{"float32"}, {"float16"}, {"float16"}]


def test_weights_are_cast_at_each_call_into_one_buffer_of_zeros(recorded):
    """LSTM: 4 gates of 16 units; 8 and 16 inputs, 16 of the state, two biases a gate."""
    lstm = next(op for op in recorded.ops if op.name == "aten::_cudnn_rnn")
    before = recorded.ops[: lstm.id]
    (buffer,) = (op.results[0] for op in before if op.name == "aten::zeros" and op.results[0].dtype == "float16")
    assert buffer.shape == (4 * 16 * ((8 + 16 + 2) + (16 + 16 + 2)),)
    copies = [op for op in before if op.name == "aten::copy_"]
    assert len(copies) == LSTM
    assert {op.inputs[0].storage for op in copies} == {buffer.storage}
    assert {(op.inputs[0].dtype, op.inputs[1].dtype) for op in copies} == {("float16", "float32")}


def test_gradients_of_the_weights_are_cast_back(recorded):
    casts = [op for op in recorded.ops if op.node == "CopyBackwards" and op.name == "aten::_to_copy"]
    assert [op.results[0].dtype for op in casts] == ["float32"] * (LSTM + GRU)
    assert {op.phase for op in casts} == {Phase.BACKWARD}


def test_a_cell_takes_the_precision_that_was_asked_for(recorded):
    (cell,) = (op for op in recorded.ops if op.name == "aten::_thnn_fused_lstm_cell")
    assert dtypes(cell) == {"float16"}


def test_where_sequences_come_first_the_batch_is_the_second_dimension(recorded):
    """nn.LSTM with batch_first=False says so."""
    assert recorded.samples == 3
