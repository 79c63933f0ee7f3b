"""What a script tells torch about TF32 reaches the recorded Ops and their times."""

from functools import cache
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.records import Kind, Math, Recording, Step
from undertorch.steps.predict import predict
from undertorch.steps.record import record

SCRIPT = Path(__file__).parent / "record" / "scripts" / "float32_matmuls.py"


@cache
def recorded(setting: str, gpu: str = "H200") -> Recording:
    return record(SCRIPT, (setting,), gpus.find(gpu))


def step(setting: str) -> Step:
    return predict(recorded(setting), gpus.find("H200"))


def units(one: Step, kind: Kind) -> set[Math]:
    """Of the kernels of a kind that multiply; float32 sums of parts aside."""
    kernels = [launch.kernel for launch in one.launches if launch.kernel.kind is kind]
    return {kernel.math for kernel in kernels if kernel.math and not kernel.name.startswith("splitKreduce")}


def test_high_precision_takes_the_tensor_cores_and_a_fraction_of_the_time():
    """494 TFLOP/s in TF32 beside 67 in float32, of a step that hardly does anything but matmuls."""
    high, highest = step("high"), step("highest")
    assert units(high, Kind.MATMUL) == {Math.TENSOR_TF32}
    assert units(highest, Kind.MATMUL) == {Math.FP32}
    assert highest.step_us > 2.5 * high.step_us


@pytest.mark.parametrize(("setting", "seen"), [("high", "T4"), ("high", "H200"), ("highest", "H200")])
def test_a_t4_has_no_tf32_to_allow(setting: str, seen: str):
    """Whatever GPU the script saw."""
    assert units(predict(recorded(setting, seen), gpus.find("T4")), Kind.MATMUL) == {Math.FP32}


@pytest.mark.parametrize(
    ("setting", "matmuls", "convolutions"),
    [
        ("default", False, True),
        ("allow_tf32", True, True),
        ("fp32_precision", True, True),
        ("mixed", False, True),
        ("no convolution", False, False),
    ],
)
def test_old_and_new_settings_reach_the_ops_they_are_for(setting: str, matmuls: bool, convolutions: bool):
    """torch leaves TF32 off for matmuls and on for convolutions; the setting made last holds (backends/__init__.py)."""
    ops = recorded(setting).ops
    assert {op.tf32 for op in ops if op.name in ("aten::mm", "aten::addmm")} == {matmuls}
    assert {op.tf32 for op in ops if "convolution" in op.name} == {convolutions}
