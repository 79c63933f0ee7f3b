"""Fused optimizers run on a GPU alone, in one call for all parameters (torch/optim, `_fused_*`)."""

import pytest

from undertorch import gpus
from undertorch.records import Phase
from undertorch.steps.see import see

SCRIPT = """
import sys
import torch

model = torch.nn.Linear(64, 32, device="cuda")
momentum = {"momentum": 0.9, "nesterov": True} if "momentum" in sys.argv else {}
optimizer = getattr(torch.optim, sys.argv[1])(model.parameters(), 0.1, fused=True, **momentum)
for _ in range(3):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PARAMETERS = 64 * 32 + 32
pytestmark = pytest.mark.builds


@pytest.mark.parametrize(
    ("arguments", "name", "lists"),
    [(("SGD",), "_fused_sgd_", 3), (("SGD", "momentum"), "_fused_sgd_", 5), (("Adagrad",), "_fused_adagrad_", 5)],
)
def test_its_update_is_one_call_that_moves_its_lists(arguments, name, lists, tmp_path):
    """Float32 lists as long as the parameters: two read and one written; with momentum, or a sum of squares, one more
    that is read and written."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    step = see(script, arguments, gpus.find("H200"))
    (update,) = (op for op in step.ops if op.name == f"aten::{name}")
    (launch,) = (one for one in step.launches if update.id in one.ops)
    assert launch.phase is Phase.UPDATE
    assert launch.kernel.min_bytes == lists * PARAMETERS * 4
