"""How many bytes and operations a run is, by hand."""

import pytest

from gpus.calibrating.made_up import GIB, H200
from undertorch.gpus.calibrating import Facts, plan
from undertorch.gpus.calibrating.probes import KernelRun, LaunchRun, Probe, ProductRun
from undertorch.records import Math
from undertorch.records.calibrations import Unit

SMALL = Facts(gpu_name="small", driver=None, sms=10, memory_bytes=2 * GIB, l2_bytes=512 << 10)


def of(ceiling: str, facts: Facts = H200) -> list[Probe]:
    found = [probe for probe in plan(facts) if probe.ceiling == ceiling]
    assert found, ceiling
    return found


def test_a_copy_of_a_gibibyte_moves_two_and_a_millisecond_of_it_is_2_147_terabytes_a_second():
    for probe in of("global copy"):
        assert probe.figure(1e-3) == pytest.approx(2.147483648e12)


@pytest.mark.parametrize("ceiling", ["global read", "global write"])
def test_reading_or_writing_a_gibibyte_moves_one(ceiling):
    for probe in of(ceiling):
        assert probe.figure(1e-3) == pytest.approx(1.073741824e12)


@pytest.mark.parametrize("facts", [H200, SMALL])
@pytest.mark.parametrize(("ceiling", "times"), [("global copy", 2), ("global read", 1), ("global write", 1)])
def test_the_threads_of_a_launch_together_move_just_the_bytes_that_are_counted(facts, ceiling, times):
    """A thread moves as many vectors of 16 bytes as its kernel's name says."""
    for probe in of(ceiling, facts):
        run = probe.run
        assert isinstance(run, KernelRun)
        vectors = int(run.kernel.rpartition("_")[2])
        assert times * run.grid * run.block * vectors * 16 == probe.work
        assert all(buffer.bytes * times == probe.work for buffer in run.arguments)


def test_buffers_take_an_eighth_of_a_small_gpu_at_most():
    """Of 2 GiB, 256 MiB."""
    assert {probe.work for probe in of("global read", SMALL)} == {256 << 20}


def test_the_l2_is_read_by_4_blocks_an_sm_16_kib_a_pass():
    """132 SMs × 4 blocks × 1,024 passes × 16 KiB: 8.86 GB."""
    for probe in of("l2 read"):
        assert probe.work == 132 * 4 * 1024 * 16384
        assert probe.figure(1e-3) == pytest.approx(8.858370048e12)


def test_the_blocks_own_parts_of_the_l2_are_one_two_and_three_chunks_where_they_all_fit():
    """528 blocks × 16 KiB: 8.25 MiB each, of the H200's 60. Of 512 KiB and 40 blocks none fits: their 640 are more."""
    assert [probe.variant for probe in of("l2 read")] == ["of 8.25 MiB", "of 16.5 MiB", "of 24.8 MiB"]
    for probe in of("l2 read"):
        buffer, chunks = probe.run.arguments[1:3]
        assert buffer.bytes == probe.run.grid * chunks * 16384
    assert not [probe for probe in plan(SMALL) if probe.ceiling == "l2 read"]


def test_shared_memory_is_read_by_1024_threads_an_sm_64_bytes_a_pass():
    """132 SMs × 1,024 threads × 4 loads of 16 bytes × 4,096 passes: 35.4 GB, a millisecond at the H200's 33.5 TB/s."""
    (probe,) = of("shared read")
    assert probe.work == 132 * 1024 * 64 * 4096
    assert probe.work / 33.454e12 == pytest.approx(1.0591e-3, rel=1e-3)


def test_a_product_of_8192_is_1_0995_teraflop():
    """2 · 8192³ = 2⁴⁰."""
    (probe,) = [one for one in of("matmul tensor-bf16") if one.run.size == 8192]
    assert probe.work == 2**40
    assert probe.figure(1.5e-3) == pytest.approx(733e12, rel=1e-3)


def test_every_unit_that_is_asked_for_is_multiplied_on_in_growing_sizes():
    for math in ("fp32", "tensor-tf32", "tensor-bf16", "tensor-fp16", "tensor-fp8", "tensor-int8", "tensor-fp64"):
        sizes = [probe.run.size for probe in of(f"matmul {math}") if not probe.run.fast]
        assert sizes == [2048, 4096, 8192, 16384]


def test_fp8_is_tried_with_both_ways_to_add_up():
    assert {probe.run.fast for probe in of("matmul tensor-fp8")} == {False, True}


def test_matrices_that_do_not_fit_are_not_tried():
    """Three of 8,192² doubles are 1.5 GiB, more than half of 2."""
    for probe in plan(SMALL):
        if isinstance(probe.run, ProductRun):
            assert probe.run.size <= 4096


def test_two_hundred_launches_in_400_microseconds_are_2_each():
    (probe,) = of("launch call")
    assert probe.unit is Unit.SECONDS
    assert probe.figure(400e-6) == pytest.approx(2e-6)


def test_two_hundred_kernels_have_199_boundaries():
    for ceiling in ("kernel boundary, stream", "kernel boundary, graph"):
        (probe,) = of(ceiling)
        assert isinstance(probe.run, LaunchRun)
        assert probe.figure(199e-6) == pytest.approx(1e-6)


def test_variants_of_a_ceiling_stand_together():
    names = [probe.ceiling for probe in plan(H200)]
    assert len(dict.fromkeys(names)) == sum(a != b for a, b in zip(names, [None, *names], strict=False))
    assert f"matmul {Math.FP32}" in names
