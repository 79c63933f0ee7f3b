"""Object code: from LLVM in its worker process, from the cache on disk, linked into this process."""

import atexit
import hashlib
import itertools
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertorch.simt.codegen import worker as worker_module
from undertorch.simt.codegen.worker import read, send
from undertorch.simt.errors import SimtError

if TYPE_CHECKING:
    from undertorch.simt.codegen.kernel import KernelCode

KERNEL, RUNTIME = 0, 2
"""Optimisation levels: a kernel's code is compiled often and laid out by us; the runtime's once."""

CPU_CHARACTERS = 1 << 14
"""More than /proc/cpuinfo says of one core; where there are hundreds it is slow to read."""
PIPE_BYTES = 1 << 20
"""Room between the processes: a kernel's text is sent before the worker reads it."""


@cache
def version() -> str:
    """What objects depend on besides their source: an object of another version is never used.

    undertorch's own code that writes code, llvmlite, and the CPU as the system describes it (LLVM would have to be
    loaded to be asked).
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.read_bytes())
    digest.update(str(_llvmlite().joinpath("_version.py").read_bytes()).encode())
    digest.update(_cpu().encode())
    return digest.hexdigest()


def _cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as stream:
            lines = stream.read(CPU_CHARACTERS).split("\n\n", maxsplit=1)[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    named = ("flags", "Features", "model name", "CPU part")  # x86-64, and 64-bit Arm
    return "\n".join(line for line in lines if line.startswith(named))


def _llvmlite() -> Path:
    """Its folder. Raises SimtError where it is not installed."""
    found = find_spec("llvmlite")
    if found is None or not found.submodule_search_locations:
        raise SimtError("The machine compiles with llvmlite, which is not installed: pip install llvmlite.")
    return Path(found.submodule_search_locations[0])


def cache_folder() -> Path:
    """`$UNDERTORCH_CACHE`, or `undertorch` in the user's folder for caches."""
    given = os.environ.get("UNDERTORCH_CACHE")
    if given:
        return Path(given) / "objects"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertorch" / "objects"


@dataclass(slots=True)
class Worker:
    """The process that LLVM compiles in; started when first needed, and anew after it died."""

    process: "subprocess.Popen[bytes] | None" = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def compile(self, text: str, level: int, meanwhile: Callable[[], object] = lambda: None) -> bytes:
        """Object code; `meanwhile` is called while it is made.

        Raises SimtError with LLVM's own words where it fails or dies.
        """
        with self.lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                send(process.stdin, bytes([level]) + text.encode())
                meanwhile()
                answer = read(process.stdout)
            except BrokenPipeError:
                answer = None
            if answer is None:
                code = process.wait()
                self.process = None
                raise SimtError(f"LLVM's process ended with status {code} on generated code: a mistake in undertorch.")
        if answer[:1] != b"+":
            raise SimtError(f"LLVM does not take generated code, a mistake in undertorch: {answer[1:].decode()}")
        return answer[1:]

    def start(self) -> None:
        """Lets it load LLVM while this process writes the code."""
        with self.lock:
            self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.process.poll() is not None:
            # Its file alone, without site-packages' start-up code: it imports nothing but llvmlite.
            command = [sys.executable, "-I", "-S", worker_module.__file__, str(_llvmlite().parent)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            _widen(self.process.stdin)
            atexit.register(self.close)
        return self.process

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait(timeout=5)
            self.process = None


def _widen(pipe: Any) -> None:
    """Gives a pipe more room, where the system lets it: without, a long text waits until the worker reads it."""
    try:
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, AttributeError, OSError):
        return


@dataclass(slots=True)
class Linker:
    """Code that this process has loaded: the runtime's functions for good, a kernel's as long as its Program lives."""

    worker: Worker = field(default_factory=Worker)
    jit: Any = None
    core: dict[str, int] = field(default_factory=dict)
    """Addresses of the core's functions, by symbol."""
    linked: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """The runtime's other functions, by symbol: what keeps them loaded, and their addresses."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def kernel(self, key: tuple[str, ...], name: str, write: "Callable[[], KernelCode]") -> tuple[Any, int]:
        """A kernel's function, compiled unless its object is kept: what keeps it loaded, and its address."""
        with self.lock:
            path = _path(KERNEL, key)
            stored = _kept(path)
            if stored is None:
                self.worker.start()
                code = write()
                data = self.worker.compile(code.text, KERNEL, meanwhile=self._start_jit)
                needs = [[native.name, native.constants] for native in code.natives]
                stored = _with_head(json.dumps(needs).encode(), data)
                _keep(path, stored)
            head, data = _without_head(stored)
            symbols = [self._needed(name, constants) for name, constants in json.loads(head)]
            return self._link(data, name, [*self.core.items(), *symbols])

    def address(self, function: str) -> int:
        """Where one of the core's functions lies."""
        with self.lock:
            if not self.core:
                self._link_core()
            return self.core[f"rt_{function}"]

    def _needed(self, name: str, constants: list[list[object]]) -> tuple[str, int]:
        """A function of the runtime that a kernel calls: its symbol and address."""
        from undertorch.simt.codegen.native import CORE, Native

        native = Native(name, tuple((key, value) for key, value in constants))  # type: ignore[misc]
        if name in CORE:
            return native.symbol, self.address(name)
        if native.symbol not in self.linked:
            self.address("run_block")  # the core, which it calls, is there
            data = self._object((native.symbol,), native.text)
            self.linked[native.symbol] = self._link(data, native.symbol, self.core.items())
        return native.symbol, self.linked[native.symbol][1]

    def _link_core(self) -> None:
        from undertorch.simt.codegen.native import CORE, core_text

        tracker = self._linked(self._object(("core",), core_text), [f"rt_{name}" for name in CORE], ())
        self.core = {f"rt_{name}": tracker[f"rt_{name}"] for name in CORE}
        self.linked["core"] = (tracker, 0)

    def _link(self, data: bytes, name: str, imports: Iterable[tuple[str, int]]) -> tuple[Any, int]:
        tracker = self._linked(data, [name], imports)
        return tracker, tracker[name]

    def _start_jit(self) -> None:
        import llvmlite.binding as llvm

        if self.jit is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            target = llvm.Target.from_default_triple().create_target_machine(reloc="pic", jit=True)
            self.jit = llvm.create_lljit_compiler(target)

    def _linked(self, data: bytes, names: list[str], imports: Iterable[tuple[str, int]]) -> Any:
        import llvmlite.binding as llvm

        self._start_jit()
        builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
        for name in names:
            builder.export_symbol(name)
        for symbol, address in imports:
            builder.import_symbol(symbol, address)
        return builder.link(self.jit, f"{names[0]}.{next(self.numbers)}")

    def _object(self, key: tuple[str, ...], text: Callable[[], str]) -> bytes:
        """Object code of the runtime by its key: from the disk, or compiled from `text()` and kept there."""
        path = _path(RUNTIME, key)
        data = _kept(path)
        if data is None:
            data = self.worker.compile(text(), RUNTIME)
            _keep(path, data)
        return data


def _with_head(head: bytes, data: bytes) -> bytes:
    return len(head).to_bytes(8, "little") + head + data


def _without_head(stored: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(stored[:8], "little")
    return stored[8 : 8 + length], stored[8 + length :]


def _path(level: int, key: tuple[str, ...]) -> Path:
    digest = hashlib.sha256("\0".join((version(), str(level), *key)).encode()).hexdigest()
    return cache_folder() / digest[:2] / digest


def _kept(path: Path) -> bytes | None:
    """A file of the cache; None where there is none, or a damaged one."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    return stored[32:] if len(stored) > 32 and hashlib.sha256(stored[32:]).digest() == stored[:32] else None


def _keep(path: Path, data: bytes) -> None:
    """Writes a file, with its hash, in one step; a cache that cannot be written to is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        temporary.write_bytes(hashlib.sha256(data).digest() + data)
        temporary.replace(path)
    except OSError:
        return


@cache
def linker() -> Linker:
    """This process's."""
    return Linker()
