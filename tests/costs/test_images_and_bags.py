"""Resampling, padding, windows and bags of embeddings: bytes from their definitions, geometry from PyTorch's source."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels

F32 = 4


def test_interpolation_reads_each_pixel_and_writes_each_result_once():
    small, large = tensor(2, 3, 40, 30), tensor(2, 3, 80, 60)
    (kernel,) = kernels(op("upsample_bilinear2d", large, self=small), H200)
    assert (kernel.min_bytes_read, kernel.min_bytes_written) == (F32 * 7200, F32 * 28800)
    assert (kernel.grid, kernel.block) == ((5, 1, 1), (1024, 1, 1))  # 4,800 pixels, a thread each
    fill, kernel = kernels(op("upsample_bilinear2d_backward", small, grad_output=large), H200)
    assert (kernel.min_bytes_read, kernel.min_bytes_written) == (F32 * 28800, F32 * 7200)
    assert fill.min_bytes_written == F32 * 7200


def test_an_interpolation_to_the_same_size_is_a_copy():
    (kernel,) = kernels(op("upsample_bicubic2d", tensor(2, 3, 8, 8), self=tensor(2, 3, 8, 8)), H200)
    assert kernel.flops == 0
    assert kernel.min_bytes == 2 * F32 * 2 * 3 * 64


@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_padding_has_a_plane_a_channel_and_image(kind):
    source, padded = tensor(5, 3, 30, 30), tensor(5, 3, 32, 34)
    (kernel,) = kernels(op(f"{kind}_pad2d", padded, self=source), H200)
    assert (kernel.grid, kernel.block) == ((-(-32 * 34 // 256), 3, 5), (256, 1, 1))
    assert (kernel.min_bytes_read, kernel.min_bytes_written, kernel.flops) == (source.bytes, padded.bytes, 0)
    fill, kernel = kernels(op(f"{kind}_pad2d_backward", source, grad_output=padded, self=source), H200)
    assert kernel.flops == padded.elements
    assert fill.min_bytes_written == source.bytes


def test_unfolding_launches_once_an_image():
    """8 images of 3 × 10 × 10 into windows of 3 × 3: 8 × 8 windows a channel, a thread each."""
    found = kernels(op("im2col", tensor(8, 27, 64), self=tensor(8, 3, 10, 10), kernel_size=(3, 3)), H200)
    assert len(found) == 8
    assert {kernel.grid for kernel in found} == {(1, 1, 1)}
    assert sum(kernel.min_bytes_written for kernel in found) == F32 * 8 * 27 * 64


@pytest.mark.parametrize(
    ("name", "factor"), [("pixel_shuffle", "upscale_factor"), ("pixel_unshuffle", "downscale_factor")]
)
def test_shuffled_pixels_are_copied_once(name, factor):
    shapes = [(2, 12, 5, 7), (2, 3, 10, 14)]
    source, result = (tensor(*shape) for shape in (shapes if name == "pixel_shuffle" else reversed(shapes)))
    (kernel,) = kernels(op(f"{name}", result, self=source, **{factor: 2}), H200)
    assert (kernel.min_bytes_read, kernel.min_bytes_written, kernel.flops) == (source.bytes, result.bytes, 0)


def bag(mode, name="_embedding_bag", **more):
    weight, indices, offsets = tensor(1000, 64), tensor(300, dtype="int64"), tensor(50, dtype="int64")
    largest = tensor(50, 64, dtype="int64") if mode == 2 else tensor(0, dtype="int64")
    results = (tensor(50, 64), indices, offsets, largest)
    return op(
        name, *results, weight=weight, indices=indices, offsets=offsets, mode=mode, per_sample_weights=None, **more
    )


@pytest.mark.parametrize(("mode", "additions"), [(0, 300 * 64), (1, 300 * 64), (2, 0)])
def test_a_bag_reads_its_rows_and_writes_one(mode, additions):
    (kernel,) = kernels(bag(mode), H200)
    assert kernel.min_bytes_read == F32 * 300 * 64 + 8 * (300 + 50)
    assert kernel.min_bytes_written == F32 * 50 * 64 + 8 * (300 + 50 + (50 * 64 if mode == 2 else 0))
    assert kernel.flops == additions
    assert (kernel.grid, kernel.block) == ((1024, 1, 1), (32, 8, 1))


def test_the_gradient_of_a_sum_of_rows_sorts_and_that_of_maxima_does_not():
    given = {
        "grad": tensor(50, 64),
        "indices": tensor(300, dtype="int64"),
        "maximum_indices": tensor(50, 64, dtype="int64"),
    }
    result = tensor(1000, 64)
    sums = kernels(op("_embedding_bag_backward", result, mode=0, **given), H200)
    assert any("RadixSort" in kernel.name for kernel in sums)
    fill, kernel = kernels(op("_embedding_bag_backward", result, mode=2, **given), H200)
    assert fill.min_bytes_written == result.bytes
    assert kernel.flops == 50 * 64
