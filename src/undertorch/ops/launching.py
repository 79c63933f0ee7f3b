"""Launches a Triton kernel as `kernel[grid](...)` does; from the second time on past what that costs.

Triton binds the arguments of every launch to the kernel's signature, writes what it specialises on into a string, asks
the driver where each pointer points and calls hooks, whether or not there are any: more than 20 µs of CPU time for a
dozen arguments, several times as much as torch needs for an op in all. The kernel that it answers the first time can be
launched by itself, with addresses in the place of tensors.
"""

from typing import Any

import triton
from torch import Tensor
from triton.runtime import jit

from undertorch.ops.calls import on_machine

_COMPILED: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
"""By what a kernel is compiled for: the kernel, and the constants that end its signature. A memory of the process, as
Triton's own."""

SMALLEST_INT32, LARGEST_INT32 = -(2**31), 2**31 - 1
ALIGNED = 15
"""Bits of an address, or of a number, that are all 0 where Triton compiles for a multiple of 16."""


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """kernel[grid](*arguments, **constants), on the current GPU: tensors, numbers and None, then every `tl.constexpr`
    and option by its name.
    """
    known = None if is_watched() else described(kernel, arguments, constants)
    if known is None:
        kernel[grid](*arguments, **constants)
        return
    key, device, values = known
    found = _COMPILED.get(key)
    if found is not None:
        compiled, last = found
        x, y, z = (*grid, 1, 1)[:3]
        stream = triton.runtime.driver.active.get_current_stream(device)
        # As CompiledKernel.__getitem__ does, without anything for hooks.
        compiled.run(x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None, *values, *last)
        return
    compiled = kernel[grid](*arguments, **constants)
    if compiled is not None:  # an interpreter compiles nothing
        _COMPILED[key] = compiled, tuple(constants[name] for name in kernel.arg_names[len(arguments) :])


def is_watched() -> bool:
    """Whether something wants to see each launch: hooks, what has taken the place of Triton's own `run`, a machine."""
    hooks = triton.knobs.runtime
    return bool(
        hooks.launch_enter_hook.calls
        or hooks.launch_exit_hook.calls
        or jit.JITFunction.run.__code__.co_name != "run"
        or on_machine()
    )


def described(
    kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]
) -> tuple[tuple[Any, ...], int, list[Any]] | None:
    """What the kernel is compiled for, as a key; the GPU; the arguments as a launcher takes them.

    Triton compiles anew for another dtype, for an address or a number that is a multiple of 16 or is none, for 1, and
    for a number of more than 31 bits (its own key, runtime/jit.py). None: of something else, which is left to Triton.
    """
    key: list[Any] = [id(kernel)]  # kernels stay; their own hash reads their source
    values: list[Any] = []
    device = -1
    for argument in arguments:  # numbers first: isinstance asks torch's metaclass, which takes longer than the rest
        kind, value = type(argument), argument
        if kind is int:
            if argument < SMALLEST_INT32:
                return None
            key.append(1 if argument == 1 else 2 + 2 * (argument & ALIGNED == 0) + (argument > LARGEST_INT32))
        elif kind is float:
            key.append(float)
        elif argument is None:
            key.append(None)
        elif isinstance(argument, Tensor):
            on, value = argument.get_device(), argument.data_ptr()
            if on >= 0:
                device = on
            else:  # of the host: by its address, which Triton has then found to be pinned, and which is the same for a
                key.append(value)  # GPU (CUDA C++ Programming Guide, unified virtual address space)
            key += (argument.dtype, value & ALIGNED == 0)
        else:
            return None
        values.append(value)
    return None if device < 0 else ((*key, device, *constants.items()), device, values)
