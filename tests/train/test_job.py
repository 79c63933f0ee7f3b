"""A run that is started again and again by the same command."""

from dataclasses import replace

import pytest

from tiny_training import asked_for, words
from undertorch.train.errors import BadSetting
from undertorch.train.loop import Ended
from undertorch.train.report import METRICS, read_metrics
from undertorch.train.start import start


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(words())
    return path


def test_there_is_nothing_to_resume_where_no_run_is(tmp_path, text):
    with pytest.raises(BadSetting, match=r"no run in .*typo to go on with.* --resume-or-begin"):
        start(asked_for(tmp_path / "typo", text, resume=True), None)
    assert not (tmp_path / "typo").exists()


def test_a_job_begins_goes_on_and_writes_its_export_anew(tmp_path, text, capsys):
    asked = asked_for(tmp_path / "run", text, checkpoint_every=2)
    job = replace(asked, resume=True, or_begin=True, export=tmp_path / "export")
    assert start(job, None) is Ended.DONE
    assert "has no checkpoint yet, so the run begins at its first step" in capsys.readouterr().err
    first = (tmp_path / "export" / "model.safetensors").read_bytes()
    assert start(replace(job, changes={**job.changes, "steps": 4}), None) is Ended.DONE
    assert "going on from" in capsys.readouterr().out
    assert (tmp_path / "export" / "model.safetensors").read_bytes() != first
    rows = read_metrics(tmp_path / "run" / METRICS)
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]


def test_a_run_does_not_write_over_the_export_of_another(tmp_path, text):
    start(replace(asked_for(tmp_path / "one", text), export=tmp_path / "export"), None)
    before = (tmp_path / "export" / "model.safetensors").read_bytes()
    start(asked_for(tmp_path / "other", text, seed=2), None)
    with pytest.raises(BadSetting, match=r"export of another run is there, .*one;"):
        start(replace(asked_for(tmp_path / "other", text, resume=True), export=tmp_path / "export"), None)
    with pytest.raises(BadSetting, match="something there already"):
        start(replace(asked_for(tmp_path / "third", text), export=tmp_path / "export"), None)
    assert (tmp_path / "export" / "model.safetensors").read_bytes() == before


def test_a_step_of_other_tokens_is_told_when_a_run_goes_on(tmp_path, text, capsys):
    """Half the batch, and how many microbatches are the step that was: two of it."""
    asked = asked_for(tmp_path / "run", text, batch=4, steps=1)
    start(asked, None)
    start(replace(asked, resume=True, changes={**asked.changes, "batch": 2, "steps": 2}), None)
    context = asked.changes["context"]
    said = " ".join(capsys.readouterr().out.split())
    assert f"a step has {2 * context:,} tokens from here on; it had {4 * context:,} (--accumulate 2 keeps that)" in said
    start(replace(asked, resume=True, changes={**asked.changes, "batch": 2, "steps": 3}), None)
    assert "from here on" not in capsys.readouterr().out
