"""Reads of a thread's own memory that the thread has not written: arrays with an index, and what is spilled, lie there.

Looked for in the first accesses of a launch: what a thread leaves out it leaves out in its first blocks too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertorch.checks.told import Told
from undertorch.records import Finding, FindingKind, Severity
from undertorch.simt.codegen.sites import Site
from undertorch.simt.runtime.layout import ACCESS, LOCAL, WARP

Array = np.ndarray[Any, Any]
LOOKS = 20_000
"""Accesses of warps that are looked at: some tenths of a second."""


@dataclass(slots=True, kw_only=True)
class Unwritten:
    """Reads by one instruction."""

    block: int
    thread: int
    byte: int
    """Of the thread's memory, in the first of them."""
    count: int = 0


class LocalMemory:
    """Of one launch: `take` gets its events."""

    def __init__(self, local_bytes: int) -> None:
        self.bytes, self.left = local_bytes, LOOKS if local_bytes else 0
        self.written: dict[tuple[int, int], Array] = {}
        """Of each warp a byte for each of its lanes' bytes."""
        self.reads: dict[int, Unwritten] = {}

    def take(self, rows: Array, sites: Sequence[Site]) -> None:
        """Rows of events."""
        if self.left > 0:
            for row in rows[(rows["kind"] == ACCESS) & (rows["space"] == LOCAL)][: self.left]:
                self.left -= 1
                self._access(row, sites[int(row["site"])])

    def _access(self, row: "np.void", site: Site) -> None:
        block, warp, mask = int(row["block"]), int(row["warp"]), int(row["mask"])
        lanes = np.array([lane for lane in range(WARP) if mask >> lane & 1])
        starts = row["addresses"][lanes].astype(np.int64)
        written = self.written.setdefault((block, warp), np.zeros(WARP * self.bytes, bool))
        touched = starts[:, None] + np.arange(site.bytes)
        if site.reads and site.space != "param":  # what calls give back is written by who is called
            element = site.bytes // int(site.instruction.options.get("vector", "v1")[1:])
            known = written[touched].reshape(len(lanes), -1, element).any(-1)
            lane, part = np.unravel_index(int(np.argmin(known)), known.shape)
            if not known.all():
                where = int(starts[lane]) + int(part) * element - int(lanes[lane]) * self.bytes
                thread = warp * WARP + int(lanes[lane])
                found = self.reads.setdefault(site.number, Unwritten(block=block, thread=thread, byte=where))
                found.count += int((~known).any(-1).sum())
        if site.writes:
            written[touched] = True


def check_local(told: Told) -> Iterator[Finding]:
    """Elements of which no byte was written before."""
    for number, found in told.local.items():
        place = told.place(told.site(number))
        yield told.finding(
            FindingKind.UNINITIALIZED,
            Severity.ERROR,
            place,
            count=found.count,
            message="a read of an array of the thread's own that it has not written there.",
            evidence=f"{told.thread(found.thread)} of {told.block_named(found.block)} reads byte {found.byte} of its "
            "local memory",
            remedy=f"give every element a value before {told.line(place)}: {{}} behind its declaration does",
        )
