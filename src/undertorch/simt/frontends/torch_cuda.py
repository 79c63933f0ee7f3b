"""torch with the machine's GPU in it: `device="cuda"` is served in the CPU's memory, and `torch.cuda` answers.

A TorchFunctionMode sees torch's calls and rewrites the devices that they name; tensors say that they lie on `cuda:0`.
What asks `torch.cuda` and the few functions that no mode sees is replaced. All of it is put back on leaving.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import checkpoint

from undertorch.records import Gpu
from undertorch.simt.frontends.cuda_answers import accelerator_answers, answers
from undertorch.simt.frontends.patches import Patches
from undertorch.simt.frontends.true_devices import true_devices

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")


def named(device: Any) -> bool:
    """Whether a device, a text or a number names a GPU of CUDA's. Raises RuntimeError for a second one."""
    if device is None or isinstance(device, bool):
        return False
    if isinstance(device, str) and not device.startswith("cuda"):
        return False
    if not isinstance(device, str | int | torch.device):
        return False
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if found.type == "cuda" and (found.index or 0) > 0:
        raise RuntimeError(f"{found}: undertorch.machine() has one GPU, cuda:0.")
    return found.type == "cuda"


class OnTheMachine(TorchFunctionMode):
    """Torch's calls, with the CPU's memory for the GPU's."""

    def __init__(self) -> None:
        super().__init__()
        self.handling = 0
        """Calls of `backward` and `grad` that are being made."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answers what asks for a device; else makes the call, on the CPU."""
        kwargs = kwargs or {}
        answer = ANSWERS.get(func)
        if answer is not None:
            return answer(*args, **kwargs)
        if kwargs.get("pin_memory"):
            return _mark_pinned(self.__torch_function__(func, types, args, kwargs | {"pin_memory": False}))
        if named(kwargs.get("device")):
            made = func(*args, **kwargs | {"device": CPU})
            return _marked(made) if isinstance(made, torch.Tensor) else made
        if any(isinstance(argument, torch.device) and named(argument) for argument in args):
            args = tuple(CPU if isinstance(a, torch.device) and named(a) else a for a in args)
        if func not in RUN_BACKWARD:
            return func(*args, **kwargs)
        self.handling += 1
        try:
            return func(*args, **kwargs)
        finally:
            self.handling -= 1


RUN_BACKWARD = {torch.Tensor.backward, torch.autograd.grad}


def _device(tensor: torch.Tensor) -> torch.device:
    return GPU if tensor.device.type == "cpu" else tensor.device


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    """Moving it to the GPU again is no move. What torch.compile traces cannot be marked, and has no need to be."""
    if not torch.compiler.is_compiling():
        tensor.__dict__["_made_for_gpu"] = True
    return tensor


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """A move to the GPU or back is a copy, as there; what was already made for the GPU stays."""
    first = args[0] if args else None
    asked = first if isinstance(first, str | int | torch.device) else kwargs.get("device")
    if asked is None or tensor.device.type != "cpu":
        return tensor.to(*args, **kwargs)
    to_gpu = named(asked)
    if to_gpu or str(asked) == "cpu":
        if not isinstance(first, str | int | torch.device):
            kwargs = kwargs | {"device": CPU}
        else:
            args = (CPU, *args[1:])
        # Positional arguments after the device: dtype, non_blocking, copy.
        if len(args) <= 3 and not (to_gpu and getattr(tensor, "_made_for_gpu", False)):
            kwargs = kwargs | {"copy": True}
    moved = tensor.to(*args, **kwargs)
    return _marked(moved) if to_gpu else moved


def _mark_pinned(tensor: torch.Tensor) -> torch.Tensor:
    tensor.__dict__["_pinned"] = True
    return tensor


def _pin_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    return tensor if _is_pinned(tensor) else _mark_pinned(tensor.detach().clone())


def _is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
    return "_pinned" in tensor.__dict__


def _cuda(
    tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
) -> torch.Tensor:
    return _to(tensor, GPU if device is None else device, memory_format=memory_format)


def _cpu(tensor: torch.Tensor, memory_format: Any = torch.preserve_format) -> torch.Tensor:
    return _to(tensor, CPU, memory_format=memory_format)


ANSWERS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.device.__get__: _device,
    torch.Tensor.is_cuda.__get__: lambda tensor: _device(tensor).type == "cuda",  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: lambda tensor: _device(tensor).type == "cpu",  # type: ignore[attr-defined]
    torch.Tensor.get_device: lambda tensor: 0 if _device(tensor) == GPU else tensor.get_device(),
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.record_stream: lambda tensor, stream: None,
}
"""Calls that are about where a tensor lies, and what they answer inside."""


def put_in_place(gpu: Gpu, capability: tuple[int, int]) -> Callable[[], None]:
    """Puts the GPU into this process's torch. Answers what undoes it."""
    patches, mode = Patches(), OnTheMachine()
    of_cuda = answers(gpu, capability)
    for home, found in ((torch.cuda, of_cuda), (torch.accelerator, accelerator_answers(of_cuda))):
        for name, answer in found.items():
            patches.put(home, name, answer)
    for home, names in ((torch.cuda.random, ("manual_seed", "manual_seed_all")), (torch.cuda.streams, ("Event",))):
        for name in names:
            patches.put(home, name, getattr(torch.cuda, name))
    patches.put(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    _autocast(patches)
    _by_name(patches)
    _pinning(patches)
    _backward(patches, mode)
    _checkpoint(patches)
    patches.enter(mode)
    return patches.undo


def _autocast(patches: Patches) -> None:
    """`torch.autocast("cuda")` is autocast of the CPU, where the tensors are, to CUDA's default dtype."""
    init = torch.amp.autocast_mode.autocast.__init__

    def on_cpu(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", torch.float16 if dtype is None else dtype
        init(self, device_type, dtype, *args, **kwargs)

    patches.put(torch.amp.autocast_mode.autocast, "__init__", on_cpu)
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        patches.put(torch, name, _asking_cpu(getattr(torch, name)))
    patches.put(torch, "get_autocast_gpu_dtype", torch.get_autocast_cpu_dtype)


def _asking_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a device type's autocast; without one it is about CUDA's."""

    def asked(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_type") == "cuda":
            kwargs["device_type"] = "cpu"
        elif not args or not isinstance(args[0], str):
            args = ("cpu", *args) if "device_type" not in kwargs else args
        elif args[0] == "cuda":
            args = ("cpu", *args[1:])
        return function(*args, **kwargs)

    return asked


class _Generator(type):
    """`torch.Generator`, also of `device="cuda"`: numbers for the GPU are drawn on the CPU."""

    real = torch.Generator

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        return cls.real("cpu" if named(device) else device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)


def _by_name(patches: Patches) -> None:
    """Functions that take a device and that no mode sees."""
    load, default = torch.load, torch.set_default_device

    def loaded(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(f, CPU if named(map_location) else map_location, *args, **kwargs)

    patches.put(torch, "load", loaded)
    patches.put(torch, "set_default_device", lambda device: default(CPU if named(device) else device))
    patches.put(torch, "Generator", _Generator("Generator", (), {}))


def _pinning(patches: Patches) -> None:
    """A DataLoader pins its batches in a thread of its own, where no mode sees it."""
    patches.put(torch.Tensor, "pin_memory", _pin_memory)
    patches.put(torch.Tensor, "is_pinned", _is_pinned)


def _backward(patches: Patches, mode: OnTheMachine) -> None:
    """While torch handles a call the mode is off: `backward()` is such a call, and runs functions of the user's."""
    run = vars(torch.autograd)["_engine_run_backward"]

    def seen(*args: Any, **kwargs: Any) -> Any:
        if not mode.handling or mode in _get_current_function_mode_stack():
            return run(*args, **kwargs)
        inside: AbstractContextManager[Any] = mode
        with inside:
            return run(*args, **kwargs)

    patches.put(torch.autograd, "_engine_run_backward", seen)


def _checkpoint(patches: Patches) -> None:
    """Recomputed tensors are compared with those saved, their devices too, some while the mode is off: all as it is."""

    def described(tensor: torch.Tensor) -> Any:
        with true_devices():
            return checkpoint._default_meta_extractor(tensor)

    patches.put(
        checkpoint,
        "_allowed_determinism_checks_to_fns",
        {
            name: described if describe is checkpoint._default_meta_extractor else describe
            for name, describe in checkpoint._allowed_determinism_checks_to_fns.items()
        },
    )
