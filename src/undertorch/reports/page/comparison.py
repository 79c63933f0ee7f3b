"""Several steps side by side: one row each, the bars from the fastest."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from undertorch.records import Gpu, Origin, Step
from undertorch.reports.page.heading import busy_share
from undertorch.reports.terminal.bounds import verdict
from undertorch.reports.terminal.numbers import ratio
from undertorch.reports.terminal.runs import busy, runs
from undertorch.reports.terminal.text import told_apart
from undertorch.reports.terminal.totals import utilisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One step in the table."""

    label: str
    step: Step
    gpu: Gpu | None
    busy: float | None
    """Share of the step, on average over its GPUs."""
    bar: float | None
    """Of the slowest step's time, 0 to 1."""
    times: float | None
    """As slow as the fastest step: 1 and more."""
    samples_a_second: float | None
    memory: float | None
    """Peak over what the GPU has."""
    utilisation: str
    origin: Origin
    verdict: str


def comparison(steps: Sequence[Step], gpus: Mapping[str, Gpu], named: Sequence[str]) -> tuple[Compared, ...]:
    """In the order given."""
    walls = [step.step_us for step in steps if step.step_us]
    slowest, fastest = max(walls, default=None), min(walls, default=None)
    return tuple(
        _compared(step, gpus.get(step.gpu), label, slowest, fastest) for step, label in zip(steps, named, strict=True)
    )


def _compared(step: Step, gpu: Gpu | None, label: str, slowest: float | None, fastest: float | None) -> Compared:
    all_runs = runs(step)
    rate = ratio(step.samples, step.step_us)
    return Compared(
        label=label,
        step=step,
        gpu=gpu,
        busy=busy_share(step, busy(all_runs)),
        bar=ratio(step.step_us, slowest),
        times=ratio(step.step_us, fastest),
        samples_a_second=None if rate is None else rate * 1e6,
        memory=None if gpu is None else ratio(step.memory.peak_bytes, gpu.memory_bytes),
        utilisation=utilisation(step, gpu).partition(" (")[0],
        origin=step.time_origin,
        verdict=verdict(step, all_runs),
    )


def labels(steps: Sequence[Step]) -> tuple[str, ...]:
    """A short name for each step that no other one has: its GPU, with the script and the step where that is needed."""
    names = [step.gpu for step in steps]
    commands = [
        shlex.join((file, *step.environment.arguments))
        for file, step in zip(told_apart([step.environment.script for step in steps]), steps, strict=True)
    ]
    numbers = [f"step {step.environment.step}" for step in steps]
    for more in (commands, numbers, None):
        doubled = {name for name, times in Counter(names).items() if times > 1}
        if more is None:
            names = [f"{name} #{index + 1}" if name in doubled else name for index, name in enumerate(names)]
        else:
            names = [f"{name} · {one}" if name in doubled else name for name, one in zip(names, more, strict=True)]
    return tuple(names)
