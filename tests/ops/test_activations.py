"""The activations at the edge of float32, in our kernels: on the machine."""

import pytest
import torch
from torch.nn import functional

import undertorch
from undertorch import ops
from undertorch.ops.calls import on_host

FAR = (-3e38, -1e30, -1e15, -300.0, 300.0, 1e15, 1e30, 3e38)
CALLS = {
    "gelu": (ops.geglu, functional.gelu),
    "gelu_tanh": (
        lambda x, one: ops.geglu(x, one, approximate="tanh"),
        lambda x: functional.gelu(x, approximate="tanh"),
    ),
    "silu": (ops.swiglu, functional.silu),
}


@pytest.mark.parametrize("name", CALLS)
def test_far_out_they_are_what_float64_says(name, monkeypatch):
    """Nothing, or x itself; the slope 0 or 1. Of -inf it is torch's: 0 * -inf."""
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    ours, truth = CALLS[name]
    exact = torch.tensor(FAR, dtype=torch.float64, requires_grad=True)
    value = truth(exact)
    (slope,) = torch.autograd.grad(value.sum(), exact)
    with undertorch.machine(gpu="H200"), on_host():
        x = torch.tensor(FAR, requires_grad=True)
        y = ours(x, torch.ones(len(FAR)))
        (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
        infinite = ours(torch.tensor([-float("inf"), float("inf"), float("nan")]), torch.ones(3))
    assert torch.allclose(y.double(), value.detach())
    assert torch.allclose(dx.double(), slope)
    assert torch.equal(infinite.isnan(), torch.tensor([True, False, True]))
