"""Barriers: who comes to which, and who does not."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from undertorch.checks import layout
from undertorch.checks.told import Told
from undertorch.records import Finding, FindingKind, Place, Severity
from undertorch.simt.errors import Deadlock
from undertorch.simt.waiting import ranges

if TYPE_CHECKING:
    import numpy as np

LINE_OF = re.compile(r".* at (?:PTX line (\d+)|(.+?):(\d+))")
"""The last place that a text names: `… lanes 0-31 wait at barrier 1 at file.cu:4`."""


def check_barriers(told: Told) -> Iterator[Finding]:
    """Barriers that threads meet in different places, with different counts, after others ended, or not at all."""
    says = {layout.PARTED: _parted, layout.ENDED_BEFORE: _ended_before, layout.COUNTS: _counts,
            layout.LEFT_OVER: _left_over, layout.BAD_MASK: _bad_mask}  # fmt: skip
    for pair in told.pairs:
        say = says.get(int(pair["kind"]))
        if say is not None:
            yield say(told, pair)
    if isinstance(told.ended_by, Deadlock):
        yield _deadlock(told, told.ended_by)


def _places(told: Told, pair: "np.void") -> tuple[Place, Place]:
    return told.place(told.site(int(pair["first"]))), told.place(told.site(int(pair["second"])))


def _parted(told: Told, pair: "np.void") -> Finding:
    first, second = sorted(_places(told, pair), key=lambda p: (p.file, p.line))
    return told.finding(
        FindingKind.BARRIER_DIVERGENCE,
        Severity.ERROR,
        first,
        other=second,
        count=int(pair["count"]),
        message="threads of one block wait at different barriers in the source, which only happen to be the same one.",
        evidence=f"in {told.block_named(int(pair['first_block']))} {_both(told, pair)}",
        remedy=f"let all threads of the block come to one __syncthreads(), outside of the branch around "
        f"{told.line(first)} and {told.line(second)}",
    )


def _both(told: Told, pair: "np.void") -> str:
    first, second = _places(told, pair)
    return (
        f"{told.thread(int(pair['first_thread']))} waits at {told.line(first)}, "
        f"{told.thread(int(pair['second_thread']))} at {told.line(second)}"
    )


def _ended_before(told: Told, pair: "np.void") -> Finding:
    gone, barrier = _places(told, pair)
    return told.finding(
        FindingKind.BARRIER_DIVERGENCE,
        Severity.WARNING,
        barrier,
        other=gone,
        count=int(pair["count"]),
        message="not all threads of the block come to this barrier: some ended before.",
        evidence=f"in {told.block_named(int(pair['second_block']))} {told.thread(int(pair['first_thread']))} had ended "
        f"when {told.thread(int(pair['second_thread']))} waited; from sm_70 on a barrier waits for those that have not "
        "ended, on earlier GPUs it hangs",
        remedy="let threads with nothing to do skip the work instead of returning, so that all come to the barrier",
    )


def _counts(told: Told, pair: "np.void") -> Finding:
    first, second = _places(told, pair)
    return told.finding(
        FindingKind.BARRIER_DIVERGENCE,
        Severity.ERROR,
        second,
        other=first,
        count=int(pair["count"]),
        message="threads come to one barrier with different counts of who is expected.",
        evidence=f"in {told.block_named(int(pair['first_block']))} {_both(told, pair)}",
        remedy=f"give the barrier the same number of threads at {told.line(first)} and {told.line(second)}",
    )


def _left_over(told: Told, pair: "np.void") -> Finding:
    place, _ = _places(told, pair)
    return told.finding(
        FindingKind.BARRIER_DIVERGENCE,
        Severity.ERROR,
        place,
        count=int(pair["count"]),
        message="threads arrive at a barrier that never completes: nobody waits for them.",
        evidence=f"{told.thread(int(pair['first_thread']))} of {told.block_named(int(pair['first_block']))} arrived, "
        "and the block ended",
        remedy="let as many threads come (bar.sync or bar.arrive) as the count says, or leave the arrival out",
    )


def _bad_mask(told: Told, pair: "np.void") -> Finding:
    site = told.site(int(pair["first"]))
    place, name = told.place(site), site.instruction.name
    mask, gone = int(pair["address"]) & 0xFFFFFFFF, int(pair["address"]) >> 32
    who = f"{told.thread(int(pair['first_thread']))} of {told.block_named(int(pair['first_block']))}"
    outside = int(pair["level"]) == layout.SAME_WARP
    lanes = ranges([lane for lane in range(32) if (mask & gone) >> lane & 1])
    return told.finding(
        FindingKind.BAD_MASK,
        Severity.ERROR if outside else Severity.NOTE if name == "vote.sync" else Severity.WARNING,
        place,
        count=int(pair["count"]),
        message="the mask does not name the lane that executes it."
        if outside
        else "the mask names lanes that have ended or are no threads of the block: what they give is undefined.",
        evidence=f"{who} executes {name} with the mask {mask:#010x}" + ("" if outside else f"; gone are lanes {lanes}"),
        remedy="give the mask of the lanes that come here: by __ballot_sync() before the branch, or let all come",
    )


def _deadlock(told: Told, error: Deadlock) -> Finding:
    found = [LINE_OF.search(text) for text in error.waiting]
    places = [
        Place(file="PTX", line=int(match[1])) if match[1] else Place(file=match[2], line=int(match[3]))
        for match in found
        if match is not None
    ]
    unique = list(dict.fromkeys(places)) or [Place(file="PTX", line=1)]
    shown = "; ".join(error.waiting[:8]) + (f"; and {len(error.waiting) - 8} more" if len(error.waiting) > 8 else "")
    return told.finding(
        FindingKind.DEADLOCK,
        Severity.ERROR,
        unique[0],
        other=unique[1] if len(unique) > 1 else None,
        message="the kernel never ends: threads wait for others that never come.",
        evidence=shown,
        remedy="let every thread that a barrier counts come to it, and every flag that is waited for be written",
    )
