"""Sums over a Step's launches. Where launches overlap (streams), the time counts once: at the first to begin, and of a
collective and another kernel at the other."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from undertorch.records.kinds import Kind, Phase
from undertorch.records.launches import Launch
from undertorch.records.steps import Step

One = TypeVar("One")

LINE_ENDS = re.compile(r"\r\n|\r|\n")


def shares_us(launches: Sequence[Launch]) -> list[float]:
    """Each launch's part of the busy time, in the order given: the time of its own that no earlier launch covers; of a
    collective that which no other kernel covers, either, since it holds a few SMs while it waits and transfers, and
    what runs beside it would run without it. They sum to `busy_us`.

    Launches of different devices do not overlap: each device has its own time.
    """
    shares = [0.0] * len(launches)
    order = sorted(range(len(launches)), key=lambda i: (launches[i].device, launches[i].start_us, i))
    covered = _share_out(launches, [i for i in order if launches[i].kernel.kind is not Kind.COLLECTIVE], {}, shares)
    _share_out(launches, [i for i in order if launches[i].kernel.kind is Kind.COLLECTIVE], covered, shares)
    return shares


Covered = dict[int, tuple[list[float], list[float]]]
"""By device: starts and ends of what is taken, apart from each other and in order."""


def _share_out(launches: Sequence[Launch], order: Iterable[int], before: Covered, shares: list[float]) -> Covered:
    """Gives those of the order, by device and start, what neither one `before` nor an earlier of them covers; answers
    what they cover together."""
    covered: Covered = defaultdict(lambda: ([], []))
    for index in order:
        launch = launches[index]
        starts, ends = covered[launch.device]
        begin = max(launch.start_us, ends[-1]) if ends else launch.start_us
        if launch.end_us > begin:
            taken = _within(before.get(launch.device), begin, launch.end_us)
            shares[index] = max(0.0, launch.end_us - begin - taken)  # sums of fractions can pass the whole by a bit
        if ends and launch.start_us <= ends[-1]:
            ends[-1] = max(ends[-1], launch.end_us)
        else:
            starts.append(launch.start_us)
            ends.append(launch.end_us)
    return covered


def _within(covered: tuple[list[float], list[float]] | None, begin: float, end: float) -> float:
    """Microseconds between two moments that are taken."""
    found = 0.0
    if covered is not None:
        starts, ends = covered
        for place in range(bisect_left(ends, begin), len(starts)):
            if starts[place] >= end:
                break
            found += min(end, ends[place]) - max(begin, starts[place])
    return found


def busy_us(launches: Sequence[Launch]) -> float:
    """The union of the launches' times, in microseconds."""
    return sum(shares_us(launches))


def phases_us(launches: Sequence[Launch]) -> dict[Phase, float]:
    """Busy time by phase, in the order of the vocabulary; phases without launches are absent. They sum to `busy_us`."""
    sums: dict[Phase, float] = defaultdict(float)
    for launch, share in zip(launches, shares_us(launches), strict=True):
        sums[launch.phase] += share
    return {phase: sums[phase] for phase in Phase if phase in sums}


def longest_first(some: Iterable[One], time_us: Callable[[One], float]) -> list[One]:
    """By their time; what ties keeps its order. Times tie that agree to the nanosecond: those of the same launches at
    other places of a step differ by what adding them up rounds off.
    """
    return sorted(some, key=lambda one: -round(time_us(one), 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one source line asks of the GPU in a step."""

    file: str | None
    """None, with `line` 0 and no source: the launches that have no line."""
    line: int
    source: str | None
    """Its text, stripped; None where the file could not be read."""
    time_us: float
    """Its launches' part of the busy time."""
    min_bytes: int | None
    """Least bytes of its launches whose bytes are known; None where none are."""
    flops: int | None
    launches: int


def lines(step: Step) -> tuple[Line, ...]:
    """The lines of a step, the longest first; those that tie as they stand in the source. What has no line comes last,
    with file None. Times sum to `busy_us`."""
    groups: dict[tuple[str, int] | None, list[tuple[Launch, float]]] = defaultdict(list)
    by_id = {op.id: op for op in step.ops}
    for launch, share in zip(step.launches, shares_us(step.launches), strict=True):
        where = by_id[launch.ops[0]].where if launch.ops else None
        groups[None if where is None else (where.file, where.line)].append((launch, share))
    found = [_line(step, place, groups[place]) for place in sorted(place for place in groups if place is not None)]
    without = [_line(step, None, groups[None])] if None in groups else []
    return (*longest_first(found, lambda line: line.time_us), *without)


def _line(step: Step, place: tuple[str, int] | None, group: list[tuple[Launch, float]]) -> Line:
    file, number = place or (None, 0)
    return Line(
        file=file,
        line=number,
        source=None if file is None else source_line(step.environment.sources, file, number),
        time_us=sum(share for _, share in group),
        min_bytes=_sum_known(launch.kernel.min_bytes for launch, _ in group),
        flops=_sum_known(launch.kernel.flops for launch, _ in group),
        launches=len(group),
    )


def idle_us(step: Step) -> dict[tuple[str, int], float]:
    """Idle time by the file and line that caused it; what no line is known for is left out."""
    found: dict[tuple[str, int], float] = defaultdict(float)
    for idle in step.idle:
        if idle.where is not None:
            found[idle.where.file, idle.where.line] += idle.time_us
    return dict(found)


def without_kernels(step: Step) -> dict[tuple[str, int], Counter[str]]:
    """By file and line: the Ops whose kernels are not known, by name, and how many of each."""
    unknown = frozenset(step.accounting.ops_without_cost)
    launched = {number for launch in step.launches for number in launch.ops} if unknown else set()
    found: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for op in step.ops:
        if op.name in unknown and op.where is not None and op.id not in launched:
            found[op.where.file, op.where.line][op.name] += 1
    return dict(found)


def source_line(sources: dict[str, str], file: str, line: int) -> str | None:
    """The stripped text of a line (counted from 1); None where the file or the line is not there."""
    text = source_rows(sources.get(file, ""))
    return text[line - 1].strip() if 1 <= line <= len(text) else None


def source_rows(text: str) -> list[str]:
    """A source file's lines, counted as Python counts them, without what ends them. A form feed or U+2028, at which
    str.splitlines() would end a line, stands within one.
    """
    rows = LINE_ENDS.split(text)
    return rows[:-1] if rows[-1] == "" else rows


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
