"""Layer, RMS, group and batch norm: bytes and FLOPs by hand, and the shapes at which another kernel runs."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kernel, Math


def layer_norm(
    rows: int, width: int, dtype: str = "float32", *, affine: bool = True, offset: int = 0
) -> tuple[Kernel, ...]:
    weights = tensor(width, dtype=dtype) if affine else None
    statistics = "float32" if dtype in ("float16", "bfloat16") else dtype
    call = op(
        "native_layer_norm",
        tensor(rows, width, dtype=dtype),
        tensor(rows, 1, dtype=statistics),
        tensor(rows, 1, dtype=statistics),
        input=tensor(rows, width, dtype=dtype, offset=offset),
        normalized_shape=(width,),
        weight=weights,
        bias=weights and tensor(width, dtype=dtype),
        eps=1e-5,
    )
    return kernels(call, H200)


def layer_norm_backward(rows: int, width: int, dtype: str = "float32") -> tuple[Kernel, ...]:
    like = tensor(rows, width, dtype=dtype)
    call = op(
        "native_layer_norm_backward",
        tensor(rows, width, dtype=dtype),
        tensor(width, dtype=dtype),
        tensor(width, dtype=dtype),
        grad_out=tensor(rows, width, dtype=dtype),
        input=like,
        normalized_shape=(width,),
        mean=tensor(rows, 1),
        rstd=tensor(rows, 1),
        weight=tensor(width, dtype=dtype),
        bias=tensor(width, dtype=dtype),
        output_mask=(True, True, True),
    )
    return kernels(call, H200)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_layer_norm_moves_input_and_result_weights_and_two_statistics_a_row(dtype: str, size: int):
    rows, width = 1000, 768
    (kernel,) = layer_norm(rows, width, dtype)
    assert kernel.min_bytes_read == rows * width * size + 2 * width * size
    assert kernel.min_bytes_written == rows * width * size + 2 * rows * 4
    # Add up; subtract, square, add up; subtract, scale; times weight, plus bias.
    assert kernel.flops == 8 * rows * width
    assert kernel.math is Math.FP32


def test_without_weights_two_flops_an_element_and_two_rows_of_bytes_are_less():
    (plain,), (affine,) = layer_norm(64, 512, affine=False), layer_norm(64, 512)
    assert affine.flops - plain.flops == 2 * 64 * 512
    assert affine.min_bytes_read - plain.min_bytes_read == 2 * 512 * 4


@pytest.mark.parametrize(
    ("width", "dtype", "offset", "vectorized"),
    [
        (768, "float32", 0, True),
        (770, "float32", 0, False),
        (50257, "bfloat16", 0, False),
        (768, "float64", 0, False),
        (768, "float32", 1, False),
        (4, "float16", 0, True),
        (1, "float32", 0, False),
    ],
)
def test_rows_of_whole_aligned_vectors_of_4_take_one_kernel_others_two(width, dtype, offset, vectorized):
    """can_vectorize in layer_norm_kernel.cu: width a multiple of 4, every address too, no float64."""
    found = layer_norm(3, width, dtype, offset=offset)
    assert len(found) == (1 if vectorized else 2)
    assert all(kernel.grid == (3, 1, 1) for kernel in found)
    assert ("vectorized" in found[0].name) is vectorized


def test_a_single_row_is_a_single_block_and_no_row_is_no_launch():
    assert layer_norm(1, 768)[0].grid == (1, 1, 1)
    assert layer_norm(0, 768) == ()


def test_layer_norm_backward_reads_gradient_and_input_for_each_of_its_two_launches():
    rows, width = 32768, 768
    found = layer_norm_backward(rows, width)
    both = 2 * rows * width * 4 + 2 * rows * 4
    to_input, to_weights = found
    assert to_input.min_bytes_read == both + width * 4
    assert to_input.min_bytes_written == rows * width * 4
    assert to_weights.min_bytes_read == both
    assert to_weights.min_bytes_written == 2 * width * 4
    # Recorded: a block of 32 × 32 takes 32 columns and every row.
    assert (to_weights.grid, to_weights.block) == ((width // 32, 1, 1), (32, 32, 1))
    assert to_weights.flops == 5 * rows * width


def test_rms_norm_keeps_no_mean():
    rows, width = 4096, 4096
    call = op(
        "_fused_rms_norm",
        tensor(rows, width, dtype="bfloat16"),
        tensor(rows, 1),
        input=tensor(rows, width, dtype="bfloat16"),
        normalized_shape=(width,),
        weight=tensor(width, dtype="bfloat16"),
        eps=1e-6,
    )
    (kernel,) = kernels(call, H200)
    assert kernel.min_bytes == 2 * rows * width * 2 + width * 2 + rows * 4
    assert kernel.flops == 4 * rows * width


def test_group_norm_reads_its_input_for_the_moments_and_again_for_the_result():
    batch, channels, pixels, groups = 8, 64, 32 * 32, 16
    size = batch * channels * pixels * 4
    call = op(
        "native_group_norm",
        tensor(batch, channels, 32, 32),
        tensor(batch, groups),
        tensor(batch, groups),
        input=tensor(batch, channels, 32, 32),
        weight=tensor(channels),
        bias=tensor(channels),
        N=batch,
        C=channels,
        HxW=pixels,
        group=groups,
        eps=1e-5,
    )
    found = kernels(call, H200)
    assert found[0].grid == (batch * groups, 1, 1)
    assert [kernel.min_bytes_read for kernel in found].count(size) == 1
    assert size < found[-1].min_bytes_read <= size + 2 * batch * channels * 4
    assert found[-1].min_bytes_written == size
    assert found[0].flops == 4 * batch * channels * pixels


def test_batch_norm_in_eval_reads_the_running_statistics_and_reduces_nothing():
    shape = (16, 32, 28, 28)
    call = op(
        "native_batch_norm",
        tensor(*shape),
        tensor(0),
        tensor(0),
        input=tensor(*shape),
        weight=tensor(32),
        bias=tensor(32),
        running_mean=tensor(32),
        running_var=tensor(32),
        training=False,
        momentum=0.1,
        eps=1e-5,
    )
    found = kernels(call, H200)
    elements = 16 * 32 * 28 * 28
    (result,) = [kernel for kernel in found if kernel.min_bytes_written >= elements * 4]
    assert result.min_bytes_read == elements * 4 + 4 * 32 * 4
    assert not any("collect" in kernel.name or "reduce" in kernel.name for kernel in found)
