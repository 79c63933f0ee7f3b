"""What `undertorch see` shows of the ops, without a GPU."""

import pytest

from ops_seen import kernels, seen

SCRIPT = """
import torch
from undertorch import ops

weight = torch.ones(256, device="cuda", requires_grad=True)
head = torch.randn(1024, 256, device="cuda", requires_grad=True)
optimizer = ops.AdamW([weight, head], max_norm=1.0)
for step in range(3):
    x = torch.randn(512, 256, device="cuda")
    loss = ops.cross_entropy(ops.rms_norm(x, weight) @ head.t(), torch.zeros(512, dtype=torch.long, device="cuda"))
    loss.backward()
    half = torch.randn(512, 512, device="cuda", requires_grad=True).chunk(2, -1)
    both = ops.linear_cross_entropy(ops.swiglu(*half), head, torch.zeros(512, dtype=torch.long, device="cuda"))
    both.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    return seen(tmp_path_factory, SCRIPT)


def test_every_op_has_its_kernels(step):
    assert step.accounting.ops_without_cost == ()


def test_the_norm_reads_and_writes_each_row_once(step):
    """512 rows of 256 float32, a weight, and a statistic a row."""
    (kernel,) = kernels(step, "rms_norm_forward")
    assert (kernel.min_bytes_read, kernel.min_bytes_written) == (512 * 256 * 4 + 256 * 4, 512 * 256 * 4 + 512 * 4)


def test_the_loss_comes_with_the_gradient_of_the_logits(step):
    """512 x 1024 float32 logits read and their gradient written, 512 labels of 8 bytes, three numbers a row."""
    counted, losses, reduced = kernels(step, "cross_entropy_forward")
    assert (counted.name, losses.name, reduced.name) == ("label_weight", "losses", "reduced")
    assert losses.min_bytes_read == 512 * 1024 * 4 + 512 * 8
    assert losses.min_bytes_written == 512 * 1024 * 4 + 3 * 512 * 4


def test_the_gradients_of_the_linear_loss_are_looked_at_and_not_moved(step):
    """They came with the loss: the backward reads the incoming gradient, 4 bytes, for each of the two."""
    scaled = kernels(step, "linear_cross_entropy_scale")
    assert [(kernel.name, kernel.min_bytes) for kernel in scaled] == [("scaled_unless_one", 4)] * 2


def test_the_optimizer_moves_28_bytes_a_parameter_and_the_norm_4(step):
    """Parameter, gradient and two moments read, parameter and moments written; gradients read for the norm."""
    (update,) = [kernel for kernel in kernels(step, "adamw") if kernel.name == "update"]
    assert update.min_bytes == 28 * (256 + 1024 * 256)
    (squares,) = [kernel for kernel in kernels(step, "sum_of_squares") if kernel.name == "squares"]
    assert squares.min_bytes_read == 4 * (256 + 1024 * 256)
