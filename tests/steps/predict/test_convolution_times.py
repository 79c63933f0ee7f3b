"""Predicted times of convolutions beside those that an H200 took (tests/golden/h200_ops.json.gz, cold caches)."""

import pytest

from costs.recorded import Case, single_ops
from undertorch import costs, gpus
from undertorch.gpus.occupancy import occupancy
from undertorch.records import Kernel
from undertorch.steps.predict.times import timing

H200 = gpus.find("H200")
CALLS = {case.name: case for case in single_ops() if "convolution" in case.ops[0].name and "bfloat16" in case.name}


def predicted(kernel: Kernel) -> float:
    resident = None
    if kernel.threads is not None and kernel.registers is not None and kernel.shared_bytes is not None:
        resident = occupancy(H200, kernel.registers, kernel.shared_bytes, kernel.threads).blocks_per_sm
    return timing(kernel, H200, resident).time_us


def ratio(case: Case) -> float:
    kernels = [kernel for op in case.ops for kernel in costs.kernels(op, H200) or ()]
    return sum(map(predicted, kernels)) / sum(kernel.us for kernel in case.kernels)


@pytest.mark.parametrize("name", CALLS)
def test_a_convolution_takes_about_as_long_as_the_gpu_took(name):
    """Within a factor of 1.5: cuDNN's choice among kernels is not known."""
    assert 1 / 1.5 < ratio(CALLS[name]) < 1.5


def test_there_are_enough_of_them():
    """Images of 3 channels, 3 × 3 and 1 × 1 windows, forward and backward, in both layouts."""
    assert len(CALLS) == 12
