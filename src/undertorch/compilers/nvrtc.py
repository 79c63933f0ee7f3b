"""CUDA C++ to PTX by NVRTC, which needs no GPU and no driver: `pip install 'undertorch[cuda]'`."""

import hashlib
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from undertorch.compilers import standard_c
from undertorch.compilers.file_names import FILE, file_names, unescaped
from undertorch.compilers.kept import folder, keep, kept

MISSING = "CUDA C++ needs NVRTC: pip install 'undertorch[cuda]'."
INCLUDED = re.compile(r"""#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]""")
INCLUDING = re.compile(r"""#[ \t]*include[ \t]*(?![<" \t])|include_next|__has_include|__DATE__|__TIME""")
"""What may read other files than it names, or differs from time to time."""
MESSAGE = re.compile(r"^\S.*?\(\d+\): |^Remark:", re.MULTILINE)
ELSEWHERE = ("-I", "--include-path", "-include", "--pre-include")
"""Options that bring in files of one's own."""


class CudaError(Exception):
    """The source does not compile, or there is nothing to compile it with."""


def compile_cuda(
    source: str, options: Sequence[str] = (), *, architecture: str = "compute_80", name: str = "kernel.cu"
) -> str:
    """PTX of CUDA C++ device code, with source lines.

    `options` as nvcc takes them, such as `-std=c++17` or `-DTILE=32`; one that names an architecture wins over
    `architecture`. `name` is what lines are reported under.
    Constants and types of C's headers (`INFINITY`, `M_PI`, `FLT_MAX`, `int32_t`) are there, as nvcc has them, and
    `<math.h>`, `<stdint.h>` and their like may be included.
    What it makes is kept from process to process, but where the source includes files of one's own or the compiler
    warns, which becomes a Python warning. Raises CudaError with the compiler's own words. NVRTC
    refuses host code (`main`, `<<<…>>>`).
    """
    wrong = [option for option in options if not isinstance(option, str)]
    if wrong:
        raise CudaError(f"options={list(options)!r}: {wrong[0]!r} is no str.")
    if any(option.startswith(("-dlto", "--dlink-time-opt")) for option in options):
        raise CudaError("-dlto makes code for a linker and no PTX; leave it out.")
    asked = any(option.startswith(("--gpu-architecture", "-arch")) for option in options)
    given = [] if asked else [f"--gpu-architecture={architecture}"]
    path = _path(source, [*given, *options], name)
    stored = kept(path) if path is not None else None
    if stored is not None:
        return stored.decode()
    nvrtc = _nvrtc()
    given += ["-lineinfo", *(f"-I{place}" for place in _headers()), *options]
    try:
        text, said = _compiled(nvrtc, source, name, [*given, f"--pre-include={standard_c.NAME}"])
    except CudaError as error:
        try:
            text, said = _compiled(nvrtc, source, name, given)  # it may have declared such names itself
        except CudaError:
            raise error from None
    if said:
        warnings.warn(said, stacklevel=3)
    elif path is not None:
        keep(path, text.encode())
    return text


def own_files(ptx: str) -> dict[str, str]:
    """Text of the files that PTX names in its lines and that are not CUDA's own, by the names that it gives them."""
    found = {}
    for name in file_names(ptx):
        path = Path(name)
        if any(path.is_relative_to(place) for place in _headers()) or not path.is_file():
            continue
        with suppress(OSError, UnicodeDecodeError):
            found[name] = path.read_text(encoding="utf-8")
    return found


def _path(source: str, options: Sequence[str], name: str) -> Path | None:
    """Where its PTX is kept; None where it depends on files that are not NVRTC's own.

    The compiler and its headers are known by size and time of their files.
    """
    folders = _headers()
    included = {found.strip() for found in INCLUDED.findall(source)}
    elsewhere = INCLUDING.search(source) or any(option.startswith(ELSEWHERE) for option in options)
    if elsewhere or any(_of_ones_own(file, folders) for file in included):
        return None
    files = [place / file for place in folders for file in ("cuda.h", "cuda_runtime_api.h", "cuda/std/version")]
    files += [file for place in folders for file in sorted((place.parent / "lib").glob("libnvrtc*"))]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    parts = (source, *options, name, str(Path.cwd()), str(stats), str(standard_c.HEADERS))
    return folder("ptx") / hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _of_ones_own(file: str, folders: Sequence[Path]) -> bool:
    """Whether an included file is not CUDA's: looked for beside the source too, which is the working folder."""
    path = Path(file)
    if path.is_absolute() or ".." in path.parts or path.exists():
        return True
    return file not in standard_c.HEADERS and not any((place / path).is_file() for place in folders)


def _compiled(nvrtc: Any, source: str, name: str, options: Sequence[str]) -> tuple[str, str]:
    """PTX, and what the compiler warns of. Raises CudaError."""
    names, texts = ([text.encode() for text in part] for part in zip(*standard_c.HEADERS.items(), strict=True))
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(names), texts, names)
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CudaError(_with_advice(_log(nvrtc, program)))
        status, size = nvrtc.nvrtcGetPTXSize(program)
        _check(nvrtc, status)
        text = _room(size)
        _check(nvrtc, nvrtc.nvrtcGetPTX(program, text)[0])
        return _named(str(text.rstrip(b"\0"), "utf-8"), name), _own(_log(nvrtc, program), name)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _with_advice(said: str) -> str:
    """What a compiler says, and what to do where it met the host's half of a program."""
    if "in JIT mode" not in said:
        return said
    return (
        f"{said}\nOnly device code is compiled here: put host code between `#ifndef __CUDACC_RTC__` and `#endif`, "
        "which nvcc goes on to see."
    )


def nvrtc_version() -> str | None:
    """`13.0` where NVRTC is installed and can be loaded; None where not."""
    try:
        nvrtc = _nvrtc()
        status, major, minor = nvrtc.nvrtcVersion()
        _check(nvrtc, status)
    except (CudaError, RuntimeError):  # cuda.bindings: RuntimeError where it finds no library
        return None
    return f"{major}.{minor}"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise CudaError(MISSING) from None
    return nvrtc


def _named(text: str, name: str) -> str:
    """PTX whose source is called as it was named: NVRTC takes the name for a path from the working folder."""
    full = str(Path.cwd() / name)
    return FILE.sub(lambda found: found[0].replace(found[1], name) if unescaped(found[1]) == full else found[0], text)


def _own(said: str, name: str) -> str:
    """Of what a compiler says, what concerns the source itself and not CUDA's headers."""
    starts = [found.start() for found in MESSAGE.finditer(said)]
    parts = [said[start:end].strip() for start, end in pairwise([*starts, len(said)])]
    return "\n".join(part for part in parts if part.startswith((f"{name}(", f"{Path.cwd() / name}(")))


def _check(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CudaError(f"NVRTC failed: {str(nvrtc.nvrtcGetErrorString(status)[1], 'utf-8')}.")


def _room(size: int) -> bytes:
    """Bytes for NVRTC to write into, which no one else holds: Python has but one object for each single byte, and an
    empty log is one byte long."""
    return bytes(max(size, 2))


def _log(nvrtc: Any, program: Any) -> str:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    text = _room(size)
    nvrtc.nvrtcGetProgramLog(program, text)
    return str(text.rstrip(b"\0 \n"), "utf-8", "replace")


def _headers() -> list[Path]:
    """Folders of CUDA's headers in the wheels that are installed beside NVRTC."""
    try:
        import nvidia
    except ImportError:
        raise CudaError(MISSING) from None
    roots = [Path(folder) for folder in nvidia.__path__]
    found = [place for root in roots for place in (root / "cu13/include", root / "cu13/include/cccl")]
    return [place for place in found if place.is_dir()]
