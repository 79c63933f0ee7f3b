"""Events whose times cannot be: they are left out of a trace, and where they are many, so is the trace."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from undertorch.steps.traces.fields import CATEGORIES, ON_GPU, Event, Is, printable

Array = np.ndarray[Any, Any]

LONGEST_US = 24 * 3600 * 1e6
"""A day: no profiler holds more in memory. What lasts longer, or lies further from the others, is a wrong number."""

MOST = 0.1
"""Share of what ran on the GPU, or of the calls and launches on the CPU, from which on the rest tells of no step."""

NAMED = 3
"""Damaged events are named up to so many different ones."""

ON_CPU = frozenset({Is.CALL, Is.LAUNCH})

CALLED = {
    Is.KERNEL: ("kernel", "kernels"),
    Is.MEMCPY: ("copy", "copies"),
    Is.MEMSET: ("memset", "memsets"),
    Is.CALL: ("call", "calls"),
    Is.LAUNCH: ("launch", "launches"),
    Is.RANGE: ("range", "ranges"),
    Is.PYTHON: ("Python function", "Python functions"),
    Is.MEMORY: ("allocation", "allocations"),
}


def middle(starts: Array) -> float:
    """The start that half of the events lie before; 0 where there is none. NaN is no start."""
    known = starts[~np.isnan(starts)]
    return float(np.partition(known, len(known) // 2)[len(known) // 2]) if len(known) else 0.0


def can_be(start: Any, lasts: Any, middle: float) -> Any:
    """Whether an event's times can be, of one or of an array of them.

    They cannot where the start or the duration is missing (NaN), the duration is negative, or either is a day or more
    away from what others have.
    """
    return (lasts >= 0) & (lasts <= LONGEST_US) & (abs(start - middle) <= LONGEST_US)


def kind(event: Event) -> Is | None:
    """What an event tells of; None for what is not read."""
    return CATEGORIES.get(event.cat or "")


def why_not_trusted(
    sound: Mapping[Is, int], damaged: Mapping[Is, int], steps: Sequence[str], no_time: bool
) -> str | None:
    """Why no step can be read from what is left; None where one can.

    `sound` and `damaged` count events by kind; `steps` names those of the damaged that are steps; `no_time`: no sound
    kernel lasts.
    """
    if steps:
        return f"the times of {steps[0]} cannot be, so what belongs to which step is not known"
    for kinds, what in ((ON_GPU, "that ran on the GPU"), (ON_CPU, "of the calls and launches")):
        wrong, right = (sum(some[kind] for kind in kinds) for some in (damaged, sound))
        if wrong > MOST * (wrong + right):
            return f"the times of {wrong:,} of {wrong + right:,} events {what} cannot be"
    if sound[Is.KERNEL] and no_time:
        return f"each of its {sound[Is.KERNEL]:,} kernels lasts 0 µs"
    return None


def left_out(damaged: Sequence[Event]) -> Iterable[str]:
    """A sentence that counts and names what was left out; none where nothing was."""
    if not damaged:
        return
    kinds = Counter(kind(event) for event in damaged)
    counts = [
        f"{kinds[one]:,} {some if kinds[one] > 1 else single}" for one, (single, some) in CALLED.items() if kinds[one]
    ]
    names = [
        printable(" ".join(name.split())) or "one without a name"
        for name, _ in Counter(event.name for event in damaged).most_common()
    ]
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    yield (
        f"Left out as damaged, since their times cannot be (missing, negative, or far from all others): "
        f"{_and(counts)}, of {', '.join(names[:NAMED])}{more}."
    )


def _and(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
