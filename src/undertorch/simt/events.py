"""What a launch tells about itself: counters per line and space, and events."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from undertorch.simt.codegen.sites import Site
from undertorch.simt.program import Program
from undertorch.simt.ptx.instructions import Place
from undertorch.simt.runtime import layout
from undertorch.simt.table import table

EventConsumer = Callable[["np.ndarray[Any, Any]", Sequence[Site]], None]
"""Gets rows of layout.EVENT, valid only during the call, and the kernel's sites, which rows name by number.

One call at a time. Rows of one block are in the order in which things happened; so are all, with one host thread.
A row's thread is `32 * warp + lane` of `block` for each lane of `mask`; its source line is its site's.
"""


class EventKind(IntEnum):
    """What a row of the event buffer says; the columns that it fills beside block, warp, mask and site."""

    ACCESS = layout.ACCESS
    """ld, st, atom or red: `addresses` and `bytes` of each lane in `space`. Order, scope and whether it reads, writes
    or is atomic are the site's. Global addresses are the host's, shared ones offsets, local ones offsets with the lanes
    one behind the other. A generic access that reaches several spaces has a row for each. Of atom.cas `count` holds the
    lanes that exchanged: the others wrote nothing."""
    VALUES = layout.VALUES
    """Follows a store's ACCESS (in the same call, with nothing between): `addresses` holds what each lane writes, 8
    bytes a row, `number` counting them; narrower values are filled with zeros."""
    ISSUED = layout.ISSUED
    """One side of a cp.async, whose site says which: the write into shared or the read of global memory; `number` is
    its group, counted by each thread from 0. It happens at some time before its group is completed."""
    COMMITTED = layout.COMMITTED
    """cp.async.commit_group: group `number` of these threads is closed."""
    COMPLETED = layout.COMPLETED
    """cp.async.wait_group and wait_all: these threads' groups below `number` are done, as far as they can see."""
    ARRIVED = layout.ARRIVED
    """bar.sync, bar.arrive or bar.red (the site says which) of barrier `number` in its `phase`; `count` threads are
    expected, 0: all of the block that have not ended. Those of bar.arrive do not wait."""
    OPENED = layout.OPENED
    """Barrier `number` ends its `phase`, in which `count` threads came; `mask` is 0, `warp` came last. Who waited there
    goes on."""
    WARP_SYNC = layout.WARP_SYNC
    """bar.warp.sync: the lanes of `mask` met."""
    FENCE = layout.FENCE
    """fence or membar, with order and scope in the site."""
    EXIT = layout.EXIT
    """These threads ended: from now on no barrier expects them."""
    MEMBERS = layout.MEMBERS
    """A shfl, vote, match, redux or bar.warp.sync of these lanes has a member mask that leaves out the lane itself, or
    (but for bar.warp.sync) names lanes that ended or never were, which `count` holds; `addresses` are the masks."""


SPACES = ("global", "shared", "local")
"""What a row's `space` means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCounters:
    """What one memory instruction did, counted (PTX): the machine's own compiler may have joined or split it."""

    site: Site
    requests: int
    """Warps' executions with at least one active lane."""
    lanes: int
    bytes: int
    sectors: int | None
    """Of 32 bytes, in global memory; None for shared and local memory."""
    wavefronts: int | None
    """Of shared memory; None elsewhere."""
    ideal: int
    """The fewest sectors or wavefronts that the same lanes could have taken."""

    def __repr__(self) -> str:
        where = f"{self.place.file}:{self.place.line}" if self.place else f"PTX line {self.site.instruction.text_line}"
        units = f"{self.sectors} sectors" if self.sectors is not None else f"{self.wavefronts} wavefronts"
        counted = f"{units}, ideal {self.ideal}" if self.space != "local" else f"{self.bytes} bytes"
        return f"<{self.site.instruction.text} at {where}: {self.requests} requests, {counted}>"

    @property
    def place(self) -> Place | None:
        """Its source line."""
        return self.site.instruction.place

    @property
    def space(self) -> str | None:
        """Its state space."""
        return self.site.space


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounters:
    """What one source line did; instructions that have no line stand under None."""

    file: str | None
    line: int | None
    warp_instructions: int
    thread_instructions: int
    """Active lanes, summed; a predicated-off instruction counts as executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Of a whole launch. Origin: counted (PTX)."""

    warp_instructions: int
    thread_instructions: int
    lines: tuple[LineCounters, ...]
    accesses: tuple[AccessCounters, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    """Text of source files, by the names that lines have; of files that are not known, nothing."""

    def __str__(self) -> str:
        return table(self)

    def __repr__(self) -> str:
        return (
            f"<counters of {len(self.lines)} lines and {len(self.accesses)} memory instructions: "
            f"{self.warp_instructions:,} warp instructions; print() shows them by line>"
        )


def counters(
    program: Program,
    blocks: "np.ndarray[Any, Any]",
    sites: "np.ndarray[Any, Any]",
    sources: Mapping[str, str] | None = None,
) -> Counters:
    """Expands counts per basic block (executions, lanes) and per site to lines."""
    lines: dict[tuple[str | None, int | None], list[int]] = {}
    warps = threads = 0
    for block in program.flow.blocks:
        times, lanes = (int(n) for n in blocks[block.number])
        items = [i for part in block.parts for i in part.instructions] + ([block.end] if block.end else [])
        for item in [i for i in items if i.counted]:
            key = (item.place.file, item.place.line) if item.place else (None, None)
            row = lines.setdefault(key, [0, 0])
            row[0] += times
            row[1] += lanes
            warps += times
            threads += lanes
    return Counters(
        warp_instructions=warps,
        thread_instructions=threads,
        lines=tuple(
            LineCounters(file=file, line=line, warp_instructions=row[0], thread_instructions=row[1])
            for (file, line), row in lines.items()
        ),
        accesses=tuple(_access(site, sites[site.number]) for site in program.by_number if site.space is not None),
        sources=sources or {},
    )


def _access(site: Site, row: "np.void") -> AccessCounters:
    lanes, units = int(row["lanes"]), int(row["units"])
    shared, local = site.space == "shared", site.space == "local"
    return AccessCounters(
        site=site,
        requests=int(row["requests"]),
        lanes=lanes,
        bytes=lanes * site.bytes,
        sectors=None if shared or local else units,
        wavefronts=units if shared else None,
        ideal=int(row["ideal"]),
    )
