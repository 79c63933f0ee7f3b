"""A Step on a terminal."""

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from undertorch.records import Gpu, Step
from undertorch.reports.terminal.accounting import accounting
from undertorch.reports.terminal.advice import advice
from undertorch.reports.terminal.assumptions import assumptions
from undertorch.reports.terminal.bounds import verdict
from undertorch.reports.terminal.calls import calls
from undertorch.reports.terminal.header import header
from undertorch.reports.terminal.kernels import top_kernels
from undertorch.reports.terminal.lines import source_lines
from undertorch.reports.terminal.modules import modules
from undertorch.reports.terminal.phases import phases
from undertorch.reports.terminal.runs import runs
from undertorch.reports.terminal.text import Paragraph
from undertorch.reports.terminal.totals import totals

__all__ = ["drawn", "show"]


def show(step: Step, gpu: Gpu | None = None, console: Console | None = None) -> None:
    """Draws the step. Without the GPU's sheet, shares of its peaks are left out.

    The summary stands at the end, where a terminal leaves the reader.
    """
    console = console or Console()
    for part in _parts(step, gpu, console.width):
        console.print(part, highlight=False)


def drawn(step: Step, gpu: Gpu | None = None) -> RenderableType:
    """The same as one thing that rich prints."""
    return _Drawn(step, gpu)


class _Drawn:
    def __init__(self, step: Step, gpu: Gpu | None) -> None:
        self._step = step
        self._gpu = gpu

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _parts(self._step, self._gpu, options.max_width)


def _parts(step: Step, gpu: Gpu | None, width: int) -> tuple[RenderableType, ...]:
    all_runs = runs(step)
    return (
        header(step, gpu, all_runs),
        source_lines(step, all_runs, width),
        *modules(all_runs, width),
        *calls(all_runs, width),
        *advice(step, all_runs),
        top_kernels(all_runs, gpu),
        phases(all_runs, width),
        totals(step, gpu, all_runs),
        accounting(step, all_runs),
        assumptions(step),
        Paragraph(text=Text("\n" + verdict(step, all_runs), style="bold"), indent=0),
    )
