"""Whole Triton kernels, as they were compiled for sm_80, against what an H200 made of them.

Made by `python benchmarks/triton_conformance.py` (tests/golden/h200_triton.json.gz). Sums on tensor cores, sorts, scans
and integer atomics are the GPU's bit for bit; what goes through approximations lies within the error that the PTX ISA
states for each, carried through the kernel (running_error.py).
"""

import dataclasses
from base64 import b64decode, b64encode

import numpy as np
import pytest

from simt.conformance import launched, replay
from simt.conformance.triton_bounds import verdicts

CASES, TEXTS, _ = launched.sequences()
BY_NAME = {case.name: case for case in CASES}


@pytest.fixture(scope="module")
def golden():
    return replay.read(launched.GOLDEN)


def test_a_gpu_answered_every_case(golden):
    """`--on machine` writes the same file, to try the script: that one is no golden."""
    assert golden["gpu"].startswith("NVIDIA")
    assert not golden["errors"]
    assert golden["results"].keys() == BY_NAME.keys()


def test_only_sums_by_float_atomics_change_from_run_to_run(golden):
    """Each case ran twice on the GPU: all else has an order."""
    changed = {name: r["differs_between_runs"] for name, r in golden["results"].items() if r["differs_between_runs"]}
    assert changed.keys() <= {"float_atomics"}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_machine_gives_what_the_gpu_gave(name, golden):
    found = list(verdicts(BY_NAME[name], TEXTS, golden))
    assert found
    assert not [verdict.line() for verdict in found if not verdict.holds]


@pytest.mark.parametrize("name", ["matmul_f16", "matmul_bf16", "matmul_tf32", "grouped_gemm"])
def test_whole_matmuls_are_the_gpus_bit_for_bit(name, golden):
    exact = [verdict for verdict in verdicts(BY_NAME[name], TEXTS, golden) if verdict.mma == "exact"]
    assert [verdict.differ for verdict in exact] == [0] * len(exact)


@pytest.mark.parametrize(("name", "result"), [("softmax", "y"), ("sort_i32", "which"), ("matmul_f16", "c")])
def test_a_wrong_answer_is_told(name, result, golden):
    """One element off by a thousandth of it, or by one."""
    case, kept = BY_NAME[name], golden["results"][name]
    values = np.frombuffer(b64decode(kept["buffers"][result]), case.dtypes[result]).copy()
    values[1] += max(abs(values[1]) / 1000, 1) if values.dtype.kind == "i" else abs(values[1]) / 1000
    changed = kept | {"buffers": kept["buffers"] | {result: b64encode(values.tobytes()).decode()}}
    found = verdicts(case, TEXTS, {"results": {name: changed}, "errors": {}})
    assert [verdict.result for verdict in found if not verdict.holds and verdict.mma != "fast"] == [result]


def test_a_recording_of_something_else_is_refused(golden):
    case = BY_NAME["dropout"]
    one = dataclasses.replace(case.launches[0], grid=(9, 1, 1))
    with pytest.raises(LookupError, match="dropout is not recorded as it is now"):
        list(verdicts(dataclasses.replace(case, launches=(one,)), TEXTS, golden))
