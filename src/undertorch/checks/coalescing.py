"""Uncoalesced accesses: lanes of a warp whose addresses in global memory lie in more sectors than their bytes fill.

Global memory is fetched in sectors of 32 bytes: a request of a warp takes as many as its lanes' bytes lie in (CUDA C++
Best Practices Guide, "Coalesced Access to Global Memory"). What a cache saves afterwards is not counted here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from undertorch.checks.requests import Lanes, by_line, commonest, lanes_of, line_of_traffic, percent, worst
from undertorch.checks.told import Told
from undertorch.checks.traffic import MATTERS, traffic
from undertorch.records import Figures, Finding, FindingKind, Severity, Unit
from undertorch.simt.events import AccessCounters
from undertorch.simt.faults import extents

SECTOR, LINE, WARP = 32, 128, 32
SLOW = 2
"""Sectors over the ideal beyond which a line is told of: it uses less than half of what it moves. Rows that do not
start at a sector take 1.25 times theirs, and the L1 cache has the shared sector by then."""


def sectors(lanes: Lanes, width: int) -> int:
    """Of one request."""
    return len({at // SECTOR for at in lanes if at is not None})


def ideal(lanes: Lanes, width: int) -> int:
    """Sectors that the same lanes' bytes would fill; what takes fewer, as a broadcast, is its own ideal."""
    return min(sectors(lanes, width), -(-sum(at is not None for at in lanes) * width // SECTOR))


def check_coalescing(told: Told) -> Iterator[Finding]:
    """Lines that take more than twice the sectors that their bytes fill, and that this slows down."""
    whole = traffic(told)
    slow = [a for a in told.counters.accesses if a.space == "global" and not a.site.atomic and _is_slow(a)]
    for group in by_line(told, slow):
        taken, least = sum(a.sectors or 0 for a in group), sum(a.ideal for a in group)
        if whole.share_of_time(sectors=taken - least) >= MATTERS:
            yield _finding(told, group, taken, least, whole.sectors)


def _is_slow(one: AccessCounters) -> bool:
    return (one.sectors or 0) > SLOW * one.ideal > 0


def _finding(told: Told, group: Sequence[AccessCounters], taken: int, least: int, whole: int) -> Finding:
    place = told.place(group[0].site)
    requests = sum(a.requests for a in group)
    used, fetched = sum(a.bytes for a in group), taken * SECTOR
    order = order_of(told, group)
    example = worst(told, group, sectors, ideal, _from_a_line)
    return told.finding(
        FindingKind.UNCOALESCED,
        Severity.WARNING,
        place,
        message=f"lanes of a warp access scattered bytes: a request takes {line_of_traffic(taken, requests)} sectors "
        f"of 32 bytes instead of {line_of_traffic(least, requests)}.",
        evidence=f"{_apart(order, group)}; the line uses {used:,} of the {fetched:,} bytes that it moves "
        f"({percent(used / fetched)})",
        cost=f"{percent((taken - least) / whole)} of the kernel's sectors of global memory "
        f"({taken - least:,} of {whole:,})",
        remedy=told.words.order or _remedy(told, order, group),
        count=requests,
        figures=Figures(unit=Unit.SECTORS, taken=taken, ideal=least, requests=requests, share=taken / whole,
                        example=example),
    )  # fmt: skip


def _from_a_line(lanes: Lanes) -> Lanes:
    lowest = min((at for at in lanes if at is not None), default=0) // LINE * LINE
    return [None if at is None else at - lowest for at in lanes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How the addresses of an instruction run."""

    lanes: int | None
    """Bytes from lane to lane; None: no one distance."""
    iterations: int | None
    """From one of a warp's accesses to its next; of a loop that was unrolled, to the next instruction's."""
    warps: int | None
    """From a block's warp to the next."""
    name: str
    """Of the array."""


def order_of(told: Told, group: Sequence[AccessCounters]) -> Order:
    """Of the worst instruction of a line."""
    site = max(group, key=lambda a: (a.sectors or 0) - a.ideal).site
    rows = list(told.samples.first(site.number))
    there = [[at for at in lanes_of(row) if at is not None] for row in rows]
    unrolled = [row for one in group for row in told.samples.first(one.site.number)]
    own = [r for r in unrolled if rows and (r["block"], r["warp"]) == (rows[0]["block"], rows[0]["warp"])]
    beside = [r for r in told.samples.beside(site.number) if r["block"] == rows[0]["block"]] if rows else []
    return Order(
        lanes=commonest([b - a for lanes in there for a, b in pairwise(lanes)]),
        iterations=_step([_start(r) for r in own]),
        warps=_step([_start(r) for r in beside]),
        name=_named(told, _start(rows[0])) if rows else "memory",
    )


def _start(row: np.void) -> int:
    return next(at for at in lanes_of(row) if at is not None)


def _step(starts: Sequence[int]) -> int | None:
    """The distance from each to the next, where it is the commonest by far."""
    return commonest([b - a for a, b in pairwise(starts)])


def _named(told: Told, at: int) -> str:
    for extent in extents(told.given.arguments):
        if extent.start <= at < extent.start + extent.bytes:
            return told.given.argument(extent.number).removeprefix("argument ")
    return "memory"


def _apart(order: Order, group: Sequence[AccessCounters]) -> str:
    width = group[0].site.bytes
    if order.lanes is None:
        return f"addresses of neighbouring lanes in {order.name} follow no rule"
    return f"neighbouring lanes access {width} bytes of {order.name} each, {abs(order.lanes):,} bytes apart"


def _remedy(told: Told, order: Order, group: Sequence[AccessCounters]) -> str:
    """The index order that mends it."""
    width, name = group[0].site.bytes, order.name
    stride = abs(order.lanes) if order.lanes is not None else None
    beside = stride is not None and order.warps is not None and 0 < abs(order.warps) <= width * told.block[0] < stride
    if beside and told.block[1] > 1:
        return (
            f"swap threadIdx.x and threadIdx.y in the index of {name}: neighbours in memory are accessed by threads "
            "that differ in y, while lanes of a warp differ in x. Where another array then has this order, pass "
            "the tile through shared memory"
        )
    if stride is not None and order.iterations is not None and 0 < abs(order.iterations) < stride:
        return (
            f"let lanes share the work of the loop: each thread walks through {name} by itself, "
            f"{abs(order.iterations)} bytes at a step. Let lane n access element n of each piece "
            f"(i = k * {WARP} + lane), or pass tiles through shared memory"
        )
    if stride is not None and stride <= SECTOR * 4:
        return (
            f"store each field of {name} as an array of its own, or read whole structs by vectors (float2, float4), so "
            "that what is fetched is used"
        )
    if stride is not None:
        return (
            f"let threadIdx.x run over neighbouring elements of {name}: the last index of a row-major array, and x the "
            "dimension that lanes differ in. Where both sides cannot be so, pass a tile through shared memory"
        )
    return (
        f"order the indices (sort them, or give each warp whole rows of {name}), so that lanes of a warp read "
        "neighbouring bytes"
    )
