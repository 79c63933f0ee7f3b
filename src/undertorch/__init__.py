"""undertorch: what training looks like under PyTorch: each line's GPU kernels and their times, with no GPU."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from undertorch.notebook import Seeing
    from undertorch.notebook_checks import Checking
    from undertorch.records import Checked, Gpu, Step
    from undertorch.simt.frontends.kernels import KernelFile, Setting

__version__ = "0.1.0"
__all__ = ["__version__", "check", "checking", "cuda", "machine", "ptx", "see", "seeing", "torch_op"]


def see(
    script: "str | Path",
    args: Sequence[str] = (),
    gpu: "str | Gpu" = "H200",
    step: int | None = None,
    assume: Mapping[str, str] | None = None,
) -> "Step":
    """Runs a training script in a fresh process, without a GPU, and returns one of its steps as `gpu` would run it.

    `gpu` is a name, the path of a spec sheet (`my_gpu.toml`), or a Gpu; `step` counts from 1; None: the second, or the
    third where that is without what the script does now and then (it logs, or evaluates). `assume` gives the value of a
    line where the script asks for one: `{"31": "true"}`.
    Where the script ends before that step its last one is returned, with a warning.
    Raises undertorch.steps.record.errors.RecordError, undertorch.gpus.UnknownGpu or undertorch.gpus.BadSheet.
    """
    import warnings
    from pathlib import Path

    from undertorch.steps.asked import asked_answers, asked_gpu, asked_step, ended_before
    from undertorch.steps.see import see as see_script

    number = None if step is None else asked_step(step)
    seen = see_script(Path(script), args, asked_gpu(gpu), step=number, assume=asked_answers(assume))
    earlier = ended_before(number, seen.environment.step)
    if earlier is not None:
        warnings.warn(earlier, stacklevel=2)
    return seen


def seeing(gpu: "str | Gpu" = "H200", step: int = 2, assume: Mapping[str, str] | None = None) -> "Seeing":
    """Sees a step of a loop in this process, without a GPU: `with undertorch.seeing(gpu="H200") as seen:`.

    Inside the block there is a fake GPU; what moves to it has no values. The block is left as soon as step number
    `step` (counted from 1) is complete; then `seen.step` is the Step, `seen` shows itself in a notebook and under
    rich, and torch is as it was before. Where the block ends earlier its last step is seen, with a warning. In a
    notebook, `%load_ext undertorch` brings the cell magic `%%see H200`.
    Raises undertorch.steps.record.errors.RecordError, undertorch.gpus.UnknownGpu or undertorch.gpus.BadSheet.
    """
    from undertorch import notebook

    return notebook.seeing(gpu, step, assume)


def __getattr__(name: str) -> Any:
    """`undertorch.simt`, and the machine's errors, without a cost for who needs neither."""
    if name in {"BadLaunch", "Deadlock", "Fault", "PtxError", "Unsupported", "simt"}:
        from importlib import import_module

        simt = import_module("undertorch.simt")
        return simt if name == "simt" else getattr(simt, name)
    raise AttributeError(f"module 'undertorch' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext undertorch`."""
    from undertorch import notebook, notebook_checks

    notebook.load(shell)
    notebook_checks.load(shell)


def ptx(text: str) -> "KernelFile":
    """Kernels of a file of PTX, run by a GPU in software: `undertorch.ptx(text)["name"][grid, block](*arguments)`.

    Arguments are NumPy arrays, torch tensors on the CPU, numbers, and bytes for structs by value. It is run as an
    A100-80GB, or as the GPU of the `with undertorch.machine(gpu=…)` around the call. Where tensors lie on a GPU, that
    GPU runs it, in torch's current stream (`undertorch[cuda]`).
    Raises undertorch.simt's PtxError, Unsupported, BadLaunch, Fault and Deadlock, when it is launched.
    """
    from undertorch.gpus import find
    from undertorch.simt.frontends.kernels import KernelFile, Setting, check_text

    check_text(text, "PTX")
    return KernelFile(text=text, default=Setting(gpu=find("A100-80GB")))


def cuda(source: str, options: Sequence[str] = ()) -> "KernelFile":
    """Kernels of CUDA C++ device code, compiled by NVRTC (`undertorch[cuda]`) for sm_80 and run as `ptx` does.

    Raises undertorch.compilers.nvrtc.CudaError with what the compiler says.
    """
    import shlex
    import sys

    from undertorch.compilers.nvrtc import compile_cuda
    from undertorch.gpus import find
    from undertorch.simt.frontends.kernels import SOURCE_NAME, KernelFile, Setting, check_text
    from undertorch.simt.frontends.origin import origin_of

    check_text(source, "CUDA C++")
    if isinstance(options, str):
        options = shlex.split(options)
    text = compile_cuda(source, options, name=SOURCE_NAME)
    origin = origin_of(source, sys._getframe(1))
    return KernelFile(text=text, default=Setting(gpu=find("A100-80GB")), source=source, origin=origin)


def check(
    kernel: Any,
    grid: "int | tuple[int, ...] | Callable[[dict[str, Any]], tuple[int, ...]]",
    *arguments: object,
    dynamic_shared: int = 0,
    gpu: "str | Gpu" = "A100-80GB",
    seeds: int = 1,
    empty: Iterable[int] = (),
    **named: object,
) -> "Checked":
    """Runs a kernel on the machine, under all checks.

    What it finds: races, bad barriers, bad accesses, and the classic ways of being slow, each with its lines, its
    evidence and its remedy, whether or not this run gave a wrong result. Arguments as in a launch, which it is; they
    hold its results. Of undertorch.cuda and undertorch.ptx the first argument is the block:
    `check(kernel, grid, block, x, y)`. Of a Triton kernel (a JITFunction, also inside an autotuner) arguments are those
    of `kernel[grid](x, y, n, BLOCK=128)`: `check(kernel, grid, x, y, n, BLOCK=128)`. `seeds`: how many orders of warps
    are tried. `empty`: numbers of arguments whose contents are nothing to read, such as what torch.empty gave.
    A launch that ends by a fault or a deadlock is a finding.
    Raises undertorch.simt's PtxError, Unsupported and BadLaunch for what cannot be launched.
    """
    from undertorch.checks.asked import check_asked
    from undertorch.gpus import find

    sheet = find(gpu) if isinstance(gpu, str) else gpu
    return check_asked(kernel, grid, arguments, named, gpu=sheet, dynamic_shared=dynamic_shared, seeds=seeds,
                       empty=tuple(empty))  # fmt: skip


def checking(gpu: "str | Gpu" = "A100-80GB", seeds: int = 1, every: bool = False) -> "Checking":
    """Checks all Triton and CUDA kernels that a block launches: `with undertorch.checking() as found:`.

    Inside is `undertorch.machine()`: `device="cuda"` is served in the CPU's memory. Afterwards `found.checked` has what
    was found of each kernel, and `found` shows itself in a notebook and under rich. In a notebook, `%load_ext
    undertorch` brings the cell magic `%%check`. Of equal launches some are looked at; `every`: each is.
    """
    from undertorch import gpus
    from undertorch.notebook_checks import Checking

    return Checking(gpus.find(gpu) if isinstance(gpu, str) else gpu, seeds, every)


def torch_op(name: str, mutates: Iterable[str] = ()) -> "Callable[[Callable[..., Any]], Any]":
    """`@undertorch.torch_op("library::operator")` makes a function that launches kernels an operator of torch.

    Its annotations are the schema, `mutates` names the arguments that it writes to. It works under torch.compile and
    fake tensors, and takes torch's register_autograd: a custom CUDA extension that needs no build.
    """
    from undertorch.simt.frontends.torch_op import torch_op as registered

    return registered(name, mutates)


def machine(
    gpu: "str | Gpu" = "A100-80GB",
    *,
    instrument: str = "none",
    seed: int | None = None,
    threads: int = 1,
    patience: float = 30.0,
    mma: str = "fast",
    all_configs: bool = False,
) -> "AbstractContextManager[Setting]":
    """`with undertorch.machine(gpu="A100-80GB"):` kernels inside run as on this GPU, Triton's on CPU tensors too.

    Inside, torch answers as if the GPU were there: `device="cuda"` is served in the CPU's memory, and what
    torch.compile compiles runs as Triton kernels. Outside all is as it was.

    `instrument`: `none` or `counters` (then a launch's Result has them); `seed` shuffles the order of warps;
    `threads` of the host. `patience`: seconds for which all that runs may poll without memory changing, a warp ending
    or a barrier opening; then it is a Deadlock. A loop that computes is none, however long it takes. `mma`: how tensor
    cores add, `fast` (in float32) or `exact` (with this GPU's cut-off sums). `all_configs`:
    Triton's autotuners run every configuration that fits; else the first.
    Raises undertorch.simt.BadLaunch for what is no setting, undertorch.gpus.UnknownGpu and BadSheet.
    """
    from undertorch.gpus import find
    from undertorch.records import Gpu
    from undertorch.simt.errors import BadLaunch
    from undertorch.simt.frontends.entering import machine as entered
    from undertorch.simt.frontends.kernels import Setting

    sheet = find(gpu) if isinstance(gpu, str) else gpu
    if not isinstance(sheet, Gpu):
        raise BadLaunch(f"gpu={gpu!r}: it is a GPU's name, the path of a sheet, or a Gpu.")
    setting = Setting(
        gpu=sheet,
        instrument=instrument,
        seed=seed,
        threads=threads,
        patience=patience,
        mma=mma,
        all_configs=all_configs,
    )
    return entered(setting)
