"""Runs PTX on a real GPU by CUDA's driver: needs an NVIDIA GPU, its driver, and `pip install 'undertorch[cuda]'`."""

from collections.abc import Sequence
from ctypes import addressof, c_char_p, c_void_p, cast
from dataclasses import dataclass, field
from typing import Any

from undertorch.records import Dim3

LOG_BYTES = 1 << 14
"""For what the driver's compiler says."""


class DriverError(Exception):
    """There is no driver, or it refused; with its own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModule:
    """A file of PTX on one GPU. Its global variables keep their values as long as it is loaded."""

    device: int
    context: Any
    """The device's primary context: the one that CUDA's runtime, and so torch, works in."""
    handle: Any
    driver: Any = field(repr=False)


def load(ptx: str, device: int, driver: Any = None) -> GpuModule:
    """Has the driver compile PTX for a GPU. `driver` is cuda.bindings.driver; another one stands for it in tests.

    Raises DriverError.
    """
    driver = driver or _bindings()
    _call(driver, driver.cuInit, 0)
    context = _call(driver, driver.cuDevicePrimaryCtxRetain, _call(driver, driver.cuDeviceGet, device))
    log = bytearray(LOG_BYTES)
    options = [driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    _call(driver, driver.cuCtxPushCurrent, context)
    try:
        handle = _call(
            driver, driver.cuModuleLoadDataEx, ptx.encode() + b"\0", len(options), options, [log, len(log)], log=log
        )
    finally:
        _call(driver, driver.cuCtxPopCurrent)
    return GpuModule(device=device, context=context, handle=handle, driver=driver)


def start(
    module: GpuModule,
    kernel: str,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    parameters: Sequence[bytes],
    stream: int,
    *,
    cooperative: bool = False,
) -> None:
    """Puts one launch into a stream (0: the default one) and does not wait for it.

    `parameters` are the bytes of each parameter, in the order of the kernel's; `shared_bytes` is dynamic shared memory.
    `cooperative`: all blocks are resident at once and may wait for each other; a grid that does not fit is refused.
    Raises DriverError.
    """
    driver = module.driver
    # The driver wants an array of pointers, one to each parameter's bytes, and copies these before it returns.
    pointers = (c_void_p * len(parameters))(*(cast(c_char_p(value), c_void_p).value for value in parameters))
    _call(driver, driver.cuCtxPushCurrent, module.context)
    try:
        function = _call(driver, driver.cuModuleGetFunction, module.handle, kernel.encode())
        if shared_bytes:
            # Above 48 KB in all a kernel has to ask for it (CUDA C++ Programming Guide, "Shared Memory").
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _call(driver, driver.cuFuncSetAttribute, function, most, shared_bytes)
        common = (function, *grid, *block, shared_bytes, stream, addressof(pointers) if parameters else 0)
        if cooperative:
            _call(driver, driver.cuLaunchCooperativeKernel, *common)
        else:
            _call(driver, driver.cuLaunchKernel, *common, 0)
    finally:
        _call(driver, driver.cuCtxPopCurrent)


def _bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise DriverError("A launch on a GPU needs CUDA's driver interface: pip install 'undertorch[cuda]'.") from None
    return driver


def _call(driver: Any, function: Any, *arguments: Any, log: bytearray | None = None) -> Any:
    """What a function of the driver answers. Raises DriverError, with what its compiler logged."""
    try:
        status, *answer = function(*arguments)
    except RuntimeError as error:  # cuda.bindings, where there is no libcuda
        raise DriverError(f"There is no CUDA driver on this machine: {error}.") from None
    if status != driver.CUresult.CUDA_SUCCESS:
        said = bytes(log or b"").split(b"\0")[0].decode(errors="replace").strip()
        what = f"{function.__name__} failed with {getattr(status, 'name', status)}"
        raise DriverError(f"{what}: {said}" if said else f"{what}.")
    return answer[0] if answer else None
