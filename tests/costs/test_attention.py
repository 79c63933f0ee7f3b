"""Attention: FLOPs by hand for full and causal masks, bytes, and the tiles each kernel works in."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kernel, Kind, Math


def laid_out(batch: int, heads: int, length: int, features: int, dtype: str):
    """As the models leave it: batch × length × heads × features, seen with heads before length."""
    strides = (length * heads * features, features, heads * features, 1)
    return tensor(batch, heads, length, features, dtype=dtype, strides=strides)


def forward(
    name: str,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    features: int,
    *,
    causal: bool = False,
    dtype: str = "bfloat16",
    key_heads: int | None = None,
    dropout: float = 0.0,
) -> tuple[Kernel, ...]:
    key_heads = key_heads or heads
    extra = {} if "flash" in name else {"attn_bias": None, "compute_log_sumexp": True}
    call = op(
        name,
        laid_out(batch, heads, queries, features, dtype),
        tensor(batch, heads, queries),
        query=laid_out(batch, heads, queries, features, dtype),
        key=laid_out(batch, key_heads, keys, features, dtype),
        value=laid_out(batch, key_heads, keys, features, dtype),
        dropout_p=dropout,
        is_causal=causal,
        scale=None,
        **extra,
    )
    return kernels(call, H200)


def backward(
    name: str, batch: int, heads: int, length: int, features: int, *, causal: bool, key_heads: int | None = None
) -> tuple[Kernel, ...]:
    one = [laid_out(batch, heads, length, features, "bfloat16") for _ in range(8)]
    shared = laid_out(batch, key_heads or heads, length, features, "bfloat16")
    grad = "grad_out_" if "efficient" in name else "grad_out"
    call = op(
        name,
        *one[5:8],
        **{grad: one[0]},
        query=one[1],
        key=shared,
        value=shared,
        attn_bias=None,
        out=one[4],
        logsumexp=tensor(batch, heads, length),
        philox_seed=None,
        philox_offset=None,
        cum_seq_q=None,
        cum_seq_k=None,
        max_q=length,
        max_k=length,
        dropout_p=0.0,
        is_causal=causal,
        scale=None,
        grad_input_mask=(True, True, True, False),
    )
    return kernels(call, H200)


FORWARDS = [f"_scaled_dot_product_{which}_attention" for which in ("cudnn", "flash", "efficient")]


def attending(found: tuple[Kernel, ...]) -> Kernel:
    return max((kernel for kernel in found if kernel.kind is Kind.ATTENTION), key=lambda kernel: kernel.flops)


@pytest.mark.parametrize("name", FORWARDS)
def test_full_attention_multiplies_every_query_with_every_key_twice(name: str):
    kernel = attending(forward(name, 2, 8, 512, 384, 64))
    assert kernel.flops == 2 * (2 * 2 * 8 * 512 * 384 * 64)
    assert kernel.math is Math.TENSOR_BF16


@pytest.mark.parametrize("name", FORWARDS)
@pytest.mark.parametrize("length", [1, 2, 333, 1024])
def test_causal_attention_multiplies_on_and_below_the_diagonal(name: str, length: int):
    """Row i keeps i keys: 1 + 2 + … + T pairs a head."""
    pairs = sum(range(1, length + 1))
    assert attending(forward(name, 2, 8, length, length, 64, causal=True)).flops == 2 * (2 * 2 * 8 * pairs * 64)


@pytest.mark.parametrize("name", FORWARDS)
def test_backward_is_five_products_of_the_same_size(name: str):
    """The scores again, gradients of values and weights, of queries and keys; and says so."""
    kernel = attending(backward(f"{name}_backward", 2, 8, 512, 64, causal=True))
    pairs = 512 * 513 // 2
    products = 5 * (2 * 2 * 8 * pairs * 64)
    # The efficient kernel also multiplies each row's output and gradient, which the others launch apart.
    assert products <= kernel.flops <= products + 2 * 2 * 8 * 512 * 64
    assert "again" in kernel.note


@pytest.mark.parametrize("name", FORWARDS)
def test_it_reads_three_tensors_and_writes_one_and_a_float_a_row(name: str):
    kernel = attending(forward(name, 4, 16, 2048, 2048, 128))
    one = 4 * 16 * 2048 * 128 * 2
    assert kernel.min_bytes_read == 3 * one
    assert kernel.min_bytes_written == one + 4 * 16 * 2048 * 4


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        # 128 queries a block at 64 features; blocks are counted along queries, batch, heads.
        ("_scaled_dot_product_flash_attention", (8, 32, 12)),
        # 64 queries a block; queries, heads, batch.
        ("_scaled_dot_product_efficient_attention", (16, 12, 32)),
        # Resident blocks, one an SM.
        ("_scaled_dot_product_cudnn_attention", (132, 1, 1)),
    ],
)
def test_blocks_of_the_gpt2_shape(name: str, grid: tuple[int, int, int]):
    assert attending(forward(name, 32, 12, 1024, 1024, 64, causal=True)).grid == grid


@pytest.mark.parametrize("name", FORWARDS)
def test_no_query_is_no_launch(name: str):
    assert forward(name, 2, 8, 0, 16, 64) == ()


def test_deciding_which_kernel_runs_launches_nothing():
    one = laid_out(1, 1, 8, 64, "bfloat16")
    assert kernels(op("_fused_sdp_choice", query=one, key=one, value=one), H200) == ()


CUDNN = "_scaled_dot_product_cudnn_attention"


def test_cudnn_works_off_whole_tiles():
    """Of 1024 queries and keys: eight by eight tiles of 128, of which a causal mask leaves those up to the diagonal,
    36. Four FLOPs a pair and feature.
    """
    full, causal = (attending(forward(CUDNN, 2, 3, 1024, 1024, 64, causal=mask)) for mask in (False, True))
    assert full.done_flops == full.flops == 2 * 3 * 4 * 1024 * 1024 * 64
    assert causal.done_flops == 2 * 3 * 36 * 128 * 128 * 4 * 64


@pytest.mark.parametrize(("features", "worked", "keys"), [(40, 64, 77), (80, 128, 77), (160, 192, 256)])
def test_cudnn_works_off_heads_of_a_few_sizes(features: int, worked: int, keys: int):
    """The U-Net's, as the H200 ran them: the kernel's name says what a head of 40 or 80 is taken for, and 77 keys are
    128 (tests/golden/measured/models.json.gz)."""
    kernel = attending(forward(CUDNN, 16, 8, 1024, keys, features))
    assert f"64x128x{worked}_" in kernel.name
    assert kernel.done_flops == 16 * 8 * 1024 * (-(-keys // 128) * 128) * 4 * worked


def test_a_dropout_draws_a_number_a_pair_after_a_kernel_that_hands_the_seed_over():
    """As BERT's ran on the H200: unpack_cudnn, a memset, the kernel."""
    found = forward(CUDNN, 2, 3, 512, 512, 64, dropout=0.1)
    assert [kernel.name for kernel in found][:2] == ["unpack_cudnn", "Memset"]
    assert attending(found).random_numbers == 2 * 3 * 512 * 512
    assert attending(forward(CUDNN, 2, 3, 512, 512, 64)).random_numbers is None


def test_query_heads_that_share_keys_have_their_gradients_added_up():
    """Llama's, as the H200 ran it: 32 heads share 8, and two launches of 256 × 4 × 8 blocks follow the backward; each
    reads the gradients of all heads, and writes those of the eight."""
    found = backward("_scaled_dot_product_cudnn_attention_backward", 4, 32, 4096, 64, causal=True, key_heads=8)
    added = [kernel for kernel in found if kernel.name == "fmha_reduce_head"]
    assert [kernel.grid for kernel in added] == [(256, 4, 8)] * 2
    assert added[0].min_bytes == 4 * 4096 * 64 * 2 * (32 + 8)


@pytest.mark.parametrize(
    ("features", "length", "dotted", "converted"),
    [(64, 1024, 64, 32), (128, 4096, 512, 256), (40, 4096, 256, 164), (80, 1024, 128, 41), (160, 256, 64, 22)],
)
def test_blocks_beside_cudnns_backward_are_those_that_were_recorded(features, length, dotted, converted):
    """The first two are of the sweep (tests/golden/h200_ops.json.gz), the others the U-Net's."""
    found = backward("_scaled_dot_product_cudnn_attention_backward", 16, 8, length, features, causal=False)
    grids = {kernel.name: kernel.grid for kernel in found}
    whole = "compute_dot_do_o_specialized" if features in (64, 128) else "compute_dot_do_o"
    assert grids[whole] == (dotted, 16, 8)
    assert grids["convert_dq_to_16bits"] == (converted, 16, 8)
