"""The same call on a real GPU: arguments packed as for the machine, the launch by CUDA's driver."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from undertorch.compilers.driver import GpuModule, load, start
from undertorch.simt.errors import BadLaunch
from undertorch.simt.launch import Dim, Result, dynamic_bytes, three
from undertorch.simt.program import parsed
from undertorch.simt.ptx.special import WORKSPACE, special_registers
from undertorch.simt.runtime.buffers import values


@dataclass(slots=True)
class Modules:
    """Files of PTX that the driver has loaded, by text and device: for as long as their global variables count."""

    loaded: dict[tuple[str, int], GpuModule] = field(default_factory=dict)
    driver: Any = None
    """Stands for cuda.bindings.driver in tests."""

    def get(self, ptx: str, device: int) -> GpuModule:
        """The module of a file, loaded when first asked for."""
        if (ptx, device) not in self.loaded:
            self.loaded[ptx, device] = load(ptx, device, self.driver)
        return self.loaded[ptx, device]


def device_of(arguments: Sequence[object]) -> int | None:
    """The GPU that the arguments' torch tensors lie on; None where none lies on any. Raises BadLaunch for several."""
    tensors: list[Any] = [a for a in arguments if _on_gpu(a)]
    found = {tensor.device.index or 0 for tensor in tensors}
    if len(found) > 1:
        raise BadLaunch(f"The tensors lie on several GPUs: {', '.join(f'cuda:{n}' for n in sorted(found))}.")
    return next(iter(found), None)


def launch_on_gpu(
    ptx: str,
    name: str,
    grid: Dim,
    block: Dim,
    shared_bytes: int,
    arguments: Sequence[object],
    *,
    device: int | None = None,
    stream: int | None = None,
    modules: Modules | None = None,
) -> Result:
    """Puts a launch into a GPU's stream and does not wait for it.

    `arguments` as `simt.launch` takes them, but memory is torch tensors on the GPU; `shared_bytes`: of dynamic shared
    memory. `device`: where no argument is a tensor, or 0; `stream`: None is torch's current one. `modules`: keeps what
    is loaded, and so the values of global variables, from launch to launch.
    Raises BadLaunch, PtxError and undertorch.compilers.driver.DriverError.
    """
    module, _ = parsed(ptx)
    if name not in module.kernels:
        raise BadLaunch(f"The PTX has no kernel {name}; its kernels are: {', '.join(module.kernels) or 'none'}.")
    packed = values(module.functions[name].parameters, arguments, _address)
    grid3, block3 = three(grid, "grid"), three(block, "block")
    shared_bytes = dynamic_bytes(shared_bytes)
    index = device_of(arguments)
    index = index if index is not None else device or 0
    loaded = (modules or Modules()).get(ptx, index)
    queue = _current_stream(index) if stream is None else stream
    cooperative = not special_registers(module, name).isdisjoint(WORKSPACE)
    start(loaded, name, grid3, block3, shared_bytes, packed, queue, cooperative=cooperative)
    return Result(kernel=name, grid=grid3, block=block3, printed=None, counters=None)


def _on_gpu(argument: Any) -> bool:
    return hasattr(argument, "untyped_storage") and argument.device.type == "cuda"


def _address(argument: Any) -> int | None:
    if _on_gpu(argument):
        return int(argument.data_ptr())
    if hasattr(argument, "untyped_storage") or hasattr(argument, "__array_interface__"):
        if getattr(argument, "shape", None) == () and not hasattr(argument, "untyped_storage"):
            return None  # a NumPy scalar is a value
        raise TypeError("it lies in the host's memory, and this launch is on a GPU; move it with .cuda()")
    return None


def _current_stream(device: int) -> int:
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)
