"""Launches of which something is not known: how many, what share of the busy time, whose."""

from collections.abc import Sequence
from dataclasses import dataclass

from undertorch.records.totals import longest_first
from undertorch.reports.terminal.numbers import count, percent, ratio, time
from undertorch.reports.terminal.runs import Run, busy, grouped
from undertorch.reports.terminal.text import cut_middle

NAME = 48
"""Cells of a kernel's name in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Launches that lack the same things, by kernel."""

    what: tuple[str, ...]
    """`bytes`, `FLOPs`, `bound`."""
    launches: int
    time_us: float
    share: float | None
    """Of the busy time."""
    names: tuple[tuple[str, int], ...]
    """Each kernel with how many launches, the longest first."""


NAMED = 6
"""So many kernels are all named in a sentence; of more, half as many are, and the rest is counted."""


def missing(runs: Sequence[Run]) -> tuple[Missing, ...]:
    """What the sums leave out; nothing where all is known. What the same launches lack is said of them together."""
    lacking: dict[tuple[int, ...], list[str]] = {}
    for what, unknown in (
        ("bytes", [run.launch.kernel.min_bytes is None for run in runs]),
        ("FLOPs", [run.launch.kernel.flops is None for run in runs]),
        ("bound", [run.launch.bound is None for run in runs]),
    ):
        places = tuple(place for place, lacks in enumerate(unknown) if lacks)
        if places:
            lacking.setdefault(places, []).append(what)
    return tuple(of([runs[place] for place in places], runs, *what) for places, what in lacking.items())


def of(some: Sequence[Run], runs: Sequence[Run], *what: str) -> Missing:
    """Some of the launches, as lacking that."""
    groups = grouped(some, lambda run: run.launch.kernel.name)
    ordered = longest_first(groups.items(), lambda item: busy(item[1]))
    return Missing(
        what=what,
        launches=len(some),
        time_us=busy(some),
        share=ratio(busy(some), busy(runs)),
        names=tuple((name, len(group)) for name, group in ordered),
    )


def amount(one: Missing) -> str:
    """`548 launches (9.50 ms, 81.9 % of the busy time)`."""
    share = "" if one.share is None else f", {percent(one.share)} of the busy time"
    return f"{count(one.launches, 'launch', 'launches')} ({time(one.time_us)}{share})"


def named(one: Missing) -> str:
    """Each kernel once, with how often where that is more than once; of many kernels the longest few.

    The middle of a long name is left out: the kernels' own table has it whole.
    """
    shown = one.names if len(one.names) <= NAMED else one.names[: NAMED // 2]
    names = ", ".join(cut_middle(name, NAME) + (f" ({times:,}×)" if times > 1 else "") for name, times in shown)
    rest = len(one.names) - len(shown)
    return f"{names} and {count(rest, 'more kernel')}" if rest else names
