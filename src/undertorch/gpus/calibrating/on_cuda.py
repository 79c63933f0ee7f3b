"""Probes on this machine's GPU: kernels by CUDA's driver, products by torch, times by CUDA events on torch's stream.

Nothing of the GPU is set: no clock, no mode, no limit. torch's own switch for TF32 is put back after each product.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof, c_uint64
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from undertorch.compilers.driver import DriverError, GpuModule, load
from undertorch.compilers.nvrtc import CudaError, compile_cuda
from undertorch.gpus.calibrating.backends import Facts, NoGpu, ProbeFailed
from undertorch.gpus.calibrating.probes import Buffer, KernelRun, LaunchRun, LinkRun, Probe, ProductRun
from undertorch.gpus.calibrating.sources import SOURCES
from undertorch.records import Math

WARM_UP = 3
MOST_SAMPLES = 30
LEAST_SAMPLES = 3
SAMPLING_SECONDS = 0.4
"""Of running a probe: MOST_SAMPLES where they fit into that, otherwise fewer."""

SPIN_CLOCKS = 2_000
"""Of the kernels between which a boundary is timed: a microsecond at 2 GHz, so that they are no shorter than the GPU
takes to start the next."""

HOLD_ONE, HOLD_MANY = 2_000_000, 20_000_000
"""Clocks for which the stream is held while the CPU fills its queue, with one run and with many launches: 1 and 10 ms
at 2 GHz. A product takes 20 to 50 µs to launch from Python, 200 small kernels some 1,000."""

KERNEL_VERSION = Path("/sys/module/nvidia/version")
"""Where the driver's module tells its version, under Linux."""

REFUSALS = (RuntimeError, CudaError, DriverError, AttributeError, TypeError, ValueError)
"""How torch, the compiler and the driver refuse: of a dtype that this version of torch has not, AttributeError."""


@dataclass(slots=True, kw_only=True)
class OnCuda:
    """A Backend: the GPU of that number."""

    device: int = 0
    _functions: dict[tuple[str, str], Any] = field(default_factory=dict)
    """What the driver has loaded, by source and kernel."""
    _buffers: dict[str, Any] = field(default_factory=dict)
    """Tensors, by name."""
    _module: dict[str, GpuModule] = field(default_factory=dict)

    def facts(self) -> Facts:
        """Raises NoGpu."""
        torch = _torch()
        try:
            torch.cuda.init()
            torch.cuda.set_device(self.device)
            torch.zeros(1, device="cuda")  # makes the context that the driver's launches need
            properties = torch.cuda.get_device_properties(self.device)
            free, _ = torch.cuda.mem_get_info(self.device)
        except (RuntimeError, AssertionError) as error:
            raise NoGpu(f"The GPU of this machine cannot be used: {_first_line(error)}.") from error
        return Facts(
            gpu_name=properties.name,
            driver=driver_version(),
            sms=properties.multi_processor_count,
            memory_bytes=free,
            l2_bytes=properties.L2_cache_size,
            versions={"torch": str(torch.__version__), "cuda": torch.version.cuda or torch.version.hip or "unknown"},
        )

    def seconds(self, probe: Probe) -> Sequence[float]:
        """Raises ProbeFailed."""
        try:
            match probe.run:
                case KernelRun():
                    return self._kernel(probe.run)
                case ProductRun():
                    return self._product(probe.run)
                case LinkRun():
                    return self._link(probe.run)
                case LaunchRun():
                    return self._launches(probe.run)
        except REFUSALS as error:
            raise ProbeFailed(_first_line(error)) from error

    def _kernel(self, run: KernelRun) -> Sequence[float]:
        arguments = [self._buffer(one) if isinstance(one, Buffer) else one for one in run.arguments]
        return _timed(self._launcher(run.source, run.kernel, run.grid, run.block, arguments))

    def _product(self, run: ProductRun) -> Sequence[float]:
        self._buffers.clear()  # a matrix of 16,384² doubles is 2 GiB
        with _tf32(run.math is Math.TENSOR_TF32):
            return _timed(_product(run))

    def _link(self, run: LinkRun) -> Sequence[float]:
        import torch

        host = torch.zeros(run.bytes, dtype=torch.uint8).pin_memory()
        gpu = torch.zeros(run.bytes, dtype=torch.uint8, device="cuda")
        to, source = (gpu, host) if run.to_gpu else (host, gpu)
        return _timed(lambda: to.copy_(source, non_blocking=True))

    def _launches(self, run: LaunchRun) -> Sequence[float]:
        empty = self._launcher("empty", "empty", 1, 1, [])
        match run.what:
            case "launch call":
                return _on_cpu(lambda: _repeat(empty, run.launches))
            case "torch call":
                return _on_cpu(_torch_calls(run.launches))
            case "launch and wait":
                return _on_cpu(_waited(empty))
            case "empty kernel, stream":
                return _timed(lambda: _repeat(empty, run.launches), HOLD_MANY)
            case "empty kernel, graph":
                return _timed(_graph(lambda: self._launcher("empty", "empty", 1, 1, []), run.launches), HOLD_MANY)
            case "kernel boundary, stream":
                spin = self._launcher("spin", "spin", 1, 1, [SPIN_CLOCKS])
                return self._boundary(lambda: _repeat(spin, run.launches), run.launches)
            case _:
                graph = _graph(lambda: self._launcher("spin", "spin", 1, 1, [SPIN_CLOCKS]), run.launches)
                return self._boundary(graph, run.launches)

    def _boundary(self, many: Callable[[], object], launches: int) -> Sequence[float]:
        """Time of many short kernels less that of one that is as long as all of them."""
        one = self._launcher("spin", "spin", 1, 1, [SPIN_CLOCKS * launches])
        single = median(_timed(one, HOLD_MANY))
        return [several - single for several in _timed(many, HOLD_MANY)]

    def _launcher(
        self, source: str, kernel: str, grid: int, block: int, arguments: Sequence[Any]
    ) -> Callable[[], None]:
        """A launch of a kernel into the stream that is torch's current one now. Numbers and addresses are 64 bits."""
        import torch

        if (source, kernel) not in self._functions:
            self._functions[source, kernel] = self._function(source, kernel)
        driver, function = self._module[source].driver, self._functions[source, kernel]
        words = [c_uint64(one if isinstance(one, int) else one.data_ptr()) for one in arguments]
        pointers = (c_uint64 * max(1, len(words)))(*map(addressof, words))
        stream = torch.cuda.current_stream().cuda_stream
        at, kept = addressof(pointers), (words, pointers, arguments)

        def launch() -> None:
            status = driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, at if kept[0] else 0, 0)[0]
            if status != driver.CUresult.CUDA_SUCCESS:
                raise DriverError(f"cuLaunchKernel failed with {status.name}")

        return launch

    def _function(self, source: str, kernel: str) -> Any:
        """Compiled for exactly this GPU's architecture."""
        import torch

        if source not in self._module:
            major, minor = torch.cuda.get_device_capability(self.device)
            ptx = compile_cuda(SOURCES[source], architecture=f"compute_{major}{minor}", name=f"{source}.cu")
            self._module[source] = load(ptx, self.device)
        module = self._module[source]
        status, function = module.driver.cuModuleGetFunction(module.handle, kernel.encode())
        if status != module.driver.CUresult.CUDA_SUCCESS:
            raise DriverError(f"cuModuleGetFunction failed with {status.name}")
        return function

    def _buffer(self, asked: Buffer) -> Any:
        """Random bytes, so that nothing along the way can find them to be all alike."""
        import torch

        found = self._buffers.get(asked.name)
        if found is None or found.numel() * found.element_size() < asked.bytes:
            found = torch.randint(2**62, (ceil(asked.bytes / 8),), dtype=torch.int64, device="cuda")
            self._buffers[asked.name] = found
        return found


def _torch() -> Any:
    """torch, where it finds a GPU. Raises NoGpu."""
    measures = "--calibrate measures the GPU of this machine"
    try:
        import torch
    except ImportError as error:
        raise NoGpu(f"{measures}, by torch, which is not installed: pip install 'undertorch[torch]'.") from error
    if not torch.cuda.is_available():
        built = (
            "finds none"
            if torch.version.cuda or torch.version.hip
            else "is built without CUDA and sees none; install a build with CUDA where there is one"
        )
        raise NoGpu(f"{measures}, and torch {torch.__version__} {built}.")
    return torch


def _timed(run: Callable[[], object], hold: int = HOLD_ONE) -> Sequence[float]:
    """Seconds on the GPU of one run each, the GPU never waiting for the CPU."""
    import torch

    for _ in range(WARM_UP):
        run()
    torch.cuda.synchronize()
    once = _elapsed(run, hold)
    wanted = _samples(once or 0.0)
    found = [one for one in (_elapsed(run, hold) for _ in range(wanted)) if one is not None]
    if len(found) < LEAST_SAMPLES:
        raise RuntimeError("the CPU was slower in launching than the GPU could be held back, so no time was measured")
    return found


def _elapsed(run: Callable[[], object], hold: int) -> float | None:
    """Seconds from one event in the stream to the next, behind a kernel that spins while the run is put in.

    None where the CPU took longer than that, so that the GPU waited for it.
    """
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(hold)
    begin.record()
    run()
    end.record()
    late = begin.query()
    end.synchronize()
    return None if late else float(begin.elapsed_time(end)) * 1e-3


def _on_cpu(run: Callable[[], object]) -> Sequence[float]:
    """Seconds that the CPU takes; the GPU is idle when each run begins."""
    import torch

    found = []
    for sample in range(WARM_UP + MOST_SAMPLES):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        took = time.perf_counter() - begun
        if sample >= WARM_UP:
            found.append(took)
    return found


def _repeat(launch: Callable[[], object], times: int) -> None:
    for _ in range(times):
        launch()


def _torch_calls(times: int) -> Callable[[], object]:
    import torch

    number = torch.zeros(1, device="cuda")
    return lambda: _repeat(lambda: number.add_(1), times)


def _waited(launch: Callable[[], object]) -> Callable[[], object]:
    import torch

    stream = torch.cuda.current_stream()

    def run() -> None:
        launch()
        stream.synchronize()

    return run


def _graph(launcher: Callable[[], Callable[[], object]], times: int) -> Callable[[], object]:
    """Replays a CUDA graph of launches. `launcher` is called within the capture, whose stream is another."""
    import torch

    launcher()()  # loading a module is not allowed in a capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _repeat(launcher(), times)
    return graph.replay


def _product(run: ProductRun) -> Callable[[], object]:
    """Random normal values: a product of zeros takes less power, and so runs at a clock that no real one has."""
    import torch

    n = run.size
    a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
    match run.math:
        case Math.TENSOR_FP8:
            one = torch.ones((), device="cuda")
            left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()  # cuBLASLt wants it by columns
            return lambda: torch._scaled_mm(  # torch has no public name for it
                left, right, one, one, out_dtype=torch.bfloat16, use_fast_accum=run.fast
            )
        case Math.TENSOR_INT8:
            whole = [(x * 32).clamp(-127, 127).to(torch.int8) for x in (a, b)]
            return lambda: torch._int_mm(whole[0], whole[1].t())  # likewise
        case _:
            left, right = a.to(DTYPES[run.math]()), b.to(DTYPES[run.math]())
            result = torch.empty_like(left)
            return lambda: torch.mm(left, right, out=result)


def _dtype(name: str) -> Callable[[], Any]:
    def named() -> Any:
        import torch

        return getattr(torch, name)

    return named


DTYPES = {
    Math.TENSOR_FP64: _dtype("float64"),
    Math.FP32: _dtype("float32"),
    Math.TENSOR_TF32: _dtype("float32"),
    Math.TENSOR_BF16: _dtype("bfloat16"),
    Math.TENSOR_FP16: _dtype("float16"),
}


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """torch's switch for float32 products, put back afterwards."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _samples(once: float) -> int:
    return max(LEAST_SAMPLES, min(MOST_SAMPLES, int(SAMPLING_SECONDS / max(once, 1e-9))))


def driver_version() -> str | None:
    """Of NVIDIA's driver here; None where there is none, or it does not say."""
    try:
        return KERNEL_VERSION.read_text().strip() or None
    except OSError:
        pass
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said[0] if said else None


def _first_line(error: BaseException) -> str:
    """The first line of what was said, without the stop that ends it."""
    said = str(error).strip().splitlines()
    return (said[0] if said else type(error).__name__).rstrip(".")
