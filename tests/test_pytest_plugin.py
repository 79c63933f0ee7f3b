"""`pytest --undertorch`, on small projects of its own."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from undertorch.compilers.nvrtc import nvrtc_version

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")

PROJECT = '''
import numpy as np
import pytest
import undertorch

file = undertorch.cuda("""
__global__ void lost(int* x) { x[0] += blockIdx.x + 1; }
__global__ void same(int* x) { x[0] = 1; }
__global__ void own(int* x) { x[threadIdx.x] += 1; }""")
x = np.zeros(64, np.int32)


def test_clean():
    for _ in range(5):
        file["own"][1, 64](x)


def test_race():
    file["lost"][2, 1](x)


def test_note():
    file["same"][2, 1](x)


def test_wrong_by_itself():
    file["lost"][2, 1](x)
    assert False, "of the test itself"


@pytest.fixture
def launched():
    file["lost"][2, 1](x)


def test_with_a_fixture(launched):
    file["own"][1, 64](x)
'''


@pytest.fixture
def project(pytester, monkeypatch):
    """A run of pytest in a process of its own, without this environment's plugins: undertorch may be one of them."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_kernels=PROJECT)

    def run(*arguments):
        return pytester.runpytest_subprocess("-p", "undertorch.pytest_plugin", "-p", "no:cacheprovider", *arguments)

    return run


def test_without_the_option_nothing_is_checked_and_nothing_imported(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_it():\n    import sys\n    assert 'undertorch.checks' not in sys.modules\n    "
                        "assert 'llvmlite' not in sys.modules")  # fmt: skip
    done = pytester.runpytest_subprocess("-p", "undertorch.pytest_plugin")
    done.assert_outcomes(passed=1)
    assert "undertorch ====" not in done.stdout.str()


def test_an_error_fails_the_test_it_came_from_and_no_other(project):
    done = project("--undertorch", "-k", "clean or race or note")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines([
        "*_ test_race _*",
        "race-global in lost at kernel.cu:2",
        "*lost [[]2[]] × [[]1[]]: 1 error (sm_80 code as on A100-80GB)*",
        "*kernel.cu:2: error: race-global:*",
        "*remedy*one atomic operation*",
        "*= undertorch =*",
        "3 kernels in 7 launches, 5 of them looked at (the others equal these): 1 error, 1 note. (sm_80 code as on*",
        "kernel.cu:3: note: race-global in same",
        "FAILED test_kernels.py::test_race - Failed: race-global in lost at kernel.cu:2*",
    ])  # fmt: skip


def test_a_fault_is_shown_at_the_tests_own_line_and_not_inside_what_ran_it(project, pytester):
    pytester.makepyfile(test_kernels=f"{PROJECT}\n\ndef test_past():\n    file['own'][1, 128](x)\n")
    done = project("--undertorch", "-k", "past")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([">*own*1, 128*(x)", "E *Fault: *", "*remedy*guard the access*"])
    assert "schedule.py" not in done.stdout.str()


def test_the_chosen_severity_decides(project):
    """A test that fails by itself keeps its reason; what a fixture launches belongs to the test that asked for it."""
    done = project("--undertorch", "--undertorch-severity=note")
    done.assert_outcomes(passed=1, failed=3, errors=1)
    text = done.stdout.str()
    assert "race-global in same at kernel.cu:3" in text
    done.stdout.fnmatch_lines(["*ERROR at setup of test_with_a_fixture*", "race-global in lost at kernel.cu:2"])
    done.stdout.fnmatch_lines(
        ["E*of the test itself*", "*- Captured undertorch call -*", "race-global in lost at kernel.cu:2"]
    )
    project("--undertorch", "--undertorch-severity=none", "-k", "race or note").assert_outcomes(passed=2)


def test_what_the_project_accepts_passes_and_stale_entries_are_named(project, pytester):
    pytester.makepyprojecttoml(
        '[[tool.undertorch.check.suppress]]\nkernel = "lost"\nreason = "a counter"\n'
        '[[tool.undertorch.check.suppress]]\nkernel = "own"\nreason = "mended"\n'
    )
    done = project("--undertorch", "-k", "race or clean")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(['*the suppression of kernel = "own" (“mended”) meets no finding; take it out.'])


def test_bad_options_are_refused(project):
    done = project("--undertorch", "--undertorch-gpu=H9000")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--undertorch-gpu: *H9000*"])


def test_workers_of_xdist_hand_over_what_they_found(pytester, monkeypatch):
    pytest.importorskip("xdist")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    path = pytester.makepyfile(test_kernels=PROJECT)
    given = ["-p", "xdist", "-p", "undertorch.pytest_plugin", "-p", "no:cacheprovider", "-n", "1", "--undertorch"]
    command = [sys.executable, "-m", "pytest", *given, "-k", "race or clean", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout
    assert "2 kernels in 6 launches, 4 of them looked at (the others equal these): 1 error." in done.stdout


def test_the_package_names_the_plugin_as_an_entry_point():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"undertorch": "undertorch.pytest_plugin"}
