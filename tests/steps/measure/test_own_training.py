"""A step of undertorch's own training as an H200 ran it (tests/golden/measured/train.json.gz): GPT-2 124M, 32 x 1024.

Its ops launch kernels past ATen, several of them one of the ways that were measured there to be the fastest. What each
moves and computes follows from the model's sizes.
"""

import pytest

from measured_golden import step_of
from undertorch.records import Bound, Kind, Step

LAYERS, WIDTH, CLASSES, TOKENS = 12, 768, 50304, 32 * 1024
"""Classes: GPT-2's 50,257 tokens, padded to a multiple of 128."""
BFLOAT16, FLOAT32 = 2, 4


@pytest.fixture(scope="module")
def step(tmp_path_factory) -> Step:
    return step_of("train", tmp_path_factory.mktemp("train"))


def test_all_bytes_and_all_lines_are_known(step: Step):
    assert [one.kernel.name for one in step.launches if one.kernel.min_bytes is None] == []
    assert step.accounting.time_with_line == 1


def test_the_losses_read_the_logits_once_and_wait_for_the_memory(step: Step):
    """Some rows at a time: bfloat16 logits and labels of 8 bytes; the gradient over them, a loss and two statistics."""
    losses = [one for one in step.launches if one.kernel.kind is Kind.LOSS and one.time_us > 100]
    assert sum(one.kernel.min_bytes_read for one in losses) == TOKENS * (CLASSES * BFLOAT16 + 8)
    assert sum(one.kernel.min_bytes_written for one in losses) == TOKENS * (CLASSES * BFLOAT16 + 3 * FLOAT32)
    assert {one.bound for one in losses} == {Bound.MEMORY}
    assert {one.kernel.library for one in losses} == {"undertorch"}


def test_products_take_six_flops_a_weight_and_token(step: Step):
    """However many kernels cuBLASLt's algorithms took."""
    products = [one.kernel for one in step.launches if one.kernel.kind is Kind.MATMUL]
    whole = sum(one.flops for one in products if "splitKreduce" not in one.name)
    assert whole == 6 * TOKENS * (LAYERS * 12 * WIDTH**2 + CLASSES * WIDTH)
