"""Rows of the contract with our kernels on the machine: softmax, rotary embedding, activations, attention."""

import sys

import pytest
import torch

import undertorch
from ops_promises_transformer import transformer_rows
from undertorch import ops
from undertorch.ops.calls import on_host

CHOSEN = (
    "softmax: width 1025 torch.bfloat16",
    "softmax: -inf: first half, torch.float32",
    "rope: halves, heads inside, positions outside",
    "rope: interleaved, tokens inside, 33 pairs of 80",
    "linear_act: gelu_tanh, torch.float16, bias True",
    "linear_act: relu, x and weight frozen",
    "attention: causal window softcap, torch.float32",
    "attention: window, 90 queries, 33 keys",
)
"""A kernel each, both ways, in a form that is easy to get wrong. All rows: benchmarks/ops_contract.py on a GPU."""

ROWS = {str(row): row for row in transformer_rows()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("attention")) for name in CHOSEN]
)
def test_our_kernels_keep_it_on_the_machine(name, monkeypatch):
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    with undertorch.machine(gpu="H200"), on_host():
        assert ROWS[name].check("cpu") == []


def test_the_rows_are_there():
    assert set(CHOSEN) <= set(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [2**31 - 1, sys.maxsize])
def test_a_window_wider_than_all_there_is_sees_all_there_is(window, causal, monkeypatch):
    """Kernels add it to positions, in 32 bits or 64."""
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    torch.manual_seed(0)
    given = [torch.randn(1, 2, 20, 16, requires_grad=True) for _ in range(3)]
    right = ops.attention(*given, causal=causal)
    gradients = torch.autograd.grad(right.square().sum(), given)
    with undertorch.machine(gpu="H200"), on_host():
        ours = ops.attention(*given, causal=causal, window=window)
        found = torch.autograd.grad(ours.square().sum(), given)
    for one, other in zip((ours, *found), (right, *gradients), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
