"""The command line of training: what it prints, what it refuses, and with which status."""

import pytest

from tiny_training import words
from undertorch.cli.main import run
from undertorch.train.config import PRESETS

SMALL = (
    *("--layers", "1", "--width", "32", "--heads", "4", "--context", "16", "--vocabulary", "300", "--batch", "4"),
    *("--steps", "4", "--on", "cpu", "--no-see"),
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDERTORCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(words())


def test_from_text_to_checkpoint_samples_and_picture(tmp_path, capsys):
    assert run(["train", "text.txt", *SMALL, "--sample", "abc"]) == 0
    said = capsys.readouterr().out
    assert "a table of what follows two bytes has" in said
    assert "--- sample 1 of 1, seed 1337\nabc" in said
    folder = tmp_path / "runs" / "nano"
    assert (folder / "checkpoints" / "step-00000004").is_dir()
    assert (folder / "loss.svg").read_text().startswith("<svg")


def test_a_run_is_not_written_over_and_goes_on_where_it_is_asked_to(capsys):
    assert run(["train", "text.txt", *SMALL]) == 0
    assert run(["train", "text.txt", *SMALL]) == 2
    assert "pass --resume to go on with it" in capsys.readouterr().err
    assert run(["train", "--resume", "--steps", "6", "--on", "cpu", "--no-see"]) == 0
    assert "after step 4\n" in capsys.readouterr().out
    assert run(["train", "--resume", "--on", "cpu", "--no-see"]) == 0
    assert "after step 6; all 6 are made" in capsys.readouterr().out
    assert run(["train", "--resume", "--on", "cpu", "--gpu", "H100"]) == 2
    assert "no step is shown of a run that goes on" in capsys.readouterr().err


def test_the_help_names_every_preset(capsys):
    assert run(["train", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ", ".join(PRESETS) in said


def test_a_text_that_changed_is_not_gone_on_with(tmp_path, capsys):
    assert run(["train", "text.txt", *SMALL]) == 0
    (tmp_path / "text.txt").write_text(words(5))
    assert run(["train", "text.txt", "--resume", "--on", "cpu", "--no-see"]) == 2
    assert "trained on another text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.txt"], "there is no file nowhere.txt"),
        (["text.txt", "--context", "16384"], "too short"),
        (["text.txt", "--preset", "nanp"], "there is no preset 'nanp'"),
        (["text.txt", "--rate", "-1"], "--rate is -1.0"),
        (["text.txt", "--tokenizer", "none.json"], "none.json"),
        ([""], "named ''"),
        (["text.txt", "--preset", ""], "there is no preset ''"),
        # Bytes of the command line that are no UTF-8, as Python hands them on; before any step is made.
        (["text.txt", "--sample", "\udcff"], "is no UTF-8"),
        (["text.txt", "--export", "e\udcff"], "is no UTF-8"),
        (["text.txt", "--tokenizer", "\udcff"], "is no UTF-8"),
        # What would have no effect.
        (["text.txt", "--gpu", "H100"], "no step is shown with --no-see"),
        (["text.txt", "--see", "page.html"], "no step is shown with --no-see"),
        (["text.txt", "--parallel", "fsdp"], "start them by torchrun"),
        (["text.txt", "--export", "there", "--on", "machine"], "leave out TEXT, --export"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_run(tmp_path, capsys, arguments, said):
    assert run(["train", *SMALL, *arguments]) == 2
    message = capsys.readouterr().err.strip()
    assert said in message
    assert len(message.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
