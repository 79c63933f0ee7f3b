"""`undertorch.ptx(text)[name][grid, block](*arguments)`, and the GPU that it is run as."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from undertorch.records import Gpu
from undertorch.simt.errors import BadLaunch
from undertorch.simt.frontends.gpu import Modules, device_of, launch_on_gpu
from undertorch.simt.frontends.torch_op import without_values
from undertorch.simt.launch import Dim, Memory, Result, launch
from undertorch.simt.program import parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What launches inside a `with undertorch.machine(…)` share."""

    gpu: Gpu
    instrument: str = "none"
    seed: int | None = None
    threads: int = 1


CURRENT: ContextVar[Setting | None] = ContextVar("machine", default=None)


@contextmanager
def machine(setting: Setting) -> Iterator[Setting]:
    """Launches inside run with this setting."""
    token = CURRENT.set(setting)
    try:
        yield setting
    finally:
        CURRENT.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFile:
    """A file of PTX. Its global variables keep their values from launch to launch."""

    text: str
    default: Setting
    """Outside of any `with undertorch.machine(…)`."""
    memory: Memory = field(default_factory=Memory)
    modules: Modules = field(default_factory=Modules)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of its kernels, as they stand in the PTX."""
        return parsed(self.text)[0].kernels

    def __getitem__(self, name: str) -> "Kernel":
        """A kernel by its name in the PTX, or by its C++ name where only one kernel has it. Raises BadLaunch."""
        if name in self.kernels:
            return Kernel(file=self, name=name)
        mangled = re.compile(rf"_Z(?:N\w*?)?{len(name)}{re.escape(name)}")  # Itanium C++ ABI, 5.1: length, then name
        found = [kernel for kernel in self.kernels if mangled.match(kernel)]
        if len(found) == 1:
            return Kernel(file=self, name=found[0])
        why = f"{len(found)} kernels have that name" if found else "it has none of that name"
        raise BadLaunch(f"The PTX: {why} ({name}); its kernels are: {', '.join(self.kernels) or 'none'}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a file."""

    file: KernelFile
    name: str

    def __getitem__(self, size: tuple[Dim, Dim] | tuple[Dim, Dim, int]) -> "Sized":
        """`kernel[grid, block]` or `kernel[grid, block, bytes of dynamic shared memory]`."""
        grid, block, *rest = size
        return Sized(kernel=self, grid=grid, block=block, dynamic_shared=rest[0] if rest else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A kernel with its grid and block: a call launches it."""

    kernel: Kernel
    grid: Dim
    block: Dim
    dynamic_shared: int

    def __call__(self, *arguments: object) -> Result | None:
        """Runs it to its end on the machine; on tensors of a GPU it is put into torch's current stream there.

        On fake tensors, which have no values, it does nothing and answers None.
        Raises what `launch` and `launch_on_gpu` raise.
        """
        file, name = self.kernel.file, self.kernel.name
        if without_values(arguments):
            return None
        if device_of(arguments) is not None:
            if CURRENT.get() is not None:
                raise BadLaunch("Tensors on a GPU cannot be run by undertorch.machine(): move them with .cpu().")
            return launch_on_gpu(
                file.text, name, self.grid, self.block, self.dynamic_shared, arguments, modules=file.modules
            )
        setting = CURRENT.get() or file.default
        return launch(
            file.text,
            name,
            self.grid,
            self.block,
            arguments,
            gpu=setting.gpu,
            dynamic_shared=self.dynamic_shared,
            instrument=setting.instrument,
            seed=setting.seed,
            threads=setting.threads,
            memory=file.memory,
        )
