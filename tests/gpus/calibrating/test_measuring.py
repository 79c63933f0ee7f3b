"""From times to ceilings, on a GPU that is made up."""

import pytest

from gpus.calibrating.made_up import H200, MadeUp
from undertorch.gpus.calibrating import Facts, ProbeFailed, calibrate, plan
from undertorch.gpus.calibrating.measuring import ceiling
from undertorch.records import Origin


def measured(gpu: MadeUp):
    return calibrate(gpu, clock=gpu.clock)


def test_a_gpu_of_two_terabytes_a_second_is_found_to_have_them():
    found = measured(MadeUp(rate=2e12))
    for name in ("global copy", "global read", "global write", "l2 read", "shared read", "matmul tensor-bf16"):
        assert found.ceiling(name).value == pytest.approx(2e12), name
        assert found.ceiling(name).origin is Origin.MEASURED


def test_every_ceiling_of_the_plan_is_there_once():
    found = measured(MadeUp(rate=1e15, rates={"launch call": 1e-6}))
    assert [one.name for one in found.ceilings] == list(dict.fromkeys(probe.ceiling for probe in plan(H200)))


def test_the_best_variant_counts_and_is_named():
    variants = [probe.variant for probe in plan(H200) if probe.ceiling == "global copy"]
    gpu = MadeUp(rate=1e12, rates={f"global copy, {variants[2]}": 4.27e12})
    best = measured(gpu).ceiling("global copy")
    assert (best.value, best.variant) == (pytest.approx(4.27e12), variants[2])


def test_of_times_the_least_is_the_best():
    found = measured(MadeUp(rates={"launch and wait": 5e-6}))
    assert found.ceiling("launch and wait").value == pytest.approx(5e-6)


def test_median_best_sample_and_spread():
    """Samples of 0.9, 1 and 1.1 ms: the tenth and the ninetieth of a hundred lie at 0.92 and 1.08."""
    probe = next(probe for probe in plan(H200) if probe.ceiling == "global read")
    found = ceiling(probe, [1.1e-3, 0.9e-3, 1e-3])
    assert found.value == pytest.approx(1.0737e12, rel=1e-4)
    assert found.best == pytest.approx(1.0737e12 / 0.9, rel=1e-4)
    assert found.spread == pytest.approx(0.16)
    assert found.samples == 3


def test_a_single_sample_has_no_spread():
    probe = plan(H200)[0]
    assert ceiling(probe, [1e-3]).spread == 0


@pytest.mark.parametrize("seconds", [0.0, -1e-6])
def test_a_run_that_took_no_time_is_no_measurement(seconds):
    with pytest.raises(ProbeFailed):
        ceiling(plan(H200)[0], [1e-3, seconds])


def test_what_fails_is_listed_by_name_and_ends_nothing_else():
    gpu = MadeUp(broken={"l2 read": "it does not compile", "matmul tensor-fp8": "no such dtype"})
    found = measured(gpu)
    assert found.ceiling("l2 read") is None
    assert found.ceiling("shared read") is not None
    assert found.ceiling("matmul tensor-int8") is not None
    assert {name.partition(",")[0] for name in found.failed} == {"l2 read", "matmul tensor-fp8"}
    assert set(found.failed.values()) == {"it does not compile", "no such dtype"}


def test_a_slow_product_is_not_tried_eight_times_as_large():
    """4096³ is 0.137 TFLOP: at 1 TFLOP/s 137 ms, and 8192³ would take 1.1 s."""
    gpu = MadeUp(rate=1e12)
    measured(gpu)
    sizes = [what.rpartition(", ")[2] for what in gpu.ran if what.startswith("matmul fp32")]
    assert sizes == ["2,048³", "4,096³"]


def test_after_two_minutes_the_rest_is_listed_as_not_measured():
    """At 10 GFLOP/s the first product, 17 GFLOP, takes 1.7 s, and three samples of it 5: of seven units all are begun.
    At 0.1 GFLOP/s the first takes 515 s, and nothing follows it."""
    gpu = MadeUp(rates={"matmul tensor-fp64": 1e8}, rate=1e15)
    found = measured(gpu)
    assert found.ceiling("matmul tensor-fp64") is not None
    assert found.ceiling("matmul fp32") is None
    assert found.failed["matmul fp32, 2,048³"] == "110 seconds were over"


def test_a_gpu_is_known_by_its_drivers_name():
    assert measured(MadeUp()).gpu == "H200"
    stranger = Facts(gpu_name="Some GPU of next year", driver=None, sms=4, memory_bytes=1 << 34, l2_bytes=1 << 22)
    assert measured(MadeUp(known=stranger)).gpu is None


def test_progress_names_each_ceiling_once():
    said: list[str] = []
    gpu = MadeUp()
    calibrate(gpu, said.append, gpu.clock)
    assert said == list(dict.fromkeys(probe.ceiling for probe in plan(H200)))
