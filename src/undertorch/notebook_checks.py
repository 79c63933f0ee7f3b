"""Checking the kernels of a block or a notebook's cell: the block, its displays, the cell magic `%%check`."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from undertorch import gpus
from undertorch.records import Checked, Gpu

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class Checking:
    """`with undertorch.checking() as found:`; afterwards `found.checked`, and `found` shows itself."""

    def __init__(self, gpu: Gpu, seeds: int, every: bool) -> None:
        from undertorch.checks.launches import Launches

        self._gpu = gpu
        self._launches = Launches(every=every, seeds=seeds)
        self._inside = ExitStack()

    @property
    def checked(self) -> tuple[Checked, ...]:
        """Each kernel that was launched, with what was found, in the order of first launches."""
        from undertorch.checks.relative import relative
        from undertorch.notebook import cell_name

        return tuple(relative(one, Path.cwd(), cell_name) for one in self._launches.checked())

    def __enter__(self) -> "Checking":
        from undertorch.checks.programs import watching

        self._inside.enter_context(watching(self._gpu, self._launches))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """A fault or a deadlock of a kernel ends the block, and is a finding: it goes no further."""
        from undertorch.simt.errors import Deadlock, Fault

        self._inside.close()
        return isinstance(error, Fault | Deadlock) and any(one.findings for one in self._launches.checked())

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from undertorch.reports.terminal.findings import drawn_all

        yield from drawn_all(self.checked, options.max_width)

    def _repr_html_(self) -> str:
        from undertorch.reports.findings_cell import cell

        return cell(self.checked)

    def __repr__(self) -> str:
        from undertorch.reports.terminal.findings import summary

        return f"<{summary(self.checked)}>"


def load(shell: Any) -> None:
    """`%load_ext undertorch`: the cell magic `%%check`, and findings drawn where a cell ends with them."""
    from IPython.core.error import UsageError
    from IPython.display import display

    from undertorch.reports.findings_cell import cell as drawn
    from undertorch.simt.errors import BadLaunch

    show: Any = display

    def check(line: str, cell: str) -> Checking:
        """%%check [GPU] [--seeds N] [--every-launch]: whether the kernels that the cell launches race, and more."""
        given = _arguments(line)
        try:
            found = Checking(gpus.find(given.gpu), given.seeds, given.every)
        except (gpus.UnknownGpu, gpus.BadSheet, BadLaunch) as error:
            raise UsageError(str(error)) from None
        # The magic's own line counts as the first, as the notebook shows it.
        text = "\n" + shell.transform_cell(cell)
        number = len(shell.history_manager.input_hist_parsed) - 1  # of the cell that runs
        code = compile(text, shell.compile.cache(text, number, raw_code=cell), "exec")
        try:
            with found:
                exec(code, shell.user_ns)
        except BaseException:
            if found.checked:
                show(found)  # before the cell's own traceback: what it returns is not shown then
            raise
        return found

    shell.register_magic_function(check, magic_kind="cell", magic_name="check")
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(Checked, lambda one: drawn([one]))


def _arguments(line: str) -> Any:
    import argparse
    import shlex

    from IPython.core.error import UsageError

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise UsageError(f"%%check {line}: {message}; write %%check H200 --seeds 4.")

    parser = Parser(prog="%%check", add_help=False)
    parser.add_argument("gpu", nargs="?", default="A100-80GB")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--every-launch", dest="every", action="store_true")
    return parser.parse_args(shlex.split(line))
