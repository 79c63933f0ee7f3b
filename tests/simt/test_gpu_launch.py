"""The same call on a GPU, by a driver that stands for CUDA's and writes down what it is asked."""

import ctypes
import struct
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
import torch
from cuda.bindings import driver as real

import undertorch
from undertorch.compilers.driver import DriverError
from undertorch.simt import BadLaunch
from undertorch.simt.frontends.gpu import Modules, launch_on_gpu
from undertorch.simt.program import parsed
from undertorch.simt.runtime.buffers import Buffers, pack

SIZES = (8, 4, 8, 12, 2)
NOTHING = {"cuInit", "cuLaunchKernel", "cuLaunchCooperativeKernel", "cuFuncSetAttribute"}
"""They answer a status only."""
PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry many(.param .u64 p, .param .f32 f, .param .u64 n, .param .align 4 .b8 s[12], .param .u16 h) { ret; }
.visible .entry none() { ret; }
.func waits() { .reg .b32 %r; mov.u32 %r, %envreg2; ret; }
.visible .entry grid() { call waits; ret; }
"""


class Driver:
    """Answers as CUDA's driver does: a status, and what was asked for. `fails` names the function that does not."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)
    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER=5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES=6)  # cuda.h
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)  # cuda.h

    def __init__(self, fails=None):
        self.calls, self.fails, self.parameters = [], fails, None

    def __getattr__(self, name):
        def function(*arguments):
            self.calls.append((name, arguments))
            if name == self.fails:
                if name == "cuModuleLoadDataEx":
                    arguments[3][0][:10] = b"ptxas said"
                return (999,)
            if name == "cuLaunchKernel" and arguments[-2]:
                pointers = (ctypes.c_void_p * len(SIZES)).from_address(arguments[-2])
                self.parameters = [ctypes.string_at(at, size) for at, size in zip(pointers, SIZES, strict=True)]
            return (0, f"{name}'s answer") if name not in NOTHING else (0,)

        function.__name__ = name
        return function

    def of(self, name):
        return [arguments for called, arguments in self.calls if called == name]


class GpuTensor:
    """As much of a torch tensor on a GPU as a launch looks at."""

    def __init__(self, index=0):
        self.device = torch.device("cuda", index)

    def untyped_storage(self):
        raise AssertionError("a GPU's storage was looked into")

    def data_ptr(self):
        return 0x7F00_DEAD_BE00


ARGUMENTS = (GpuTensor(), 1.5, 2**40, struct.pack("<3i", 1, -2, 3), 7)


def launched(driver, arguments=ARGUMENTS, shared=0):
    return launch_on_gpu(PTX, "many", (3, 2), 64, shared, arguments, stream=77, modules=Modules(driver=driver))


def test_the_driver_gets_grid_block_stream_and_no_result_is_made_up():
    driver = Driver()
    result = launched(driver, shared=100_000)
    (launch,) = driver.of("cuLaunchKernel")
    assert launch[1:9] == (3, 2, 1, 64, 1, 1, 100_000, 77)
    assert driver.of("cuFuncSetAttribute") == [("cuModuleGetFunction's answer", 8, 100_000)]
    assert driver.of("cuModuleGetFunction") == [("cuModuleLoadDataEx's answer", b"many")]
    assert driver.of("cuModuleLoadDataEx")[0][0] == PTX.encode() + b"\0"
    assert (result.printed, result.counters) == (None, None)


def test_parameters_are_the_bytes_that_the_machine_reads():
    """At the offsets that the PTX ISA gives them: each at a multiple of its alignment."""
    driver = Driver()
    launched(driver)
    memory = np.zeros(4, np.float32)
    packed = bytes(pack(parsed(PTX)[0].functions["many"].parameters, (memory, *ARGUMENTS[1:]), Buffers()))
    at = (0, 8, 16, 24, 36)
    assert driver.parameters[0] == struct.pack("<Q", 0x7F00_DEAD_BE00)
    assert packed[:8] == struct.pack("<Q", memory.ctypes.data)
    assert driver.parameters[1:] == [packed[a : a + n] for a, n in zip(at[1:], SIZES[1:], strict=True)]


def test_a_kernel_without_parameters_is_launched_with_none():
    driver = Driver()
    launch_on_gpu(PTX, "none", 1, 1, 0, (), stream=0, modules=Modules(driver=driver))
    assert driver.of("cuLaunchKernel")[0][-2:] == (0, 0)
    assert not driver.of("cuFuncSetAttribute")


def test_a_kernel_that_waits_for_its_grid_is_launched_cooperatively():
    """CUDA Driver API, cuLaunchCooperativeKernel: as cuLaunchKernel, without `extra`."""
    driver = Driver()
    launch_on_gpu(PTX, "grid", (3, 2), 64, 128, (), stream=77, modules=Modules(driver=driver))
    assert driver.of("cuLaunchCooperativeKernel") == [("cuModuleGetFunction's answer", 3, 2, 1, 64, 1, 1, 128, 77, 0)]
    assert not driver.of("cuLaunchKernel")


def test_a_file_is_loaded_once_a_gpu():
    driver = Driver()
    modules = Modules(driver=driver)
    for index in (0, 1, 1, 0):
        launch_on_gpu(PTX, "many", 1, 1, 0, (GpuTensor(index), *ARGUMENTS[1:]), stream=0, modules=modules)
    assert [a for (a,) in driver.of("cuDeviceGet")] == [0, 1]
    assert len(driver.of("cuModuleLoadDataEx")) == 2
    assert len(driver.of("cuCtxPushCurrent")) == len(driver.of("cuCtxPopCurrent")) == 2 + 4


@pytest.mark.parametrize("fails", ["cuInit", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuLaunchKernel"])
def test_what_the_driver_refuses_is_said_and_the_context_left(fails):
    driver = Driver(fails)
    with pytest.raises(DriverError, match=f"{fails} failed with 999{': ptxas said' if 'Load' in fails else ''}"):
        launched(driver)
    assert len(driver.of("cuCtxPushCurrent")) == len(driver.of("cuCtxPopCurrent"))


@pytest.mark.parametrize(
    ("first", "says"),
    [(np.zeros(3), "host's memory"), (torch.zeros(3), "host's memory"), ("text", "str cannot be passed")],
)
def test_memory_of_the_host_is_refused(first, says):
    with pytest.raises(BadLaunch, match=says):
        launched(Driver(), (first, *ARGUMENTS[1:]))


def test_a_call_on_tensors_of_a_gpu_goes_to_the_gpu():
    driver = Driver()
    kernels = undertorch.ptx(PTX)
    kernels.modules.driver = driver
    with pytest.raises(BadLaunch, match=r"undertorch\.machine"), undertorch.machine(gpu="H200"):
        kernels["many"][1, 32](*ARGUMENTS)
    if not torch.cuda.is_available():  # asking for the current stream is what fails then
        with pytest.raises((RuntimeError, AssertionError)):
            kernels["many"][1, 32](*ARGUMENTS)
    assert len(driver.of("cuModuleLoadDataEx")) == 1
    with pytest.raises(BadLaunch, match=r"several GPUs: cuda:0, cuda:1"):
        kernels["many"][1, 32](GpuTensor(0), GpuTensor(1))


class Bindings(Driver):
    """Hands each call to cuda.bindings too, which looks at its arguments before it misses libcuda."""

    CUresult, CUjit_option, CUfunction_attribute = real.CUresult, real.CUjit_option, real.CUfunction_attribute
    answers = MappingProxyType({
        "cuDeviceGet": real.CUdevice(0), "cuDevicePrimaryCtxRetain": real.CUcontext(0),
        "cuCtxPopCurrent": real.CUcontext(0), "cuModuleLoadDataEx": real.CUmodule(0),
        "cuModuleGetFunction": real.CUfunction(0),
    })  # fmt: skip

    def __getattr__(self, name):
        def function(*arguments):
            self.calls.append((name, arguments))
            with pytest.raises(RuntimeError, match="libcuda"):
                getattr(real, name)(*arguments)
            return (real.CUresult.CUDA_SUCCESS, *([self.answers[name]] if name in self.answers else []))

        function.__name__ = name
        return function


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a driver the calls would be made")
def test_cudas_bindings_take_the_arguments_of_each_call():
    driver = Bindings()
    launched(driver, shared=100_000)
    launch_on_gpu(PTX, "grid", 1, 64, 0, (), stream=0, modules=Modules(driver=Bindings()))
    assert [name for name, _ in driver.calls] == [
        "cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent", "cuModuleLoadDataEx", "cuCtxPopCurrent",
        "cuCtxPushCurrent", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel", "cuCtxPopCurrent",
    ]  # fmt: skip


def test_without_a_driver_it_is_said():
    if torch.cuda.is_available():
        return
    with pytest.raises(DriverError, match=r"There is no CUDA driver|undertorch\[cuda\]"):
        launch_on_gpu(PTX, "none", 1, 1, 0, (), stream=0)
