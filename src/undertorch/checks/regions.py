"""What stands under each branch of a kernel: the blocks between it and where its ways meet again."""

from collections.abc import Sequence
from dataclasses import dataclass

from undertorch.simt.codegen.flow import Block, following


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Of one conditional branch."""

    branch: int
    """The block that it ends."""
    blocks: frozenset[int]
    """What may run before all lanes are together again."""
    loops: bool
    """Whether it comes back to the branch: then it is a loop's exit."""
    arms: tuple[frozenset[int], ...]
    """Blocks that one way has for itself: of an if without else one of the two is empty."""
    entries: tuple[int, ...]
    """Blocks outside from which it is entered."""


def regions(blocks: Sequence[Block]) -> list[Region]:
    """Of every branch that may go two ways."""
    after = [following(block, list(blocks)) for block in blocks]
    before: list[list[int]] = [[] for _ in blocks]
    for number, targets in enumerate(after):
        for target in targets:
            before[target].append(number)
    meet = meetings(after)
    found: list[Region] = []
    for number, targets in enumerate(after):
        if len(set(targets)) < 2:
            continue
        ways = [_reached(target, meet[number], after) for target in targets]
        inside = frozenset[int]().union(*ways)
        loops = number in inside
        own = tuple(way - other for way, other in (ways, ways[::-1]))
        entries = {n for block in inside for n in before[block]} - inside
        found.append(
            Region(branch=number, blocks=inside, loops=loops, arms=own,
                   entries=tuple(sorted(entries or {number})))
        )  # fmt: skip
    return found


def meetings(after: Sequence[Sequence[int]]) -> list[int | None]:
    """Of each block the next one that every way from it leads through (its immediate post-dominator); None: the end.

    Sets of post-dominators as bits of an integer, to a fixed point.
    """
    count = len(after)
    end = 1 << count
    everything = (end << 1) - 1
    sets = [everything] * count
    changed = True
    while changed:
        changed = False
        for number in reversed(range(count)):
            common = everything if after[number] else end
            for target in after[number]:
                common &= sets[target]
            new = common | 1 << number
            if new != sets[number]:
                sets[number], changed = new, True
    found: list[int | None] = []
    for number in range(count):
        others = sets[number] & ~(1 << number) & ~end
        found.append(_nearest(others, sets))
    return found


def _nearest(others: int, sets: Sequence[int]) -> int | None:
    """Of post-dominators the one that all others post-dominate too."""
    left = others
    while left:
        number = (left & -left).bit_length() - 1
        left &= left - 1
        if sets[number] & others == others:
            return number
    return None


def _reached(start: int, end: int | None, after: Sequence[Sequence[int]]) -> frozenset[int]:
    """From `start` without passing `end`."""
    seen: set[int] = set()
    left = [start]
    while left:
        number = left.pop()
        if number != end and number not in seen:
            seen.add(number)
            left += after[number]
    return frozenset(seen)
