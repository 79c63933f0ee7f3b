"""Predicted times of channels-last batch norms beside those that an H200 took for ResNet-50's (bfloat16, 256 images:
tests/golden/measured/models.json.gz)."""

import gzip
import json
from functools import cache

import pytest

from costs.by_hand import op
from costs.recorded import GOLDEN, H200
from steps.predict.test_convolution_times import predicted
from undertorch import costs
from undertorch.records import TensorRef

SHAPES = [(64, 112), (64, 56), (256, 56), (128, 56), (128, 28), (512, 28), (256, 28), (256, 14), (1024, 14), (2048, 7)]
"""Channels, height and width."""

FORWARD = ("batch_norm_collect_statistics_channels_last", "batch_norm_transform_input_channels_last")
BACKWARD = ("batch_norm_backward_reduce_channels_last", "batch_norm_backward_elemt_channels_last")


def channels_last(channels: int, size: int) -> TensorRef:
    return TensorRef(
        shape=(256, channels, size, size),
        strides=(channels * size * size, 1, channels * size, channels),
        dtype="bfloat16", device="cuda:0", storage=1, offset=0, version=1,
    )  # fmt: skip


def vector(channels: int) -> TensorRef:
    return TensorRef(shape=(channels,), strides=(1,), dtype="float32", device="cuda:0", storage=2, offset=0, version=1)


def kernels(channels: int, size: int):
    image, one = channels_last(channels, size), vector(channels)
    weights = {"weight": one, "running_mean": one, "running_var": one}
    forward = op(
        "native_batch_norm", image, one, one, input=image, bias=one, training=True, momentum=0.1, eps=1e-5, **weights
    )
    backward = op(
        "native_batch_norm_backward", image, one, one, grad_out=image, input=image, save_mean=one, save_invstd=one,
        train=True, eps=1e-5, output_mask=(True, True, True), **weights,
    )  # fmt: skip
    return (*costs.kernels(forward, H200), *costs.kernels(backward, H200))


@cache
def recorded(name: str) -> list[float]:
    """Microseconds of each of the 53, in the order of the network (backward: the other way round)."""
    with gzip.open(GOLDEN / "measured" / "models.json.gz") as file:
        content = json.load(file)["models"]["resnet"]
    times = [one[9] for one in content["launches"] if content["texts"][one[0]].startswith(name)]
    return times if name in FORWARD else times[::-1]


FIRST = {
    (64, 112): 0, (64, 56): 1, (256, 56): 3, (128, 56): 11, (128, 28): 12, (512, 28): 13, (256, 28): 24, (256, 14): 25,
    (1024, 14): 26, (2048, 7): 46,
}  # fmt: skip
"""Which of ResNet-50's batch norms is the first of a shape."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*FORWARD, *BACKWARD])
def test_it_takes_about_as_long_as_the_gpu_took(name, shape):
    """Within 35 % of single launches, from 18 to 711 µs: two recordings of one lie up to 5 % apart."""
    (kernel,) = [one for one in kernels(*shape) if one.name.startswith(name)]
    times = recorded(name)
    assert len(times) == 53
    assert predicted(kernel) / times[FIRST[shape]] == pytest.approx(1, abs=0.35)
