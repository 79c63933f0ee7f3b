"""Which launch of one rank is the same collective as which of another."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from undertorch.records import Kind, Launch, Where
from undertorch.records.ranks import Collective, RankedStep

TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Operations that no rank can end before all have begun: their ends tell how clocks differ, their starts who came last.
(A broadcast's root may end before the others begin, and what is sent is matched by neither group nor number.)"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ran:
    """A collective's kernel on one rank."""

    rank: int
    launch: Launch
    start: float
    """On the rank's own clock, like `end`."""
    end: float
    collective: Collective | None
    """None: the kernel is one, and nothing tells which."""
    order: int
    """Which of its group's in the step it is."""
    where: Where | None
    module: str | None

    @property
    def operation(self) -> str:
        """Of one that nothing is known of, its kernel's name."""
        return self.launch.kernel.name if self.collective is None else self.collective.operation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matched:
    """One collective on the ranks that are here."""

    on: tuple[Ran, ...]
    """In the order of the ranks; of one alone, where the others are not here or nothing tells which it is."""

    @property
    def group_ranks(self) -> tuple[int, ...]:
        """Of its process group; empty where they are not known."""
        collective = self.on[0].collective
        return () if collective is None else collective.ranks

    @property
    def together(self) -> bool:
        """Whether its starts and ends say something of the ranks' order in time."""
        return len(self.on) > 1 and self.on[0].operation in TOGETHER


def collectives(step: RankedStep) -> tuple[Ran, ...]:
    """Of one rank, in order of their start. Raises ValueError for a launch that the step has not."""
    launches = step.step.launches
    known = {one.launch: one for one in step.collectives}
    if known and not 0 <= min(known) <= max(known) < len(launches):
        raise ValueError(f"rank {step.rank}: a collective names launch {max(known)} of {len(launches)}")
    ops = {op.id: op for op in step.step.ops}
    orders: Counter[tuple[str, tuple[int, ...]]] = Counter()
    found = []
    chosen = [place for place, one in enumerate(launches) if place in known or one.kernel.kind is Kind.COLLECTIVE]
    for place in sorted(chosen, key=lambda place: launches[place].start_us):
        launch, collective = launches[place], known.get(place)
        group = ("", ()) if collective is None else (collective.group, collective.ranks)
        op = ops[launch.ops[0]] if launch.ops else None
        found.append(
            Ran(
                rank=step.rank,
                launch=launch,
                start=step.clock_us + launch.start_us,
                end=step.clock_us + launch.end_us,
                collective=collective,
                order=orders[group],
                where=None if op is None else op.where,
                module=None if op is None else op.module,
            )
        )
        orders[group] += 1
    return tuple(found)


def matched(ran: Sequence[Ran], incomplete: Collection[int] = ()) -> tuple[list[Matched], list[str]]:
    """Every launch once, with its like on the other ranks; and a sentence for each group whose ranks do not agree.

    By the group's own number of the collective where it was recorded on all; otherwise by its place among those of the
    group in the step, where all ranks have the same operations in the same order, and none is `incomplete`: of those
    ranks collectives are known to be lost.
    """
    groups: dict[tuple[str, tuple[int, ...]], list[Ran]] = defaultdict(list)
    found: list[Matched] = []
    for one in ran:
        if one.collective is None or one.operation in ("send", "recv"):
            found.append(Matched(on=(one,)))
        else:
            groups[one.collective.group, one.collective.ranks].append(one)
    said = []
    for (name, _), members in groups.items():
        by_number = all(one.collective is not None and one.collective.sequence is not None for one in members)
        lost = sorted({one.rank for one in members}.intersection(incomplete))
        called = name or "without a name"
        if not by_number and lost:
            found += [Matched(on=(one,)) for one in members]
            said.append(
                f"The profiler lost collectives of {_ranks(lost)}, and those of group {called} have no numbers, so "
                "that they are not matched: who waited in them is not known."
            )
        elif by_number or _alike(members):
            found += _by(members, by_number)
        else:
            found += [Matched(on=(one,)) for one in members]
            said.append(
                f"The ranks' collectives of group {called} differ in this step, and have no numbers, "
                "so that they are not matched."
            )
    return found, said


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(map(str, numbers))}"


def _by(members: Iterable[Ran], number: bool) -> Iterator[Matched]:
    keyed: dict[tuple[object, str, int], dict[int, Ran]] = defaultdict(dict)
    for one in members:
        sequence = one.collective.sequence if number and one.collective is not None else one.order
        # A number comes twice on one rank where one call launches several kernels: these follow each other everywhere.
        again = 0
        while one.rank in keyed[sequence, one.operation, again]:
            again += 1
        keyed[sequence, one.operation, again][one.rank] = one
    for on in keyed.values():
        if on:
            yield Matched(on=tuple(on[rank] for rank in sorted(on)))


def _alike(members: Iterable[Ran]) -> bool:
    """Whether all ranks have the same operations in the same order."""
    by_rank: dict[int, list[str]] = defaultdict(list)
    for one in members:
        by_rank[one.rank].append(one.operation)
    return len(set(map(tuple, by_rank.values()))) == 1
