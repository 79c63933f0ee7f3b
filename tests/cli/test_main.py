"""What the program answers before any command."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from undertorch.cli.exits import BadInput
from undertorch.cli.main import run
from undertorch.cli.outputs import write_out


def test_version_is_that_of_the_installed_package(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"undertorch {version('undertorch')}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_command(arguments, capsys):
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: undertorch ")
    for command in ("see", "gpus", "doctor"):
        assert f"\n  {command} " in out


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="a device that Linux has")
def test_a_full_disk_is_said_to_be_full():
    """Writing to /dev/full gives ENOSPC (full(4))."""
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "undertorch", "gpus"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (
        2,
        "undertorch: standard output cannot be written: No space left on device.\n",
    )


def test_data_for_a_standard_output_that_is_closed_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(BadInput, match="standard output is closed"):
        write_out(b"{}")


def test_help_promises_no_command_that_is_not_there(capsys):
    run(["--help"])
    promise, _, commands = capsys.readouterr().out.partition("Commands:")
    for verb in ("check", "fuse", "train"):
        assert f"\n  {verb} " in commands or f" {verb} " not in promise


def test_a_command_that_is_none_is_bad_input(capsys):
    assert run(["sea"]) == 2
    err = capsys.readouterr().err
    assert "sea" in err
    assert err.count("\n") == 1


def test_python_m_undertorch_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "undertorch", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"undertorch {version('undertorch')}\n"
