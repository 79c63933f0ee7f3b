"""The guard is built once for each torch, safely, and without importing torch."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from undertorch.steps.record import NoCompiler
from undertorch.steps.record.guard import build_guard


def test_importing_the_recorder_imports_no_torch():
    code = "import sys, undertorch.steps.record; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_a_compiler_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoCompiler, match=r"install g\+\+"):
        build_guard()


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho 'guard.cpp:1: error: no such luck' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing))
    with pytest.raises(NoCompiler, match="no such luck"):
        build_guard()
    assert list((tmp_path / "undertorch").iterdir()) == []


def test_two_that_build_at_once_end_with_one_library(tmp_path, monkeypatch):
    """A compiler that takes its time: both find nothing, both build, each puts its own in place whole."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    slow = tmp_path / "slow"
    slow.write_text('#!/bin/sh\nsleep 0.3\nwhile [ "$1" != "-o" ]; do shift; done\necho built > "$2"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    said: list[str] = []
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda _: build_guard(said.append), range(2))
    assert first == second
    assert first.read_text() == "built\n"
    assert list((tmp_path / "undertorch").iterdir()) == [first]
    assert len(said) == 2
    assert build_guard(said.append) == first
    assert len(said) == 2  # built already: nothing to say
