"""Kernels that torch.compile writes, on the machine: Inductor's Triton code for tensors in the CPU's memory.

Inductor can write Triton for the CPU (`torch._inductor.config.cpu_backend`); on its way to Triton's compiler the target
becomes the machine's. What Inductor measures to choose between configurations is not measured: the first is taken.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from undertorch.simt.errors import BadLaunch
from undertorch.simt.frontends.imports import after_import
from undertorch.simt.frontends.patches import Patches

TRIED = ((2, 11), (2, 13))
"""Versions of torch, the first and the last, that are let through; this was tried on the last."""
WARP = 32


def put_in_place(capability: tuple[int, int]) -> Callable[[], None]:
    """Turns Inductor to the machine as soon as it is imported. Answers what undoes it."""
    patches = Patches()
    _forget()
    leave = after_import("torch._inductor.compile_fx", lambda: _turn(patches, capability))

    def undo() -> None:
        leave()
        patches.undo()
        _forget()

    return undo


def _forget() -> None:
    """Lets torch ask again what it asks once in a process, such as whether there is a GPU that Triton serves."""
    for name in ("torch.utils._triton", "torch._inductor.utils"):
        for function in list(vars(sys.modules.get(name, ModuleType(name))).values()):
            if hasattr(function, "cache_clear") and getattr(function, "__module__", None) == name:
                function.cache_clear()


def _turn(patches: Patches, capability: tuple[int, int]) -> None:
    import torch._inductor.runtime.triton_helpers as runtime
    from torch._inductor import compile_fx, config
    from torch._inductor.runtime import triton_heuristics as heuristics

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    wanted = ((heuristics, "GPUTarget"), (heuristics.CachingAutotuner, "bench"), (runtime, "set_driver_to_cpu"))
    if not TRIED[0] <= version <= TRIED[1] or not all(hasattr(home, name) for home, name in wanted):
        patches.put(compile_fx, "compile_fx", _refused)
        return
    target = vars(heuristics)["GPUTarget"]

    def of_the_machine(backend: str, arch: Any, warp_size: int) -> Any:
        return target("cuda", capability[0] * 10 + capability[1], WARP) if backend == "cpu" else target(
            backend, arch, warp_size
        )  # fmt: skip

    patches.put(heuristics, "GPUTarget", of_the_machine)
    patches.put(heuristics.CachingAutotuner, "bench", lambda tuner, launcher, *arguments, **named: 1.0)
    patches.put(runtime, "set_driver_to_cpu", lambda: None)  # the machine is Triton's driver already
    # Worker processes would compile with another driver.
    patches.enter(config.patch({"cpu_backend": "triton", "compile_threads": 1}))


def _refused(*arguments: Any, **named: Any) -> Any:
    raise BadLaunch(
        f"torch.compile inside undertorch.machine() takes torch {'.'.join(map(str, TRIED[0]))} to "
        f"{'.'.join(map(str, TRIED[1]))}, and this is {torch.__version__}: leave torch.compile out there, or use one "
        "of these."
    )
