"""What `undertorch check` is given: a program, a function of a file, a kernel in CUDA C++ or PTX. Each is run."""

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.cli.exits import BadInput, say

if TYPE_CHECKING:
    from undertorch.records import Checked, Gpu
    from undertorch.simt.frontends.kernels import Kernel, KernelFile

DEFAULT_GPU = "A100-80GB"
"""What kernels are compiled for (sm_80), and what the machine runs as where nobody names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    file: Path
    name: str | None
    """Of a function or kernel in it: FILE::NAME."""
    arguments: tuple[str, ...]
    """A program's own."""
    kernel: str | None
    grid: str | None
    block: str | None
    specs: tuple[str, ...]
    """--arg."""
    shared: int
    gpu: "Gpu"
    seeds: int
    every: bool
    options: tuple[str, ...]
    steps: int | None
    """Of a training script's optimizer, after which it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of it."""

    checked: "tuple[Checked, ...]"
    trouble: str | None = None
    """What kept it from running to its end, or from being checked at all: a sentence."""
    nothing: bool = False
    """Whether that is only that it came to its end and launched no kernel."""
    ended: str | None = None
    """Where a fault that is among the findings ended it, as it ends a program on a GPU: a sentence."""


def split_target(target: Path) -> tuple[Path, str | None]:
    """`kernels.py::softmax` as a file and a name."""
    file, colons, name = str(target).partition("::")
    if colons and not name:
        raise BadInput(f"{target}: name a function or kernel behind ::, such as {file}::softmax.")
    return Path(file), name if colons else None


def checked_target(asked: Asked) -> Done:
    """Runs what is asked for under all checks. Raises BadInput."""
    if asked.name is not None:
        return _function(asked) if not is_tests(asked.file) else _tests(asked)
    if asked.file.suffix in {".cu", ".cuh", ".ptx"}:
        return _kernel_file(asked)
    if not asked.file.exists():
        raise BadInput(f"{asked.file} cannot be read: No such file or directory; {TAKEN}.")
    if asked.file.suffix != ".py" and not asked.file.is_dir():
        raise BadInput(f"{asked.file}: {TAKEN}.")
    _refuse_launch_options(asked)
    return _tests(asked) if is_tests(asked.file) else _script(asked)


TAKEN = (
    "check takes a script (train.py), a pytest file or folder (test_kernels.py), a function or kernel of a file "
    "(kernels.py::softmax), CUDA C++ (.cu) and PTX (.ptx)"
)


def is_tests(file: Path) -> bool:
    """Whether pytest would collect it (its default python_files), or a folder, which only pytest takes."""
    return file.is_dir() or file.name.startswith("test_") or file.stem.endswith("_test")


def _refuse_launch_options(asked: Asked) -> None:
    for option, value in (("--kernel", asked.kernel), ("--grid", asked.grid), ("--block", asked.block),
                          ("--arg", asked.specs), ("--shared", asked.shared), ("--option", asked.options)):  # fmt: skip
        if value:
            raise BadInput(
                f"{option} says how one kernel is launched, and {asked.file} launches its own; name one as "
                f"{asked.file}::NAME, or leave {option} out."
            )


def _script(asked: Asked) -> Done:
    from undertorch.checks.launches import Launches
    from undertorch.checks.programs import line_of, run_script, traceback_of
    from undertorch.simt.errors import Deadlock, Fault

    launches = Launches(every=asked.every, seeds=asked.seeds)
    error, kernels = run_script(asked.file, asked.arguments, asked.gpu, launches, asked.steps)
    checked = launches.checked()
    if isinstance(error, Fault | Deadlock) and any(one.findings for one in checked):
        return Done(checked=checked, ended=_ended(str(asked.file), line_of(error, asked.file)))
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, SystemExit):
        how = f"with exit status {error.code}" if isinstance(error.code, int) else f"by saying: {error.code}"
        return Done(checked=checked, trouble=f"{asked.file} ended {how}.")
    if error is not None:
        print(traceback_of(error, asked.file), file=sys.stderr, end="")
        return Done(checked=checked, trouble=f"{asked.file} ended by what it raised itself, shown above.")
    return _or_nothing(checked, str(asked.file), kernels)


def _ended(what: str, line: int | None) -> str:
    where = what if line is None else f"{what}:{line}"
    return f"{where}: this launch ended the program, as it does on a GPU; what follows was not run, nor checked."


def _or_nothing(checked: "tuple[Checked, ...]", what: str, kernels: tuple[str, ...] = ()) -> Done:
    """A program without kernels was not checked, and a build that believes so should not be green.

    `kernels`: names of those that its file has.
    """
    if checked:
        return Done(checked=checked)
    if kernels:
        names = " and ".join((", ".join(kernels[:-1]), kernels[-1])) if len(kernels) > 1 else kernels[0]
        has = f"{what} has the kernel{'s' if len(kernels) > 1 else ''} {names}, and launched none"
        return Done(checked=(), nothing=True, trouble=f"{has}: name one to have it launched, {what}::{kernels[0]}.")
    none = (
        f"{what} launched no Triton or CUDA kernel that could be checked: torch's own operators are not, nor is what "
        "other processes and threads launch."
    )
    return Done(checked=(), nothing=True, trouble=none)


QUIET = ("-W", "ignore:Module already imported so cannot be rewritten; undertorch")
"""Its own plugin is there before pytest is, and asserts nothing."""


def _tests(asked: Asked) -> Done:
    try:
        import pytest
    except ImportError:
        raise BadInput(f"{asked.file} is a file of tests, which pytest runs: pip install pytest.") from None
    from undertorch.pytest_plugin import Checking

    plugin = Checking(gpu=asked.gpu, every=asked.every, seeds=asked.seeds, fail_on=None, tells=False)
    target = str(asked.file) if asked.name is None else f"{asked.file}::{asked.name}"
    with plugin.watching():
        status = pytest.main([*QUIET, target, *asked.arguments], plugins=[plugin])
    checked = plugin.checked()
    if status == pytest.ExitCode.OK:
        return _or_nothing(checked, str(asked.file))
    if status == pytest.ExitCode.TESTS_FAILED and any(one.findings for one in checked):
        return Done(checked=checked)
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        return Done(checked=checked, trouble=f"{target}: pytest found no test in it.")
    return Done(checked=checked, trouble=f"pytest ended with status {int(status)}, as shown above.")


def _function(asked: Asked) -> Done:
    from undertorch.checks.arguments import BadArgument, named_arguments
    from undertorch.checks.launches import Launches
    from undertorch.checks.programs import BadTarget, line_of, run_function, traceback_of
    from undertorch.simt.errors import Deadlock, Fault

    assert asked.name is not None
    if not asked.file.is_file():
        raise BadInput(f"{asked.file} cannot be read: No such file or directory; {TAKEN}.")
    launches = Launches(every=asked.every, seeds=asked.seeds)
    what = f"{asked.file}::{asked.name}"
    try:
        given, named = named_arguments(asked.specs)
        run_function(asked.file, asked.name, sizes(asked.grid, "--grid"), sizes(asked.block, "--block"), given, named,
                     asked.gpu, launches)  # fmt: skip
    except (BadArgument, BadTarget) as error:
        raise BadInput(str(error)) from error
    except (Fault, Deadlock) as error:
        return Done(checked=launches.checked(), ended=_ended(what, line_of(error, asked.file)))
    except Exception as error:  # whatever a function may raise
        print(traceback_of(error, asked.file), file=sys.stderr, end="")
        return Done(checked=launches.checked(), trouble=f"{what} raised what is shown above.")
    return _or_nothing(launches.checked(), what)


def _kernel_file(asked: Asked) -> Done:
    from undertorch.checks.arguments import BadArgument, arguments, fitted
    from undertorch.checks.check import check
    from undertorch.simt.errors import SimtError

    if asked.arguments:
        raise BadInput(f"{asked.arguments[0]}: a kernel's arguments are given with --arg.")
    size = sizes(asked.grid, "--grid") or (1,), sizes(asked.block, "--block") or (128,)
    try:
        given = arguments(asked.specs)
        one = _kernel(_file(asked.file, asked.options), asked.kernel, asked.file)
        _refuse_number(one, len(given.values), asked.file)
        found = check(one, *size, fitted(one, given.values), gpu=asked.gpu, dynamic_shared=asked.shared,
                      seeds=asked.seeds, empty=given.empty, source_name=str(asked.file))  # fmt: skip
    except (BadArgument, SimtError) as error:
        raise BadInput(str(error)) from error
    return Done(checked=(found,))


def _refuse_number(kernel: "Kernel", given: int, target: Path) -> None:
    """Raises BadInput where a launch would have too many arguments or too few, with a line that has them all."""
    from undertorch.checks.arguments import specs
    from undertorch.checks.told import demangled

    wanted = specs(kernel)
    if len(wanted) == given:
        return
    takes = f"{len(wanted)} argument" + ("" if len(wanted) == 1 else "s")
    line = f"; with numbers for each N: {' '.join(f'--arg {spec}' for spec in wanted)}" if wanted else ""
    raise BadInput(f"{target}: {demangled(kernel.name)} takes {takes}, and {given} were given{line}")


def sizes(text: str | None, option: str) -> tuple[int, ...] | None:
    """`8` or `16,16`; None where nothing is said. Raises BadInput."""
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not 1 <= len(found) <= 3 or any(size < 1 for size in found):
        raise BadInput(f"{option} {text}: give one to three sizes from 1 on, such as {option} 8 or {option} 16,16.")
    return found


def _file(target: Path, options: tuple[str, ...]) -> "KernelFile":
    """Raises BadInput."""
    from undertorch.compilers.nvrtc import CudaError, compile_cuda, own_files
    from undertorch.gpus import find
    from undertorch.records import TextOrigin
    from undertorch.simt.frontends.kernels import KernelFile, Setting

    try:
        text = target.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadInput(f"{target} cannot be read: {why}; give a file of CUDA C++ (.cu) or PTX (.ptx).") from error
    setting = Setting(gpu=find(DEFAULT_GPU))
    if target.suffix == ".ptx":
        return KernelFile(text=text, default=setting, name=str(target), included={"PTX": text, **own_files(text)},
                          origin=TextOrigin(file=str(target), line=1, whole=True))  # fmt: skip
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            compiled = compile_cuda(text, [f"-I{target.resolve().parent}", *options], name=str(target))
    except CudaError as error:
        raise BadInput(f"{target} does not compile: {error}") from error
    for warning in warned:
        say(str(warning.message))
    return KernelFile(text=compiled, default=setting, source=text, name=str(target), included=own_files(compiled))


def _kernel(file: "KernelFile", name: str | None, target: Path) -> "Kernel":
    """Raises BadInput where it is not said which, and BadLaunch where there is none of that name."""
    from undertorch.checks.told import demangled

    if name is not None:
        return file[name]
    if not file.kernels:
        raise BadInput(f"{target} has no kernels: __global__ functions, or .entry in PTX; a template needs "
                       "`template __global__ void name<…>(…);`.")  # fmt: skip
    if len(file.kernels) != 1:
        names = ", ".join(demangled(kernel) for kernel in file.kernels)
        raise BadInput(f"{target} has {len(file.kernels)} kernels: {names}; say which with --kernel NAME.")
    return file[file.kernels[0]]
