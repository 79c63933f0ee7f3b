"""What is said beside a source line: the memory's peak is reached here, something was assumed, the GPU waits."""

from collections import defaultdict
from dataclasses import dataclass

from undertorch.records import IdleCause, Step, Where
from undertorch.records.totals import without_kernels
from undertorch.reports.terminal.bounds import WORTH_SAYING
from undertorch.reports.terminal.numbers import count, size, time


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A few words, and the part of the page that says more."""

    text: str
    part: str


Place = tuple[str, int]
"""File and line."""

WAITS = {
    IdleCause.LAUNCH: "GPU waits for the CPU",
    IdleCause.SYNC: "GPU waits for the script",
    IdleCause.DATA: "GPU waits for data",
    IdleCause.COMMUNICATION: "GPU waits for other GPUs",
}
"""Causes of idle time that a line can do something about."""


def marks(step: Step) -> dict[Place, tuple[Mark, ...]]:
    """By line."""
    found: dict[Place, list[Mark]] = defaultdict(list)
    peak = next((op.where for op in step.ops if op.id == step.memory.peak_op), None)
    if peak is not None:
        found[_place(peak)].append(Mark(text=f"memory peak {size(step.memory.peak_bytes)}", part="memory"))
    for advice in step.advice:
        for where in advice.lines:
            found[_place(where)].append(Mark(text=f"advice: {advice.kind}", part="advice"))
    for place, unknown in without_kernels(step).items():
        found[place].append(Mark(text=f"time not known: {', '.join(unknown)}", part="accounting"))
    for place, times in _assumed(step).items():
        found[place].append(Mark(text=f"assumed {times:,}×" if times > 1 else "assumed", part="assumptions"))
    for (place, cause), spent in _waits(step).items():
        if step.step_us and spent >= WORTH_SAYING * step.step_us:
            found[place].append(Mark(text=f"{WAITS[cause]}: {time(spent)}", part="phases"))
    return {place: tuple(dict.fromkeys(some)) for place, some in found.items()}


def _assumed(step: Step) -> dict[Place, int]:
    """How often something was assumed at a line: for the run where it says so, otherwise for its Ops."""
    of_run: dict[Place, int] = defaultdict(int)
    for assumed in step.accounting.assumed:
        if assumed.where is not None:
            of_run[_place(assumed.where)] += assumed.count
    of_ops: dict[Place, int] = defaultdict(int)
    for op in step.ops:
        if op.assumed and op.where is not None:
            of_ops[_place(op.where)] += 1
    return {**of_ops, **of_run}


def _waits(step: Step) -> dict[tuple[Place, IdleCause], float]:
    found: dict[tuple[Place, IdleCause], float] = defaultdict(float)
    for idle in step.idle:
        if idle.where is not None and idle.cause in WAITS:
            found[_place(idle.where), idle.cause] += idle.time_us
    return dict(found)


def _place(where: Where) -> Place:
    return where.file, where.line


def place_text(where: Where | None) -> str:
    """`train.py:31`; empty where there is none."""
    return "" if where is None else f"{where.file}:{where.line}"


def often(times: int) -> str:
    """`3 times`, from two on."""
    return count(times, "time") if times > 1 else ""
