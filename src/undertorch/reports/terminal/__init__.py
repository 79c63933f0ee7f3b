"""A Step on a terminal."""

from rich.console import Console
from rich.text import Text

from undertorch.records import Gpu, Step
from undertorch.reports.terminal.accounting import accounting
from undertorch.reports.terminal.advice import advice
from undertorch.reports.terminal.assumptions import assumptions
from undertorch.reports.terminal.bounds import verdict
from undertorch.reports.terminal.header import header
from undertorch.reports.terminal.kernels import top_kernels
from undertorch.reports.terminal.lines import source_lines
from undertorch.reports.terminal.phases import phases
from undertorch.reports.terminal.runs import runs
from undertorch.reports.terminal.text import Paragraph
from undertorch.reports.terminal.totals import totals

__all__ = ["show"]


def show(step: Step, gpu: Gpu | None = None, console: Console | None = None) -> None:
    """Draws the step. Without the GPU's sheet, shares of its peaks are left out.

    The summary stands at the end, where a terminal leaves the reader.
    """
    console = console or Console()
    width = console.width
    all_runs = runs(step)
    parts = (
        header(step, gpu, all_runs),
        source_lines(step, all_runs, width),
        *advice(step, all_runs),
        top_kernels(all_runs, gpu),
        phases(all_runs, width),
        totals(step, gpu, all_runs),
        accounting(step, all_runs),
        assumptions(step),
        Paragraph(text=Text("\n" + verdict(step, all_runs), style="bold"), indent=0),
    )
    for part in parts:
        console.print(part, highlight=False)
