"""What the real backend asks of torch and of CUDA's driver: of stand-ins for both, and of a GPU where there is one."""

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode

from undertorch import gpus
from undertorch.compilers.driver import GpuModule
from undertorch.gpus.calibrating import NoGpu, ProbeFailed, calibrate, on_cuda, plan
from undertorch.gpus.calibrating.probes import KernelRun, LaunchRun, ProductRun
from undertorch.records import Math
from undertorch.reports.terminal.calibration import promise

NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="says what is said where there is no GPU")


class OnCpu(TorchFunctionMode):
    """Makes tensors on the CPU where a GPU is asked for."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


class Driver:
    """Stands for cuda.bindings.driver: notes each launch as it was asked for."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"))

    def __init__(self) -> None:
        self.launches: list[tuple[object, ...]] = []
        self.status = self.CUresult.CUDA_SUCCESS

    def cuModuleGetFunction(self, handle, name):
        return self.CUresult.CUDA_SUCCESS, (handle, name.decode())

    def cuLaunchKernel(self, function, *rest):
        *geometry, _, stream, parameters, extra = rest
        assert extra == 0
        words = 3 if function[0] in ("copy", "read", "write") else 0
        pointers = (ctypes.c_uint64 * words).from_address(parameters) if parameters else ()
        values = [ctypes.c_uint64.from_address(pointer).value for pointer in list(pointers)[:2]]
        self.launches.append((function, tuple(geometry), stream, values))
        return (self.status,)


class Event:
    """A millisecond passes from each one's record to the next's; nothing is ever late."""

    moment = 0.0

    def __init__(self, **_):
        self.at = None

    def record(self):
        Event.moment += 1.0
        self.at = Event.moment

    def query(self):
        return False

    def synchronize(self): ...

    def elapsed_time(self, end):
        return end.at - self.at


class Graph:
    def replay(self): ...


@contextmanager
def captured(_):
    yield


@pytest.fixture
def driver(monkeypatch):
    """Everything of torch.cuda that a probe uses, and the driver."""
    stand_in = Driver()
    stream = SimpleNamespace(cuda_stream=77, synchronize=lambda: None)
    nothing = {"_sleep": lambda _: None, "synchronize": lambda: None, "CUDAGraph": Graph, "graph": captured}
    for name, value in {**nothing, "Event": Event, "current_stream": lambda: stream}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(
        on_cuda, "compile_cuda", lambda source, architecture, name: f"{name.removesuffix('.cu')}:{architecture}"
    )
    monkeypatch.setattr(
        on_cuda,
        "load",
        lambda ptx, device: GpuModule(device=device, context=None, handle=ptx.partition(":")[0], driver=stand_in),
    )
    with OnCpu():
        yield stand_in


SMALL = gpus.calibrating.Facts(gpu_name="small", driver=None, sms=2, memory_bytes=1 << 20, l2_bytes=1 << 18)
KERNELS = [probe for probe in plan(SMALL) if isinstance(probe.run, KernelRun)]


@pytest.mark.parametrize("probe", KERNELS, ids=lambda probe: probe.run.kernel)
def test_a_kernel_is_launched_as_planned_into_torchs_stream(driver, probe):
    seconds = on_cuda.OnCuda().seconds(probe)
    assert list(seconds) == pytest.approx([1e-3] * len(seconds))
    assert len(driver.launches) == on_cuda.WARM_UP + 1 + len(seconds)
    (function, geometry, stream, _) = driver.launches[-1]
    assert function == (probe.run.source, probe.run.kernel)
    assert geometry == (probe.run.grid, 1, 1, probe.run.block, 1, 1)
    assert stream == 77


def test_a_kernel_gets_the_addresses_of_two_buffers(driver):
    backend = on_cuda.OnCuda()
    backend.seconds(KERNELS[0])
    addresses = [backend._buffers[name].data_ptr() for name in ("written", "read")]
    assert driver.launches[-1][3] == addresses


def test_a_launch_that_the_driver_refuses_fails_alone(driver):
    driver.status = SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE")
    with pytest.raises(ProbeFailed, match="CUDA_ERROR_INVALID_VALUE"):
        on_cuda.OnCuda().seconds(KERNELS[0])


def test_a_source_that_does_not_compile_fails_with_the_compilers_words(driver, monkeypatch):
    def broken(*_, **__):
        raise on_cuda.CudaError("copy.cu(3): error: expected a ;\nmore")

    monkeypatch.setattr(on_cuda, "compile_cuda", broken)
    with pytest.raises(ProbeFailed, match=r"^copy\.cu\(3\): error: expected a ;$"):
        on_cuda.OnCuda().seconds(KERNELS[0])


def test_where_the_cpu_is_too_slow_to_fill_the_queue_nothing_is_told(driver, monkeypatch):
    monkeypatch.setattr(Event, "query", lambda _: True)
    with pytest.raises(ProbeFailed, match="slower in launching"):
        on_cuda.OnCuda().seconds(KERNELS[0])


@pytest.mark.parametrize("what", ["launch call", "launch and wait", "torch call"])
def test_what_the_cpu_takes_is_timed_on_the_cpu(driver, what):
    probe = next(one for one in plan(SMALL) if one.ceiling == what)
    seconds = on_cuda.OnCuda().seconds(probe)
    assert min(seconds) > 0
    assert len(seconds) == on_cuda.MOST_SAMPLES


@pytest.mark.parametrize("where", ["stream", "graph"])
def test_empty_kernels_and_boundaries_are_launched_200_times(driver, where):
    probes = {one.ceiling: one for one in plan(SMALL) if isinstance(one.run, LaunchRun)}
    seconds = on_cuda.OnCuda().seconds(probes[f"empty kernel, {where}"])
    assert list(seconds) == pytest.approx([1e-3] * len(seconds))
    names = [launch[0][1] for launch in driver.launches]
    assert names.count("empty") % 200 == (0 if where == "stream" else 1)  # one to have it loaded before the capture


def test_a_boundary_is_the_difference_to_one_kernel_as_long_as_all(driver):
    """Here both last a millisecond, so that nothing is left."""
    probe = next(one for one in plan(SMALL) if one.ceiling == "kernel boundary, stream")
    seconds = on_cuda.OnCuda().seconds(probe)
    assert list(seconds) == pytest.approx([0.0] * len(seconds))


@pytest.mark.parametrize("math", [Math.FP32, Math.TENSOR_TF32, Math.TENSOR_FP64, Math.TENSOR_BF16, Math.TENSOR_FP16])
def test_a_product_is_right_and_torchs_switch_is_put_back(driver, math):
    before = torch.backends.cuda.matmul.allow_tf32
    seen = []
    run = ProductRun(math=math, size=8)
    with on_cuda._tf32(math is Math.TENSOR_TF32):
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        result = on_cuda._product(run)()
    assert seen == [math is Math.TENSOR_TF32]
    assert torch.backends.cuda.matmul.allow_tf32 == before
    assert result.shape == (8, 8)
    assert result.dtype == on_cuda.DTYPES[math]()


@NO_CUDA
def test_without_a_gpu_it_is_one_sentence(monkeypatch):
    with pytest.raises(NoGpu, match="measures the GPU of this machine"):
        on_cuda.OnCuda().facts()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="asks a GPU, and there is none here")
def test_a_real_gpu_reaches_a_good_part_of_its_sheet_and_no_more():
    """A tenth more is let pass: a clock above the one that a peak is quoted at, and rounding in the sheet. The L2's
    figure in a sheet is somebody's measurement and no ceiling."""
    found = calibrate(on_cuda.OnCuda())
    assert not found.failed
    assert found.seconds < 120
    sheet = gpus.find(found.gpu_name)
    for one in found.ceilings:
        promised = promise(sheet, one.name)
        if promised is not None and one.name != "l2 read":
            assert 0.3 * promised < one.value < 1.1 * promised, one
