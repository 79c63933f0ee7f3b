"""Object code: from LLVM in its worker process, from the cache on disk, linked into this process."""

import atexit
import hashlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from undertorch.simt.codegen.native import Native
from undertorch.simt.codegen.worker import host_features, read, send
from undertorch.simt.errors import SimtError

KERNEL, RUNTIME = 0, 2
"""Optimisation levels: a kernel's code is compiled often and laid out by us; the runtime's once."""


@cache
def sources_hash() -> str:
    """Of undertorch's own code that writes code: objects made by another version are never used."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


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

    def compile(self, text: str, level: int) -> bytes:
        """Object code. Raises SimtError with LLVM's own words where it fails or dies."""
        with self.lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                send(process.stdin, bytes([level]) + text.encode())
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

    def _started(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "undertorch.simt.codegen.worker"]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            atexit.register(self.close)
        return self.process

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait(timeout=5)
            self.process = None


@dataclass(slots=True)
class Linker:
    """Code that this process has loaded: the runtime's functions for good, a kernel's as long as its Program lives."""

    worker: Worker = field(default_factory=Worker)
    jit: Any = None
    version: str = ""
    linked: dict[str, tuple[Any, int]] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def native(self, native: Native) -> int:
        """The address of one of the runtime's functions."""
        with self.lock:
            if native.symbol not in self.linked:
                data = self.object((native.symbol,), RUNTIME, native.text)
                self.linked[native.symbol] = self._link(data, native.symbol, ())
            return self.linked[native.symbol][1]

    def kernel(self, data: bytes, name: str, natives: Iterable[Native]) -> tuple[Any, int]:
        """Links a kernel; what keeps it loaded, and the address of its function."""
        with self.lock:
            imports = [(native.symbol, self.native(native)) for native in natives]
            return self._link(data, name, imports)

    def _link(self, data: bytes, name: str, imports: Iterable[tuple[str, int]]) -> tuple[Any, int]:
        import llvmlite.binding as llvm

        self._ready()
        builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process().export_symbol(name)
        for symbol, address in imports:
            builder.import_symbol(symbol, address)
        tracker = builder.link(self.jit, f"{name}.{next(self.numbers)}")
        return tracker, tracker[name]

    def _ready(self) -> None:
        import llvmlite
        import llvmlite.binding as llvm

        if self.jit is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            target = llvm.Target.from_default_triple().create_target_machine(reloc="pic", jit=True)
            self.jit = llvm.create_lljit_compiler(target)
            cpu = f"{llvm.get_host_cpu_name()} {host_features()}"
            self.version = f"{llvmlite.__version__} {cpu} {sources_hash()}"

    def object(self, key: tuple[str, ...], level: int, text: Callable[[], str]) -> bytes:
        """Object code by its key: from the disk, or compiled from `text()` and kept there."""
        self._ready()
        digest = hashlib.sha256("\0".join((self.version, str(level), *key)).encode()).hexdigest()
        path = cache_folder() / digest[:2] / digest
        try:
            stored = path.read_bytes()
        except OSError:
            stored = b""
        if len(stored) > 32 and hashlib.sha256(stored[32:]).digest() == stored[:32]:
            return stored[32:]
        data = self.worker.compile(text(), level)
        _keep(path, hashlib.sha256(data).digest() + data)
        return data


def _keep(path: Path, data: bytes) -> None:
    """Writes a file in one step; a cache that cannot be written to is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        return


@cache
def linker() -> Linker:
    """This process's."""
    return Linker()
