"""Events whose times cannot be: they are left out of a trace, and where they are many, so is the trace."""

from collections import Counter
from collections.abc import Iterable, Sequence

from undertorch.steps.traces.fields import CATEGORIES, ON_GPU, Event, Is

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


def parted(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """The events that last, those whose times can be and those whose times cannot, in the order of the file.

    They cannot where the start or the duration is missing (NaN is read as that), the duration is negative, or either is
    a day or more away from what others have.
    """
    lasting = [event for event in events if event.ph == "X" and kind(event) is not None]
    starts = sorted(event.ts for event in lasting if event.ts is not None)
    middle = starts[len(starts) // 2] if starts else 0.0
    sound: list[Event] = []
    damaged: list[Event] = []
    for event in lasting:
        (sound if _can_be(event, middle) else damaged).append(event)
    return sound, damaged


def kind(event: Event) -> Is | None:
    """What an event tells of; None for what is not read."""
    return CATEGORIES.get(event.cat or "")


def _can_be(event: Event, middle: float) -> bool:
    if event.ts is None or event.dur is None:
        return False
    return 0 <= event.dur <= LONGEST_US and abs(event.ts - middle) <= LONGEST_US


def why_not_trusted(sound: Sequence[Event], damaged: Sequence[Event]) -> str | None:
    """Why no step can be read from what is left; None where one can."""
    step = next((one.name for one in damaged if kind(one) is Is.RANGE and one.name.startswith("ProfilerStep")), None)
    if step is not None:
        return f"the times of {step} cannot be, so what belongs to which step is not known"
    for kinds, what in ((ON_GPU, "that ran on the GPU"), (ON_CPU, "of the calls and launches")):
        wrong, right = (sum(kind(event) in kinds for event in some) for some in (damaged, sound))
        if wrong > MOST * (wrong + right):
            return f"the times of {wrong:,} of {wrong + right:,} events {what} cannot be"
    kernels = [event for event in sound if kind(event) is Is.KERNEL]
    if kernels and not any(event.dur for event in kernels):
        return f"each of its {len(kernels):,} kernels lasts 0 µs"
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
        " ".join(name.split()) or "one without a name"
        for name, _ in Counter(event.name for event in damaged).most_common()
    ]
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    yield (
        f"Left out as damaged, since their times cannot be (missing, negative, or a day from all others): "
        f"{_and(counts)}, of {', '.join(names[:NAMED])}{more}."
    )


def _and(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
