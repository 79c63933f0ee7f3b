"""Convolutions and pooling: FLOPs and bytes by hand; of cuDNN's recorded calls the kernels that multiply."""

from dataclasses import replace

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200, named
from undertorch.costs import kernels
from undertorch.records import Kernel, Kind, Math, Origin


def convolution(
    source,
    weight,
    result,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    transposed: bool = False,
    bias=None,
    gpu=H200,
    tf32=True,
) -> tuple[Kernel, ...]:
    call = op(
        "convolution",
        result,
        input=source,
        weight=weight,
        bias=bias,
        stride=(stride, stride),
        padding=(padding, padding),
        dilation=(1, 1),
        transposed=transposed,
        output_padding=(0, 0),
        groups=groups,
    )
    return kernels(replace(call, tf32=tf32), gpu)


def work(found: tuple[Kernel, ...]) -> list[Kernel]:
    return [kernel for kernel in found if kernel.kind is Kind.CONVOLUTION and kernel.flops]


def test_a_convolution_multiplies_every_weight_at_every_place_of_the_output():
    """ResNet's second: 64 images of 56 × 56, 64 to 64 channels, 3 × 3."""
    shape = (64, 64, 56, 56)
    found = convolution(tensor(*shape), tensor(64, 64, 3, 3), tensor(*shape), padding=1)
    (main,) = work(found)
    assert main.flops == 2 * 64 * 64 * 56 * 56 * 64 * 9
    assert main.min_bytes == 2 * 64 * 64 * 56 * 56 * 4 + 64 * 64 * 9 * 4
    assert (main.math, main.geometry_origin) == (Math.TENSOR_TF32, Origin.PREDICTED)
    assert main.note


def test_groups_divide_the_work():
    shape = (8, 64, 28, 28)
    (whole,) = work(convolution(tensor(*shape), tensor(64, 64, 3, 3), tensor(*shape), padding=1))
    (parts,) = work(convolution(tensor(*shape), tensor(64, 8, 3, 3), tensor(*shape), padding=1, groups=8))
    assert whole.flops == 8 * parts.flops


def test_a_transposed_convolution_multiplies_at_every_place_of_the_input():
    found = convolution(tensor(4, 32, 16, 16), tensor(32, 16, 2, 2), tensor(4, 16, 32, 32), stride=2, transposed=True)
    (main,) = work(found)
    assert main.flops == 2 * 4 * (16 * 16) * 32 * 16 * 4


def test_a_pointwise_convolution_is_a_matrix_product():
    source, result = tensor(8, 256, 28, 28, dtype="bfloat16"), tensor(8, 64, 28, 28, dtype="bfloat16")
    found = convolution(source, tensor(64, 256, 1, 1, dtype="bfloat16"), result)
    assert sum(kernel.flops for kernel in work(found)) == 2 * 8 * 28 * 28 * 256 * 64
    assert any(kernel.library == "cuBLAS" for kernel in found)


def test_a_stride_that_is_longer_than_the_window_leaves_places_unread():
    """ResNet's shortcut, 1 × 1 of stride 2: of 56 × 56 places 28 × 28 are read. Its gradient is written at all."""
    source, weight = tensor(8, 256, 56, 56, dtype="bfloat16"), tensor(512, 256, 1, 1, dtype="bfloat16")
    result = tensor(8, 512, 28, 28, dtype="bfloat16")
    (main,) = work(convolution(source, weight, result, stride=2))
    assert main.min_bytes_read == 2 * (8 * 256 * 28 * 28 + 512 * 256)
    assert main.min_bytes_written == 2 * 8 * 512 * 28 * 28
    call = op(
        "convolution_backward", source, weight, None,
        grad_output=result, input=source, weight=weight, bias_sizes=None, stride=(2, 2), padding=(0, 0),
        dilation=(1, 1), transposed=False, output_padding=(0, 0), groups=1, output_mask=(True, True, False),
    )  # fmt: skip
    to_input, to_weight = work(kernels(call, H200))
    assert to_input.min_bytes_written == 2 * 8 * 256 * 56 * 56
    assert to_weight.min_bytes_read == 2 * (8 * 256 * 28 * 28 + 8 * 512 * 28 * 28)


@pytest.mark.parametrize(("channels", "tile"), [(64, "256x64x32"), (128, "128x128x64"), (512, "128x128x64")])
def test_more_than_64_channels_are_taken_128_at_a_time(channels: int, tile: str):
    """As the H200 took ResNet's (tests/golden/measured/models.json.gz), most of them."""
    shape = (8, channels, 28, 28)
    image = tensor(*shape, dtype="bfloat16", strides=(channels * 784, 1, 28 * channels, channels))
    (main,) = work(convolution(image, tensor(channels, channels, 3, 3, dtype="bfloat16"), image, padding=1))
    assert f"tilesize{tile}_" in main.name


def test_a_bias_is_added_by_a_kernel_of_its_own():
    shape = (8, 64, 28, 28)
    plain = convolution(tensor(*shape), tensor(64, 64, 3, 3), tensor(*shape), padding=1)
    added = convolution(tensor(*shape), tensor(64, 64, 3, 3), tensor(*shape), padding=1, bias=tensor(64))
    assert len(added) == len(plain) + 1
    assert added[-1].kind is Kind.ELEMENTWISE
    assert added[-1].flops == 8 * 64 * 28 * 28


def test_gradients_are_as_much_work_each_and_the_bias_a_sum():
    shape = (8, 64, 28, 28)
    call = op(
        "convolution_backward",
        tensor(*shape),
        tensor(64, 64, 3, 3),
        tensor(64),
        grad_output=tensor(*shape),
        input=tensor(*shape),
        weight=tensor(64, 64, 3, 3),
        bias_sizes=(64,),
        stride=(1, 1),
        padding=(1, 1),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=1,
        output_mask=(True, True, True),
    )
    found = kernels(call, H200)
    each = 2 * 8 * 64 * 28 * 28 * 64 * 9
    assert [kernel.flops for kernel in work(found)] == [each, each]
    assert found[-1].kind is Kind.REDUCTION


def test_recorded_3_by_3_convolutions_of_whole_channels_launch_as_many_kernels():
    """Names and grids are guesses; their number, with the turning of row-major images, is not."""
    cases = [case for case in named(["aten::convolution*"]) if "3x3" in case.name]
    assert len(cases) == 8
    for case in cases:
        assert len(kernels(case.ops[0], H200)) == len(case.kernels), case.name


def test_an_empty_batch_launches_nothing():
    assert convolution(tensor(0, 64, 8, 8), tensor(64, 64, 3, 3), tensor(0, 64, 8, 8), padding=1) == ()


def pooled(name: str, *results, **arguments) -> tuple[Kernel, ...]:
    return kernels(op(name, *results, **arguments), H200)


WINDOW = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": False}


def test_max_pooling_writes_values_and_64_bit_places():
    source, result = tensor(8, 64, 112, 112), tensor(8, 64, 56, 56)
    places = tensor(8, 64, 56, 56, dtype="int64")
    (kernel,) = pooled("max_pool2d_with_indices", result, places, self=source, dilation=(1, 1), **WINDOW)
    assert kernel.min_bytes_read == 8 * 64 * 112 * 112 * 4
    assert kernel.min_bytes_written == 8 * 64 * 56 * 56 * (4 + 8)
    assert (kernel.grid, kernel.block) == ((8 * 64 * 56 * 56 // 256, 1, 1), (256, 1, 1))
    assert kernel.flops == 0


def test_channels_last_images_are_pooled_with_channels_along_the_block():
    """64 channels: 32 × 32 × 1 threads; 56 columns: lastPow2 is 32, two pixels a thread (DilatedMaxPool2d.cu)."""
    strides = (64 * 112 * 112, 1, 112 * 64, 64)
    source = tensor(8, 64, 112, 112, strides=strides)
    result = tensor(8, 64, 56, 56, strides=(64 * 56 * 56, 1, 56 * 64, 64))
    places = tensor(8, 64, 56, 56, dtype="int64")
    (kernel,) = pooled("max_pool2d_with_indices", result, places, self=source, dilation=(1, 1), **WINDOW)
    assert kernel.name == "max_pool_forward_nhwc"
    assert (kernel.grid, kernel.block) == ((8, 1, 28), (32, 32, 1))
    assert kernel.shared_bytes == 2 * 32 * 32 * (4 + 4)


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (1024, 1), (1025, 2)])
def test_average_pooling_takes_1024_results_a_block_and_adds_a_window_each(count: int, blocks: int):
    source, result = tensor(1, count, 2, 2), tensor(1, count, 1, 1)
    (kernel,) = pooled(
        "avg_pool2d",
        result,
        self=source,
        kernel_size=(2, 2),
        stride=(2, 2),
        padding=(0, 0),
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    )
    assert kernel.grid == (blocks, 1, 1)
    # Three additions and a division.
    assert kernel.flops == 4 * count


def test_adaptive_pooling_counts_windows_that_overlap():
    """5 pixels into 2: windows 0-2 and 2-4, six pixels; into each, by height and width."""
    source, result = tensor(1, 1, 5, 5), tensor(1, 1, 2, 2)
    (kernel,) = pooled("_adaptive_avg_pool2d", result, self=source, output_size=(2, 2))
    # 36 elements: 32 additions, and two divisions each of 4 results.
    assert kernel.flops == 32 + 2 * 4


def test_upsampling_copies_every_pixel_to_its_places():
    source, result = tensor(2, 3, 8, 8), tensor(2, 3, 16, 16)
    (kernel,) = pooled("upsample_nearest2d", result, self=source, output_size=(16, 16), scales_h=None, scales_w=None)
    assert kernel.min_bytes == 2 * 3 * 4 * (64 + 256)
    assert (kernel.grid, kernel.block) == ((1, 1, 1), (16, 16, 2))
    back = pooled(
        "upsample_nearest2d_backward",
        source,
        grad_output=result,
        output_size=(16, 16),
        input_size=(2, 3, 8, 8),
        scales_h=None,
        scales_w=None,
    )
    assert back[-1].flops == 2 * 3 * 256
