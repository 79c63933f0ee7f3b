"""Every way to cut a norm or a softmax gives what float64 gives, on the machine."""

import itertools
from importlib import import_module

import pytest
import torch
from torch.nn import functional

import undertorch
from undertorch.costs.training_norms import WIDEST_BACKWARD, backward_cut, fitted, forward_cut, tiling
from undertorch.ops import norms
from undertorch.ops.norm_cuts import Held, Pieces, Tile, backward_tiles, forward_tiles

softmax = import_module("undertorch.ops.softmax")  # the package has the function of that name

BF16 = torch.bfloat16
SMS = 132
TOLERANCE = 0.004
"""Of the norm of a result: bfloat16 keeps 8 bits, and rounding errors of up to half a unit have a third of that."""

ROWS = {True: 5, False: 6}


def apart(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


def exactly(x, weight, bias, eps):
    if bias is not None:
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def kinds(width, centred):
    """A way of each kind that is listed at a width: the first."""
    forwards = {(type(way), way.__class__ is Tile and way.tiles > 1): way for way in reversed(
        forward_tiles(width, 4096, SMS, centred=centred))}  # fmt: skip
    backwards = {(type(way), *((way.twice, way.ahead, way.keep, way.stages > 1) if isinstance(way, Tile) else ())): way
                 for way in reversed(backward_tiles(width, 4096, SMS, centred=centred, total=True))}  # fmt: skip
    return list(forwards.values()), list(backwards.values())


@pytest.mark.parametrize(
    ("width", "centred"),
    [(5000, False), pytest.param(700, True, marks=pytest.mark.slow), pytest.param(9000, True, marks=pytest.mark.slow),
     pytest.param(16401, False, marks=pytest.mark.slow), pytest.param(33001, True, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_norm_is_right_however_it_is_cut(width, centred):
    """Mean 3 and deviation 2, a gradient of the sum, widths that fill no tile."""
    torch.manual_seed(width)
    rows = ROWS[centred]
    x, residual, dy, dtotal = (torch.randn(rows, width).mul(2).add(shift).to(BF16) for shift in (3, 0, 0, 0))
    weight, bias = torch.randn(width).to(BF16), torch.randn(width).to(BF16) if centred else None
    name = "add_layer_norm" if centred else "add_rms_norm"
    total = (x + residual).double().requires_grad_()
    vectors = [vector.double().requires_grad_() for vector in (weight, bias) if vector is not None]
    y = exactly(total, vectors[0], vectors[1] if centred else None, 1e-5)
    wanted = torch.autograd.grad(y, [total, *vectors], dy.double())
    wanted = [wanted[0] + dtotal.double(), *wanted[1:]]
    forwards, backwards = kinds(width, centred)
    with undertorch.machine(gpu="H200"):
        for way in forwards:
            ours, sums, mean, rstd = norms.forward(
                x, residual, weight, bias, 1e-5, centred=centred, name=name, tile=way
            )
            assert apart(ours, y.detach()) < TOLERANCE, str(way)
            assert torch.equal(sums, x + residual), str(way)
        for way in backwards:
            found = [
                norms.backward(
                    dy, dtotal, sums, weight, mean, rstd, BF16 if centred else None, True, True, centred,
                    centred=centred, name=name, tile=way,
                )
                for _ in range(2)
            ]  # fmt: skip
            for ours, again, exact in zip(*found, [*wanted, None][:3], strict=True):
                if exact is not None:
                    assert apart(ours, exact) < TOLERANCE, str(way)
                    assert torch.equal(ours, again), str(way)


@pytest.mark.parametrize("centred", [False, True])
def test_pieces_in_a_row_of_loads_are_right(centred):
    """Of six pieces the first four, then two that are left over, the last not whole."""
    torch.manual_seed(0)
    x, residual = (torch.randn(3, 1500).mul(2).add(3).to(BF16) for _ in range(2))
    weight, bias = torch.randn(1500).to(BF16), torch.randn(1500).to(BF16) if centred else None
    vectors = [None if vector is None else vector.double() for vector in (weight, bias)]
    with undertorch.machine(gpu="H200"):
        way = Pieces(block=256, warps=2, unroll=4)
        y, total, *_ = norms.forward(x, residual, weight, bias, 1e-5, centred=centred, name="norm", tile=way)
    assert torch.equal(total, x + residual)
    assert apart(y, exactly(total.double(), *vectors, 1e-5)) < TOLERANCE


def test_softmax_of_wide_rows_is_right_from_minus_infinity_to_confident():
    """Nothing but -inf is nan, a part of nothing but -inf is 0, as torch has it."""
    torch.manual_seed(0)
    way = softmax.Pieces(block=256, warps=2, blocks_per_sm=1)
    x = (torch.randn(5, 1001) * 4).to(BF16)
    x[1] = -float("inf")
    x[2, :600] = -float("inf")
    x[3, 600:] -= 3000
    dy = torch.randn(5, 1001).to(BF16)
    with undertorch.machine(gpu="H200"):
        y = softmax.forward(x, tile=way)
        kept = y.nan_to_num()
        dx = softmax.backward(dy, kept, tile=way)
    exact = x.double().softmax(-1)
    assert y[1].isnan().all()
    assert not y[[0, 2, 3, 4]].isnan().any()
    assert apart(y[[0, 2, 3, 4]], exact[[0, 2, 3, 4]]) < TOLERANCE
    value, given = kept.double(), dy.double()
    gradient = value * (given - (given * value).sum(-1, keepdim=True))
    assert apart(dx, gradient) < TOLERANCE


@pytest.mark.parametrize("width", [1, 100, 512, 700, 768, 1000, 1600, 5120, 8192, 11008, 12288, 16384, 24576, 32768])
def test_tiles_hold_a_row_and_waste_less_than_an_eighth_of_the_next_power_of_two(width):
    tile, tiles = tiling(width)
    assert tile & (tile - 1) == 0
    block = 1 << (width - 1).bit_length()
    assert 0 <= tile * tiles - width < max(block // 8, 1) or width <= 512
    assert tile * tiles >= width


@pytest.mark.parametrize("width", [1, 96, 768, 4096, 5120, 8192, 12288, 16384, 20000, 32768])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_no_block_has_more_threads_or_shared_memory_than_a_gpu_gives(width, centred, itemsize):
    """1024 threads; 163 KB on an A100, 227 on an H200, 99 of compute capability 8.6 (CUDA C++ Programming Guide)."""
    for shared, total in itertools.product((99 * 1024, 163 * 1024, 227 * 1024), (False, True)):
        given = {"centred": centred, "total": total, "itemsize": itemsize, "shared": shared}
        for way in backward_tiles(width, 4096, SMS, **given):
            assert way.warps <= 32
            if isinstance(way, Held):
                of_rows, of_weight = (2 + total) * (way.tiles + way.more) * way.tile, way.tiles * way.tile
                assert of_weight == width
                assert (of_rows + of_weight) * itemsize < shared, str(way)
            if isinstance(way, Tile) and way.stages > 1:
                held = (way.stages - 1) * way.rows * way.tile * way.tiles * itemsize * (2 + total + (not way.keep))
                assert held < shared, str(way)
    for way in forward_tiles(width, 4096, SMS, centred=centred):
        assert 1 <= way.warps <= 32


def test_rows_wider_than_a_block_can_sum_the_gradients_of_take_two_kernels():
    for centred, widest in WIDEST_BACKWARD.items():
        given = {"centred": centred, "total": False, "itemsize": 2, "shared": 227 * 1024}
        assert backward_cut(widest, 4096, SMS, **given, vectors=False).twice
        assert backward_cut(widest + 1, 4096, SMS, **given) is None
        assert isinstance(backward_tiles(widest + 1, 4096, SMS, centred=centred)[0], Pieces)


def test_rows_lie_in_shared_memory_where_they_can_be_copied_there():
    """By 16 bytes between multiples of 16, in whole tiles, where there is room, on GPUs that have such copies."""
    for width, centred in ((32768, False), (32768, True), (16384, True), (20480, False)):
        assert isinstance(backward_tiles(width, 4096, SMS, centred=centred)[0], Held)
        for prevented in ({"vectors": False}, {"shared": 99 * 1024}, {"itemsize": 4}, {"amd": True}):
            ways = backward_tiles(width, 4096, SMS, centred=centred, **prevented)
            assert not any(isinstance(way, Held) for way in ways)
    assert not isinstance(backward_tiles(20482, 4096, SMS)[0], Held)


def test_few_rows_are_spread_over_all_multiprocessors():
    assert forward_cut(768, 40, SMS, centred=True, residual=False).rows == 1
    assert backward_cut(768, 40, SMS, centred=True, total=False, itemsize=2, shared=227 * 1024).rows == 1


def test_stages_are_as_many_as_shared_memory_holds():
    cut = backward_cut(8192, 4096, SMS, centred=True, total=True, itemsize=4, shared=227 * 1024)
    assert cut.stages == 3
    assert fitted(cut, total=True, itemsize=4, shared=99 * 1024).stages == 2
    assert fitted(cut, total=True, itemsize=4, shared=48 * 1024).stages == 1
