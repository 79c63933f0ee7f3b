"""`undertorch ops` as its user meets it, on a machine without a GPU."""

import json
import re
from collections import Counter

import pytest
import torch

from undertorch.cli.main import run
from undertorch.ops import catalogue


def test_every_op_is_listed_with_what_it_is(capsys):
    assert run(["ops"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(catalogue.NAMES)


@pytest.mark.parametrize("op", catalogue.NAMES)
def test_every_op_says_who_serves_it_and_why(op, capsys):
    assert run(["ops", "explain", op]) == 0
    said = capsys.readouterr().out
    assert "undertorch" in said
    assert "PyTorch" in said
    assert said.startswith("UNDERTORCH_OPS, a variable of the environment, says who is asked: auto (")


def test_what_was_measured_here_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("UNDERTORCH_CACHE", str(tmp_path))
    (tmp_path / "ops.json").write_text(
        '{"schema": 1, "choices": {"a GPU": {"rms_norm_forward bfloat16 128x64": {"key": "rms_norm_forward bfloat16'
        ' 128x64", "way": "library", "microseconds": {"library": 2.0, "1 row, 8 warps": 3.5}, "why": "because"}}}}'
    )
    run(["ops", "explain", "rms_norm"])
    said = capsys.readouterr().out
    assert "chosen for rms_norm_forward of bfloat16, 65 to 128 rows of 64: library (because), on a GPU" in said
    assert "3.5 µs  1 row, 8 warps" in said


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("rms_norm_forward bfloat16 1x64", "rms_norm_forward of bfloat16, 1 row of 64"),
        ("rms_norm_forward bfloat16 2x64 odd", "rms_norm_forward of bfloat16, 2 rows of 64 (odd)"),
        ("rms_norm_backward float32 16384x4096", "rms_norm_backward of float32, 8,193 to 16,384 rows of 4,096"),
    ],
)
def test_for_which_shapes_a_choice_holds_is_told(rows, said, tmp_path, monkeypatch, capsys):
    """Rows up to a power of two: those of 16,384 begin behind 8,192."""
    monkeypatch.setenv("UNDERTORCH_CACHE", str(tmp_path))
    choice = {"key": rows, "way": "library", "microseconds": {}, "why": "because"}
    (tmp_path / "ops.json").write_text(json.dumps({"schema": 1, "choices": {"a GPU": {rows: choice}}}))
    run(["ops", "explain", "rms_norm"])
    assert f"  chosen for {said}: library (because), on a GPU\n" in capsys.readouterr().out


NORMS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")


@pytest.mark.parametrize("op", NORMS)
def test_a_norm_names_the_kernel_that_torch_runs_for_it(op, capsys):
    """F.rms_norm is aten::_fused_rms_norm, F.layer_norm aten::native_layer_norm; the sum is an add before either."""
    run(["ops", "explain", op])
    said = capsys.readouterr().out
    assert ("_fused_rms_norm" in said) is ("rms" in op)
    assert ("native_layer_norm" in said) is ("layer" in op)
    assert ("add, then" in said) is op.startswith("add")


def test_no_two_norms_say_the_same(capsys):
    texts = Counter()
    for op in NORMS:
        run(["ops", "explain", op])
        texts[re.sub(rf"\b{op}\b", "", capsys.readouterr().out)] += 1
    assert max(texts.values()) == 1


@pytest.mark.parametrize("gpu", [False, True])
def test_it_is_told_that_nothing_was_chosen_here(gpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("UNDERTORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    run(["ops", "explain", "softmax"])
    said = capsys.readouterr().out
    assert ("There is no GPU here: nothing was measured or chosen on this machine." in said) is not gpu
    assert ("nothing is chosen here so far" in said) is gpu


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "relu"], "there is no op 'relu'"),
        (["bench", "rms_norm"], "undertorch ops bench rms_norm 16384x4096"),
        (["bench", "rms_norm", "0x5"], "undertorch ops bench rms_norm 16384x4096"),
        (["bench", "attention", "4096x128"], "attention is measured at a shape BATCHxHEADSxTOKENSxSIZE"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_sentence(arguments, said, capsys):
    assert run(["ops", *arguments]) == 2
    assert said in capsys.readouterr().err
