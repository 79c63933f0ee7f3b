"""A driver for Triton on a machine without the GPU: it compiles as for that GPU, and tells of each launch.

Triton asks its active driver for the target to compile for, for the device's limits, and for what to do with a
compiled kernel. `Driver` answers for a Gpu and calls `launched` in the place of a launch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver as active
from triton.runtime.autotuner import Autotuner

from undertorch.compilers.cubin import NoCubin, registers
from undertorch.records import Dim3, Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonLaunch:
    """One launch of a compiled Triton kernel."""

    name: str
    file: str
    """Where its source stands."""
    line: int
    grid: Dim3
    block: Dim3
    registers: int | None
    """Per thread; None where the compiled kernel does not tell."""
    shared_bytes: int
    """Per block."""
    arguments: Mapping[str, Any]
    """By parameter name, constants too."""


class Driver(DriverBase):  # type: ignore[misc]  # Triton has no types
    """Stands for one Gpu. `put_in_place` makes it the active driver."""

    def __init__(self, gpu: Gpu, launched: Callable[[TritonLaunch], None], chosen: Callable[[str, int], None]) -> None:
        """`chosen` is told when the first of a kernel's configurations that fits was taken, and of how many."""
        capability = gpu.compute_capability or (9, 0)
        self._target = GPUTarget("cuda", capability[0] * 10 + capability[1], gpu.warp_size)
        self.launched = launched
        self.chosen = chosen
        self.utils = _Utils(gpu)
        self.choosing = False
        """Whether an autotuner tries a configuration: such launches are not told of."""
        self.found = False
        """Whether the autotuner that runs has found a configuration that fits."""

    def launcher_cls(self, source: Any, metadata: Any) -> "_Launcher":
        """What runs a compiled kernel."""
        return _Launcher(source, metadata, self)

    @classmethod
    def is_active(cls) -> bool:
        """Never by itself."""
        return False

    def get_current_target(self) -> GPUTarget:
        """The GPU to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int) -> int:
        """There is one."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where Triton makes tensors of its own."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """What Triton's benchmarks synchronize by."""
        import torch

        return torch.cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Only a driver that compiles its launcher in C++ needs it."""
        return ty

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Nothing runs, so nothing is fast or slow."""
        return _compiled

    def get_empty_cache_for_benchmark(self) -> Any:
        """The buffer that benchmarks clear the cache with."""
        import torch

        return torch.empty(1, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        """There is none."""


class _Utils:
    """What Triton asks of a device and of a binary."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.registers: dict[int, int | None] = {}
        """Of each function that was loaded, by the number it was given."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        gpu = self._gpu
        return {
            "max_shared_mem": gpu.shared_per_block_optin or gpu.shared_per_block,
            "max_num_regs": gpu.registers_per_sm,
            "multiprocessor_count": gpu.sms,
            "warpSize": gpu.warp_size,
            "sm_clock_rate": int(gpu.boost_clock_mhz * 1000),
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """A module, a function, registers, spills, and the threads that a block may have. Only numbers are loaded."""
        function = len(self.registers) + 1
        try:
            self.registers[function] = registers(kernel)
        except NoCubin:
            self.registers[function] = None
        return function, function, self.registers[function] or 0, 0, self._gpu.max_threads_per_block

    def unload_module(self, module: int) -> None:
        """There is none."""


class _Launcher:
    """Stands for the launch of one compiled kernel."""

    def __init__(self, source: Any, metadata: Any, driver: Driver) -> None:
        self._function = source.fn
        self._metadata = metadata
        self._driver = driver

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *settings_and_arguments: Any) -> None:
        if self._driver.choosing:
            return
        code = self._function.fn.__code__
        # After the packed metadata, those of the launch, and the hooks before and after it.
        arguments = settings_and_arguments[4:]
        self._driver.launched(
            TritonLaunch(
                name=self._function.fn.__name__,
                file=code.co_filename,
                line=code.co_firstlineno,
                grid=(int(x), int(y), int(z)),
                block=(self._driver.get_current_target().warp_size * self._metadata.num_warps, 1, 1),
                registers=self._driver.utils.registers[function],
                shared_bytes=self._metadata.shared,
                arguments=dict(zip(self._function.arg_names, arguments, strict=False)),
            )
        )


def put_in_place(driver: Driver) -> Callable[[], None]:
    """Makes it Triton's active driver, and lets autotuners take the first configuration that fits the GPU.

    Answers what undoes it.
    """
    before, run, bench = active._active, Autotuner.run, Autotuner._bench

    def benched(tuner: Any, *arguments: Any, config: Any, **named: Any) -> list[float]:
        """The first configuration that compiles and fits is said to be the fastest; the others are not compiled."""
        if driver.found:
            return [float("inf")] * 3
        driver.choosing = True
        try:
            times: list[float] = bench(tuner, *arguments, config=config, **named)
        finally:
            driver.choosing = False
        driver.found = times[0] != float("inf")
        return times

    def followed(tuner: Any, *arguments: Any, **named: Any) -> Any:
        driver.found = False
        tuner.cache_results = False  # what was never measured must not be found on disk by a run that measures
        tuner.__dict__["do_bench"] = _compiled
        known = len(tuner.cache)
        result = run(tuner, *arguments, **named)
        if len(tuner.cache) > known:
            driver.chosen(tuner.base_fn.__name__, len(tuner.configs))
        return result

    active.set_active(driver)
    Autotuner.run, Autotuner._bench = followed, benched

    def undo() -> None:
        active._active, Autotuner.run, Autotuner._bench = before, run, bench

    return undo


def _compiled(kernel_call: Callable[[], object], quantiles: Any = None, **settings: Any) -> list[float]:
    """A time for a configuration that compiles: any number does. What does not fit the GPU raises."""
    kernel_call()
    return [1.0] * 3
