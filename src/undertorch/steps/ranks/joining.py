"""From the ranks' steps to one report."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from undertorch.records import Where
from undertorch.records.ranks import (
    CollectiveFigures,
    ExposedLine,
    OnRank,
    RankedStep,
    RankFigures,
    RanksReport,
    Wait,
)
from undertorch.steps.ranks.clocks import Lead, leads
from undertorch.steps.ranks.intervals import Union
from undertorch.steps.ranks.matching import Matched, Ran, collectives, matched

WORTH_A_CAUTION = 0.02
"""Share of a step from which on what the profiler adds to a rank's waiting is told."""


WORTH_A_DOUBT = 0.1
"""Share of a step from which on a rank's exposed waiting is said to be perhaps the profiler's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exposed:
    """A collective's time on its rank in which nothing else of the rank ran. Time that several collectives share is
    that of the first to begin."""

    compute: Union
    free_from: float
    """On the rank's clock: what ran before covers everything up to here."""
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waited:
    """On one rank in one collective. Microseconds."""

    us: float
    exposed_us: float


def join_ranks(steps: Sequence[RankedStep]) -> RanksReport:
    """What the ranks of one step say of one another.

    Clocks are aligned by the ends of collectives that no rank can end before all have begun (all-reduce, all-gather,
    reduce-scatter, all-to-all, barrier); within those, a rank waits from its start to that of the last. What it waits
    in others (a broadcast, what is sent) cannot be told apart from their transfer.
    Raises ValueError where no rank is given, or one twice.
    """
    steps = _from_one_origin(sorted(steps, key=lambda step: step.rank))
    numbers = [step.rank for step in steps]
    if not steps or len(set(numbers)) < len(numbers):
        raise ValueError(f"ranks {numbers}; expected at least one, and each once")
    ran = {step.rank: collectives(step) for step in steps}
    incomplete = {step.rank for step in steps if step.lost_collectives}
    found, said = matched([one for some in ran.values() for one in some], incomplete)
    clock = leads(numbers, found)
    exposed = {one: time for step in steps for one, time in _exposed(step, ran[step.rank])}
    waited = {one: wait for each in found for one, wait in _waited(each, clock, exposed)}
    waits = tuple(_waits(found, clock, waited))
    zero = steps[0].clock_us
    figures = tuple(_figures(step, ran[step.rank], clock, exposed, waited, waits) for step in steps)
    return RanksReport(
        ranks=figures,
        collectives=tuple(
            sorted(
                (_collective(each, clock, exposed, waited, zero) for each in found),
                key=lambda one: one.on[0].start_us,
            )
        ),
        lines=_lines(ran, exposed, waited),
        waits=waits,
        missing=_missing(steps),
        unmatched=dict(Counter(each.on[0].operation for each in found if _alone(each, len(steps)))),
        notes=(*_of_the_profiler(figures), *_of_nobody_knows(figures), *_notes(steps, found, clock), *said),
    )


def _from_one_origin(steps: Sequence[RankedStep]) -> list[RankedStep]:
    """With clocks that count from where the first rank's does."""
    return [
        replace(
            step, clock_us=step.clock_us + (step.origin_ns - steps[0].origin_ns) / 1e3, origin_ns=steps[0].origin_ns
        )
        for step in steps
    ]


def _exposed(step: RankedStep, ran: Sequence[Ran]) -> Iterator[tuple[Ran, _Exposed]]:
    """Of each collective of a rank, in order of their start."""
    communication = {id(one.launch) for one in ran}
    begun = step.clock_us
    compute = Union(
        (begun + launch.start_us, begun + launch.end_us)
        for launch in step.step.launches
        if id(launch) not in communication
    )
    free_from = float("-inf")
    for one in ran:
        start = max(one.start, free_from)
        alone = max(0.0, one.end - start) - compute.covers(start, one.end) if one.end > start else 0.0
        yield one, _Exposed(compute=compute, free_from=free_from, us=alone)
        free_from = max(free_from, one.end)


def _waited(each: Matched, clock: dict[int, Lead], exposed: dict[Ran, _Exposed]) -> Iterator[tuple[Ran, _Waited]]:
    """On each rank whose clock is known, for the last of them to come."""
    last = _last(each, clock)
    if last is None:
        return
    came = last.start - clock[last.rank].us
    for one in each.on:
        if one.rank in clock:
            until = min(one.end, max(one.start, came + clock[one.rank].us))
            free = exposed[one]
            start = max(one.start, free.free_from)
            alone = until - start - free.compute.covers(start, until) if until > start else 0.0
            yield one, _Waited(us=until - one.start, exposed_us=alone)


def _last(each: Matched, clock: dict[int, Lead]) -> Ran | None:
    """The last to come, on the aligned clock; None where that is not known."""
    known = [one for one in each.on if one.rank in clock]
    if not each.together or len(known) < 2:
        return None
    return max(known, key=lambda one: one.start - clock[one.rank].us)


def _waits(found: Iterable[Matched], clock: dict[int, Lead], waited: dict[Ran, _Waited]) -> list[Wait]:
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for each in found:
        last = _last(each, clock)
        if last is not None:
            for one in each.on:
                if one is not last and one in waited:
                    times[one.rank, last.rank].append(waited[one].us)
    waits = [
        Wait(rank=rank, for_rank=for_rank, time_us=sum(some), collectives=len(some))
        for (rank, for_rank), some in times.items()
    ]
    return sorted(waits, key=lambda wait: (-wait.time_us, wait.rank, wait.for_rank))


def _figures(
    step: RankedStep,
    ran: Sequence[Ran],
    clock: dict[int, Lead],
    exposed: dict[Ran, _Exposed],
    waited: dict[Ran, _Waited],
    waits: Iterable[Wait],
) -> RankFigures:
    communication = {id(one.launch) for one in ran}
    launches = step.step.launches
    known = step.rank in clock
    lead = clock.get(step.rank)
    return RankFigures(
        rank=step.rank,
        gpu=step.step.gpu,
        step_us=step.step.step_us,
        unprofiled_us=median(step.unprofiled_us) if step.unprofiled_us else None,
        gpu_only=step.gpu_only,
        busy_us=Union((launch.start_us, launch.end_us) for launch in launches).length,
        compute_us=Union((one.start_us, one.end_us) for one in launches if id(one) not in communication).length,
        communication_us=Union((one.start, one.end) for one in ran).length,
        exposed_us=sum(exposed[one].us for one in ran),
        waited_us=sum(waited[one].us for one in ran if one in waited) if known else None,
        exposed_waiting_us=sum(waited[one].exposed_us for one in ran if one in waited) if known else None,
        waited_for_us=sum(wait.time_us for wait in waits if wait.for_rank == step.rank) if known else None,
        clock_us=None if lead is None else lead.us,
        clock_error_us=None if lead is None else lead.error_us,
    )


def _collective(
    each: Matched, clock: dict[int, Lead], exposed: dict[Ran, _Exposed], waited: dict[Ran, _Waited], zero: float
) -> CollectiveFigures:
    first = each.on[0]
    last = _last(each, clock)
    starts = {one.rank: one.start - (clock[one.rank].us if one.rank in clock else 0.0) for one in each.on}
    aligned = [start for rank, start in starts.items() if rank in clock]
    placed = next((one for one in each.on if one.where is not None), first)
    known = [one.collective.bytes for one in each.on if one.collective is not None and one.collective.bytes is not None]
    return CollectiveFigures(
        operation=first.operation,
        group="" if first.collective is None else first.collective.group,
        sequence=None if first.collective is None else first.collective.sequence,
        order=first.order,
        bytes=max(known, default=None),
        where=placed.where,
        module=placed.module,
        on=tuple(
            OnRank(
                rank=one.rank,
                start_us=starts[one.rank] - zero,
                time_us=one.launch.time_us,
                exposed_us=exposed[one].us,
                waited_us=waited[one].us if one in waited else None,
            )
            for one in each.on
        ),
        last=None if last is None else last.rank,
        spread_us=None if last is None else max(aligned) - min(aligned),
    )


def _lines(
    ran: dict[int, tuple[Ran, ...]], exposed: dict[Ran, _Exposed], waited: dict[Ran, _Waited]
) -> tuple[ExposedLine, ...]:
    """By line (by module, where none is known) and operation, over all ranks."""
    groups: dict[tuple[Where | None, str | None, str], list[Ran]] = defaultdict(list)
    for some in ran.values():
        for one in some:
            groups[one.where, one.module if one.where is None else None, one.operation].append(one)
    found = [
        ExposedLine(
            where=where,
            module=module,
            operation=operation,
            launches=len(some),
            exposed_us=sum(exposed[one].us for one in some) / len(ran),
            waiting_us=(
                sum(waited[one].exposed_us for one in some if one in waited) / len(ran)
                if any(one in waited for one in some)
                else None
            ),
            time_us=sum(one.launch.time_us for one in some) / len(ran),
        )
        for (where, module, operation), some in groups.items()
    ]
    return tuple(sorted(found, key=lambda line: -line.exposed_us))


def _missing(steps: Sequence[RankedStep]) -> tuple[int, ...]:
    sizes = [step.world_size for step in steps if step.world_size is not None]
    here = {step.rank for step in steps}
    return tuple(rank for rank in range(max(sizes, default=0)) if rank not in here)


def _alone(each: Matched, ranks: int) -> bool:
    """Whether it is on one rank and should be on another that is here."""
    first = each.on[0].collective
    return len(each.on) == 1 and ranks > 1 and not (first is not None and len(first.ranks) == 1)


def _notes(steps: Sequence[RankedStep], found: Iterable[Matched], clock: dict[int, Lead]) -> Iterator[str]:
    numbers = {step.step.environment.step for step in steps}
    if len(numbers) > 1:
        listed = ", ".join(map(str, sorted(numbers)))
        yield f"The ranks' steps have different numbers ({listed}): they may not be one step."
    first = [step.rank for step in steps if not step.steady]
    if 0 < len(first) < len(steps):
        ranks = f"rank {first[0]}" if len(first) == 1 else f"ranks {', '.join(map(str, first))}"
        yield (
            f"The step is the first in the trace of {ranks}, where it lasts from its own first event on the GPU, and "
            "elsewhere from the end of the step before: their lengths cannot be compared; --step shows another."
        )
    off = [step.rank for step in steps if step.rank not in clock]
    if off and len(steps) > 1:
        ranks = f"rank {off[0]}" if len(off) == 1 else f"ranks {', '.join(map(str, off))}"
        yield (
            f"The clock of {ranks} could not be aligned, as no collective that ranks end together was matched: who "
            "waited for it is not known."
        )
    here = {step.rank for step in steps}
    absent = sum(one.together and not here.issuperset(one.group_ranks) for one in found)
    if absent:
        yield (
            f"Of {absent:,} collectives some ranks are not here: where one of them came last, more was waited than is "
            "told."
        )
    early = sum(_too_early(each, clock) for each in found)
    if early:
        yield (
            f"Collectives that end on one rank before another begins them, on the aligned clock: {early:,}. It is less "
            "exact than their lengths, or they are not the same."
        )


def _of_the_profiler(figures: Iterable[RankFigures]) -> Iterator[str]:
    """A sentence where a rank waits under the profiler for longer than its steps have room for without it: what it
    computes and moves takes as long there."""
    too_long = []
    for one in figures:
        if one.unprofiled_us is not None and one.exposed_waiting_us is not None:
            works = one.busy_us - one.exposed_waiting_us
            more = one.exposed_waiting_us - max(0.0, one.unprofiled_us - works)
            if more > WORTH_A_CAUTION * one.unprofiled_us:
                too_long.append((more, works, one))
    if too_long:
        more, works, one = max(too_long, key=lambda each: each[0])
        others = f" It is the same with {len(too_long) - 1} more." if len(too_long) > 1 else ""
        yield (
            f"Of the {_ms(one.exposed_waiting_us)} in which rank {one.rank} does nothing but wait for others, at least "
            f"{_ms(more)} come of the profiler: without it a whole step takes {_ms(one.unprofiled_us)}, and what the "
            f"rank computes and moves takes {_ms(works)}.{others}"
        )


def _of_nobody_knows(figures: Sequence[RankFigures]) -> Iterator[str]:
    """A sentence where ranks wait for much of a step, and no step without the profiler tells whether they do then."""
    long = [
        one
        for one in figures
        if one.unprofiled_us is None
        and one.step_us is not None
        and (one.exposed_waiting_us or 0.0) > WORTH_A_DOUBT * one.step_us
    ]
    if long:
        yield (
            "How much of the waiting the profiler made is not known: it slows the CPUs, and not all alike, and the "
            "traces hold no step without it."
        )


def _ms(time_us: float | None) -> str:
    return "–" if time_us is None else f"{time_us / 1e3:,.3g} ms"


def _too_early(each: Matched, clock: dict[int, Lead]) -> bool:
    last = _last(each, clock)
    if last is None:
        return False
    came = last.start - clock[last.rank].us
    return any(one.end - clock[one.rank].us < came for one in each.on if one.rank in clock)
