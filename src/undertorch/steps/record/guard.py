"""Builds the guard (guard.cpp) against the user's torch, once, and loads it.

Building asks for torch's headers and a C++ compiler, not for torch itself: the process that builds never imports it.
"""

import ctypes
import importlib.util
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undertorch.steps.record import native
from undertorch.steps.record.errors import NoTorch

SOURCE = Path(__file__).with_name("guard.cpp")
EXPORTS = Path(__file__).with_name("guard.exports")
"""A linker script: the guard shows its own functions and nothing of the C++ library it was compiled with."""
COMPILERS = ("c++", "g++", "clang++")
CXX11_ABI = 1
"""torch's wheels are built with the C++11 ABI since 2.7 (its release notes); undertorch serves 2.11 and later."""


class Guard:
    """The loaded guard. Load it before torch is imported, install it afterwards; or load and install it late."""

    def __init__(self, library: Path) -> None:
        """Raises OSError where the library does not fit the torch that is installed."""
        # What libtorch depends on has to be global first, as `import torch` does it. Then libtorch: loaded by the
        # guard, it would look for its symbols in the guard first.
        libraries = torch_folder() / "lib"
        suffix = ".dylib" if platform.system() == "Darwin" else ".so"
        ctypes.CDLL(str(libraries / f"libtorch_global_deps{suffix}"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(libraries / f"libtorch_cpu{suffix}"))
        # PyDLL keeps the interpreter's lock: each call takes nanoseconds.
        self._library = ctypes.PyDLL(str(library))
        for name in ("install", "replace_hooks", "uninstall"):
            getattr(self._library, name).restype = None
        self.nodes_running: Callable[[], int] = self._function("nodes_running", ctypes.c_uint64)
        self.thread_number: Callable[[], int] = self._function("thread_number", ctypes.c_uint64)
        self.running_thread: Callable[[], int] = self._function("running_thread", ctypes.c_uint64)
        self.running_sequence: Callable[[], int] = self._function("running_sequence", ctypes.c_int64)
        self.running_name: Callable[[], bytes] = self._function("running_name", ctypes.c_char_p)
        self.finished_thread: Callable[[], int] = self._function("finished_thread", ctypes.c_uint64)
        self.finished_sequence: Callable[[], int] = self._function("finished_sequence", ctypes.c_int64)
        self.finished_name: Callable[[], bytes] = self._function("finished_name", ctypes.c_char_p)

    def install(self) -> None:
        """Makes fake CUDA tensors possible. Call once, after `import torch`."""
        self._library.install()

    def install_late(self) -> None:
        """The same where torch was imported before this library was loaded."""
        self._library.replace_hooks()
        self._library.install()

    def uninstall(self) -> None:
        """Undoes `install_late`."""
        self._library.uninstall()

    def _function(self, name: str, result: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        function.argtypes = ()
        return function


def torch_folder() -> Path:
    """Where torch is installed. Raises NoTorch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NoTorch("torch is not installed, and a script is recorded with it: pip install 'undertorch[torch]'.")
    return Path(spec.origin).parent


def build_guard(progress: Callable[[str], None] | None = None) -> Path:
    """The guard's library for the torch that is installed, built where it is missing. Raises NoTorch or NoCompiler."""
    folder = torch_folder()

    def make(target: Path) -> None:
        command = native.compiler(
            "CXX",
            COMPILERS,
            "Recording a script without a GPU needs a C++ compiler once, and there is none: install g++ or clang++.",
        )
        if progress:
            progress("compiling the guard that lets torch run without a GPU (once, some seconds)")
        native.compiled(
            [*command, *_arguments(folder, target)],
            "CXX",
            f"The guard that lets torch run without a GPU does not compile with {command[0]} (it takes C++20)",
        )

    return native.kept("guard", _depends(folder), make)


def _arguments(folder: Path, target: Path) -> tuple[str, ...]:
    return (
        *("-O1", "-shared", "-fPIC", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={CXX11_ABI}"),
        *(f"-I{folder / 'include'}", f"-I{folder / 'include/torch/csrc/api/include'}"),
        *(str(SOURCE), "-o", str(target)),
        *(f"-L{folder / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{folder / 'lib'}"),
        *(() if platform.system() == "Darwin" else (f"-Wl,--version-script={EXPORTS}",)),
    )


def _depends(folder: Path) -> tuple[bytes, ...]:
    """What the library depends on: torch's build, the machine, the ABI and the guard's own source."""
    build = (folder / "version.py").read_bytes()
    place = (str(folder), platform.machine(), str(CXX11_ABI))
    return (build, *(part.encode() for part in place), SOURCE.read_bytes(), EXPORTS.read_bytes())
