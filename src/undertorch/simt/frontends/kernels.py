"""`undertorch.ptx(text)[name][grid, block](*arguments)`, and the GPU that it is run as."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import index

from undertorch.records import Gpu
from undertorch.simt.errors import BadLaunch, SimtError
from undertorch.simt.frontends.gpu import Modules, device_of, launch_on_gpu
from undertorch.simt.frontends.pointers import check_pointers
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
    patience: float = 30.0
    """Seconds of polling without anything changing that count as a deadlock."""

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
        if isinstance(self.patience, bool) or not isinstance(self.patience, int | float) or not self.patience > 0:
            raise BadLaunch(f"patience={self.patience!r}: it is a number of seconds above 0.")


MOST_THREADS = 1024
"""Of the host: each takes memory, and no host gains by more."""
SOURCE_NAME = "kernel.cu"
"""What lines of a source that is no file are reported under."""
CURRENT: ContextVar[Setting | None] = ContextVar("machine", default=None)


def check_text(text: object, what: str) -> None:
    """Raises BadLaunch for a source that is no text, or that has characters that no compiler takes."""
    if not isinstance(text, str):
        advice = "; decode it with .decode()" if isinstance(text, bytes) else ""
        raise BadLaunch(f"{what} is a str, and a {text.__class__.__name__} was given{advice}.")
    wrong = re.search("[\0\ud800-\udfff]", text)
    if wrong is not None:
        line = text.count("\n", 0, wrong.start()) + 1
        raise BadLaunch(f"{what} line {line}: the character {wrong.group()!r} is in no source; take it out.")


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
    source: str | None = None
    """CUDA C++ that it was compiled from, as the file SOURCE_NAME."""

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

    def __call__(self, *arguments: object) -> Result | None:
        """Runs it to its end on the machine; on tensors of a GPU it is put into torch's current stream there.

        On fake tensors, which have no values, it does nothing and answers None.
        Raises what `launch` and `launch_on_gpu` raise.
        """
        file, name = self.kernel.file, self.kernel.name
        if without_values(arguments):
            return None
        if file.source is not None:
            check_pointers(name, arguments)
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
            patience=setting.patience,
            memory=file.memory,
            sources={SOURCE_NAME: file.source} if file.source is not None else None,
        )
