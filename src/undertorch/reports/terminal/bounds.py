"""What bounds a group of launches, in a word or in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

from undertorch.records import Bound, IdleCause, Kind, Launch, Origin, Step
from undertorch.records.compiled import compiled
from undertorch.records.totals import longest_first
from undertorch.reports.terminal.numbers import UNKNOWN, count, percent, time
from undertorch.reports.terminal.runs import Run, bounds, busy, grouped

PRODUCTS = {Kind.MATMUL: "matmul", Kind.ATTENTION: "attention", Kind.CONVOLUTION: "convolutions"}
"""What arithmetic units are for. Other kernels that compute bounds wait for the instructions that they have to issue, a
cast or a copy with strides without any arithmetic."""

INSTRUCTIONS = {Kind.COPY: "casts and copies"}
"""What such kernels are called, where that is not their kind."""

WAITS = {
    Bound.MEMORY: "waits for memory",
    Bound.COMPUTE: "is spent on arithmetic",
    Bound.LATENCY: "goes to kernels too small to fill the GPU",
    Bound.LAUNCH: "goes to small kernels that the CPU is slow to launch",
    Bound.COMMUNICATION: "waits for other GPUs",
    Bound.LINK: "goes to copies between host and GPU",
    None: "has no known bound",
}

IDLES = {
    IdleCause.LAUNCH: "the CPU is too slow in launching",
    IdleCause.GAP: "one kernel has to end before the next begins",
    IdleCause.SYNC: "the script waits for it",
    IdleCause.DATA: "the next batch is not there",
    IdleCause.COMMUNICATION: "other GPUs are not done",
    IdleCause.UNKNOWN: "the cause is not known",
}

WORTH_SAYING = 0.005
"""Shares below half a percent are left to the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A part of the busy time, by what it is spent on."""

    bound: Bound | None
    instructions: bool
    """Bound by compute, and no arithmetic of products: the instructions that other kernels issue."""
    said: str
    """Goes on a sentence: `49.7 % …`."""
    time_us: float


def spent(all_runs: Sequence[Run]) -> tuple[Spent, ...]:
    """The busy time by what bounds it, the longest first."""
    groups = grouped(all_runs, lambda run: (run.launch.bound, _instructions(run.launch)))
    found = [
        Spent(bound=kind, instructions=others, said=_said(kind, others, some), time_us=busy(some))
        for (kind, others), some in groups.items()
    ]
    return tuple(longest_first(found, lambda one: one.time_us))


def _instructions(launch: Launch) -> bool:
    return launch.bound is Bound.COMPUTE and launch.kernel.kind not in PRODUCTS


def _said(kind: Bound | None, instructions: bool, some: Sequence[Run]) -> str:
    if kind is not Bound.COMPUTE:
        return WAITS[kind]
    times = {one: busy(group) for one, group in grouped(some, lambda run: run.launch.kernel.kind).items()}
    longest = longest_first(times, lambda one: times[one])
    if instructions:
        names = [INSTRUCTIONS.get(one, str(one)) for one in longest[:2]]
        return f"is spent on instructions ({', '.join(names)}{', …' if len(longest) > len(names) else ''})"
    return f"{WAITS[kind]} ({', '.join(PRODUCTS[one] for one in longest)})"


def bound(some: Sequence[Run]) -> str:
    """`memory`; with its share where it does not hold for nearly all of their time: `memory 71 %`."""
    whole = busy(some)
    (first, time), *_ = bounds(some)
    if first is None:
        return UNKNOWN
    return str(first) if time >= 0.995 * whole else f"{first} {time / whole:.0%}".replace("%", " %")


def bound_origin(launch: Launch) -> Origin | None:
    """Of a measured launch the bound is computed, from its time and from its bytes and FLOPs; None where it is not
    known."""
    if launch.bound is None:
        return None
    return Origin.COMPUTED if launch.time_origin is Origin.MEASURED else launch.time_origin


def verdict(step: Step, all_runs: Sequence[Run]) -> str:
    """One sentence: what the step is waiting for; two of a step without the compilation or the graphs that its script
    has."""
    said = _waits(step, all_runs)
    left_out, otherwise = _compiled(step, all_runs)
    if not left_out or not busy(all_runs):
        return said
    return f"Without {left_out}, {said[0].lower()}{said[1:]} With it, {otherwise}."


def _compiled(step: Step, all_runs: Sequence[Run]) -> tuple[str, str]:
    """What the script has and the step shown has not, and what that changes; empty where there is none."""
    found = compiled(step)
    inside = [run for run in all_runs if run.op is not None and found.takes(run.op)]
    late = sum(idle.time_us for idle in step.idle if idle.cause is IdleCause.LAUNCH)
    waits = late > WORTH_SAYING * (step.step_us or 0.0)
    if not inside:
        graphs = "what it holds is launched at once, so that little of the waiting for launches is left"
        return ("the script's CUDA graph", graphs) if found.captured and waits else ("", "")
    stay = {kind: [run for run in inside if run.launch.kernel.kind is kind] for kind in PRODUCTS}
    products = [run for some in stay.values() for run in some]
    kinds = ", ".join(PRODUCTS[kind] for kind, some in stay.items() if some)
    kept = f"those of {kinds} ({len(products):,}, {time(busy(products))}) stay and the rest are fused"
    launched = ""
    if waits:
        launched = (
            "; its CUDA graphs launch them at once, so that little of the waiting for launches is left"
            if found.graphs or found.captured
            else "; with mode='reduce-overhead' they would be launched at once"
        )
    return "the script's torch.compile", (
        f"{len(inside):,} of the {count(len(all_runs), 'launch', 'launches')} become fewer"
        f"{f': {kept}' if products else ''}{launched}. On a GPU, undertorch see without --gpu measures that"
    )


def _waits(step: Step, all_runs: Sequence[Run]) -> str:
    whole = busy(all_runs)
    if not whole:
        return "Nothing ran on the GPU in this step."
    parts = [
        f"{percent(one.time_us / whole)} {one.said}"
        f"{_kinds(all_runs) if one.bound is None and 2 * one.time_us > whole else ''}"
        for one in spent(all_runs)
        if one.time_us >= WORTH_SAYING * whole
    ]
    parts[0] = parts[0].replace(" %", " % of the busy time", 1)
    said, idle = ", ".join(parts), _idle(step)
    if idle and 2 * sum(one.time_us for one in step.idle) > (step.step_us or 0.0):
        # What matters most comes first.
        return f"{idle[0].upper()}{idle[1:]}; {said}{_left_out(step)}."
    return f"{said}{'; ' if idle else ''}{idle}{_left_out(step)}."


def _kinds(all_runs: Sequence[Run]) -> str:
    """Where most bounds are not known, what the kernels do says more: the three kinds that take most of the time."""
    whole = busy(all_runs)
    groups = grouped(all_runs, lambda run: run.launch.kernel.kind)
    longest = longest_first(((kind, busy(some)) for kind, some in groups.items()), lambda pair: pair[1])[:3]
    return f" ({', '.join(f'{kind} {percent(time / whole)}' for kind, time in longest)})"


def _left_out(step: Step) -> str:
    """What the sentence cannot speak of."""
    ops = step.accounting.ops_without_cost_count
    return f"; {count(ops, 'op')} whose kernels are not known {'is' if ops == 1 else 'are'} left out" if ops else ""


def _idle(step: Step) -> str:
    """The second half of the sentence: why the GPU runs nothing; empty where that is little."""
    if not step.step_us:
        return ""
    times = {cause: sum(idle.time_us for idle in step.idle if idle.cause is cause) for cause in IdleCause}
    cause = max(times, key=lambda one: times[one])
    whole = sum(times.values())
    if whole < WORTH_SAYING * step.step_us:
        return ""
    return f"the GPU is idle for {percent(whole / step.step_us)} of the step, mostly because {IDLES[cause]}"
