"""The doctor says what is there, and of what is missing the remedy; status 1 where `see` cannot do without it."""

import json
import stat
import sys
from importlib.metadata import PackageNotFoundError, distribution, version

import pytest

from undertorch.cli import installation
from undertorch.cli.main import run
from undertorch.steps.record import guard
from undertorch.steps.record.errors import NoCompiler


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """As if the guard had been compiled."""
    monkeypatch.setattr(guard, "build_guard", lambda progress=None: tmp_path / "guard.so")


def looks(capfd):
    report = json.loads(capfd.readouterr().out)
    return report, {look["what"]: look for look in report["looks"]}


def program(folder, name, prints, status=0):
    """An executable of that name that prints a text."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\nexit {status}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_torch_is_named_with_the_version_that_is_installed(compiled, capfd):
    assert run(["doctor", "--json"]) == 0
    report, found = looks(capfd)
    assert report["see"] is True
    assert found["torch"]["ok"]
    assert version("torch") in found["torch"]["found"]


def test_the_build_is_read_off_torchs_own_file(compiled, capfd):
    """torch says of itself which CUDA it was built for; asked in this test by importing it."""
    import torch

    run(["doctor", "--json"])
    _, found = looks(capfd)
    build = f"CUDA {torch.version.cuda} build" if torch.version.cuda else "CPU build"
    assert build in found["torch"]["found"]


def test_what_see_cannot_do_without_is_status_1_and_has_a_remedy(monkeypatch, capfd):
    def none(progress=None):
        raise NoCompiler("No compiler: install g++.")

    monkeypatch.setattr(guard, "build_guard", none)
    assert run(["doctor", "--json"]) == 1
    report, found = looks(capfd)
    assert report["see"] is False
    assert found["guard"] == {
        "what": "guard",
        "ok": False,
        "found": "cannot be compiled",
        "essential": True,
        "remedy": "No compiler: install g++",
    }


def test_a_gpu_is_named_as_its_driver_names_it(compiled, capfd, monkeypatch, tmp_path):
    program(tmp_path, "nvidia-smi", "NVIDIA H200, 575.57.08")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    run(["doctor", "--json"])
    _, found = looks(capfd)
    assert found["CUDA GPU"]["ok"]
    assert found["CUDA GPU"]["found"] == "NVIDIA H200, driver 575.57.08"


def test_a_driver_that_fails_is_no_gpu_and_nothing_that_see_needs(compiled, capfd, monkeypatch, tmp_path):
    program(tmp_path, "nvidia-smi", "NVIDIA-SMI has failed because it could not communicate with the driver", status=9)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run(["doctor", "--json"]) == 0
    _, found = looks(capfd)
    assert not found["CUDA GPU"]["ok"]
    assert not found["CUDA GPU"]["essential"]


def test_a_machine_without_any_compiler(compiled, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    run(["doctor", "--json"])
    _, found = looks(capfd)
    assert not found["C++ compiler"]["ok"]
    assert "g++" in found["C++ compiler"]["remedy"]


def test_what_compiles_kernels_is_named_with_its_version(compiled, capfd):
    from cuda.bindings import nvrtc

    run(["doctor", "--json"])
    _, found = looks(capfd)
    _, major, minor = nvrtc.nvrtcVersion()
    assert found["NVRTC"]["found"].startswith(f"{major}.{minor}: undertorch.cuda")
    assert found["llvmlite"]["found"].startswith(version("llvmlite"))
    assert found["Triton"]["found"].startswith(version("triton"))


def test_without_nvrtc_and_triton_see_works_and_the_remedy_is_said(compiled, capfd, monkeypatch):
    def distribution_but(name):
        if name == "triton":
            raise PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(installation, "distribution", distribution_but)
    assert run(["doctor", "--json"]) == 0
    report, found = looks(capfd)
    assert report["see"]
    assert (found["NVRTC"]["ok"], found["Triton"]["ok"]) == (False, False)
    assert found["NVRTC"]["remedy"] == "pip install 'undertorch[cuda]'"
    assert "pip install triton" in found["Triton"]["remedy"]


def test_the_table_marks_what_is_there_and_what_is_not(compiled, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert run(["doctor"]) == 0
    out = capfd.readouterr().out
    assert "✓ torch" in out
    assert "✗ CUDA GPU" in out
    assert "✗ C++ compiler" in out
