"""Requests of warps to memory: by line, with an example each."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from undertorch.checks.told import Told
from undertorch.records import Request
from undertorch.simt.events import AccessCounters

Lanes = Sequence[int | None]
"""Addresses of a warp's lanes; None of one that takes no part."""


def by_line(told: Told, sites: Iterable[AccessCounters]) -> list[list[AccessCounters]]:
    """Grouped by source line."""
    groups: dict[tuple[str, int], list[AccessCounters]] = {}
    for one in sites:
        place = told.place(one.site)
        groups.setdefault((place.file, place.line), []).append(one)
    return list(groups.values())


def lanes_of(row: "np.void", base: int = 0) -> Lanes:
    """Of an event; `base` is taken off each address."""
    mask = int(row["mask"])
    return [int(at) - base if mask >> lane & 1 else None for lane, at in enumerate(row["addresses"])]


def worst(
    told: Told,
    group: Sequence[AccessCounters],
    taken: Callable[[Lanes, int], int],
    ideal: Callable[[Lanes, int], int],
    shift: Callable[[Lanes], Lanes] = lambda lanes: lanes,
) -> Request | None:
    """Of the accesses that were kept the one that takes the most over its ideal. `shift` makes addresses small."""
    found: Request | None = None
    for one in group:
        for row in told.samples.all(one.site.number):
            lanes = shift(lanes_of(row))
            width = one.site.bytes
            request = Request(bytes=width, addresses=tuple(lanes), taken=taken(lanes, width), ideal=ideal(lanes, width))
            if found is None or request.taken - request.ideal > found.taken - found.ideal:
                found = request
    return found


def stride_of(lanes: Lanes) -> int | None:
    """Bytes from each active lane to the next, where that is the same for all; of fewer than two lanes None."""
    there = [(lane, at) for lane, at in enumerate(lanes) if at is not None]
    steps = {(b - a) / (after - before) for (before, a), (after, b) in pairwise(there)}
    if len(steps) != 1:
        return None
    step = steps.pop()
    return int(step) if step == int(step) else None


def commonest(numbers: Sequence[int | None]) -> int | None:
    """The number that three of four of them are; None where none is."""
    best = max(set(numbers), key=numbers.count, default=None)
    return best if numbers.count(best) * 4 >= 3 * len(numbers) else None


def line_of_traffic(total: int, requests: int) -> str:
    """`4`, or `3.5`: of each request."""
    each = total / requests
    return f"{each:.0f}" if abs(each - round(each)) < 0.05 else f"{each:.1f}"


def percent(share: float) -> str:
    """`12%`."""
    return f"{share:.0%}"
