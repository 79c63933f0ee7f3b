"""How a report says what was kept off the disk and off the network: one sentence a line and kind of thing."""

from collections.abc import Callable, Iterator, Mapping

from undertorch.steps.record.overlay.events import Told

Counts = Mapping[str, int]
"""Paths, commands or addresses, each with how often it was told."""

MOST_NAMED = 3
"""Names in one sentence."""
LONGEST_NAME = 60
"""Letters of a command."""

ON_THE_DISK: dict[Told, tuple[str, str]] = {
    Told.WROTE: ("file written", "files written"),
    Told.MADE_FOLDER: ("folder made", "folders made"),
    Told.RENAMED: ("renamed", "renamed"),
    Told.REMOVED: ("removed", "removed"),
    Told.LINKED: ("linked", "linked"),
    Told.CHANGED: ("changed in mode or time", "changed in mode or time"),
}
"""What the copy takes, with the words for one and for several."""


def on_the_disk(told: Mapping[Told, Counts]) -> str | None:
    """What changed in the copy; None where nothing did."""
    parts = [
        f"{len(told[kind]):,} {one if len(told[kind]) == 1 else several}"
        for kind, (one, several) in ON_THE_DISK.items()
        if told.get(kind)
    ]
    return f"{joined(parts)}, in a throw-away copy of the disk." if parts else None


def all_else(told: Mapping[Told, Counts]) -> Iterator[str]:
    """What was refused, what was run: a sentence each."""
    for kind, sentence in OTHERS.items():
        if told.get(kind):
            yield sentence(named(told[kind]))


def refused(told: Mapping[Told, Counts]) -> Iterator[str]:
    """What was refused alone."""
    return all_else({kind: counts for kind, counts in told.items() if kind not in DONE})


def named(counts: Counts) -> str:
    """The first few by name, how often where it is more than once, and how many more there are."""
    shown = [
        shortened(name) if times == 1 else f"{shortened(name)} ({times:,}×)"
        for name, times in list(counts.items())[:MOST_NAMED]
    ]
    left = len(counts) - len(shown)
    return joined([*shown, f"{left:,} more"] if left else shown)


def shortened(name: str) -> str:
    """On one line, and no longer than a line: of a long path its end, and of a command its beginning."""
    line = " ".join(name.split())
    first, space, rest = line.partition(" ")
    if len(line) > LONGEST_NAME and "/" in first:
        line = f"…/{first.rpartition('/')[2]}{space}{rest}"
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"


def joined(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


DONE = frozenset({Told.RAN, Told.RAN_CONFINED, Told.TOO_LARGE})
"""Kinds among the others that were no refusal."""
OTHERS: dict[Told, Callable[[str], str]] = {
    Told.TOO_LARGE: lambda names: (
        f"{names}: too large to be copied, so what is changed of it stays in memory, and what is written to it is not"
        " read back."
    ),
    Told.RAN: lambda names: (
        f"ran {names}; what it wrote went to the throw-away copy, what it would have sent was refused."
    ),
    Told.RAN_CONFINED: lambda names: (
        f"ran {names}, which brings its own libc: it saw the disk without the script's changes, and the kernel refused"
        " what it would have changed or sent."
    ),
    Told.NOT_RUN: lambda names: f"did not run {names}: what it would have changed or sent could not be held back.",
    Told.NOT_REPLACED: lambda names: f"did not become {names} (exec): the step would be lost with this process.",
    Told.NOT_CONNECTED: lambda names: f"was not connected to {names}: while a script is seen, nothing is sent.",
    Told.NOT_LOOKED_UP: lambda names: f"did not look up {names}: while a script is seen, nothing is sent.",
    Told.NOT_SIGNALLED: lambda names: f"did not send signal {names}, which the script did not start.",
    Told.NOT_OPENED: lambda names: f"did not open {names} for writing: it is a setting of the system, or a whole disk.",
}
"""All else, each kind with its sentence."""
