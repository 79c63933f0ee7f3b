"""undertorch check of programs: scripts, functions and kernels of a file, pytest files; what it writes beside."""

import json
from pathlib import Path

import pytest

from undertorch.cli.main import run
from undertorch.compilers.nvrtc import nvrtc_version

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")

SCRIPT = '''import sys

import numpy as np

import undertorch

SOURCE = """__global__ void add(int* x) { x[0] += 1; }
__global__ void own(int* x) { x[threadIdx.x] += 1; }"""
file = undertorch.cuda(SOURCE)
times, fails = int(sys.argv[1]), sys.argv[2:]
x = np.zeros(64, np.int32)
for _ in range(times):
    file["own"][1, 64](x)
if "--race" in fails:
    file["add"][2, 1](x)
if "--raise" in fails:
    raise ValueError("of the script itself")
if "--past" in fails:
    file["own"][1, 128](x)
print("done", x[1], __name__, sys.path[0])
'''
TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    tl.store(out, tl.load(out) + part)


def summed(x):
    assert x.is_cuda
    out = torch.zeros(1, device="cuda")
    total[(2,)](x, out, x.numel(), BLOCK=128)
    return out


def unnamed(x):
    return x


undertorch_args = {
    "summed": (torch.ones(256),),
    "total": lambda: {"grid": 2, "x": torch.ones(256), "out": torch.zeros(1), "n": 256, "BLOCK": 128},
}
"""
TESTS = """import torch
from kernels import summed


def test_sum():
    assert summed(torch.ones(256, device="cuda")).shape == (1,)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "train.py").write_text(SCRIPT)
    return "train.py"


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "kernels.py").write_text(TRITON)
    return "kernels.py"


def test_a_script_runs_to_its_end_with_its_own_arguments_and_equal_launches_are_sampled(script, capsys):
    """Of 100 equal launches those whose numbers are powers of two: 1, 2, 4, … 64."""
    assert run(["check", script, "100"]) == 0
    out = capsys.readouterr().out
    assert f"done 100 __main__ {Path.cwd()}" in out
    assert "own [1] × [64]: nothing found (sm_80 code as on A100-80GB, 7 of 100 launches)." in out


def test_every_launch_is_looked_at_where_that_is_asked(script, capsys):
    assert run(["check", "--every-launch", script, "20"]) == 0
    assert "nothing found (sm_80 code as on A100-80GB, 20 launches)." in capsys.readouterr().out


def test_a_race_in_one_of_its_kernels_is_found_and_the_script_goes_on(script, capsys):
    assert run(["check", "--gpu", "H200", script, "1", "--race"]) == 1
    out = capsys.readouterr().out
    assert "done" in out
    assert "add [2] × [1]: 1 error (sm_80 code as on H200)" in out
    assert "kernel.cu:1: error: race-global:" in out


def test_a_fault_ends_the_script_and_is_its_finding_and_what_did_not_run_is_said(script, capsys):
    assert run(["check", script, "1", "--past"]) == 1
    said = capsys.readouterr()
    assert "done" not in said.out
    assert "error: out-of-bounds" in said.out
    last = SCRIPT.splitlines().index('    file["own"][1, 128](x)') + 1
    assert f"train.py:{last}: this launch ended the program" in said.err
    assert "what follows was not run" in said.err


def test_a_script_that_raises_shows_its_own_traceback_and_what_was_found_before(script, capsys):
    assert run(["check", script, "1", "--race", "--raise"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith('Traceback (most recent call last):\n  File "')
    assert "train.py" in said.err.splitlines()[1]
    assert "ValueError: of the script itself" in said.err
    assert "race-global" in said.out


def test_a_script_that_goes_to_another_folder_changes_no_name_and_no_place_of_what_is_written(script, capsys, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(path.read_text() + "\nimport os\nos.chdir('/')\n")
    assert run(["check", "--json", "found.json", script, "1", "--race"]) == 1
    assert (tmp_path / "found.json").exists()
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise SystemExit('no data')", "ended by saying: no data."),
        ("raise SystemExit(3)", "ended with exit status 3."),
    ],
)
def test_how_a_script_ended_itself_is_said(tmp_path, capsys, source, said):
    path = tmp_path / "ends.py"
    path.write_text(source)
    assert run(["check", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_a_script_that_is_no_python_shows_its_own_line_alone(tmp_path, capsys):
    path = tmp_path / "wrong.py"
    path.write_text("def (\n")
    assert run(["check", str(path)]) == 2
    error = capsys.readouterr().err
    assert "SyntaxError" in error
    assert "runpy" not in error


def test_a_script_without_kernels_is_not_called_clean(tmp_path, capsys):
    path = tmp_path / "plain.py"
    path.write_text("print(1)")
    assert run(["check", str(path)]) == 2
    assert "launched no Triton or CUDA kernel that could be checked" in capsys.readouterr().err


def test_a_file_that_only_has_kernels_is_told_how_to_name_one(kernels, capsys):
    assert run(["check", "kernels.py"]) == 2
    said = "kernels.py has the kernel total, and launched none: name one to have it launched, kernels.py::total."
    assert said in capsys.readouterr().err


def test_a_script_without_kernels_is_fine_where_that_is_asked_and_two_dashes_are_not_its_own(tmp_path, capsys):
    path = tmp_path / "plain.py"
    path.write_text("import sys\nprint(sys.argv[1:])")
    assert run(["check", "--allow-no-kernels", str(path), "--", "--steps", "2", "--"]) == 0
    said = capsys.readouterr()
    assert said.out == "['--steps', '2', '--']\n"
    assert "launched no Triton or CUDA kernel" in said.err


def test_files_beside_the_report_and_standard_output_for_json_alone(script, capsys):
    assert run(["check", "--json", "-", "--sarif", "k.sarif", "--page", "k.html", script, "3", "--race"]) == 1
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert {kernel["name"]: kernel["launches"] for kernel in data["kernels"]} == {"own": 3, "add": 1}
    assert data["target_arch"] == "sm_80"
    assert "done" in said.err
    assert json.loads(Path("k.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "race-global"
    assert "race-global" in Path("k.html").read_text()


def test_annotations_come_after_the_report(script, capsys):
    assert run(["check", "--github", script, "1", "--race"]) == 1
    line = next(n for n, text in enumerate(SCRIPT.split("\n"), 1) if "*x +=" in text or "x[0] +=" in text)
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith(f"::error file=train.py,line={line},")


def test_what_the_project_accepts_does_not_fail_and_what_it_accepts_in_vain_is_said(script, capsys):
    Path("pyproject.toml").write_text(
        '[[tool.undertorch.check.suppress]]\nkernel = "add"\nreason = "a counter"\n'
        '[[tool.undertorch.check.suppress]]\nkernel = "own"\nreason = "mended"\n'
    )
    assert run(["check", script, "1", "--race"]) == 0
    said = capsys.readouterr()
    assert "race-global at kernel.cu:1: a counter" in said.out
    assert 'the suppression of kernel = "own" (“mended”) meets no finding' in said.err


def test_a_triton_kernel_of_a_file_with_arguments_given_and_with_its_own(kernels, capsys):
    given = ["--grid", "2", "--arg", "f32[256]", "--arg", "f32[1]=zeros", "--arg", "256", "--arg", "BLOCK=128"]
    for arguments in (given, []):
        assert run(["check", f"{kernels}::total", *arguments]) == 1
        out = capsys.readouterr().out
        assert "total [2] × [128]: 1 error (sm_80 code as on A100-80GB)" in out
        assert (
            "kernels.py:10: error: race-global: race in global memory: two writes of the same bytes by programs" in out
        )
        assert "thread 0 of program 0 writes out[0]" in out
        assert "tl.atomic_add" in out


def test_a_function_of_a_file_is_called(kernels, capsys):
    for arguments in (["--arg", "f32[256]"], []):
        assert run(["check", f"{kernels}::summed", *arguments]) == 1
        assert "kernels.py:10: error: race-global" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("kernels.py::none",), "kernels.py has no function or kernel none."),
        (("kernels.py::total", "--arg", "f32[8]"), "say on how many blocks it is launched, with --grid"),
        (("kernels.py::total", "--arg", "n=8", "--arg", "1"), "stands behind one with a name"),
        (("none.py::total",), "none.py cannot be read"),
        (("--grid", "2", "kernels.py"), "--grid says how one kernel is launched, and kernels.py launches its own"),
        (("kernels.py::unnamed",), "with what? Give --arg for each argument, or write undertorch_args"),
    ],
)
def test_bad_input_is_one_sentence(kernels, capsys, given, said):
    assert run(["check", *given]) == 2
    assert said in capsys.readouterr().err


def test_a_file_of_tests_is_run_by_pytest(kernels, capsys):
    Path("test_kernels.py").write_text(TESTS)
    assert run(["check", "test_kernels.py", "-p", "no:cacheprovider"]) == 1
    out = capsys.readouterr().out
    assert "1 passed" in out
    assert "kernels.py:10: error: race-global" in out


TRAINING = """import numpy as np
import torch
import undertorch

file = undertorch.cuda("__global__ void add(int* x) { x[0] += 1; }")
weight = torch.zeros(2, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(100):
    (weight * 2).sum().backward()
    file["add"][1, 1](torch.zeros(1, dtype=torch.int32))
    optimizer.step()
    optimizer.zero_grad()
print("the end")
"""


def test_a_training_script_ends_after_so_many_steps(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    assert run(["check", "--steps", "3", str(path)]) == 0
    out = capsys.readouterr().out
    assert "2 of 3 launches" in " ".join(out.split())
    assert "the end" not in out


@pytest.mark.slow
def test_see_has_nothing_to_check_in_a_step_of_torchs_own_operators(tmp_path, capfd):
    path = tmp_path / "train.py"
    lines = [line for line in TRAINING.split("\n") if "file" not in line]
    path.write_text("\n".join(["import sys", 'assert sys.argv[1:] == ["--quiet"]', *lines]))
    assert run(["see", "--gpu", "H200", "--check", str(path), "--", "--quiet"]) == 0
    assert "launched no Triton or CUDA kernel" in capfd.readouterr().err


@pytest.mark.slow
def test_see_checks_the_step_that_it_has_seen(tmp_path, capfd):
    path = tmp_path / "train.py"
    path.write_text(TRAINING.replace("[1, 1]", "[2, 1]"))
    assert run(["see", "--gpu", "H200", "--check", str(path)]) == 1
    said = capfd.readouterr()
    assert "error: race-global" in said.out
    assert "runs" in said.err
    assert "for real now" in said.err


def test_see_checks_no_traces(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    assert run(["see", "--check", str(path)]) == 2
    assert "--check is for scripts" in capsys.readouterr().err
