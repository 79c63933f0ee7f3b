"""Programs whose kernels are checked as they are launched: a script, a function of a file, a kernel of Triton's."""

import importlib.util
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from undertorch.checks.launches import Launches
from undertorch.records import Checked, Gpu
from undertorch.simt.errors import BadLaunch
from undertorch.simt.frontends.entering import machine
from undertorch.simt.frontends.imports import after_import
from undertorch.simt.frontends.kernels import Kernel, Setting

ARGUMENTS = "undertorch_args"
"""What a file calls the arguments of its functions: `undertorch_args = {"softmax": {"x": torch.randn(8, 100), …}}`."""


class BadTarget(Exception):
    """What is wrong with a function that is named, or with its arguments, and what to do."""


@contextmanager
def watching(gpu: Gpu, launches: Launches) -> Iterator[None]:
    """Inside, CUDA kernels and Triton's run on the machine as on this GPU, and `launches` looks on."""
    with machine(Setting(gpu=gpu, launched_by=launches)):
        yield


class Enough(BaseException):
    """A training script made as many steps as were asked for. No `except Exception` of its own stops it."""


def run_script(
    path: Path, arguments: Sequence[str], gpu: Gpu, launches: Launches, steps: int | None = None
) -> tuple[BaseException | None, tuple[str, ...]]:
    """Runs a script as `python path arguments` does, in this process. Answers what it raised, and the names of its
    kernels where it came to its own end.

    `steps`: it ends when an optimizer made so many; None: at its own end.
    """
    argv, search = sys.argv, list(sys.path)
    sys.argv, sys.path = [str(path), *arguments], [str(path.resolve().parent), *search]
    try:
        with watching(gpu, launches), _ending_after(steps):
            held = runpy.run_path(str(path), run_name="__main__")
    except Enough:
        return None, ()
    except SystemExit as end:
        return None if end.code in {None, 0} else end, ()
    except Exception as error:  # whatever a script may raise
        return error, ()
    finally:
        sys.argv, sys.path = argv, search
    return None, tuple(name for name, one in held.items() if _is_kernel(one) and not _of_triton(one))


@contextmanager
def _ending_after(steps: int | None) -> Iterator[None]:
    """Inside, an optimizer's step number `steps` raises Enough."""
    taken: Counter[int] = Counter()
    undo: list[Callable[[], None]] = []

    def stepped(optimizer: object, *arguments: object) -> None:
        taken[id(optimizer)] += 1
        if taken[id(optimizer)] == steps:
            raise Enough

    def watch() -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        undo.append(register_optimizer_step_post_hook(stepped).remove)

    leave = after_import("torch.optim.optimizer", watch) if steps is not None else lambda: None
    try:
        yield
    finally:
        leave()
        for one in undo:
            one()


def line_of(error: BaseException, path: Path) -> int | None:
    """The line of a script at which an error left it: the innermost of its frames. None where it has none."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if Path(frame.f_code.co_filename).resolve() == path.resolve()]
    return lines[-1] if lines else None


def traceback_of(error: BaseException, path: Path) -> str:
    """As Python prints it of a script that it runs: from the script's own first frame on, without one from the first
    that is not ours nor of what imports it.
    """
    trace: TracebackType | None = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).name != path.name:
        trace = trace.tb_next
    if trace is None:
        trace = error.__traceback__
        while trace is not None and _runs_it(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _runs_it(file: str) -> bool:
    return file.startswith((str(Path(__file__).parents[1]), "<frozen "))


def loaded(path: Path) -> ModuleType:
    """A file as a module. Raises BadTarget with what it raises itself."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadTarget(f"{path} is no file of Python.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a file may raise
        raise BadTarget(f"{path} could not be loaded: {type(error).__name__}: {error}") from error
    return module


def run_function(
    path: Path,
    name: str,
    grid: tuple[int, ...] | None,
    block: tuple[int, ...] | None,
    given: Sequence[object],
    named: Mapping[str, object],
    gpu: Gpu,
    launches: Launches,
) -> None:
    """Calls a function of a file that launches kernels, or launches the kernel that it is.

    Arguments are those that are given; without any those that the file names itself, in `undertorch_args`: a
    dictionary from names to arguments (a tuple, or a dictionary by name with `grid` for a kernel), or to functions
    that answer such. Raises BadTarget, and what the function raises.
    """
    with watching(gpu, launches):
        module = loaded(path)
        target = getattr(module, name, None)
        if not callable(target) and not hasattr(target, "run"):
            raise BadTarget(f"{path} has no function or kernel {name}.")
        positional, by_name = list(given), dict(named)
        if not given and not named:
            positional, by_name = _own_arguments(module, path, name)
        asked = by_name.pop("grid", None) if grid is None and _is_kernel(target) else grid
        _call(target, f"{path}::{name}", asked, block or by_name.pop("block", None), positional, by_name)


def _call(target: Any, name: str, grid: Any, block: Any, given: Sequence[object], named: Mapping[str, object]) -> None:
    if isinstance(target, Kernel):
        if grid is None or block is None:
            raise BadTarget(f"{name} is a kernel: say how it is launched, with --grid and --block.")
        if named:
            raise BadTarget(f"{name}: a CUDA kernel's arguments have no names; give them in order.")
        target[grid, block](*given)
    elif is_triton(target):
        if grid is None:
            raise BadTarget(f"{name} is a kernel: say on how many blocks it is launched, with --grid.")
        launch_triton(target, grid, given, named)
    else:
        target(*map(as_tensor, given), **{key: as_tensor(value) for key, value in named.items()})


def _own_arguments(module: ModuleType, path: Path, name: str) -> tuple[list[object], dict[str, object]]:
    own = vars(module).get(ARGUMENTS, {}).get(name)
    if own is None:
        raise BadTarget(
            f"{path}::{name}: with what? Give --arg for each argument, or write {ARGUMENTS} = "
            f'{{"{name}": …}} into {path.name}.'
        )
    own = own() if callable(own) else own
    return ([], dict(own)) if isinstance(own, Mapping) else (list(own), {})


def _is_kernel(target: object) -> bool:
    return isinstance(target, Kernel) or is_triton(target)


def _of_triton(kernel: object) -> bool:
    """Whether it is a function of Triton's own library that a file imports, such as tl.sum."""
    return str(getattr(kernel, "__module__", "")).startswith("triton.")


def is_triton(target: object) -> bool:
    """Whether it is a kernel of Triton's: a JITFunction, or one inside an autotuner or heuristics."""
    if "triton" not in sys.modules:
        return False
    from triton.runtime.jit import KernelInterface

    return isinstance(target, KernelInterface)


def launch_triton(kernel: Any, grid: Any, given: Sequence[object], named: Mapping[str, object]) -> None:
    """`kernel[grid](*given, **named)`, with arrays as tensors of the same memory."""
    size: Callable[..., Any] | tuple[int, ...] = grid if callable(grid) or isinstance(grid, tuple) else (grid,)
    kernel[size](*map(as_tensor, given), **{key: as_tensor(value) for key, value in named.items()})


def as_tensor(value: object) -> object:
    """A NumPy array as a tensor of torch's in the same memory; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    import torch

    return torch.from_numpy(value)


def check_triton(
    kernel: Any, grid: Any, given: Sequence[object], named: Mapping[str, object], *, gpu: Gpu, seeds: int,
    empty: Sequence[int] = (),
) -> Checked:  # fmt: skip
    """One launch of a Triton kernel under all checks. Raises PtxError, Unsupported, BadLaunch, and what Triton says."""
    from undertorch.simt.errors import Deadlock, Fault
    from undertorch.simt.faults import extents

    spans = [(extent.start, extent.bytes) for extent in extents(given) if extent.number in empty]
    launches = Launches(every=True, seeds=seeds, empty=spans)
    try:
        with watching(gpu, launches):
            launch_triton(kernel, grid, given, named)
    except (Fault, Deadlock):
        pass  # is a finding
    checked = launches.checked()
    if not checked:
        raise BadLaunch(f"{kernel!r} launched nothing on {grid!r}.")
    if checked[0].missed is not None:
        raise BadLaunch(checked[0].missed)
    return checked[0]
