"""All that the page shows of one step, in one record: the templates only lay it out."""

from dataclasses import dataclass

from undertorch.records import Gpu, Step
from undertorch.reports.page.advice import Advised, advised
from undertorch.reports.page.heading import Figure, IdleRow, Wait, figures, idle_rows, split_utilisation, waits
from undertorch.reports.page.listing import HotLine, SourceFile, hottest, listing
from undertorch.reports.page.marks import Place
from undertorch.reports.page.memory import MemoryChart, memory_chart
from undertorch.reports.page.roofline import Roofline, roofline
from undertorch.reports.page.span import Span, span
from undertorch.reports.page.tables import (
    Assumed,
    KernelRow,
    OriginRow,
    PhaseRow,
    assumptions,
    kernel_rows,
    left_out,
    origin_rows,
    phase_rows,
)
from undertorch.reports.terminal.assumptions import heading
from undertorch.reports.terminal.bounds import verdict
from undertorch.reports.terminal.missing import Missing
from undertorch.reports.terminal.runs import Run, busy, runs
from undertorch.reports.terminal.text import command


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step as the page shows it."""

    id: str
    """Ids in the step's part of the page begin with it."""
    label: str
    step: Step
    gpu: Gpu | None
    runs: tuple[Run, ...]
    busy_us: float
    span: Span
    command: str
    verdict: str
    figures: tuple[Figure, ...]
    utilisation: str
    """What the model FLOP utilisation is made of; empty where it is unknown."""
    waits: tuple[Wait, ...]
    hottest: tuple[tuple[SourceFile, HotLine], ...]
    """The lines that take most time, with their files."""
    advice: tuple[Advised, ...]
    files: tuple[SourceFile, ...]
    roofline: Roofline
    memory: MemoryChart | None
    kernels: tuple[KernelRow, ...]
    phases: tuple[PhaseRow, ...]
    idle: tuple[IdleRow, ...]
    missing: tuple[Missing, ...]
    origins: tuple[OriginRow, ...]
    noted: str
    """The title of what follows."""
    assumptions: tuple[Assumed, ...]
    links: dict[Place, str]
    """The id of each line's row, by file and line."""


def step_view(step: Step, gpu: Gpu | None, number: int, label: str) -> StepView:
    """`number` counts the steps of the page, `label` tells this one from the others."""
    name = f"s{number}"
    all_runs = runs(step)
    whole = span(step)
    seen = step.environment
    files = listing(step, all_runs, gpu, whole, name)
    return StepView(
        id=name,
        label=label,
        step=step,
        gpu=gpu,
        runs=all_runs,
        busy_us=busy(all_runs),
        span=whole,
        command=command(seen),
        verdict=verdict(step, all_runs),
        figures=figures(step, all_runs, gpu),
        utilisation=split_utilisation(step, gpu)[1],
        waits=waits(step, all_runs),
        hottest=hottest(files),
        advice=advised(step, busy(all_runs)),
        files=files,
        roofline=roofline(all_runs, gpu),
        memory=memory_chart(step, all_runs, gpu, whole),
        kernels=kernel_rows(all_runs, gpu),
        phases=phase_rows(all_runs),
        idle=idle_rows(step),
        missing=left_out(all_runs),
        origins=origin_rows(step, all_runs),
        noted=heading(step),
        assumptions=assumptions(step),
        links={
            (file.name, row.number): row.id
            for file in files
            for row in file.rows
            if isinstance(row, HotLine) and file.name is not None
        },
    )
