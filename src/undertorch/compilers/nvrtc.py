"""CUDA C++ to PTX by NVRTC, which needs no GPU and no driver: `pip install 'undertorch[cuda]'`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undertorch.compilers import standard_c


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
    Raises CudaError with the compiler's own words. NVRTC refuses host code (`main`, `<<<…>>>`).
    """
    asked = any(option.startswith(("--gpu-architecture", "-arch")) for option in options)
    given = [] if asked else [f"--gpu-architecture={architecture}"]
    nvrtc = _nvrtc()
    given += ["-lineinfo", *(f"-I{folder}" for folder in _headers()), *options]
    try:
        return _compiled(nvrtc, source, name, [*given, f"--pre-include={standard_c.NAME}"])
    except CudaError as error:
        try:
            return _compiled(nvrtc, source, name, given)  # it may have declared such names itself
        except CudaError:
            raise error from None


def _compiled(nvrtc: Any, source: str, name: str, options: Sequence[str]) -> str:
    """PTX. Raises CudaError."""
    names, texts = ([text.encode() for text in part] for part in zip(*standard_c.HEADERS.items(), strict=True))
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(names), texts, names)
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CudaError(_log(nvrtc, program))
        status, size = nvrtc.nvrtcGetPTXSize(program)
        _check(nvrtc, status)
        text = b" " * size
        _check(nvrtc, nvrtc.nvrtcGetPTX(program, text)[0])
        return _named(str(text.rstrip(b"\0 "), "utf-8"), name)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


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
        raise CudaError("CUDA C++ needs NVRTC: pip install 'undertorch[cuda]'.") from None
    return nvrtc


def _named(text: str, name: str) -> str:
    """PTX whose source is called as it was named: NVRTC takes the name for a path from the working folder."""
    return text.replace(f'"{Path.cwd() / name}"', f'"{name}"')


def _check(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CudaError(f"NVRTC failed: {str(nvrtc.nvrtcGetErrorString(status)[1], 'utf-8')}.")


def _log(nvrtc: Any, program: Any) -> str:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    text = b" " * size
    nvrtc.nvrtcGetProgramLog(program, text)
    return str(text.rstrip(b"\0 \n"), "utf-8", "replace")


def _headers() -> list[Path]:
    """Folders of CUDA's headers in the wheels that are installed beside NVRTC."""
    import nvidia

    roots = [Path(folder) for folder in nvidia.__path__]
    found = [folder for root in roots for folder in (root / "cu13/include", root / "cu13/include/cccl")]
    return [folder for folder in found if folder.is_dir()]
