"""Predicted times of single calls beside those that an H200 took (tests/golden/h200_ops.json.gz, cold caches)."""

import pytest

from costs.recorded import Case, single_ops
from steps.predict.test_convolution_times import ratio

CALLS = {case.name: case for case in single_ops()}

ATTENTION = [name for name in CALLS if name.startswith(("cudnn ", "cudnn_backward ")) and "333" not in name]
TRANSPOSED = [
    *("clone transposed torch.float32", "clone transposed torch.bfloat16", "copy_ transposed into"),
    *("copy_ cast strided", "add transposed f32"),
]
CHUNKED = ["fused_adamw", "fused_adam", "foreach_mul_ tensor", "foreach_mul_ scalar", "foreach_norm bf16"]


def off(case: Case) -> float:
    """How far the longer of the two is from the other."""
    found = ratio(case)
    return max(found, 1 / found) - 1


@pytest.mark.parametrize("name", ATTENTION)
def test_cudnns_attention_takes_as_long_as_its_tiles(name):
    """Within a quarter: full and causal, forward and backward, heads of 64 and of 128, 512 to 4096 tokens."""
    assert off(CALLS[name]) < 0.25


@pytest.mark.parametrize("name", TRANSPOSED)
def test_what_is_read_across_takes_as_long_as_its_sectors(name):
    """Within 15 %. By its least bytes it would take less than half as long."""
    assert off(CALLS[name]) < 0.15


@pytest.mark.parametrize("name", CHUNKED)
def test_what_goes_chunk_by_chunk_is_slower_than_a_copy(name):
    """Within 20 %: Adam, products, norms of all parameters of GPT-2 124M."""
    assert off(CALLS[name]) < 0.2


def test_there_are_enough_of_them():
    """Two directions and two masks of at least three shapes."""
    assert len(ATTENTION) >= 12
