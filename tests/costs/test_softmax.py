"""Softmax: which kernel takes which width, how often it passes over a row, bytes and FLOPs by hand."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kernel, Math

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def softmax(*shape: int, dtype: str = "float32", dim: int = -1, log: bool = False) -> tuple[Kernel, ...]:
    name = "_log_softmax" if log else "_softmax"
    call = op(
        name, tensor(*shape, dtype=dtype), self=tensor(*shape, dtype=dtype), dim=dim % len(shape), half_to_float=False
    )
    return kernels(call, H200)


def backward(*shape: int, dtype: str = "float32", log: bool = True) -> tuple[Kernel, ...]:
    name = "_log_softmax_backward_data" if log else "_softmax_backward_data"
    call = op(
        name,
        tensor(*shape, dtype=dtype),
        grad_output=tensor(*shape, dtype=dtype),
        output=tensor(*shape, dtype=dtype),
        dim=len(shape) - 1,
        input_dtype=dtype,
    )
    return kernels(call, H200)


@pytest.mark.parametrize("dtype", sorted(SIZES))
@pytest.mark.parametrize("width", [1, 3, 64, 1024, 2048, 2049, 32000, 50257])
def test_it_reads_and_writes_each_element_once_at_least_and_does_four_flops(dtype: str, width: int):
    (kernel,) = softmax(77, width, dtype=dtype)
    elements = 77 * width
    assert (kernel.min_bytes_read, kernel.min_bytes_written) == (elements * SIZES[dtype],) * 2
    assert 4 * elements <= kernel.flops <= 4 * elements + 77
    assert kernel.math is (Math.FP64 if dtype == "float64" else Math.FP32)


@pytest.mark.parametrize(
    ("width", "name"),
    [
        (1024, "softmax_warp_forward"),
        (2048, "softmax_warp_forward"),
        (2056, "cunn_SoftMaxForward"),
        (50257, "cunn_SoftMaxForward"),
    ],
)
def test_up_to_2048_elements_a_warp_keeps_its_row_wider_rows_take_a_block(width: int, name: str):
    (kernel,) = softmax(512, width)
    assert kernel.name.startswith(name)
    if width > 2048:
        assert kernel.grid == (512, 1, 1)


def test_gpt2_logits_pass_over_each_row_four_times():
    """50,304 float32 are 201,216 bytes, more than a block's 48 KiB: read for maximum, sum, result; written."""
    (kernel,) = softmax(32768, 50304, log=True)
    assert kernel.traffic_bytes == 4 * 32768 * 50304 * 4
    assert kernel.min_bytes == 2 * 32768 * 50304 * 4


def test_a_row_that_fits_shared_memory_is_read_once():
    """8,192 float32 are 32 KiB."""
    (kernel,) = softmax(512, 8192)
    assert kernel.name.startswith("cunn_SoftMaxForwardSmem") or kernel.name.startswith("cunn_SoftMaxForwardReg")
    assert kernel.traffic_bytes in (None, kernel.min_bytes)


def test_backward_of_log_softmax_reads_gradient_and_output():
    rows, width = 32768, 50304
    (kernel,) = backward(rows, width)
    assert (kernel.min_bytes_read, kernel.min_bytes_written) == (2 * rows * width * 4, rows * width * 4)
    assert kernel.flops == 4 * rows * width
    # The gradient for the sum; gradient and output for the result; the result.
    assert kernel.traffic_bytes == 4 * rows * width * 4


def test_softmax_backward_multiplies_gradient_and_output_first():
    product, kernel = backward(64, 512, log=False)
    assert product.min_bytes == 3 * 64 * 512 * 4
    assert kernel.min_bytes_written == 64 * 512 * 4


def test_a_dimension_that_is_not_the_innermost_goes_to_the_spatial_kernel():
    (kernel,) = softmax(8, 512, 64, dim=1)
    assert kernel.name.startswith("cunn_SpatialSoftMaxForward")
    assert kernel.min_bytes == 2 * 8 * 512 * 64 * 4


def test_empty_rows_launch_nothing_and_one_row_one_block():
    assert softmax(0, 50257) == ()
    assert softmax(1, 50257)[0].grid == (1, 1, 1)
    assert softmax(4, 0) == ()


def test_a_safe_softmax_tells_rows_without_a_score_apart():
    """Besides the softmax: two fills of a number, a comparison, a reduction of its truth, a choice."""
    scores = tensor(6, 32, 100)
    plain = softmax(6, 32, 100)
    safe = kernels(op("_safe_softmax", tensor(6, 32, 100), self=scores, dim=2, dtype=None), H200)
    assert safe[0] == plain[0]
    assert len(safe) == len(plain) + 5
    assert safe[-1].min_bytes_written == scores.bytes
