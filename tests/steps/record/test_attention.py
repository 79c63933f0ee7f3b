"""Which kernel serves scaled_dot_product_attention, as the H200's torch chose it."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from undertorch import gpus
from undertorch.steps.record.attention import AttentionChoice

MATH, FLASH, EFFICIENT, CUDNN = (
    int(backend.value)
    for backend in (
        SDPBackend.MATH,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
    )
)


@pytest.fixture
def torchs_order():
    """torch keeps the order of its choice for the whole process."""
    order = torch._C._get_sdp_priority_order()
    yield
    torch._C._set_sdp_priority_order(order)


def made(shape, dtype="bfloat16", gradient=True):
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta", requires_grad=gradient)


def test_every_case_is_chosen_as_on_the_gpu(golden, torchs_order):
    choice = AttentionChoice(gpus.find("H200"))
    cases = golden["attention"]
    assert len(cases) > 1000
    wrong = [case for case in cases if chosen(choice, case) != case["choice"]]
    assert wrong == []


def chosen(choice, case):
    q, k, v = (made(case[name], case["dtype"]) for name in ("query", "key", "value"))
    batch, heads, length, _ = q.shape
    mask = {
        None: None,
        "bool": made((length, k.shape[2]), "bool", gradient=False),
        "full": made((batch, heads, length, k.shape[2]), case["dtype"], gradient=False),
    }[case["mask"]]
    try:
        return choice.choose(q, k, v, mask, case["dropout"], case["causal"], enable_gqa=case["grouped"])
    except RuntimeError:
        return -1


def test_an_rtx_4090_takes_flash_where_an_h200_takes_cudnn(torchs_order):
    """cuDNN comes first on compute capability 9 and 10 alone (sdp_utils.cpp, check_prefer_cudnn_attention)."""
    q = made((2, 4, 128, 64))
    ada = AttentionChoice(gpus.find("RTX-4090"))
    assert ada.choose(q, q, q) == FLASH
    assert ada.choose(q, q, q, made((128, 128), "bool", gradient=False)) == EFFICIENT
    assert AttentionChoice(gpus.find("H200")).choose(q, q, q) == CUDNN


def test_a_v100_has_no_flash(torchs_order):
    """FlashAttention 2 begins at compute capability 8.0."""
    volta = AttentionChoice(gpus.find("V100-SXM2-32GB"))
    q = made((2, 4, 128, 64), "float16")
    assert volta.choose(q, q, q) == EFFICIENT


def test_the_scripts_own_restriction_holds(torchs_order):
    q = made((2, 4, 128, 64))
    choice = AttentionChoice(gpus.find("H200"))
    with sdpa_kernel(SDPBackend.MATH):
        assert choice.choose(q, q, q) == MATH
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        assert choice.choose(q, q, q) == EFFICIENT
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        choice.choose(made((2, 4, 128, 64), "float32"), q, q)
