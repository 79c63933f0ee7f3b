"""Recurrent layers. FLOPs follow from the definition of the cells, whatever algorithm a library takes."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kind, Origin

TIME, BATCH, INPUTS, HIDDEN = 7, 5, 24, 32


def rnn(name="_cudnn_rnn", **changed):
    arguments = {
        "input": tensor(TIME, BATCH, INPUTS),
        "weight": (),
        "mode": 2,
        "hidden_size": HIDDEN,
        "proj_size": 0,
        "num_layers": 1,
        "batch_first": False,
        "bidirectional": False,
        "batch_sizes": (),
    }
    return op(name, tensor(TIME, BATCH, HIDDEN), **(arguments | changed))


def products(found):
    return sum(kernel.flops for kernel in found if kernel.kind is Kind.MATMUL)


@pytest.mark.parametrize(("mode", "gates"), [(0, 1), (1, 1), (2, 4), (3, 3)])
def test_a_layer_multiplies_inputs_and_state_with_the_weights_of_each_gate(mode, gates):
    """2·T·B·G·H·(I + H), backward twice as much: a product for the gradient of each factor."""
    once = 2 * TIME * BATCH * gates * HIDDEN * (INPUTS + HIDDEN)
    assert products(kernels(rnn(mode=mode), H200)) == once
    assert products(kernels(rnn("_cudnn_rnn_backward", mode=mode), H200)) == 2 * once


def test_a_second_layer_reads_both_directions_of_the_first():
    found = kernels(rnn(num_layers=2, bidirectional=True), H200)
    rows = 2 * TIME * BATCH * 4 * HIDDEN
    assert products(found) == 2 * rows * (INPUTS + HIDDEN) + 2 * rows * (2 * HIDDEN + HIDDEN)


def test_packed_sequences_do_the_work_of_their_lengths():
    lengths = (5, 3, 1)
    found = kernels(rnn(input=tensor(sum(lengths), INPUTS), batch_sizes=lengths), H200)
    assert products(found) == 2 * sum(lengths) * 4 * HIDDEN * (INPUTS + HIDDEN)
    assert len([kernel for kernel in found if kernel.kind is Kind.ELEMENTWISE]) == len(lengths)


def test_the_batch_may_come_first():
    turned = rnn(input=tensor(BATCH, TIME, INPUTS), batch_first=True)
    assert products(kernels(turned, H200)) == products(kernels(rnn(), H200))


def test_a_projection_is_a_product_of_its_own():
    found = kernels(rnn(proj_size=8), H200)
    assert products(found) == 2 * TIME * BATCH * (4 * HIDDEN * (INPUTS + 8) + HIDDEN * 8)


def test_what_is_modelled_is_marked_as_predicted():
    assert {kernel.geometry_origin for kernel in kernels(rnn(), H200)} == {Origin.PREDICTED}


def test_a_cell_reads_its_gates_and_writes_state_cell_and_gates():
    batch, hidden = 128, 1024
    gates, state = tensor(batch, 4 * hidden), tensor(batch, hidden)
    found = kernels(
        op(
            "_thnn_fused_lstm_cell",
            state,
            state,
            gates,
            input_gates=gates,
            hidden_gates=gates,
            cx=state,
            input_bias=tensor(4 * hidden),
            hidden_bias=tensor(4 * hidden),
        ),
        H200,
    )
    (kernel,) = found
    assert kernel.min_bytes_read == 4 * (2 * batch * 4 * hidden + batch * hidden + 2 * 4 * hidden)
    assert kernel.min_bytes_written == 4 * (2 * batch * hidden + batch * 4 * hidden)
    assert kernel.grid == (batch * hidden // 512, 1, 1)
