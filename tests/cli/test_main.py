"""What the program answers before any command."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from undertorch.cli.main import run


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
