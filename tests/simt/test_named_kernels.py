"""Kernels and variables by their C++ names; errors and settings where they are looked for."""

import warnings

import numpy as np
import pytest
import torch

import undertorch
from undertorch.compilers.nvrtc import CudaError
from undertorch.gpus import find
from undertorch.simt import BadLaunch, Unsupported, launch
from undertorch.simt.frontends.mangled import demangled, parameters

SOURCE = """
template <int N, bool B> __global__ void sum(int* y) { y[0] = N + B; }
template __global__ void sum<32, false>(int*);
template __global__ void sum<-3, true>(int*);
namespace apart {
template <class T> __global__ void one(T* y) { y[0] = 1; }
template __global__ void one<float>(float*);
}
__constant__ float factors[4] = {1, 2, 3, 4};
__device__ int count = 7;
__global__ void read(float* y) { y[0] = factors[1]; y[1] = count++; }
"""


TWICE = "__global__ void twice(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] *= 2; }"


@pytest.fixture
def file():
    return undertorch.cuda(SOURCE)


def test_an_instantiation_is_found_by_its_c_name(file):
    y = np.zeros(1, np.int32)
    for name, value in (("sum<32, false>", 32), ("sum<-3,true>", -2)):
        file[name][1, 1](y)
        assert y[0] == value
    one = np.zeros(1, np.float32)
    file["apart::one<float>"][1, 1](one)
    assert one[0] == 1
    with pytest.raises(BadLaunch, match=r"sum<32, false>, sum<-3, true>"):
        file["sum"]


def test_a_file_without_kernels_says_so():
    with pytest.raises(BadLaunch, match="has no kernels; a template needs"):
        undertorch.cuda("template <int N> __global__ void k(int* y) { y[0] = N; }")["k"]


def test_names_that_are_not_read_say_nothing():
    assert parameters("_Z1kSSfAAEA") is None
    assert parameters("_Z1k" + "P" * 5000 + "f") is None
    assert demangled("_ZN5apart3oneIfEEvPT_") == "apart::one<float>"


def test_variables_are_read_and_written_in_place(file):
    y = np.zeros(2, np.float32)
    file["read"][1, 1](y)
    assert y.tolist() == [2, 7]
    file.variables["factors"].view(np.float32)[1] = 42
    assert file.variables["count"][0] == 8
    file.variables["count"][...] = 20
    file["read"][1, 1](y)
    assert y.tolist() == [42, 20]


def test_errors_and_simt_are_found_in_undertorch():
    assert undertorch.Fault is undertorch.simt.Fault
    assert undertorch.Deadlock is undertorch.simt.Deadlock
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = undertorch.nothing_such


def test_launch_takes_a_gpu_s_name_and_refuses_consumers_of_nothing(file):
    y = np.zeros(2, np.float32)
    launch(file.text, "_Z4readPf", 1, 1, [y], gpu="H200")
    assert y[0] == 2
    with pytest.raises(BadLaunch, match="instrument='events'"):
        launch(file.text, "_Z4readPf", 1, 1, [y], gpu=find("H200"), on_events=lambda *_: None)
    with pytest.raises(BadLaunch, match="cudaErrorInvalidConfiguration"):
        file["read"][0, 1](y)


def test_results_of_launches_inside_other_functions_are_kept(file):
    with undertorch.machine(instrument="counters") as setting:
        file["read"][1, 1](np.zeros(2, np.float32))
    assert [result.kernel for result in setting.launches] == ["_Z4readPf"]
    assert setting.launches[0].counters.warp_instructions > 0


def test_the_compiler_s_warnings_of_the_source_are_warnings():
    with pytest.warns(UserWarning, match=r"kernel.cu\(1\): warning.*unused"):
        undertorch.cuda("__global__ void k(int* y) { int unused; y[0] = 1; }")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        undertorch.cuda("#include <cuda/std/cstdint>\n__global__ void k(int* y) { y[0] = 1; }")


def test_options_that_make_no_ptx_are_refused():
    for options in (["-dlto"], [1]):
        with pytest.raises(CudaError):
            undertorch.cuda("__global__ void k() {}", options)


def test_ptx_is_kept_from_process_to_process_but_not_with_files_of_one_s_own(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDERTORCH_CACHE", str(tmp_path / "cache"))
    own = tmp_path / "own.h"
    own.write_text("#define V 1\n")
    source = f'#include "{own}"\n__global__ void k(int* y) {{ y[0] = V; }}'
    y = np.zeros(1, np.int32)
    undertorch.cuda(source)["k"][1, 1](y)
    assert not (tmp_path / "cache" / "ptx").exists()
    own.write_text("#define V 2\n")
    undertorch.cuda(source)["k"][1, 1](y)
    assert y[0] == 2
    text = undertorch.cuda(SOURCE).text
    (kept,) = (tmp_path / "cache" / "ptx").iterdir()
    assert text.encode() in kept.read_bytes()
    monkeypatch.setattr("undertorch.compilers.nvrtc._nvrtc", None)  # nobody is asked
    assert undertorch.cuda(SOURCE).text == text


def test_a_launch_inside_torch_compile_breaks_the_graph():
    kernel = undertorch.cuda(TWICE)["twice"]

    @torch.compile(backend="eager")
    def function(x):
        y = x + 1
        kernel[1, 128](y, y.numel())
        return y + 1

    assert function(torch.arange(5.0)).tolist() == [3, 5, 7, 9, 11]


def test_an_operator_tells_shapes_on_meta():
    kernel = undertorch.cuda(TWICE)["twice"]

    @undertorch.torch_op("undertorch_tests::doubled")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        kernel[1, 128](y, y.numel())
        return y

    assert doubled(torch.ones(3, device="meta")).shape == (3,)
    assert doubled(torch.ones(3)).tolist() == [2, 2, 2]


def test_calls_that_come_to_too_much_are_refused_at_once():
    """25 functions that each call the next one twice are 2^25 calls when each becomes what it calls."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.func f25() {ret;}\n"
    functions = "".join(f".func f{n}() {{ call f{n + 1}; call f{n + 1}; ret; }}\n" for n in range(24, -1, -1))
    with pytest.raises(Unsupported, match="statements"):
        undertorch.ptx(f"{head}{functions}.visible .entry k() {{ call f0; ret; }}")["k"][1, 1]()


def test_an_instruction_that_is_not_supported_names_the_line_of_the_source_that_asked_for_it():
    """It lies in a header of CUDA's, which the source called."""
    source = """#include <cuda/barrier>
__global__ void k(cuda::barrier<cuda::thread_scope_block>* b) {
    if (threadIdx.x == 0) init(b, blockDim.x);
}
#include <cuda/ptx>
__global__ void asks(unsigned long long* o) {
    __shared__ unsigned long long b;
    cuda::ptx::mbarrier_init(&b, 32);
}
"""
    with pytest.raises(Unsupported, match=r"mbarrier.*which kernel\.cu:8 calls|which kernel\.cu:8 calls.*mbarrier"):
        undertorch.cuda(source)["asks"][1, 1](np.zeros(1, np.uint64))
