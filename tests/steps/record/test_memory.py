"""Bytes alive on the GPU, counted by hand: storages are rounded up to 512 bytes."""

import pytest

from undertorch.records import Phase

FLOAT = 4
PARAMETER_BYTES = FLOAT * (256 * 512 + 512 * 128)
COUNTERS = 2 * 512
"""The fused Adam counts its steps on the GPU, a counter a parameter."""
INPUT_BYTES = FLOAT * 64 * 256
HIDDEN_BYTES = FLOAT * 64 * 512
OUTPUT_BYTES = FLOAT * 64 * 128


def after(recording, op_id):
    """Bytes alive just after an Op."""
    return next(
        (sample.live_bytes for sample in reversed(recording.memory.samples) if sample.op <= op_id),
        recording.memory.start_bytes,
    )


def test_a_step_begins_with_parameters_gradients_moments_and_the_input(recording):
    """It begins at the end of the optimizer's step before, so the old gradients are there, and the loss."""
    loss = 512
    assert recording("memory.py").memory.start_bytes == 4 * PARAMETER_BYTES + COUNTERS + INPUT_BYTES + loss


def test_the_forward_adds_what_the_backward_will_need(recording):
    """Saved: the ReLU's output; the script holds the last layer's. The old gradients are gone by then."""
    memory = recording("memory.py")
    (summed,) = (op for op in memory.ops if op.name == "aten::sum" and op.phase is Phase.FORWARD)
    kept = 3 * PARAMETER_BYTES + COUNTERS + INPUT_BYTES
    assert after(memory, summed.id) == kept + HIDDEN_BYTES + OUTPUT_BYTES + 512


def test_the_peak_is_the_hidden_gradient_beside_what_it_is_made_of(recording):
    memory = recording("memory.py")
    assert memory.memory.peak_bytes == max(sample.live_bytes for sample in memory.memory.samples)
    assert after(memory, memory.memory.peak_op) == memory.memory.peak_bytes


@pytest.mark.parametrize("script", ["memory.py", "accumulate.py", "scaler.py", "adversaries.py"])
def test_the_allocator_of_the_gpu_counted_the_same(script, recording, golden):
    """torch.cuda.memory_allocated() and max_memory_allocated() on the H200: of scripts that no library's workspace
    joins.
    """
    (step,) = (step for step in golden["steps"] if step["script"] == script)
    memory = recording(script).memory
    assert {"start_bytes": memory.start_bytes, "peak_bytes": memory.peak_bytes} == step["memory"]
