"""The head of the report: what was seen, on which GPU, how long it takes, what memory it needs."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from undertorch.records import Gpu, IdleCause, Origin, Step
from undertorch.records.compiled import compiled
from undertorch.records.steps import NOT_COMPILED, UNCAPTURED, WRITTEN_BY_INDUCTOR
from undertorch.reports.terminal.numbers import count, percent, ratio, size, time
from undertorch.reports.terminal.runs import Run, busy
from undertorch.reports.terminal.text import Paragraph, command, fact

WORTH_A_CAUTION = 0.05
"""Share of the step that the GPU waits for the CPU, from which on the host is worth a word."""


def header(step: Step, gpu: Gpu | None, all_runs: Sequence[Run]) -> RenderableType:
    """Script, GPU and step; times with their origin; samples; memory; versions."""
    seen = step.environment
    title = Text.assemble(
        (command(seen), "bold"),
        f" · step {seen.step} · ",
        (step.gpu, "bold"),
        f" · times {step.time_origin}",
    )
    return Group(
        Paragraph(text=title, indent=0),
        Rule(style="dim"),
        fact("step", _times(step, busy(all_runs))),
        *_samples(step),
        fact("memory", _memory(step, gpu)),
        fact("versions", _versions(step)),
        *_eager(step),
        *_compiled(step),
        *_host(step, gpu),
        *_doubt(step, gpu),
    )


def _eager(step: Step) -> list[Paragraph]:
    """A script that compiles, whose step is shown as it is without."""
    found = compiled(step)
    if not (found.models or found.functions):
        return []
    place = "" if found.where is None else f" of {found.where.file}:{found.where.line}"
    return [fact("eager", f"the torch.compile{place} is left out, and so is advice that it may have taken already")]


def _compiled(step: Step) -> list[Paragraph]:
    """A script that compiles, whose step is that of the compiled code."""
    places = [
        f"{one.where.file}:{one.where.line}"
        for one in step.accounting.assumed
        if one.what.startswith(WRITTEN_BY_INDUCTOR) and one.where is not None
    ]
    if not places or not any(launch.kernel.library == "Inductor" for launch in step.launches):
        return []
    said = f"by the torch.compile of {', '.join(places)}: the kernels that Inductor writes for it"
    assumed = step.accounting.assumed
    if any(NOT_COMPILED in one.what for one in assumed):
        said += "; a part could not be compiled and is shown in eager (see Assumptions)"
    if any(one.what.startswith(UNCAPTURED) for one in assumed):
        said += "; CUDA graphs, which launch them at once, are not captured: the step takes this long at most"
    return [fact("compiled", said)]


def _host(step: Step, gpu: Gpu | None) -> list[Paragraph]:
    """A caution where much of a predicted step rests on how fast a CPU was taken to be."""
    waits = sum(idle.time_us for idle in step.idle if idle.cause in (IdleCause.LAUNCH, IdleCause.SYNC))
    if step.time_origin is not Origin.PREDICTED or waits < WORTH_A_CAUTION * (step.step_us or 0) or not step.idle:
        return []
    speed = None if gpu is None else gpu.host_speed
    if speed is not None:
        return [fact("host", f"its CPU is taken to be {speed:g} times as fast as the measured server")]
    said = "its CPU time an op is that of one measured server; a faster one can halve the idle time (--host-speed 2)"
    return [fact("host", said)]


def _doubt(step: Step, gpu: Gpu | None) -> list[Paragraph]:
    if gpu is None or gpu.verified or step.time_origin is not Origin.PREDICTED:
        return []
    return [fact("sheet", f"unverified: predicted times were never compared with a real {gpu.name}")]


def _times(step: Step, busy_us: float) -> str:
    times = [
        f"{cause} {time(spent)}"
        for cause in IdleCause
        if (spent := sum(idle.time_us for idle in step.idle if idle.cause is cause))
    ]
    idle = f"; idle: {', '.join(times)}" if times else ""
    at_least = "at least " if step.accounting.ops_without_cost_count else ""
    return (
        f"{at_least}{time(step.step_us)}, of which busy {time(busy_us)} ({percent(ratio(busy_us, step.step_us))}){idle}"
    )


def _samples(step: Step) -> list[Paragraph]:
    """No row where somebody's trace does not tell, which none does."""
    rate = ratio(step.samples, step.step_us)
    if rate is not None:
        return [fact("samples", f"{count(step.samples)} a step, {round(rate * 1e6):,} a second")]
    measured = step.time_origin is Origin.MEASURED
    return [] if measured and step.samples is None else [fact("samples", count(step.samples))]


def _memory(step: Step, gpu: Gpu | None) -> str:
    memory = step.memory
    if memory.peak_bytes is None:
        return size(None)
    op = next((op for op in step.ops if op.id == memory.peak_op), None)
    place = f", reached at {op.where.file}:{op.where.line}" if op is not None and op.where is not None else ""
    start = "" if memory.start_bytes is None else f"; {size(memory.start_bytes)} when the step began"
    room = ""
    if gpu is not None:
        fits = memory.peak_bytes <= gpu.memory_bytes
        room = f" of the GPU's {size(gpu.memory_bytes)}" if fits else f": MORE than the GPU's {size(gpu.memory_bytes)}"
    return f"{size(memory.peak_bytes)} at most{room}{place}{start} ({memory.origin})"


def _versions(step: Step) -> str:
    seen = step.environment
    named = [f"{name} {version}" for name, version in seen.versions.items()]
    if seen.gpu_name is not None:
        named.append(seen.gpu_name if seen.driver is None else f"{seen.gpu_name}, driver {seen.driver}")
    return ", ".join(named) if named else count(None)
