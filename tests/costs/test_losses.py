"""Losses: bytes and FLOPs by hand."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kernel, Kind

MEAN, NONE = 1, 0
"""at::Reduction."""


def nll(rows: int, classes: int, *, weight: bool = False, reduction: int = MEAN) -> tuple[Kernel, ...]:
    call = op(
        "nll_loss_forward",
        tensor() if reduction else tensor(rows),
        tensor(),
        self=tensor(rows, classes),
        target=tensor(rows, dtype="int64"),
        weight=tensor(classes) if weight else None,
        reduction=reduction,
        ignore_index=-100,
    )
    return kernels(call, H200)


def test_nll_reads_one_element_a_row_each_in_a_sector_of_32_bytes():
    rows = 32768
    (kernel,) = nll(rows, 50304)
    assert kernel.min_bytes_read == rows * (8 + 4)
    assert kernel.min_bytes_written == 2 * 4
    assert kernel.traffic_bytes == rows * (8 + 32) + 2 * 4
    assert kernel.grid == (1, 1, 1)
    assert kernel.flops == 2 * rows


def test_class_weights_are_a_product_more_a_row():
    assert nll(1000, 10, weight=True)[0].flops - nll(1000, 10)[0].flops == 1000


def test_nll_backward_fills_the_whole_gradient_and_writes_one_element_a_row():
    rows, classes = 4096, 50257
    call = op(
        "nll_loss_backward",
        tensor(rows, classes),
        grad_output=tensor(),
        self=tensor(rows, classes),
        target=tensor(rows, dtype="int64"),
        weight=None,
        reduction=MEAN,
        ignore_index=-100,
        total_weight=tensor(),
    )
    fill, kernel = kernels(call, H200)
    assert (fill.kind, fill.min_bytes_written) == (Kind.FILL, rows * classes * 4)
    assert kernel.min_bytes_written == rows * 4


@pytest.mark.parametrize(
    ("name", "flops", "arguments"),
    [("mse_loss", 2, {}), ("smooth_l1_loss", 4, {"beta": 1.0}), ("huber_loss", 3, {"delta": 1.0})],
)
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float64", 8)])
def test_losses_by_element_read_two_tensors_and_write_one(name, flops, arguments, dtype, size):
    shape = (333, 77)
    two = {"self": tensor(*shape, dtype=dtype), "target": tensor(*shape, dtype=dtype)}
    (kernel,) = kernels(op(name, tensor(*shape, dtype=dtype), **two, reduction=NONE, **arguments), H200)
    assert kernel.min_bytes == 3 * 333 * 77 * size
    assert kernel.flops == flops * 333 * 77


def test_a_mean_is_a_reduction_of_the_elements_losses():
    two = {"self": tensor(1024, 1024), "target": tensor(1024, 1024)}
    found = kernels(op("mse_loss", tensor(), **two, reduction=MEAN), H200)
    assert found[-1].kind is Kind.REDUCTION
    assert found[-1].min_bytes_written == 4
    assert found[0].min_bytes == 3 * 1024 * 1024 * 4


def test_nothing_is_launched_by_element_for_no_elements():
    assert kernels(op("mse_loss", tensor(0), self=tensor(0), target=tensor(0), reduction=NONE), H200) == ()
