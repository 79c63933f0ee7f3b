"""Steps of whole models as an H200 ran them (tests/golden/measured/models.json.gz), beside the same scripts here.

Where an op stands is found in two ways that share nothing: on the GPU by markers in the profiler's trace and the
numbers of autograd's nodes, here by Python's own frames while the script runs on fake tensors.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.steps.see import see

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "measured" / "models.json.gz"
MODELS = ("resnet", "lstm", "dlrm", "vit", "bert", "moe", "unet", "llama", "llama-8b", "gpt2")


@pytest.fixture(scope="module")
def models() -> dict[str, dict]:
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))["models"]


def measured_ops(model: dict) -> Counter:
    """Op, line and phase of all that launched something on the GPU."""
    texts = [*model["texts"], None]
    numbers = {launch[1][0] for launch in model["launches"]}
    rows = ([texts[-1 if field is None else field] for field in model["ops"][number][:4]] for number in numbers)
    return Counter((name, line, phase) for name, line, _, phase in rows)


def test_all_ten_models_are_there_with_a_line_for_every_launch(models):
    assert set(MODELS) <= set(models)
    for name in MODELS:
        assert models[name]["launches"]
        assert not any(line is None for _, line, _ in measured_ops(models[name]))


@pytest.mark.parametrize(
    "name", ["dlrm", pytest.param("lstm", marks=pytest.mark.slow), pytest.param("resnet", marks=pytest.mark.slow)]
)
def test_each_op_of_the_gpu_stands_at_the_same_line_without_one(models, name):
    step = see(ROOT / "benchmarks" / "models" / f"{name}.py", ("--steps", "30"), gpus.find("H200"))
    launching = (step.ops[number] for number in {launch.ops[0] for launch in step.launches})
    found = Counter((op.name, f"{Path(op.where.file).name}:{op.where.line}", op.phase) for op in launching)
    assert measured_ops(models[name]) - found == Counter()
