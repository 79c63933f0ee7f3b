"""CTC: what a sequence of T frames over L labels computes, moves and takes in blocks (native/cuda/LossCTC.cu)."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kind

FLOAT, LONG = 4, 8


def forward(frames, batch, labels, longest, dtype="float32"):
    states = 2 * longest + 1
    return kernels(
        op(
            "_ctc_loss",
            tensor(batch, dtype=dtype),
            tensor(batch, frames, states, dtype=dtype),
            log_probs=tensor(frames, batch, labels, dtype=dtype),
            targets=tensor(batch, longest, dtype="int64"),
        ),
        H200,
    )


def backward(frames, batch, labels, longest):
    scores = tensor(frames, batch, labels)
    return kernels(
        op(
            "_ctc_loss_backward",
            tensor(frames, batch, labels),
            grad=tensor(batch),
            log_probs=scores,
            targets=tensor(batch, longest, dtype="int64"),
            neg_log_likelihood=tensor(batch),
            log_alpha=tensor(batch, frames, 2 * longest + 1),
        ),
        H200,
    )


def test_the_lengths_and_the_beginnings_of_targets_are_sent_first():
    *sent, _ = forward(32, 4, 10, 5)
    assert [(copy.kind, copy.min_bytes) for copy in sent] == [(Kind.MEMCPY, 4 * LONG)] * 3


def test_log_alpha_is_written_once_and_the_labels_scores_read_once():
    """Of each frame and sequence the 5 labels and the blank; 11 FLOPs for each of the 11 states."""
    *_, alpha = forward(32, 4, 10, 5)
    assert alpha.min_bytes_written == (4 * 32 * 11 + 4) * FLOAT
    assert alpha.min_bytes_read == 32 * 4 * 6 * FLOAT + 4 * 5 * LONG
    assert alpha.flops == 11 * 4 * 32 * 11


@pytest.mark.parametrize(
    ("longest", "batch", "dtype", "grid", "block"),
    [
        (5, 4, "float32", (1, 1, 1), (16, 4, 1)),  # 11 states: 16 threads, and all four sequences in a block
        (5, 200, "float32", (1, 4, 1), (16, 64, 1)),  # 1024 / 16 sequences a block
        (1000, 2, "float32", (1, 2, 1), (1024, 1, 1)),  # no more threads than 1024
        (5, 200, "float64", (1, 4, 1), (12, 64, 1)),  # 768 threads, halved to 12
    ],
)
def test_a_block_takes_as_many_sequences_as_its_threads_allow(longest, batch, dtype, grid, block):
    *_, alpha = forward(16, batch, 10, longest, dtype)
    assert (alpha.grid, alpha.block) == (grid, block)


def test_a_small_problem_is_collected_by_one_kernel_and_a_large_one_by_other_ops_first():
    """2 T + 2.4 B + 0.2 C: 64 + 9 + 2 and 2000 + 9 + 2, with 450 between them."""
    small, large = backward(32, 4, 10, 5), backward(1000, 4, 10, 5)
    names = [kernel.name for kernel in small]
    assert len(small) == 3 + 2 + 3  # sent, filled, and computed
    assert names[-2:] == ["ctc_loss_backward_collect_gpu_kernel", "ctc_loss_zero_padded_gradients"]
    assert large[-2].name == "ctc_loss_backward_collect_nonblank_gpu_kernel"
    assert len(large) > len(small) + 6
