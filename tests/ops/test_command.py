"""`undertorch ops` as its user meets it, on a machine without a GPU."""

import pytest

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
    assert "chosen on a GPU: rms_norm_forward bfloat16 128x64: library (because)" in said
    assert "3.5 µs  1 row, 8 warps" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "relu"], "there is no op 'relu'"),
        (["bench", "rms_norm"], "undertorch ops bench rms_norm 16384x4096"),
        (["bench", "rms_norm", "0x5"], "undertorch ops bench rms_norm 16384x4096"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_sentence(arguments, said, capsys):
    assert run(["ops", *arguments]) == 2
    assert said in capsys.readouterr().err
