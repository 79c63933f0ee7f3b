"""Compiles the library that stands between a script and libc (shim/), once."""

import platform
import sys
from collections.abc import Callable
from pathlib import Path

from undertorch.steps.record import native

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

    def make(target: Path) -> None:
        command = native.compiler(
            "CC",
            COMPILERS,
            "What a script writes is kept off the disk by a library that a C compiler makes once, and there is no"
            " compiler: install gcc or clang.",
        )
        if progress:
            progress("compiling the library that keeps off the disk what a script writes (once, a second or two)")
        native.compiled(
            [*command, *_arguments(target)],
            "CC",
            f"The library that keeps off the disk what a script writes does not compile with {command[0]}",
        )

    return native.kept("overlay", _depends(), make)


def _arguments(target: Path) -> tuple[str, ...]:
    return (
        *("-x", "c", "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-w"),
        # A compiler of C++ would make it depend on a C++ library, which it then loaded into every program.
        "-nodefaultlibs",
        *map(str, sorted(SHIM.glob("*.c"))),
        *("-o", str(target), "-Wl,-z,now", "-ldl", "-lpthread", "-lc", "-lgcc"),
    )


def _depends() -> tuple[bytes, ...]:
    """What the library depends on: the machine, its libc and its own sources."""
    sources = (path.read_bytes() for path in sorted(SHIM.glob("*.[ch]")))
    return (platform.machine().encode(), " ".join(platform.libc_ver()).encode(), *sources)
