"""How ranks' clocks differ, told by the ends of collectives that all ranks end together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import median

from undertorch.steps.ranks.matching import Matched


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How far a rank's clock is ahead of the first rank's. Microseconds."""

    us: float
    error_us: float
    """How far the single ends lie from it, in the median; of one that is told by way of other ranks, the sum."""


def leads(ranks: Sequence[int], found: Iterable[Matched]) -> dict[int, Lead]:
    """By rank; what shares no collective with the first rank, nor with one that does, is absent. So is everything
    where nothing is shared.

    Of two ranks it is the median of the differences of the ends. Ranks of other groups are reached by way of those that
    they share one with, of several the one with which they share most.
    """
    differences: dict[tuple[int, int], list[float]] = defaultdict(list)
    for one in found:
        if one.together:
            for this, other in permutations(one.on, 2):
                differences[this.rank, other.rank].append(other.end - this.end)
    known = {ranks[0]: Lead(us=0.0, error_us=0.0)}
    while True:
        edges = [pair for pair in differences if pair[0] in known and pair[1] not in known]
        if not edges:
            return known if len(known) > 1 else {}
        a, b = max(edges, key=lambda pair: (len(differences[pair]), -pair[0], -pair[1]))
        middle = median(differences[a, b])
        error = median(abs(one - middle) for one in differences[a, b])
        known[b] = Lead(us=known[a].us + middle, error_us=known[a].error_us + error)
