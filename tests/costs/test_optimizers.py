"""Fused optimizers: bytes and FLOPs a parameter, and how tensors are shared out over launches."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kernel, Math


def adam(*sizes: int, name: str = "_fused_adamw_", dtype: str = "float32", decay: float = 0.0, amsgrad: bool = False):
    def lists() -> tuple:
        return tuple(tensor(size, dtype=dtype) for size in sizes)

    call = op(
        name,
        self=lists(),
        grads=lists(),
        exp_avgs=lists(),
        exp_avg_sqs=lists(),
        max_exp_avg_sqs=lists() if amsgrad else (),
        state_steps=tuple(tensor() for _ in sizes),
        lr=1e-3,
        beta1=0.9,
        beta2=0.999,
        weight_decay=decay,
        eps=1e-8,
        amsgrad=amsgrad,
        maximize=False,
        grad_scale=None,
        found_inf=None,
    )
    return kernels(call, H200)


def moved(found: tuple[Kernel, ...]) -> int:
    return sum(kernel.min_bytes for kernel in found)


@pytest.mark.parametrize("name", ["_fused_adamw_", "_fused_adam_"])
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float64", 8)])
def test_adam_moves_seven_elements_a_parameter(name: str, dtype: str, size: int):
    """Parameter, gradient, two moments read; parameter and two moments written."""
    (kernel,) = adam(1000, 77, name=name, dtype=dtype)
    assert kernel.min_bytes_read == 4 * 1077 * size
    assert kernel.min_bytes_written == 3 * 1077 * size
    assert kernel.flops == 15 * 1077
    assert kernel.math is (Math.FP64 if dtype == "float64" else Math.FP32)


def test_weight_decay_is_two_flops_more_and_amsgrad_a_list_read_and_written():
    (plain,), (decayed,), (largest,) = adam(100), adam(100, decay=0.1), adam(100, amsgrad=True)
    assert decayed.flops - plain.flops == 2 * 100
    assert largest.min_bytes - plain.min_bytes == 2 * 100 * 4


def test_a_block_takes_65536_elements_of_one_tensor():
    (kernel,) = adam(65536, 65537, 1)
    assert kernel.grid == (1 + 2 + 1, 1, 1)
    assert kernel.block == (512, 1, 1)


def test_bytes_are_shared_out_by_the_elements_of_each_launch():
    """400 chunks of one tensor: 320 blocks fill a launch, 80 are left."""
    first, second = adam(400 * 65536)
    assert (first.blocks, second.blocks) == (320, 80)
    assert first.min_bytes == 320 * 65536 * 28
    assert second.min_bytes == 80 * 65536 * 28


def test_no_parameter_is_no_launch():
    assert adam() == ()
    assert moved(adam(0)) == 0


def test_sgd_with_momentum_moves_a_third_list():
    def sgd(momentum: float) -> Kernel:
        buffers = (tensor(1000),) if momentum else ()
        call = op(
            "_fused_sgd_",
            self=(tensor(1000),),
            grads=(tensor(1000),),
            momentum_buffer_list=buffers,
            weight_decay=0.0,
            momentum=momentum,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
            grad_scale=None,
            found_inf=None,
        )
        (kernel,) = kernels(call, H200)
        return kernel

    assert sgd(0.0).min_bytes == 3 * 4000
    assert sgd(0.9).min_bytes == 5 * 4000
    assert (sgd(0.0).flops, sgd(0.9).flops) == (2 * 1000, 5 * 1000)
