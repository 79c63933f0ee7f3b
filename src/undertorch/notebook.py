"""Seeing a loop of one's own, in a script's own process or in a notebook: the block, its displays, the cell magic."""

import inspect
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any

from undertorch import gpus
from undertorch.records import Gpu, Step

if TYPE_CHECKING:
    from rich.console import RenderableType

    from undertorch.steps.record.inprocess import Block


class Seeing:
    """`with undertorch.seeing(gpu="H200") as seen:`; afterwards `seen.step`, and `seen` shows itself."""

    def __init__(self, gpu: Gpu, step: int, assume: Mapping[str, str]) -> None:
        self._gpu = gpu
        self._number = step
        self._assume = assume
        self._block: Block | None = None
        self._step: Step | None = None

    @property
    def step(self) -> Step:
        """The step. Raises AttributeError inside the block, and after one that raised."""
        if self._step is None:
            raise AttributeError("There is no step yet: seen.step is there after the block, if the block did not fail.")
        return self._step

    def __enter__(self) -> "Seeing":
        frame = inspect.currentframe()
        caller = None if frame is None else frame.f_back
        if caller is None:
            raise RuntimeError("This Python shows no frames, by which lines are known.")
        self.enter(caller.f_code)
        return self

    def enter(self, code: CodeType) -> None:
        """Begins to record what this code calls. Raises RecordError where this process cannot."""
        from undertorch.steps.record.inprocess import Block

        name = cell_name(code.co_filename) or _relative(code.co_filename)
        self._step = None
        self._block = Block(self._gpu, self._number, self._assume, name, code, cell_name)
        self._block.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        from undertorch.steps.asked import ended_before
        from undertorch.steps.record.inprocess import StepComplete
        from undertorch.steps.see import predicted

        if self._block is None:
            return False
        recording = self._block.leave(kind, error, trace)
        self._block = None
        if recording is not None and (error is None or isinstance(error, StepComplete)):
            self._step = predicted(recording, self._gpu)
            earlier = ended_before(self._number, self._step.environment.step)
            if earlier is not None:
                warnings.warn(earlier, stacklevel=2)
        return isinstance(error, StepComplete)

    def __rich__(self) -> "RenderableType":
        from undertorch.reports.terminal import drawn

        return "a step that is not seen yet" if self._step is None else drawn(self._step, self._gpu)

    def _repr_html_(self) -> str | None:
        from undertorch.reports.cell import table

        return None if self._step is None else table(self._step, self._gpu)

    def __repr__(self) -> str:
        from undertorch.reports.cell import sentence

        return "<a step that is not seen yet>" if self._step is None else f"<{sentence(self._step)}>"


def seeing(gpu: str | Gpu, step: int, assume: Mapping[str, str] | None) -> Seeing:
    """What `undertorch.seeing` answers. Raises RecordError, UnknownGpu or BadSheet."""
    from undertorch.steps.asked import asked_answers, asked_gpu, asked_step

    return Seeing(asked_gpu(gpu), asked_step(step), asked_answers(assume))


def cell_name(filename: str) -> str | None:
    """What a notebook calls the cell whose code bears this name, such as `In[3]`; None for a file."""
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    found = None if shell is None else shell.compile.format_code_name(filename)
    return None if found is None else str(found[1])


def _relative(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


def load(shell: Any) -> None:
    """`%load_ext undertorch`: the cell magic `%%see`."""

    from IPython.core.error import UsageError

    from undertorch.steps.record.errors import RecordError

    def see(line: str, cell: str) -> Seeing:
        """%%see [GPU] [--step N] [--assume LINE=VALUE]: what each line of the cell's training step becomes on a GPU."""
        given = _arguments(line)
        # The magic's own line counts as the first, as the notebook shows it.
        text = "\n" + shell.transform_cell(cell)
        number = len(shell.history_manager.input_hist_parsed) - 1  # of the cell that runs
        code = compile(text, shell.compile.cache(text, number, raw_code=cell), "exec")
        try:
            seen = seeing(given.gpu, given.step, dict(one.split("=", 1) for one in given.assume))
            return _seen(seen, code, shell.user_ns)
        except (RecordError, gpus.UnknownGpu, gpus.BadSheet) as error:
            raise UsageError(str(error)) from None

    shell.register_magic_function(see, magic_kind="cell", magic_name="see")


def _seen(seen: Seeing, code: CodeType, names: dict[str, Any]) -> Seeing:
    """Runs a cell's code as the block."""
    seen.enter(code)
    try:
        exec(code, names)
    except BaseException as error:
        if not seen.__exit__(type(error), error, error.__traceback__):
            raise
    else:
        seen.__exit__(None, None, None)
    return seen


def _arguments(line: str) -> Any:
    import argparse
    import shlex

    from IPython.core.error import UsageError

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise UsageError(f"%%see {line}: {message}; write %%see H200 --step 2 --assume 3=true.")

    parser = Parser(prog="%%see", add_help=False)
    parser.add_argument("gpu", nargs="?", default="H200")
    parser.add_argument("--gpu", dest="named", default=None)
    parser.add_argument("--step", type=int, default=2)
    parser.add_argument("--assume", action="append", default=[], type=_answer)
    given = parser.parse_args(shlex.split(line))
    given.gpu = given.named or given.gpu
    return given


def _answer(text: str) -> str:
    if "=" not in text:
        raise ValueError(text)
    return text
