"""undertorch check: its exit statuses, its report, its refusals."""

import json

import pytest

from undertorch.cli.main import run
from undertorch.compilers.nvrtc import compile_cuda, nvrtc_version

RACE = """__global__ void k(int* x) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
#ifdef MENDED
    __syncthreads();
#endif
    x[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void other() {}
"""
pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")
ASKED = ("--kernel", "k", "--block", "64", "--arg", "i32[64]")


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text(RACE)
    return str(path)


def test_a_race_is_shown_with_both_lines_and_the_exit_status_is_1(kernel, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["check", kernel, *ASKED]) == 1
    shown = capsys.readouterr().out
    assert "kernel.cu:3: error: race-shared:" in shown
    assert "3 │     s[threadIdx.x] = x[threadIdx.x];" in shown
    assert "7 │     x[threadIdx.x] = s[63 - threadIdx.x];" in shown
    assert "remedy    put __syncthreads() between line 3 and line 7" in shown


def test_a_clean_kernel_takes_one_line(kernel, capsys):
    assert run(["check", kernel, *ASKED, "--option=-DMENDED"]) == 0
    assert capsys.readouterr().out == "k [1] × [64]: nothing found (sm_80 code as on A100-80GB).\n"


def test_json_goes_to_a_file_or_to_standard_output(kernel, capsys, tmp_path):
    path = tmp_path / "found.json"
    assert run(["check", kernel, *ASKED, "--json", str(path)]) == 1
    capsys.readouterr()
    assert run(["check", kernel, *ASKED, "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out) == json.loads(path.read_text())


def test_notes_fail_only_where_that_is_asked(tmp_path):
    path = tmp_path / "note.cu"
    path.write_text("__global__ void k(int* x) { *x = 1; }")
    assert run(["check", str(path), "--arg", "i32[1]"]) == 0
    assert run(["check", str(path), "--arg", "i32[1]", "--fail-on", "note"]) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "has 2 kernels: k, other; say which with --kernel NAME."),
        (("--kernel", "q"), "it has none of that name (q)"),
        (("--kernel", "k"), "k takes 1 argument, and 0 were given; with numbers for each N: --arg i32[N]\n"),
        ((*ASKED, "--fail-on", "never"), "--fail-on never: it is one of error, warning, note."),
        ((*ASKED, "--grid", "0"), "--grid 0: give one to three sizes from 1 on"),
        ((*ASKED, "--arg", "f31[2]"), "there is no type f31"),
        ((*ASKED, "--gpu", "H9000"), "H9000"),
        ((*ASKED, "--option=-DMENDED="), ""),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(kernel, capsys, given, said):
    if given and given[-1] == "--option=-DMENDED=":
        given = (*ASKED, "--option=-DthreadIdx=7")
        said = "does not compile"
    assert run(["check", kernel, *given]) == 2
    error = capsys.readouterr().err
    assert error.startswith("undertorch: ")
    assert said in error


SCALE = """__global__ void scale(const float* x, float* y, double by, int n, unsigned char* seen) {
    if (threadIdx.x < n) { y[threadIdx.x] = x[threadIdx.x] * by; seen[0] |= 1; }
}
"""


def test_a_launch_without_arguments_is_answered_by_a_line_that_can_be_filled_in(tmp_path, capsys):
    """By the parameters' types; y is written and never read, so nothing need be in it."""
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)
    assert run(["check", str(path)]) == 2
    line = "--arg f32[N] --arg f32[N]=empty --arg 1.0 --arg N --arg u8[N]"
    said = capsys.readouterr().err
    assert said.endswith(f"scale takes 5 arguments, and 0 were given; with numbers for each N: {line}\n")
    assert run(["check", str(path), *line.replace("N", "128").split()]) != 2


def test_a_whole_number_may_be_written_as_a_float_and_another_is_refused_by_its_name(tmp_path, capsys):
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)
    given = ["--arg", "f32[128]", "--arg", "f32[128]=empty", "--arg", "2", "--arg"]
    assert run(["check", str(path), *given, "1e2", "--arg", "u8[1]"]) != 2
    capsys.readouterr()
    assert run(["check", str(path), *given, "1.5", "--arg", "u8[1]"]) == 2
    said = capsys.readouterr().err
    assert "Argument 3 (n): the kernel takes an integer (.u32), and 1.5 was given" in said


def test_host_code_is_told_how_to_stay_in_the_file(tmp_path, capsys):
    path = tmp_path / "whole.cu"
    main = "int main() { return 0; }\n"
    path.write_text(f"__global__ void k() {{}}\n{main}")
    assert run(["check", str(path)]) == 2
    assert "put host code between `#ifndef __CUDACC_RTC__` and `#endif`" in capsys.readouterr().err
    path.write_text(f"__global__ void k() {{}}\n#ifndef __CUDACC_RTC__\n{main}#endif\n")
    assert run(["check", str(path)]) == 0


def test_what_is_no_kernel_file(tmp_path, capsys):
    assert run(["check", str(tmp_path / "none.cu")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    other = tmp_path / "kernel.txt"
    other.write_text("")
    assert run(["check", str(other)]) == 2
    assert "check takes a script (train.py), a pytest file" in capsys.readouterr().err


def test_a_race_in_a_header_of_ones_own_is_shown_there_whatever_the_folder_is_called(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "a b ü"
    folder.mkdir()
    (folder / "add.cuh").write_text("// adds\n__device__ inline void add(float* x) {\n    x[0] += 1;\n}\n")
    (folder / "kernel.cu").write_text('#include "add.cuh"\n__global__ void k(float* x) {\n    add(x);\n}\n')
    monkeypatch.chdir(tmp_path)
    assert run(["check", "a b ü/kernel.cu", "--arg", "f32[1]", "--github"]) == 1
    shown = capsys.readouterr().out
    assert "     3 │     x[0] += 1;" in shown
    assert "::error file=a b ü/add.cuh,line=3," in shown


def test_what_the_compiler_warns_of_is_said_without_our_own_code(tmp_path, capsys):
    path = tmp_path / "warned.cu"
    path.write_text("__global__ void k(int* x) { int unused; x[threadIdx.x] = 1; }")
    assert run(["check", str(path), "--block", "32", "--arg", "i32[32]"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("undertorch: ")
    assert "unused" in error
    assert "UserWarning" not in error


def test_a_name_that_is_empty_is_asked_for(capsys):
    assert run(["check", "kernels.py::"]) == 2
    assert "name a function or kernel behind ::" in capsys.readouterr().err


def test_without_a_ptxas_the_report_says_what_it_leaves_out(kernel, capsys, monkeypatch):
    monkeypatch.setattr("undertorch.checks.occupancy.resources", lambda *of: None)
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["check", kernel, *ASKED, "--option=-DMENDED"]) == 0
    clean, skipped = capsys.readouterr().out.splitlines()
    assert "nothing found" in clean
    assert skipped.startswith("Not looked at: occupancy, spilled registers and the last wave: there is no ptxas")


def test_ptx_without_lines_is_shown_and_annotated_where_it_stands(kernel, capsys, tmp_path, monkeypatch):
    """What is left of a compiled kernel when its .loc and .file are gone."""
    lines = compile_cuda(RACE).splitlines()
    bare = [line for line in lines if not line.strip().startswith((".loc", ".file"))]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.ptx").write_text("\n".join(bare))
    assert run(["check", "bare.ptx", *ASKED, "--github", "--sarif", "found.sarif"]) == 1
    shown = capsys.readouterr().out
    stored = next(n for n, line in enumerate(bare, 1) if "st.shared" in line)
    assert f"::error file=bare.ptx,line={stored}," in shown
    assert bare[stored - 1].split()[0] in shown
    (result,) = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "bare.ptx"


def test_a_file_without_kernels_is_told_what_a_kernel_is(tmp_path, capsys):
    path = tmp_path / "none.cu"
    path.write_text("__device__ int f() { return 1; }")
    assert run(["check", str(path)]) == 2
    assert "has no kernels: __global__ functions" in capsys.readouterr().err


def test_annotations_of_nothing_are_nothing(kernel, capsys):
    assert run(["check", kernel, *ASKED, "--option=-DMENDED", "--github"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
