"""What this installation can do: one look at each thing that a command needs, by trying it where that is cheap."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from undertorch.compilers.nvrtc import nvrtc_version

OLDEST_TORCH = (2, 11)
"""The oldest that undertorch is tested with."""
TESTED = ("x86_64", "aarch64")
"""Machines, under Linux."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One thing that was looked at."""

    what: str
    ok: bool
    found: str
    """What is there, or that nothing is."""
    essential: bool
    """Whether `see` without a GPU needs it."""
    remedy: str | None = None
    """What to do where it is not ok."""


def look_around(progress: Callable[[str], None] | None = None) -> tuple[Look, ...]:
    """Every look, what others stand on first. Compiles the recorder's guard if that was not done yet (seconds)."""
    return (
        look_at_python(),
        look_at_platform(),
        look_at_torch(),
        *look_at_guard(progress),
        look_at_gpu(),
        *look_at_kernels(),
    )


def look_at_python() -> Look:
    """Its version decides nothing here: pip would not have installed undertorch on one that is too old."""
    return Look(what="Python", ok=True, found=f"{platform.python_version()} ({sys.executable})", essential=True)


def look_at_platform() -> Look:
    """Linux on x86-64 and aarch64 is tested; elsewhere `see` works as far as torch and the compiler do."""
    tested = platform.system() == "Linux" and platform.machine() in TESTED
    return Look(
        what="platform",
        ok=tested,
        found=f"{platform.system()} {platform.machine()}",
        essential=False,
        remedy=None if tested else "undertorch is tested on Linux; here it may work, or not",
    )


def look_at_torch() -> Look:
    """Read off the installed files: importing torch takes seconds."""
    install = "pip install 'undertorch[torch]'"
    try:
        torch = distribution("torch")
    except PackageNotFoundError:
        return Look(what="torch", ok=False, found="not installed", essential=True, remedy=install)
    oldest = ".".join(map(str, OLDEST_TORCH))
    new_enough = tuple(int(part) for part in re.findall(r"\d+", torch.version)[:2]) >= OLDEST_TORCH
    return Look(
        what="torch",
        ok=new_enough,
        found=f"{torch.version}, {_build(Path(str(torch.locate_file('torch/version.py'))))}",
        essential=True,
        remedy=None if new_enough else f"undertorch serves torch {oldest} and later: {install} --upgrade",
    )


def _build(version_file: Path) -> str:
    """The build that torch/version.py names, such as `CUDA 13.0 build`."""
    text = version_file.read_text(encoding="utf-8") if version_file.is_file() else ""
    for name, called in (("cuda", "CUDA"), ("hip", "ROCm")):
        found = re.search(rf"^{name}\b[^=\n]*=\s*'([^']+)'", text, re.MULTILINE)
        if found:
            return f"{called} {found[1]} build"
    return "CPU build (enough: see needs no GPU)"


def look_at_guard(progress: Callable[[str], None] | None) -> tuple[Look, Look]:
    """The compiler, and what it has to compile once: the guard that lets torch run without a GPU."""
    from undertorch.steps.record.errors import NoCompiler, NoTorch
    from undertorch.steps.record.guard import COMPILERS, build_guard

    chosen = os.environ.get("CXX") or next((name for name in COMPILERS if shutil.which(name)), None)
    compiler = Look(
        what="C++ compiler",
        ok=chosen is not None,
        found="none" if chosen is None else f"{chosen}: {_answer([*chosen.split(), '--version']) or 'does not answer'}",
        essential=False,
        remedy=None if chosen is not None else "install g++ or clang++, or name one in CXX",
    )
    try:
        library = build_guard(progress)
    except (NoCompiler, NoTorch) as error:
        return compiler, Look(
            what="guard", ok=False, found="cannot be compiled", essential=True, remedy=str(error).rstrip(".")
        )
    return compiler, Look(what="guard", ok=True, found=f"compiled, {library}", essential=True)


def look_at_gpu() -> Look:
    """As the driver's own tool names it; without one, times are predicted."""
    answer = _answer(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    if answer is None:
        return Look(
            what="CUDA GPU",
            ok=False,
            found="none",
            essential=False,
            remedy="not needed: see predicts the times of a GPU that is not there",
        )
    name, _, driver = answer.rpartition(", ")
    return Look(what="CUDA GPU", ok=True, found=f"{name}, driver {driver}", essential=False)


def look_at_kernels() -> tuple[Look, Look, Look]:
    """What compiles kernels: the machine's own compiler (undertorch.ptx), NVRTC (undertorch.cuda), and Triton."""
    own = _installed("llvmlite")
    llvm = Look(
        what="llvmlite",
        ok=own is not None,
        found=f"{own}: undertorch.ptx runs kernels" if own else "not installed: no kernel runs on the machine",
        essential=False,
        remedy=None if own else "pip install llvmlite",
    )
    compiler = nvrtc_version()
    nvrtc = Look(
        what="NVRTC",
        ok=compiler is not None,
        found=f"{compiler}: undertorch.cuda compiles kernels" if compiler else "not found: no undertorch.cuda",
        essential=False,
        remedy=None if compiler else "pip install 'undertorch[cuda]'",
    )
    release = _installed("triton")
    triton = Look(
        what="Triton",
        ok=release is not None,
        found=f"{release}: its kernels are compiled" if release else "not installed: its kernels cannot be compiled",
        essential=False,
        remedy=None if release else "pip install triton, where a script has kernels of Triton",
    )
    return llvm, nvrtc, triton


def _installed(package: str) -> str | None:
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return None


def _answer(command: list[str]) -> str | None:
    """The first line that a program prints; None where it is missing, fails or says nothing for 20 seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), None)
