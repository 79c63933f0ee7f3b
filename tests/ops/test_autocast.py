"""Autocast, on the CPU, where the ops are their references: what it does to torch's own it does to them."""

import pytest
import torch
from torch.nn import functional

from undertorch import ops

torch.manual_seed(0)
X, WEIGHT, HEAD, LABELS = torch.randn(4, 32), torch.rand(32), torch.randn(24, 32), torch.arange(4)
Q, K, V = torch.randn(3, 2, 4, 64, 32) * 2
COS, SIN = torch.rand(2, 64, 16)

CALLS = {
    "rms_norm": lambda t: ops.rms_norm(t(X), t(WEIGHT)),
    "layer_norm": lambda t: ops.layer_norm(t(X), t(WEIGHT), t(WEIGHT)),
    "add_rms_norm": lambda t: ops.add_rms_norm(t(X), t(X), t(WEIGHT))[0],
    "add_layer_norm": lambda t: ops.add_layer_norm(t(X), t(X), t(WEIGHT))[0],
    "softmax": lambda t: ops.softmax(t(X)),
    "swiglu": lambda t: ops.swiglu(t(X), t(X)),
    "geglu": lambda t: ops.geglu(t(X), t(X)),
    "cross_entropy": lambda t: ops.cross_entropy(t(X), LABELS, z_loss=0.1),
    "linear_cross_entropy": lambda t: ops.linear_cross_entropy(t(X), t(HEAD), LABELS, softcap=5.0),
    "linear_act": lambda t: ops.linear_act(t(X), t(HEAD), t(HEAD[:, 0])),
    "rope": lambda t: ops.rope(t(Q), t(K), COS, SIN)[0],
    "attention": lambda t: ops.attention(t(Q), t(K), t(V)),
    "attention, window": lambda t: ops.attention(t(Q), t(K), t(V), window=60),
    "attention, softcap": lambda t: ops.attention(t(Q), t(K), t(V), softcap=3.0),
}


@pytest.fixture
def autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert functional.linear(X.double(), HEAD.double()).dtype == torch.float64
        yield


def far(ours, exact):
    return ((ours.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("op", CALLS)
def test_it_leaves_float64_alone(op, autocast):
    """As it leaves torch's own linear."""
    ours = CALLS[op](torch.Tensor.double)
    with torch.autocast("cpu", enabled=False):
        alone = CALLS[op](torch.Tensor.double)
    assert ours.dtype == torch.float64
    assert torch.equal(ours, alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", CALLS)
def test_an_op_rounds_no_more_often_than_on_bfloat16(op, dtype, autocast):
    """An error of twice that of the op on tensors that are bfloat16, whatever floats it is given."""
    with torch.autocast("cpu", enabled=False):
        exact = CALLS[op](torch.Tensor.double)
        error = far(CALLS[op](torch.Tensor.bfloat16), exact)
    assert far(CALLS[op](lambda tensor: tensor.to(dtype)), exact) <= 2 * error


def test_windowed_attention_is_as_near_as_torchs(autocast):
    apart = torch.arange(64)[:, None] - torch.arange(64)
    mask = (apart >= 0) & (apart < 60)
    q = Q * 2  # large scores
    exact = functional.scaled_dot_product_attention(q.double(), K.double(), V.double(), attn_mask=mask)
    theirs = functional.scaled_dot_product_attention(q, K, V, attn_mask=mask)
    ours = ops.attention(q, K, V, causal=True, window=60)
    assert ours.dtype == theirs.dtype
    assert far(ours, exact) <= 1.25 * far(theirs, exact)


@pytest.mark.parametrize("window", [None, 9])
def test_floats_of_several_dtypes_become_one(window, autocast):
    """Such as queries and keys of a norm in float32, and values of a linear layer."""
    mixed = ops.attention(Q, K, V.bfloat16(), causal=True, window=window)
    assert torch.equal(mixed, ops.attention(*(x.bfloat16() for x in (Q, K, V)), causal=True, window=window))
    assert torch.equal(ops.linear_act(X, HEAD.bfloat16()), ops.linear_act(X.bfloat16(), HEAD.bfloat16()))
    with pytest.raises(ops.BadCall, match="one dtype"):
        ops.linear_act(X.double(), HEAD)


def test_tensors_of_no_device_that_has_it_are_taken():
    assert ops.linear_act(X.to("meta"), HEAD.to("meta")).shape == (4, 24)
