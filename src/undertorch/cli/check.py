"""undertorch check: whether a kernel races, and the other classic holes, with no GPU."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertorch.cli.exits import BadInput, Status
from undertorch.cli.named_gpus import only_gpu
from undertorch.cli.outputs import STDOUT, check_writable, refuse_inputs, write_out, writing
from undertorch.cli.terminal import terminal
from undertorch.records.findings import Severity

if TYPE_CHECKING:
    from undertorch.simt.frontends.kernels import Kernel, KernelFile

DEFAULT_GPU = "A100-80GB"
"""What kernels are compiled for (sm_80), and what the machine runs as where nobody names another."""


def check(
    target: Annotated[Path, typer.Argument(metavar="KERNEL.cu|KERNEL.ptx", help="CUDA C++ or PTX.")],
    kernel: Annotated[str | None, typer.Option(metavar="NAME", help="Which kernel, where there are several.")] = None,
    grid: Annotated[str, typer.Option(metavar="X[,Y,Z]", help="Blocks.")] = "1",
    block: Annotated[str, typer.Option(metavar="X[,Y,Z]", help="Threads of a block.")] = "128",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="An argument, in order: f32[1024] (random), f32[8,8]=zeros|ones|arange|empty|x.npy, 1024, 0.5, none.",
        ),
    ] = None,
    shared: Annotated[int, typer.Option(metavar="BYTES", min=0, help="Dynamic shared memory.")] = 0,
    gpu: Annotated[str, typer.Option(metavar="NAME", help="The GPU whose limits hold.")] = DEFAULT_GPU,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="How many orders of warps to try.")] = 1,
    option: Annotated[
        list[str] | None, typer.Option(metavar="OPTION", help="For the compiler, such as -DTILE=32. Repeatable.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the findings as JSON; - for standard output."),
    ] = None,
    fail_on: Annotated[
        str, typer.Option(metavar="error|warning|note", help="From which severity on the exit status is 1.")
    ] = "error",
) -> Status:
    """Runs a kernel on a GPU in software and reports races, bad barriers and bad accesses, each at its line."""
    from undertorch.checks.arguments import BadArgument, arguments
    from undertorch.checks.check import check as checked
    from undertorch.records.checked_files import to_json
    from undertorch.records.files import write_whole
    from undertorch.reports.terminal.findings import show_checked
    from undertorch.simt.errors import SimtError

    threshold = _severity(fail_on)
    refuse_inputs(json, [target])
    check_writable(json)
    sheet = only_gpu(gpu)
    sizes = _sizes(grid, "--grid"), _sizes(block, "--block")
    try:
        given = arguments(arg or [])
        one = _kernel(_file(target, option or []), kernel, target)
        found = checked(one, *sizes, given.values, gpu=sheet, dynamic_shared=shared, seeds=seeds, empty=given.empty,
                        source_name=str(target))  # fmt: skip
    except (BadArgument, SimtError) as error:
        raise BadInput(str(error)) from error
    if json == STDOUT:
        write_out(to_json([found]))
    else:
        if json is not None:
            with writing(json):
                write_whole(json, to_json([found]))
        show_checked(found, terminal())
    return Status.FOUND if found.at_least(threshold) else Status.FINE


def _severity(text: str) -> Severity:
    try:
        return Severity(text)
    except ValueError:
        raise BadInput(f"--fail-on {text}: it is one of {', '.join(Severity)}.") from None


def _sizes(text: str, option: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not 1 <= len(sizes) <= 3 or any(size < 1 for size in sizes):
        raise BadInput(f"{option} {text}: give one to three sizes from 1 on, such as {option} 8 or {option} 16,16.")
    return sizes


def _file(target: Path, options: list[str]) -> "KernelFile":
    """Raises BadInput."""
    from undertorch.compilers.nvrtc import CudaError, compile_cuda
    from undertorch.gpus import find
    from undertorch.simt.frontends.kernels import KernelFile, Setting

    try:
        text = target.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadInput(f"{target} cannot be read: {why}; give a file of CUDA C++ (.cu) or PTX (.ptx).") from error
    setting = Setting(gpu=find(DEFAULT_GPU))
    if target.suffix == ".ptx":
        return KernelFile(text=text, default=setting)
    if target.suffix not in {".cu", ".cuh"}:
        raise BadInput(f"{target}: check takes CUDA C++ (.cu) and PTX (.ptx).")
    try:
        compiled = compile_cuda(text, [f"-I{target.resolve().parent}", *options], name=str(target))
    except CudaError as error:
        raise BadInput(f"{target} does not compile: {error}") from error
    return KernelFile(text=compiled, default=setting, source=text)


def _kernel(file: "KernelFile", name: str | None, target: Path) -> "Kernel":
    """Raises BadInput where it is not said which, and BadLaunch where there is none of that name."""
    if name is not None:
        return file[name]
    if len(file.kernels) != 1:
        names = ", ".join(file.kernels) or "none"
        raise BadInput(f"{target} has {len(file.kernels)} kernels: {names}; say which with --kernel NAME.")
    return file[file.kernels[0]]
