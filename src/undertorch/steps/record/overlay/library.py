"""Compiles the library that stands between a script and libc (shim/), once."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from undertorch.steps.record.errors import NoCompiler
from undertorch.steps.record.guard import cache

SHIM = Path(__file__).with_name("shim")
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "clang++")
"""The guard was compiled by one of them, so there is one."""
MACHINES = ("x86_64", "aarch64")
"""64-bit, with the kernel's calls that shim/ makes."""


def served() -> bool:
    """Whether the library is made for this system: Linux, whose linker loads it before libc."""
    return sys.platform == "linux" and platform.machine() in MACHINES


def build(progress: Callable[[str], None] | None = None) -> Path:
    """The library, compiled where it is missing. Raises NoCompiler."""
    path = cache() / f"overlay-{_key()}.so"
    if path.exists():
        return path
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoCompiler(
            "What a script writes is kept off the disk by a library that a C compiler makes once, and there is no"
            " compiler: install gcc or clang."
        )
    if progress:
        progress("compiling the library that keeps off the disk what a script writes (once, a second or two)")
    # Built aside and renamed, so that a second process sees no half of it.
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    os.close(descriptor)
    try:
        _compile(compiler, Path(aside))
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)
    return path


def _compile(compiler: str, target: Path) -> None:
    command = [
        *compiler.split(),
        *("-x", "c", "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-w"),
        # A compiler of C++ would make it depend on a C++ library, which it then loaded into every program.
        "-nodefaultlibs",
        *map(str, sorted(SHIM.glob("*.c"))),
        *("-o", str(target), "-Wl,-z,now", "-ldl", "-lpthread", "-lc", "-lgcc"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoCompiler(f"The C compiler {compiler} (named in CC) cannot be run: {error.strerror}.") from error
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise NoCompiler(
            f"The library that keeps off the disk what a script writes does not compile with {compiler}: {first}"
        )


def _key() -> str:
    """What the library depends on: the machine, its libc and its own sources."""
    sources = (path.read_bytes() for path in sorted(SHIM.glob("*.[ch]")))
    parts = (platform.machine().encode(), " ".join(platform.libc_ver()).encode(), *sources)
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]
