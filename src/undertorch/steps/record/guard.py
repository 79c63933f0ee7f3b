"""Builds the guard (guard.cpp) against the user's torch, once, and loads it.

Building asks for torch's headers and a C++ compiler, not for torch itself: the process that builds never imports it.
"""

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undertorch.steps.record.errors import NoCompiler, NoTorch

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
    path = cache() / f"guard-{_key(folder)}.so"
    if path.exists():
        return path
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoCompiler(
            "Recording a script without a GPU needs a C++ compiler once, and there is none: install g++ or clang++."
        )
    if progress:
        progress("compiling the guard that lets torch run without a GPU (once, some seconds)")
    # Built aside and renamed: a second process that builds at the same time writes the same bytes, and none sees half
    # of them.
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    os.close(descriptor)
    try:
        _compile(compiler, folder, Path(aside))
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)
    return path


def _compile(compiler: str, folder: Path, target: Path) -> None:
    command = [
        *compiler.split(),
        *("-O1", "-shared", "-fPIC", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={CXX11_ABI}"),
        *(f"-I{folder / 'include'}", f"-I{folder / 'include/torch/csrc/api/include'}"),
        *(str(SOURCE), "-o", str(target)),
        *(f"-L{folder / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{folder / 'lib'}"),
        *(() if platform.system() == "Darwin" else (f"-Wl,--version-script={EXPORTS}",)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoCompiler(f"The C++ compiler {compiler} (named in CXX) cannot be run: {error.strerror}.") from error
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise NoCompiler(
            f"The guard that lets torch run without a GPU does not compile with {compiler} (it takes C++20): {first}"
        )


def _key(folder: Path) -> str:
    """What the library depends on: torch's build, the machine, the ABI and the guard's own source."""
    version = (folder / "version.py").read_bytes()
    parts = (version, str(folder), platform.machine(), str(CXX11_ABI), SOURCE.read_bytes(), EXPORTS.read_bytes())
    return hashlib.sha256(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()[
        :20
    ]


def cache() -> Path:
    """The user's cache; a new folder where that cannot be written, since one others can write to cannot be trusted."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertorch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="undertorch-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="undertorch-"))
