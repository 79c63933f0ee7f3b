"""CUDA C++ to PTX by NVRTC, which needs no GPU and no driver: `pip install 'undertorch[cuda]'`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class CudaError(Exception):
    """The source does not compile, or there is nothing to compile it with."""


def compile_cuda(
    source: str, options: Sequence[str] = (), *, architecture: str = "compute_80", name: str = "kernel.cu"
) -> str:
    """PTX of CUDA C++ device code, with source lines.

    `options` as nvcc takes them, such as `-std=c++17` or `-DTILE=32`; one that names an architecture wins over
    `architecture`. `name` is what lines are reported under.
    Raises CudaError with the compiler's own words. NVRTC refuses host code (`main`, `<<<…>>>`).
    """
    nvrtc = _nvrtc()
    asked = any(option.startswith(("--gpu-architecture", "-arch")) for option in options)
    given = [] if asked else [f"--gpu-architecture={architecture}"]
    given += ["-lineinfo", *(f"-I{folder}" for folder in _headers()), *options]
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), [option.encode() for option in given])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CudaError(_log(nvrtc, program))
        status, size = nvrtc.nvrtcGetPTXSize(program)
        _check(nvrtc, status)
        text = b" " * size
        _check(nvrtc, nvrtc.nvrtcGetPTX(program, text)[0])
        return str(text.rstrip(b"\0 "), "utf-8")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise CudaError("CUDA C++ needs NVRTC: pip install 'undertorch[cuda]'.") from None
    return nvrtc


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
