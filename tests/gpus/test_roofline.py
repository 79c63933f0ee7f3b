"""Williams, Waterman, Patterson 2009, with the H200's published figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertorch import gpus
from undertorch.gpus.roofline import Distance, attainable, bandwidth, bound, ridge
from undertorch.records import Bound, Math

H200 = gpus.find("H200")


def test_the_h200s_bf16_ridge_is_206_operations_a_byte():
    """989.4 TFLOP/s over 4.8 TB/s."""
    assert ridge(H200, Math.TENSOR_BF16) == pytest.approx(206.1, abs=0.05)


def test_under_the_ridge_the_rate_is_intensity_times_bandwidth_and_above_it_the_peak():
    assert attainable(H200, 100, Math.TENSOR_BF16) == pytest.approx(480e12)
    assert attainable(H200, 300, Math.TENSOR_BF16) == pytest.approx(989.4e12)
    assert attainable(H200, 0, Math.TENSOR_BF16) == 0


def test_each_distance_has_a_roof_of_its_own():
    """33.45 TB/s of shared memory: 132 SMs × 128 bytes × 1.98 GHz."""
    assert bandwidth(H200, Distance.SHARED) == pytest.approx(33.454e12, rel=1e-4)
    assert ridge(H200, Math.FP32, Distance.SHARED) == pytest.approx(2.0, rel=1e-3)
    assert attainable(H200, 1, Math.FP32, Distance.SHARED) == pytest.approx(33.454e12, rel=1e-4)


def test_an_unknown_bandwidth_or_peak_is_none():
    assert ridge(gpus.find("B200"), Math.FP32, Distance.L2) is None
    assert attainable(gpus.find("B200"), 1, Math.FP32, Distance.L2) is None
    v100 = gpus.find("V100-SXM2-16GB")
    assert ridge(v100, Math.TENSOR_BF16) is None
    assert attainable(v100, 1, Math.TENSOR_BF16) is None
    assert bound(v100, 1, 1, Math.TENSOR_BF16) is None


def test_adding_two_vectors_is_bound_by_memory_and_a_large_matmul_by_compute():
    """n additions of float32 move 12 n bytes; a bf16 matmul does 2 n³ operations on 3 n² elements of 2 bytes."""
    assert bound(H200, 10**6, 12 * 10**6, Math.FP32) is Bound.MEMORY
    assert bound(H200, 2 * 8192**3, 3 * 8192**2 * 2, Math.TENSOR_BF16) is Bound.COMPUTE
    assert bound(H200, 2 * 64**3, 3 * 64**2 * 2, Math.TENSOR_BF16) is Bound.MEMORY


def test_a_copy_is_bound_by_memory_and_nothing_by_nothing():
    assert bound(H200, 0, 100, Math.FP32) is Bound.MEMORY
    assert bound(H200, 100, 0, Math.FP32) is Bound.COMPUTE
    assert bound(H200, 0, 0, Math.FP32) is None


@pytest.mark.parametrize(("flops", "moved"), [(-1, 0), (0, -1)])
def test_less_than_nothing_is_refused(flops, moved):
    with pytest.raises(ValueError, match="both are 0 or more"):
        bound(H200, flops, moved, Math.FP32)


def test_a_negative_intensity_is_refused():
    with pytest.raises(ValueError, match="intensity is -1"):
        attainable(H200, -1, Math.FP32)


@given(gpu=st.sampled_from(gpus.all_gpus()), flops=st.integers(1, 10**15), moved=st.integers(1, 10**13))
def test_the_bound_changes_at_the_ridge(gpu, flops, moved):
    above = flops / moved > ridge(gpu, Math.FP32)
    assert bound(gpu, flops, moved, Math.FP32) is (Bound.COMPUTE if above else Bound.MEMORY)


@given(gpu=st.sampled_from(gpus.all_gpus()), low=st.floats(0, 1e6), more=st.floats(0, 1e6))
def test_more_operations_a_byte_never_reach_less(gpu, low, more):
    assert attainable(gpu, low, Math.FP32) <= attainable(gpu, low + more, Math.FP32) <= gpu.peaks[Math.FP32]
