"""How undertorch's own training ops are cut (costs/training_ops.py)."""

import pytest

from undertorch.costs.training_ops import LOGITS_BYTES, logit_bytes, logit_rows

GIB = 2**30


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rows", [1, 255, 257, 5000, 16384, 32768, 100_003])
@pytest.mark.parametrize(("classes", "features"), [(50304, 768), (128256, 4096), (7, 3), (3_000_000, 64)])
def test_chunks_of_logits_are_few_and_even(rows, classes, features, wide):
    """No chunk is larger than what it may be, and one chunk less would have to be."""
    at_once = logit_rows(rows, classes, features, 2, LOGITS_BYTES, wide=wide)
    most = max(LOGITS_BYTES // (2 * classes), features if wide else 1, 1)
    assert 1 <= at_once <= max(most, 1)
    chunks = -(-rows // at_once)
    whole = most - most % 256 if most >= 256 else most
    assert chunks == -(-rows // whole)


def test_logits_take_no_more_than_the_copy_of_the_summed_gradient():
    """Of 16384 x 4096 by 128256 in bfloat16, at the peak: sums of float32, their copy, x's gradient; 3.06 GiB."""
    at_once = logit_rows(16384, 128256, 4096, 2, LOGITS_BYTES, wide=True)
    assert at_once * 128256 * 2 <= 128256 * 4096 * 2
    sums, copy, of_x = 128256 * 4096 * 4, 128256 * 4096 * 2, 16384 * 4096 * 2
    assert (sums + copy + of_x) / GIB < 3.07


def test_sums_in_half_types_leave_less_room_for_logits():
    """At the peak the sums, x's gradient and the logits: at most a tenth more than with 512 rows of them, 1.23 GiB."""
    at_once = logit_rows(16384, 128256, 4096, 2, logit_bytes(2), wide=False)
    peak = 128256 * 4096 * 2 + 16384 * 4096 * 2 + at_once * 128256 * 2
    assert peak / GIB < 1.1 * 1.23
    assert logit_bytes(4) == logit_bytes(None) == LOGITS_BYTES
