"""Two Steps of one script, before and after an edit: what got faster, slower, bigger, and on which line."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from undertorch.records import Argument, IdleCause, Kernel, Kind, Op, Phase, Step, TensorRef
from undertorch.records.comparisons import (
    Change,
    Comparison,
    Figures,
    IdleChange,
    IdleLineChange,
    KindChange,
    LineChange,
    Match,
    PhaseChange,
    Side,
    SourceLine,
)
from undertorch.records.totals import idle_us, longest_first, source_line
from undertorch.steps.matching import match_lines
from undertorch.steps.runs import Run, runs

Key = TypeVar("Key")


class CannotCompare(Exception):
    """Two Steps, or two files of them, that say nothing about each other. Its message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The Steps of two files, by GPU."""

    pairs: tuple[tuple[Step, Step], ...]
    only_before: tuple[str, ...]
    """GPUs that the file after has no Step of."""
    only_after: tuple[str, ...]


def pair(before: Sequence[Step], after: Sequence[Step]) -> Pairing:
    """Pairs Steps by the name of their GPU; one Step a file is a pair whatever the GPUs.

    Raises CannotCompare where a file has two Steps of a GPU, or the files have no GPU in common.
    """
    if len(before) == len(after) == 1:
        return Pairing(pairs=((before[0], after[0]),), only_before=(), only_after=())
    was, now = _by_gpu(before, "before"), _by_gpu(after, "after")
    if not was.keys() & now.keys():
        old, new = (", ".join(side) or "no GPU" for side in (was, now))
        raise CannotCompare(
            f"The file before has steps of {old} and the one after of {new}, none of them the same; "
            "see the script for the same GPUs twice."
        )
    return Pairing(
        pairs=tuple((was[gpu], now[gpu]) for gpu in was if gpu in now),
        only_before=tuple(gpu for gpu in was if gpu not in now),
        only_after=tuple(gpu for gpu in now if gpu not in was),
    )


def _by_gpu(steps: Sequence[Step], side: str) -> dict[str, Step]:
    twice = [gpu for gpu, times in Counter(step.gpu for step in steps).items() if times > 1]
    if twice:
        raise CannotCompare(f"The file {side} has several steps of {twice[0]}; keep one a GPU.")
    return {step.gpu: step for step in steps}


def compare(before: Step, after: Step, mixed: bool = False) -> Comparison:
    """What changed from `before` to `after`. The differences of the phases, of the kinds and of the lines (with what
    has no line) each sum to that of the busy time.

    Raises CannotCompare where one side was measured and the other was not, unless `mixed`.
    """
    if before.time_origin is not after.time_origin and not mixed:
        raise CannotCompare(
            f"The times before are {before.time_origin} and those after {after.time_origin}, so their difference says "
            "more about the model than about the edit; pass --mixed to see it all the same."
        )
    was, now = runs(before), runs(after)
    whole = _figures(was, now)
    matched = _matched(before, after, was, now)
    walls = before.step_us is not None and after.step_us is not None
    return Comparison(
        before=_side(before),
        after=_side(after),
        step_us=_known(before.step_us, after.step_us),
        busy_us=whole.time_us,
        min_bytes=whole.min_bytes,
        flops=whole.flops,
        launches=whole.launches,
        peak_bytes=_known(before.memory.peak_bytes, after.memory.peak_bytes),
        phases=tuple(_phases(was, now)),
        kinds=tuple(_kinds(was, now)),
        lines=_lines(matched, was, now),
        idle=tuple(_idle(before, after)) if walls else (),
        idle_lines=_idle_lines(matched, before, after) if walls else (),
        same_left_out=_left_out(before) == _left_out(after)
        and not (before.accounting.lost_launches or after.accounting.lost_launches),
    )


def _figures(was: Sequence[Run], now: Sequence[Run]) -> Figures:
    spent_before, spent_after = sum(one.time_us for one in was), sum(one.time_us for one in now)
    return Figures(
        time_us=_known(spent_before, spent_after),
        min_bytes=_summed(was, now, attrgetter("min_bytes")),
        flops=_summed(was, now, attrgetter("flops")),
        launches=_known(len(was), len(now)),
    )


def _known(before: float | None, after: float | None) -> Change:
    difference = None if before is None or after is None else after - before
    return Change(before=before, after=after, difference=difference)


def _summed(was: Sequence[Run], now: Sequence[Run], figure: Callable[[Kernel], int | None]) -> Change:
    """The sums of what is known. The difference holds where the launches that lack the figure are the same twice."""
    sums, missing = [], []
    for side in (was, now):
        known = [value for one in side if (value := figure(one.launch.kernel)) is not None]
        lacking = [one for one in side if figure(one.launch.kernel) is None]
        sums.append(None if lacking and not known else sum(known))
        missing.append(Counter(_looks(one) for one in lacking))
    before, after = sums
    cancels = missing[0] == missing[1]
    return Change(
        before=before,
        after=after,
        difference=after - before if cancels and before is not None and after is not None else None,
        before_missing=missing[0].total(),
        after_missing=missing[1].total(),
    )


def _looks(one: Run) -> Hashable:
    """By what a launch of unknown figures is told to be the same one: its kernel, its geometry, its Op's shapes."""
    kernel = one.launch.kernel
    return kernel.name, kernel.grid, kernel.block, None if one.op is None else _asks(one.op)


def _asks(op: Op) -> Hashable:
    """What an Op asks for, without where its tensors lie."""
    return op.name, op.overload, tuple((argument.name, _shapes(argument)) for argument in op.arguments)


def _shapes(argument: Argument) -> Hashable:
    values = argument.value if isinstance(argument.value, tuple) else (argument.value,)
    return tuple(
        (value.shape, value.strides, value.dtype, value.device) if isinstance(value, TensorRef) else value
        for value in values
    )


def _left_out(step: Step) -> Counter[Hashable]:
    """The Ops that no kernels are known for."""
    return Counter(_asks(op) for op in step.ops if op.name in step.accounting.ops_without_cost)


def _side(step: Step) -> Side:
    return Side(
        gpu=step.gpu,
        time_origin=step.time_origin,
        script=step.environment.script,
        arguments=step.environment.arguments,
        step=step.environment.step,
        samples=step.samples,
        versions=step.environment.versions,
        ops_without_cost=step.accounting.ops_without_cost,
        ops_without_cost_count=step.accounting.ops_without_cost_count,
        lost_launches=step.accounting.lost_launches,
    )


def _grouped(some: Iterable[Run], key: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    groups: dict[Key, list[Run]] = defaultdict(list)
    for one in some:
        groups[key(one)].append(one)
    return groups


def _parts(figures: Figures) -> dict[str, Change]:
    """For a record that has the figures among its own."""
    return {
        "time_us": figures.time_us,
        "min_bytes": figures.min_bytes,
        "flops": figures.flops,
        "launches": figures.launches,
    }


def _phases(was: Sequence[Run], now: Sequence[Run]) -> Iterable[PhaseChange]:
    old, new = (_grouped(side, lambda one: one.launch.phase) for side in (was, now))
    for phase in Phase:
        if phase in old or phase in new:
            yield PhaseChange(phase=phase, **_parts(_figures(old[phase], new[phase])))


def _kinds(was: Sequence[Run], now: Sequence[Run]) -> Iterable[KindChange]:
    old, new = (_grouped(side, lambda one: one.launch.kernel.kind) for side in (was, now))
    for kind in Kind:
        if kind in old or kind in new:
            yield KindChange(kind=kind, **_parts(_figures(old[kind], new[kind])))


def _place(one: Run) -> tuple[str, int] | None:
    return None if one.op is None or one.op.where is None else (one.op.where.file, one.op.where.line)


Matched = Sequence[tuple[Match, SourceLine | None, SourceLine | None]]
"""Lines before with those after: those that launch something, and those for which the GPU waits."""


def _matched(before: Step, after: Step, was: Sequence[Run], now: Sequence[Run]) -> Matched:
    return match_lines(
        _source_lines(before, was), _source_lines(after, now), before.environment.sources, after.environment.sources
    )


def _idle(before: Step, after: Step) -> Iterable[IdleChange]:
    for cause in IdleCause:
        was, now = ([one.time_us for one in step.idle if one.cause is cause] for step in (before, after))
        if was or now:
            yield IdleChange(cause=cause, time_us=_known(sum(was), sum(now)))


def _idle_lines(matched: Matched, before: Step, after: Step) -> tuple[IdleLineChange, ...]:
    old, new = idle_us(before), idle_us(after)
    found = []
    for match, one, other in matched:
        was = 0.0 if one is None else old.get((one.file, one.line), 0.0)
        now = 0.0 if other is None else new.get((other.file, other.line), 0.0)
        if was or now:
            found.append(IdleLineChange(match=match, before=one, after=other, time_us=_known(was, now)))
    found = longest_first(found, lambda line: abs(line.time_us.difference or 0.0))
    nowhere = [sum(one.time_us for one in step.idle if one.where is None) for step in (before, after)]
    if any(nowhere):
        found.append(IdleLineChange(match=Match.NO_LINE, before=None, after=None, time_us=_known(*nowhere)))
    return tuple(found)


def _lines(matched: Matched, was: Sequence[Run], now: Sequence[Run]) -> tuple[LineChange, ...]:
    old, new = _grouped(was, _place), _grouped(now, _place)
    found = [
        LineChange(
            match=match,
            before=one,
            after=other,
            **_parts(
                _figures(
                    [] if one is None else old.get((one.file, one.line), []),
                    [] if other is None else new.get((other.file, other.line), []),
                )
            ),
        )
        for match, one, other in matched
        if (one is not None and (one.file, one.line) in old) or (other is not None and (other.file, other.line) in new)
    ]
    found = longest_first(found, lambda line: abs(line.time_us.difference or 0.0))
    if None in old or None in new:
        figures = _figures(old.get(None, []), new.get(None, []))
        found.append(LineChange(match=Match.NO_LINE, before=None, after=None, **_parts(figures)))
    return tuple(found)


def _source_lines(step: Step, some: Sequence[Run]) -> list[SourceLine]:
    """Where several functions stand on a line (a lambda in it), the first to launch gives its name."""
    launched = [one.op.where for one in some if one.op is not None and one.op.where is not None]
    waited = [one.where for one in step.idle if one.where is not None]
    found = {}
    for where in (*launched, *waited):
        place = where.file, where.line
        if place not in found:
            text = source_line(step.environment.sources, *place)
            found[place] = SourceLine(file=where.file, line=where.line, function=where.function, source=text)
    return list(found.values())
