"""The machine against the recorded answers of a GPU (tests/golden/h200_ptx.json.gz, by benchmarks/conformance.py)."""

import base64

import numpy as np
import pytest

from simt.conformance import replay
from simt.conformance.meaning import meaning
from simt.conformance.programs import plain_programs
from simt.conformance.replay import compared, digest, everything, plain_forms, results
from undertorch.gpus import find

HELD = {"exact", "bounded"}


@pytest.fixture(scope="module")
def golden():
    return replay.read()


def test_a_gpu_answered(golden):
    """`--on machine` writes the same file, to try the script: that one is no golden."""
    assert golden["gpu"].startswith("NVIDIA")
    assert not golden["errors"]


def test_the_machine_gives_what_the_gpu_gave(golden):
    """Bit for bit, NaN payloads too; approximations have a test of their own."""
    launch = replay.machine(find("H200"))
    wrong = []
    for name, item in everything():
        if golden["kernels"].get(name) != digest(item):
            wrong.append(f"{name} was not recorded as it is now")
            continue
        for result in results(item, launch):
            if result.name in golden["results"] and compared(result, golden["results"][result.name]).held not in HELD:
                wrong.append(result.name)
    assert not wrong, f"{len(wrong)}: {wrong[:20]}"


def test_the_gpus_approximations_are_within_the_stated_error(golden):
    """The same rule that the machine is held to: so both are within twice that error of each other."""
    for program in plain_programs(plain_forms()):
        rows = list(zip(*(i.tolist() for i in program.inputs), strict=True))
        for trial, part in zip(program.trials, program.results, strict=False):
            kept = golden["results"].get(trial.name)
            if not isinstance(kept, dict):
                continue
            bits = np.frombuffer(
                base64.b64decode(kept["bits"]), part.of(np.zeros(program.output_bytes, np.uint8)).dtype
            )
            rule = meaning(trial)
            for row, got in zip(rows, bits.tolist(), strict=True):
                (want,) = rule(*row, *trial.fixed)
                assert want(got) if callable(want) else want == got, f"{trial.name} of {row}: {got:#x}"
