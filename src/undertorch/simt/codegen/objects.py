"""Object code: from LLVM in its worker process, from the cache on disk, linked into this process."""

import atexit
import hashlib
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertorch.compilers.kept import folder, keep, kept
from undertorch.simt.codegen import worker as worker_module
from undertorch.simt.codegen.worker import read, send
from undertorch.simt.errors import SimtError

if TYPE_CHECKING:
    from undertorch.simt.codegen.kernel import KernelCode

KERNEL, RUNTIME = 0, 2
"""Optimisation levels: a kernel's code is compiled often and laid out by us; the runtime's once."""

CPU_CHARACTERS = 1 << 14
"""More than /proc/cpuinfo says of one core; where there are hundreds it is slow to read."""
DIGEST = 32
"""Bytes of the SHA-256 before an answer."""
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


@dataclass(slots=True)
class Worker:
    """The process that LLVM compiles in; started when first needed, and anew after it died."""

    process: "subprocess.Popen[bytes] | None" = None
    owner: int = 0
    """Of it, the process that started it."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def compile(self, text: str, level: int, meanwhile: Callable[[], object] = lambda: None) -> bytes:
        """Object code; `meanwhile` is called while it is made.

        Raises SimtError with LLVM's own words where it fails or dies. Whatever else ends the call (Ctrl-C, an alarm)
        ends the process too: its answer would be read as the next request's.
        """
        request = bytes([level]) + text.encode()
        with self.lock:
            process = self._started()
            try:
                answer = self._answer(process, request, meanwhile)
            except BrokenPipeError:
                answer = None
            except BaseException:
                self._forget()
                raise
            if answer is None:
                code = process.wait()
                self._forget()
                raise SimtError(_ended(code))
            digest, answer = answer[:DIGEST], answer[DIGEST:]
            if digest != hashlib.sha256(request).digest():
                self._forget()
                raise SimtError("LLVM's process answered another request than was sent; launch it again.")
        if answer[:1] != b"+":
            raise SimtError(f"LLVM does not take generated code, a mistake in undertorch: {answer[1:].decode()}")
        return answer[1:]

    @staticmethod
    def _answer(process: "subprocess.Popen[bytes]", request: bytes, meanwhile: Callable[[], object]) -> bytes | None:
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, request)
        meanwhile()
        return read(process.stdout)

    def start(self) -> None:
        """Lets it load LLVM while this process writes the code."""
        with self.lock:
            self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self.process is not None and self.owner != os.getpid():  # after a fork: the pipes are the parent's
            self.process = None
        if self.process is None or self.process.poll() is not None:
            if not sys.executable:
                raise SimtError(
                    "The machine compiles in a process of Python's own, and sys.executable does not say where Python "
                    "is; set it (sys.executable = …) where Python is embedded."
                )
            # Its file alone, without site-packages' start-up code: it imports nothing but llvmlite.
            command = [sys.executable, "-I", "-S", worker_module.__file__, str(_llvmlite().parent)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self.owner = os.getpid()
            _widen(self.process.stdin)
            atexit.register(self.close)
        return self.process

    def _forget(self) -> None:
        """Ends the process at once; the next request starts another."""
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not sent yet
                    pipe.close()

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None and self.process.stdin is not None and self.owner == os.getpid():
            self.process.stdin.close()
            self.process.wait(timeout=5)
            self.process = None


def _ended(code: int) -> str:
    """Why it ended without an answer."""
    if code == -signal.SIGKILL:
        return (
            "LLVM's process was killed (SIGKILL) while it compiled a kernel: by somebody, or by the system, where "
            "memory ran out; launch it again where more is free."
        )
    return f"LLVM's process ended with status {code} on generated code: a mistake in undertorch."


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
            stored = kept(path)
            if stored is None:
                self.worker.start()
                code = write()
                data = self.worker.compile(code.text, KERNEL, meanwhile=self._start_jit)
                needs = [[native.name, native.constants] for native in code.natives]
                stored = _with_head(json.dumps(needs).encode(), data)
                keep(path, stored)
            head, data = _without_head(stored)
            symbols = [self._needed(name, constants) for name, constants in json.loads(head)]
            return self._link(data, name, [*self.core.items(), *symbols])

    def address(self, function: str) -> int:
        """Where one of the core's functions lies."""
        with self.lock:
            if not self.core:
                self._link_core()
            return self.core[f"rt_{function}"]

    def library(self, key: tuple[str, ...], text: Callable[[], str], names: list[str]) -> dict[str, int]:
        """Addresses of the functions of a module in IR text, optimised as the runtime is, loaded for good."""
        with self.lock:
            symbol = "\0".join(("library", *key))
            if symbol not in self.linked:
                self.linked[symbol] = (self._linked(self._object(key, text), names, ()), 0)
            tracker = self.linked[symbol][0]
            return {name: tracker[name] for name in names}

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
        data = kept(path)
        if data is None:
            data = self.worker.compile(text(), RUNTIME)
            keep(path, data)
        return data


def _with_head(head: bytes, data: bytes) -> bytes:
    return len(head).to_bytes(8, "little") + head + data


def _without_head(stored: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(stored[:8], "little")
    return stored[8 : 8 + length], stored[8 + length :]


def _path(level: int, key: tuple[str, ...]) -> Path:
    digest = hashlib.sha256("\0".join((version(), str(level), *key)).encode()).hexdigest()
    return folder("objects") / digest[:2] / digest


@cache
def linker() -> Linker:
    """This process's."""
    return Linker()
