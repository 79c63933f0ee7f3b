"""What Triton asks its driver, answered for a Gpu that need not be there.

Triton asks its active driver for the target to compile for, for the device's limits, and for what to do with a
compiled kernel. `GpuDriver` answers but for the last.
"""

from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from undertorch.compilers.cubin import NoCubin, registers
from undertorch.records import Gpu


class GpuDriver(DriverBase):  # type: ignore[misc]  # Triton has no types
    """Stands for one Gpu. What derives from it says what runs a kernel, and how configurations are compared."""

    def __init__(self, gpu: Gpu, capability: tuple[int, int]) -> None:
        """`capability`: of the code that Triton is to write."""
        self.gpu = gpu
        self._target = GPUTarget("cuda", capability[0] * 10 + capability[1], gpu.warp_size)
        self.utils = Utils(gpu)

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

    def get_empty_cache_for_benchmark(self) -> Any:
        """The buffer that benchmarks clear the cache with."""
        import torch

        return torch.empty(1, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        """There is none."""


class Utils:
    """What Triton asks of a device and of a binary."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.registers: dict[int, int | None] = {}
        """Of each function that was loaded, by the number it was given."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Limits and clocks by the names that Triton's own driver gives them."""
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
