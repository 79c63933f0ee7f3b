"""`undertorch.ptx`, `undertorch.cuda` and `undertorch.machine`, as a person calls them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import undertorch
from undertorch.compilers.nvrtc import CudaError
from undertorch.simt import BadLaunch, PtxError, Unsupported

CLASSICS = (Path(__file__).parent / "kernels" / "classics.ptx").read_text()
SCALE = """
template <typename T> __global__ void scale(T* x, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
template __global__ void scale<float>(float*, float, int);
__global__ void add(float* x, const float* y, int n) { if (threadIdx.x < n) x[threadIdx.x] += y[threadIdx.x]; }
"""


def test_ptx_runs_on_a_numpy_array():
    x = np.arange(100, dtype=np.float32)
    undertorch.ptx(CLASSICS)["doubling"][1, 128](x, 100)
    assert np.array_equal(x, 2 * np.arange(100))


def test_cuda_runs_on_torch_tensors_by_its_c_name():
    kernels = undertorch.cuda(SCALE)
    x, y = torch.arange(64.0), torch.ones(64)
    kernels["scale"][1, 64](x, 3.0, 64)
    kernels["add"][1, 64](x[32:], y, 32)
    assert torch.equal(x, torch.where(torch.arange(64) < 32, 0, 1) + 3 * torch.arange(64.0))


def test_what_the_compiler_says_is_said():
    with pytest.raises(CudaError, match="undefined"):
        undertorch.cuda("__global__ void k() { undefined_name(); }")


def test_the_gpu_around_a_launch_is_the_one_that_it_runs_as():
    kernel = undertorch.cuda(
        "extern __shared__ int s[]; __global__ void k(int* x) { s[threadIdx.x] = 1; *x = s[threadIdx.x]; }"
    )["k"]
    x = np.zeros(1, np.int32)
    with undertorch.machine(gpu="T4"), pytest.raises(BadLaunch, match="T4 has 65536"):
        kernel[1, 32, 100_000](x)
    with undertorch.machine(gpu="H200"):
        kernel[1, 32, 100_000](x)
    assert x[0] == 1


def test_counters_come_with_the_result():
    x = np.zeros(128, np.float32)
    with undertorch.machine(instrument="counters"):
        result = undertorch.ptx(CLASSICS)["doubling"][1, 128](x, 128)
    assert {(a.space, a.requests, a.bytes, a.sectors) for a in result.counters.accesses} == {("global", 4, 512, 16)}


def test_global_variables_keep_their_values():
    kernels = undertorch.cuda("__device__ int n = 5; __global__ void k(int* x) { *x = n++; }")
    x = np.zeros(1, np.int32)
    for wanted in (5, 6, 7):
        kernels["k"][1, 1](x)
        assert x[0] == wanted


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((np.zeros(4, np.float32),), "takes 2 arguments"),
        ((np.zeros(4, np.float32), 2**40), "Argument 1"),
        (("text", 4), "str cannot be passed"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, says):
    with pytest.raises(BadLaunch, match=says):
        undertorch.ptx(CLASSICS)["doubling"][1, 4](*arguments)


@pytest.mark.parametrize(("grid", "block"), [(0, 1), (1, 1025), (1, (1, 1, 65)), ((1, 2, 3, 4), 1), ((1, 65536), 1)])
def test_sizes_that_no_gpu_takes_are_refused(grid, block):
    with pytest.raises(BadLaunch):
        undertorch.ptx(CLASSICS)["doubling"][grid, block](np.zeros(4, np.float32), 4)


HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body):
    return undertorch.ptx(HEAD + ".visible .entry k() {\n" + body + "\nret;\n}")["k"][1, 1]


def test_what_is_not_supported_names_instruction_and_lines_before_anything_runs():
    with pytest.raises(Unsupported, match=r"PTX line 7 \(a\.cu:12\): the instruction tex\.2d\.v4\.f32\.f32 "):
        undertorch.ptx(
            HEAD
            + ".visible .entry k() {\n.reg .f32 %f<9>;\n.loc 1 12 3\n"
            + "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, {%f5,%f6}];\n"
            'ret;\n}\n.file 1 "a.cu"'
        )["k"][1, 1]()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("add.u32 %r1, %r2, %r3;", "%r1"),
        (".reg .b32 %r<3>;\nadd.u32 %r1, %r2;", "operands"),
        (".reg .b32 %r<3>;\nbra nowhere;", "nowhere"),
        (".reg .b32 %r<3>;\nmov.u32 %r1, %r3;", "%r3"),
    ],
)
def test_what_is_no_ptx_is_one_sentence(body, says):
    with pytest.raises((PtxError, Unsupported), match=says):
        kernel(body)()


def test_the_machine_imports_neither_torch_nor_triton():
    code = "import undertorch.simt, sys; assert not {'torch', 'triton', 'llvmlite'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
