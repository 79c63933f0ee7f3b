"""`undertorch.ptx(text)[name][grid, block](*arguments)`, and the GPU that it is run as."""

import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from undertorch.records import Gpu, TextOrigin
from undertorch.simt.errors import BadLaunch, SimtError
from undertorch.simt.frontends.gpu import Modules, device_of, launch_on_gpu
from undertorch.simt.frontends.mangled import demangled
from undertorch.simt.frontends.pointers import check_pointers, check_values
from undertorch.simt.frontends.torch_op import without_values
from undertorch.simt.frontends.true_devices import true_devices
from undertorch.simt.launch import Dim, Memory, Result, launch
from undertorch.simt.numerics import numerics_of
from undertorch.simt.program import Program, parsed, prepare
from undertorch.simt.ptx.instructions import Variable
from undertorch.simt.runtime.buffers import place_variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What launches inside a `with undertorch.machine(…)` share."""

    gpu: Gpu
    instrument: str = "none"
    seed: int | None = None
    threads: int = 1
    patience: float = 30.0
    """Seconds of polling without anything changing that count as a deadlock."""
    mma: str = "fast"
    """How tensor cores add: `fast`, or `exact` as on this GPU (simt/numerics.py)."""
    all_configs: bool = False
    """Whether Triton's autotuners run every configuration that fits, and not the first one only."""
    launched_by: Callable[..., Result] = field(default=launch, compare=False, repr=False)
    """What runs a launch: `simt.launch`, or something of its signature that looks on while it does (checks/)."""
    launches: deque[Result] = field(default_factory=lambda: deque(maxlen=KEPT), compare=False, repr=False)
    """What the last launches left, in order: those of Triton's kernels and inside operators too."""

    def __post_init__(self) -> None:
        """Raises BadLaunch for what is no setting."""
        if self.instrument not in ("none", "counters"):
            raise BadLaunch(f"instrument={self.instrument!r}: it is none or counters.")
        if self.seed is not None and not hasattr(self.seed, "__index__"):
            raise BadLaunch(f"seed={self.seed!r}: it is an integer, or None for warps in ascending order.")
        if not hasattr(self.threads, "__index__") or not 1 <= index(self.threads) <= MOST_THREADS:
            raise BadLaunch(
                f"threads={self.threads!r}: it is a number of the host's threads, from 1 to {MOST_THREADS}."
            )
        if isinstance(self.patience, bool) or not isinstance(self.patience, Real) or not self.patience > 0:
            raise BadLaunch(f"patience={self.patience!r}: it is a number of seconds above 0.")
        numerics_of(self.gpu, self.mma)
        # NumPy's numbers overflow where Python's do not.
        object.__setattr__(self, "seed", None if self.seed is None else index(self.seed))
        object.__setattr__(self, "threads", index(self.threads))
        object.__setattr__(self, "patience", float(self.patience))


KEPT = 1000
"""Launches that are kept: a training loop has no end of them."""
MOST_THREADS = 1024
"""Of the host: each takes memory, and no host gains by more."""
SOURCE_NAME = "kernel.cu"
"""What lines of a source that is no file are reported under."""
CURRENT: ContextVar[Setting | None] = ContextVar("machine", default=None)


CAPABILITY = (8, 0)
"""The newest that code is compiled for: the machine has no wgmma, no TMA and no clusters (docs/machine.md)."""


def capability(gpu: Gpu) -> tuple[int, int]:
    """What is compiled for a GPU, and what the GPU answers when it is asked."""
    return min(gpu.compute_capability or CAPABILITY, CAPABILITY)


def check_text(text: object, what: str) -> None:
    """Raises BadLaunch for a source that is no text, or that has characters that no compiler takes."""
    if not isinstance(text, str):
        advice = "; decode it with .decode()" if isinstance(text, bytes) else ""
        raise BadLaunch(f"{what} is a str, and a {text.__class__.__name__} was given{advice}.")
    wrong = re.search("[\0\ud800-\udfff]", text)
    if wrong is not None:
        line = text.count("\n", 0, wrong.start()) + 1
        raise BadLaunch(f"{what} line {line}: the character {wrong.group()!r} is in no source; take it out.")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFile:
    """A file of PTX. Its global variables keep their values from launch to launch."""

    text: str
    default: Setting
    """Outside of any `with undertorch.machine(…)`."""
    memory: Memory = field(default_factory=Memory)
    modules: Modules = field(default_factory=Modules)
    source: str | None = None
    """CUDA C++ that it was compiled from, as the file SOURCE_NAME."""
    name: str | None = None
    """Of a file that it was read from."""
    origin: TextOrigin | None = None
    """Where the source stands that is no file."""
    included: Mapping[str, str] = field(default_factory=dict)
    """Text of one's own files that the source includes, by the names that the PTX gives them."""

    def __repr__(self) -> str:
        try:
            module, _ = parsed(self.text)
        except SimtError as error:
            return f"<{self.title} that cannot be read: {error}>"
        kernels = f"{len(module.kernels)} kernel" + ("" if len(module.kernels) == 1 else "s")
        return f"<{kernels} in {self.title}, {module.target}: {', '.join(module.kernels) or 'none'}>"

    @property
    def title(self) -> str:
        """What it is called."""
        if self.name is not None:
            return self.name
        return SOURCE_NAME if self.source is not None else "PTX"

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of its kernels, as they stand in the PTX."""
        return parsed(self.text)[0].kernels

    def __getitem__(self, name: str) -> "Kernel":
        """A kernel by its name in the PTX, or by its C++ name where only one kernel has it. Raises BadLaunch."""
        if not isinstance(name, str):
            raise BadLaunch(
                f"[{name!r}]: a kernel is asked for by its name, a str; there are: {', '.join(self.kernels)}."
            )
        if name in self.kernels:
            return Kernel(file=self, name=name)
        mangled = re.compile(rf"_Z(?:N\w*?)?{len(name)}{re.escape(name)}")  # Itanium C++ ABI, 5.1: length, then name
        asked = name.replace(" ", "")
        spelt = {kernel: (demangled(kernel) or kernel).replace(" ", "") for kernel in self.kernels}
        found = [kernel for kernel in self.kernels if spelt[kernel] == asked]
        found = found or [kernel for kernel in self.kernels if mangled.match(kernel)]
        if len(found) == 1:
            return Kernel(file=self, name=found[0])
        if not self.kernels:
            template = "; a template needs `template __global__ void name<…>(…);`" if self.source is not None else ""
            raise BadLaunch(f"{self.title} has no kernels{template}.")
        why = f"{len(found)} kernels have that name" if found else "it has none of that name"
        names = ", ".join(demangled(kernel) or kernel for kernel in self.kernels)
        raise BadLaunch(f"{self.title}: {why} ({name}); its kernels are: {names}.")

    @property
    def variables(self) -> "Mapping[str, np.ndarray[Any, Any]]":
        """Its `__device__` and `__constant__` variables on the machine, by name, to be read and written in place.

        NVRTC declares arrays as bytes: `file.variables["table"].view(np.float32)[:] = …`. A GPU has its own.
        """
        module, _ = parsed(self.text)
        placed = [v for v in module.variables if v.space in {"global", "const"}]
        with self.memory.lock:
            missing = [v for v in placed if v.name not in self.memory.arrays]
            self.memory.arrays = place_variables(missing, self.memory.arrays)
        return {v.name: self.memory.arrays[v.name][: v.size].view(_dtype(v)) for v in placed}


def _note_writes(program: Program, arguments: tuple[object, ...]) -> None:
    """Tells autograd of tensors that were written to: one that it saved for backward is not what it was."""
    if not any(hasattr(argument, "untyped_storage") for argument in arguments):
        return
    import torch

    for number, tensor in enumerate(arguments):
        if isinstance(tensor, torch.Tensor) and number in program.written and not torch.is_inference(tensor):
            torch.autograd.graph.increment_version(tensor)


def _dtype(variable: Variable) -> str:
    """NumPy's name of its elements' type; of what NumPy has no type for, bits."""
    type = variable.type
    if type is None or type.bits > 64:
        return "u1"
    kind = {"signed": "i", "float": "f"}.get(type.kind, "u") if type.lanes == 1 and type.name != "tf32" else "u"
    return f"{kind}{type.bytes}"


def _runner() -> Callable[..., Result | None]:
    """What launches: where torch is, a graph of torch.compile ends before it and starts anew behind it."""
    torch: Any = sys.modules.get("torch")
    return torch.compiler.disable(_run) if torch is not None and hasattr(torch, "compiler") else _run


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a file."""

    file: KernelFile
    name: str
    runner: Callable[..., Result | None] = field(default_factory=_runner, compare=False, repr=False)

    def __repr__(self) -> str:
        module, _ = parsed(self.file.text)
        return f"<kernel {self.name}, of {len(module.kernels)} in {self.file.title}, {module.target}>"

    def __getitem__(self, size: tuple[Dim, Dim] | tuple[Dim, Dim, int]) -> "Sized":
        """`kernel[grid, block]` or `kernel[grid, block, bytes of dynamic shared memory]`."""
        if not isinstance(size, tuple) or len(size) not in {2, 3}:
            raise BadLaunch(f"{self.name}[{size!r}]: it takes [grid, block] or [grid, block, bytes of shared memory].")
        grid, block, *rest = size
        return Sized(kernel=self, grid=grid, block=block, dynamic_shared=rest[0] if rest else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A kernel with its grid and block: a call launches it."""

    kernel: Kernel
    grid: Dim
    block: Dim
    dynamic_shared: int

    def __call__(self, *arguments: object, reachable: Sequence[object] = ()) -> Result | None:
        """Runs it to its end on the machine; on tensors of a GPU it is put into torch's current stream there.

        `reachable`: arrays and tensors that the kernel comes to by pointers that lie in memory or in structs.
        On fake tensors, which have no values, it does nothing and answers None.
        Raises what `launch` and `launch_on_gpu` raise.
        """
        return self.kernel.runner(self, arguments, reachable)


def _run(sized: Sized, arguments: tuple[object, ...], reachable: Sequence[object]) -> Result | None:
    with true_devices():
        return _launched(sized, arguments, reachable)


def _launched(sized: Sized, arguments: tuple[object, ...], reachable: Sequence[object]) -> Result | None:
    file, name = sized.kernel.file, sized.kernel.name
    if without_values(arguments):
        return None
    check_values(name, arguments)
    if file.source is not None:
        check_pointers(name, arguments)
    if device_of(arguments) is not None:
        if CURRENT.get() is not None:
            raise BadLaunch("Tensors on a GPU cannot be run by undertorch.machine(): move them with .cpu().")
        return launch_on_gpu(
            file.text, name, sized.grid, sized.block, sized.dynamic_shared, arguments, modules=file.modules
        )
    setting = CURRENT.get() or file.default
    result = setting.launched_by(
        file.text,
        name,
        sized.grid,
        sized.block,
        arguments,
        gpu=setting.gpu,
        dynamic_shared=sized.dynamic_shared,
        instrument=setting.instrument,
        seed=setting.seed,
        threads=setting.threads,
        patience=setting.patience,
        mma=setting.mma,
        memory=file.memory,
        reachable=reachable,
        sources={SOURCE_NAME: file.source} if file.source is not None else None,
        origins={SOURCE_NAME: file.origin} if file.origin is not None else None,
    )
    _note_writes(prepare(file.text, name, setting.instrument, numerics_of(setting.gpu, setting.mma)), arguments)
    if CURRENT.get() is not None:
        setting.launches.append(result)
    return result
