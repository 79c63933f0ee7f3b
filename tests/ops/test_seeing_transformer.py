"""What `undertorch see` shows of softmax, rotary embedding, linear layer with activation, and attention."""

import pytest

from ops_seen import kernels, seen

SCRIPT = """
import torch
from undertorch import ops

def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)

weight, bias = normal(1024, 256), normal(1024)
cos, sin = torch.randn(2, 64, 32, device="cuda")
for step in range(3):
    q, k, v = normal(2, 8, 64, 64), normal(2, 2, 64, 64), normal(2, 2, 64, 64)
    q, k = ops.rope(q, k, cos, sin)
    y = ops.attention(q, k, v, causal=True, softcap=30.0)
    z = ops.attention(q, k, v, causal=True)
    h = ops.linear_act(normal(512, 256), weight, bias)
    p = ops.softmax(normal(512, 1024))
    (y.sum() + z.sum() + h.sum() + p[:, 0].sum()).backward()
"""


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    return seen(tmp_path_factory, SCRIPT)


def test_every_op_has_its_kernels(step):
    assert step.accounting.ops_without_cost == ()


def test_softmax_moves_each_element_twice_forward_and_thrice_backward(step):
    size = 512 * 1024 * 2
    assert [kernel.min_bytes for kernel in kernels(step, "softmax_forward")] == [2 * size]
    assert [kernel.min_bytes for kernel in kernels(step, "softmax_backward")] == [3 * size]


def test_queries_and_keys_are_turned_in_one_launch(step):
    """(8 + 2) heads of 2 x 64 x 64 bfloat16 read and written; cos and sin of 64 x 32 float32 read."""
    (kernel,) = kernels(step, "rope_forward")
    assert kernel.min_bytes == 2 * 10 * 2 * 64 * 64 * 2 + 2 * 64 * 32 * 4


def test_capped_attention_counts_the_pairs_that_see_each_other(step):
    """64 * 65 / 2 of 64 queries and keys; 16 heads of 64; two products of 2 FLOPs each."""
    (kernel,) = kernels(step, "attention_forward")
    assert kernel.flops == 2 * 2 * 64 * (64 * 65 // 2) * 16


def test_a_linear_layer_with_gelu_is_a_product_and_an_activation(step):
    *product, activated = kernels(step, "linear_act_forward")
    assert activated.name == "activate"
    assert sum(kernel.flops or 0 for kernel in product) >= 2 * 512 * 256 * 1024
