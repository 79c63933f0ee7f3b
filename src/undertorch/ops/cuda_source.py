"""A kernel of ours in CUDA C++: compiled by NVRTC when it is first wanted, and launched in torch's current stream.

Needs `undertorch[cuda]`. PTX of sm_90a holds instructions that the software GPU does not run, so this goes to CUDA's
driver without its parser.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undertorch.compilers.driver import GpuModule, load, start
from undertorch.compilers.nvrtc import compile_cuda
from undertorch.records import Dim3


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """One kernel, loaded on one GPU."""

    name: str
    module: GpuModule

    def launch(self, grid: Dim3, block: Dim3, shared_bytes: int, formats: str, *arguments: Any) -> None:
        """Puts a launch into the current stream. `formats`: of each argument that of struct.pack; P for a tensor."""
        packed = [_bytes(form, value) for form, value in zip(formats, arguments, strict=True)]
        stream = torch.cuda.current_stream(self.module.device).cuda_stream
        start(self.module, self.name, grid, block, shared_bytes, packed, stream)


@dataclass(frozen=True, slots=True)
class CudaSource:
    """A file of CUDA C++ for Hopper."""

    path: Path
    loaded: dict[tuple[object, ...], GpuModule] = field(default_factory=dict)

    def ptx(self, defines: dict[str, int]) -> str:
        """Compiled with these constants. Raises undertorch.compilers.nvrtc.CudaError."""
        options = ["-std=c++17", *(f"-D{name}={int(value)}" for name, value in defines.items())]
        return compile_cuda(self.path.read_text("utf-8"), options, architecture="sm_90a", name=self.path.name)

    def kernel(self, name: str, defines: dict[str, int], device: torch.device) -> CudaKernel:
        """A kernel of the file on a GPU. Raises CudaError and undertorch.compilers.driver.DriverError."""
        key = (device.index, *defines.items())
        if key not in self.loaded:
            self.loaded[key] = load(self.ptx(defines), device.index or 0)
        return CudaKernel(name, self.loaded[key])


def _bytes(form: str, value: Any) -> bytes:
    if isinstance(value, Tensor):
        return struct.pack("<Q", value.data_ptr())
    return struct.pack("<Q", 0) if value is None else struct.pack(f"<{form}", value)
