"""The machine's model of Hopper's tensor cores against an H200's answers (tests/golden/h200_tensor.json.gz).

Made by `python benchmarks/conformance.py FOLDER --group tensor`. Integers and moves are held by a hash, floats bit by
bit, with NaN made one. Where wmma has the elements of its fragments the PTX ISA leaves open.
"""

import pytest

from simt.conformance import replay
from simt.conformance.replay import compared, digest, everything, results, told_apart
from undertorch.gpus import find

GOLDEN = replay.GOLDENS["tensor"]
KNOWN = {"wmma bits wmma.mma.sync.aligned.row.col.m32n8k16.f16.f32 [3]": 1}
"""Elements that differ: a product that vanishes beside a negative subnormal C is -0 there and 0 here."""


@pytest.fixture(scope="module")
def golden():
    return replay.read(GOLDEN)


def test_a_gpu_answered(golden):
    """`--on machine` writes the same file, to try the script: that one is no golden."""
    assert golden["gpu"].startswith("NVIDIA")
    assert not golden["errors"]


def test_the_model_gives_what_the_gpu_gave(golden):
    launch = replay.machine(find("H200"))
    wrong = []
    for name, item in everything("tensor"):
        if golden["kernels"].get(name) != digest(item):
            wrong.append(f"{name} was not recorded as it is now")
            continue
        if name.startswith("fragment"):
            continue
        for result in results(item, launch):
            kept = golden["results"][result.name]
            if result.bounded:
                differs = told_apart(result, kept)
                if differs.sum() != KNOWN.get(result.name, 0):
                    wrong.append(f"{name}: {differs.sum()} of {differs.size}")
            elif compared(result, kept).held == "differs":
                wrong.append(name)
    assert not wrong, f"{len(wrong)}: {wrong[:20]}"
