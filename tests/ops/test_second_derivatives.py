"""Own kernels have first derivatives. A second one is refused, and never missing from a sum without a word."""

import pytest
import torch

import undertorch
from undertorch import ops
from undertorch.ops import BadCall
from undertorch.ops.calls import on_host

LABELS = torch.tensor([1, 0, 3])
HEADS = (2, 3, 4)
"""Of attention's and rope's tensors of one sample: heads, tokens, features."""

LOSSES = {
    "rms_norm": lambda x, w: ops.rms_norm(x, w).square().sum(),
    "layer_norm": lambda x, w: ops.layer_norm(x, w).square().sum(),
    "add_rms_norm": lambda x, w: sum(part.square().sum() for part in ops.add_rms_norm(x, x * 2, w)),
    "add_layer_norm": lambda x, w: sum(part.square().sum() for part in ops.add_layer_norm(x, x * 2, w)),
    "softmax": lambda x, w: ops.softmax(x * w)[:, 0].sum(),
    "swiglu": lambda x, w: ops.swiglu(x, x * w).sum(),
    "geglu": lambda x, w: ops.geglu(x, x * w).sum(),
    "cross_entropy": lambda x, w: ops.cross_entropy(x * w, LABELS),
    "linear_cross_entropy": lambda x, w: ops.linear_cross_entropy(x * w, torch.eye(8), LABELS),
    "linear_act": lambda x, w: ops.linear_act(x, torch.diag(w), None, "silu").sum(),
    "rope": lambda x, w: ops.rope(*((x * w).view(1, *HEADS),) * 2, *torch.rand(2, 3, 2))[0].square().sum(),
    "attention": lambda x, w: ops.attention(*((x * w).view(1, *HEADS),) * 3, causal=True, window=2).square().sum(),
}  # fmt: skip

QUICK = ("rms_norm", "softmax", "swiglu", "cross_entropy")
"""A kind each; the others take long to compile."""


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    torch.manual_seed(0)
    with undertorch.machine(gpu="H200"), on_host():
        yield


@pytest.mark.parametrize("op", [pytest.param(op, marks=[pytest.mark.slow] * (op not in QUICK)) for op in LOSSES])
def test_a_graph_of_the_backward_is_refused(op, own):
    """As of R1, or of a Hessian-vector product: the loss's own incoming gradient is 1 and asks for nothing."""
    x, w = torch.randn(3, 8, requires_grad=True), torch.rand(8, requires_grad=True)
    loss = LOSSES[op](x, w)
    with pytest.raises(BadCall, match=rf"undertorch\.ops\.{op} has first derivatives only"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_forward_mode_is_refused(own):
    """By autograd: there is no rule for it."""
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(torch.randn(3, 8), torch.randn(3, 8))
        with pytest.raises(RuntimeError, match="jvp"):
            ops.rms_norm(x)


def test_the_reference_has_second_derivatives():
    """On the CPU, where the ops are their references."""
    x = torch.randn(3, 8, requires_grad=True, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(ops.rms_norm, x)


@pytest.mark.parametrize("op", LOSSES)
def test_the_cpu_takes_what_own_kernels_refuse(op):
    """As docs/ops.md tells: a gradient's gradient, and torch.func's transforms."""
    torch.manual_seed(0)
    x, w = torch.randn(3, 8, requires_grad=True), torch.rand(8)

    def loss(x):
        torch.manual_seed(1)  # for rope's tables
        return LOSSES[op](x, w)

    (gradient,) = torch.autograd.grad(loss(x), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), x)
    functional = torch.func.grad(lambda x: torch.func.grad(loss)(x).square().sum())(x.detach())
    torch.testing.assert_close(functional, second)
    _, along = torch.func.jvp(loss, (x.detach(),), (torch.ones(3, 8),))
    torch.testing.assert_close(along, gradient.detach().sum())
