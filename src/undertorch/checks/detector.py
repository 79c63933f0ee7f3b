"""Drives the native race detector (native/): gives it memory, rows of events, and answers to what it asks."""

import ctypes
import hashlib
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from undertorch.checks import layout
from undertorch.checks.layout import DETECTOR, FACTS, PAIR, PAIRS, PLANES, REGION, RING, SLOT
from undertorch.checks.ordering import Ordering
from undertorch.simt.codegen.native import ALWAYS
from undertorch.simt.codegen.objects import linker
from undertorch.simt.codegen.sites import Site
from undertorch.simt.errors import BadLaunch
from undertorch.simt.events import EventKind
from undertorch.simt.faults import Given, computed, extents, origins
from undertorch.simt.program import Program
from undertorch.simt.runtime import layout as machine_layout
from undertorch.simt.runtime.layout import BARRIERS, READ_ONLY, WARP
from undertorch.simt.schedule import Schedule

Array = np.ndarray[Any, Any]
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
MARGIN = 256
"""Bytes before and behind a plane that a vector of 32 lanes may touch where its mask is off."""
PAGE, APART = 4096, 576
"""Planes start so many bytes apart within a page: else all of a word's planes would fall into one set of a cache."""
STAMPS = 1 << 31
"""Times that a block passes something on or meets, over the whole launch."""
FOREIGN_SPACES = ("const", "param", "local")
"""State spaces that no thread shares with another, or that nobody writes to."""


class Reserved:
    """Zeroed memory that takes room only where it is touched."""

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self.map = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=flags)
        self.array: Array = np.frombuffer(self.map, np.uint8)

    @property
    def address(self) -> int:
        """Of its first byte."""
        return int(self.array.ctypes.data)

    def words(self) -> Array:
        """As uint32."""
        return self.array[: self.array.size // 4 * 4].view(np.uint32)


@dataclass(slots=True, kw_only=True)
class Slot:
    """The memory of one block's state."""

    know: Array
    warp_floor: Array
    fences: Array
    fenced: Array
    pending: Array
    seen: Array
    known: Array
    planes: Array
    stride: int
    """Words from plane to plane."""
    memory: list[Reserved]


class Detector:
    """Of one launch. Rows have to come in the order in which things happened: from one thread of the host."""

    def __init__(self, schedule: Schedule, empty: Sequence[tuple[int, int]] = ()) -> None:
        """`empty`: address and bytes of buffers whose contents are not to be read before they are written."""
        self.schedule, self.empty = schedule, empty
        self.pairs: dict[tuple[int, ...], np.void] = {}
        self.state: Array = np.zeros(1, DETECTOR)
        self.slots: list[Slot] = []
        s = self.schedule
        d = self.state[0]
        self.facts = facts(s.program.by_number)
        self.most = min(s.blocks, max(1, s.residents) + 1)
        self.rows = np.zeros(self.most, SLOT)
        self.free = np.zeros(self.most, np.uint32)
        self.table = np.zeros(PAIRS, PAIR)
        self.met = np.zeros(2 * s.warps + WARP, np.uint32)
        self.slot_of, self.owner = Reserved(4 * s.blocks), Reserved(4 * STAMPS)
        self.width = s.warps * WARP
        self.regions, self.shadows = self._regions()
        d["facts"], d["regions"], d["region_count"] = self._at(self.facts), self._at(self.regions), len(self.shadows)
        d["slots"], d["free"], d["pairs"], d["met"] = (
            self._at(part) for part in (self.rows, self.free, self.table, self.met)
        )
        d["slot_of"], d["owner"] = self.slot_of.address, self.owner.address
        d["threads"], d["warps"] = s.threads_per_block, s.warps
        d["reserved"] = s.program.reserved_shared
        flags = self.facts["flags"]
        d["has_nc"] = int((flags & layout.NC).any())
        names = {site.instruction.name for site in s.program.by_number}
        d["syncs"] = int("fence" in names or bool((flags & (layout.RELEASES | layout.ACQUIRES)).any()))
        self.ordering = Ordering(self)
        self.run = RUN(function())

    @staticmethod
    def _at(array: Array) -> int:
        return int(array.ctypes.data)

    def _regions(self) -> tuple[Array, list[Reserved]]:
        """Of buffers that may be written to: of the others reads race with nobody, and who writes faults.

        Buffers that overlap, as views of one array do, are one region: each byte has one shadow.
        """
        spans: list[list[int]] = []
        only_read = [*unwritten(self.schedule.program, self.schedule.given)]
        for buffer in sorted(self.schedule.buffers, key=lambda row: int(row["base"])):
            start, size = int(buffer["base"]), int(buffer["bytes"])
            if not size or int(buffer["flags"]) & READ_ONLY:
                continue
            if (start, size) in only_read and (start, size) not in self.empty:
                continue
            if spans and start < spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], start + size)
            else:
                spans.append([start, start + size])
        rows = np.zeros(len(spans) + 1, REGION)
        shadows: list[Reserved] = []
        for row, (start, end) in zip(rows, spans, strict=False):
            shadow, stride = planes(end - start + 4)
            row["base"], row["bytes"], row["planes"], row["stride"] = (
                start,
                end - start,
                shadow.address + MARGIN,
                stride,
            )
            row["flags"] = layout.EMPTY if any(a <= start and end <= a + n for a, n in self.empty) else 0
            shadows.append(shadow)
        return rows, shadows

    # -- rows

    def take(self, rows: Array, sites: Sequence[Site]) -> None:
        """The consumer of a launch's events."""
        d = self.state[0]
        d["rows"], d["count"], d["at"] = rows.ctypes.data, len(rows), 0
        address = self.state.ctypes.data
        while True:
            status = self.run(address)
            if status == layout.GO:
                return
            if status == layout.NEW_BLOCK:
                self._add_slot()
            elif status == layout.CROWDED:
                self.collect()
            elif status == layout.ASK:
                d["answers"][int(d["asked"])] = 1 if self.ordering.known(rows[int(d["at"])]) else 2
            else:
                row = rows[int(d["at"])]
                if status == layout.SYNC:
                    self.ordering.sync(row, self.facts[int(row["site"])], int(d["sync_lanes"]))
                else:
                    self.ordering.ended(int(row["block"]), int(self.free[int(d["free_count"]) - 1]))
                d["at"], d["lane"], d["word"], d["sync_lanes"] = int(d["at"]) + 1, 0, 0, 0
                d["answers"] = 0

    def collect(self) -> list["np.void"]:
        """The pairs so far; the native table is empty then."""
        names = ("kind", "level", "same", "first", "second", "shared", "pending")
        for row in self.table[self.table["used"] != 0]:
            key = tuple(int(row[name]) for name in names)
            if key in self.pairs:
                self.pairs[key]["count"] += row["count"]
            else:
                self.pairs[key] = row.copy()
        self.table[:] = 0
        self.state[0]["pair_count"] = 0
        return list(self.pairs.values())

    def slot_number(self, block: int) -> int:
        """Of a block that is on the machine."""
        return int(self.slot_of.words()[block]) - 1

    # -- memory

    def _add_slot(self) -> None:
        s, number, width = self.schedule, len(self.slots), self.width
        if number == self.most:
            raise BadLaunch(f"More than {self.most} blocks are on the machine at once: a mistake in undertorch.")
        shared, stride = planes(max(16, s.shared_bytes))
        know, known = Reserved(4 * width * width), Reserved(4 * s.blocks)
        sizes = {
            "warp_floor": s.warps, "fences": 6 * width, "fenced": 2 * s.warps, "pending": s.warps, "seen": width,
            "done": width, "completed": RING * width, "came": BARRIERS * width, "waiters": BARRIERS * s.warps,
            "arrivers": BARRIERS * s.warps,
        }  # fmt: skip
        small = Reserved(4 * (sum(sizes.values()) + 64))
        words, at, parts = small.words(), 0, {}
        row = self.rows[number]
        for name, size in sizes.items():
            parts[name] = words[at : at + size]
            row[name] = small.address + 4 * at
            at += size
        row["planes"], row["stride"] = shared.address + MARGIN, stride
        row["know"], row["known"] = know.address, known.address
        self.slots.append(
            Slot(
                know=know.words()[: width * width].reshape(width, width),
                warp_floor=parts["warp_floor"],
                fences=parts["fences"].reshape(6, width),
                fenced=parts["fenced"].reshape(2, s.warps),
                pending=parts["pending"],
                seen=parts["seen"],
                known=known.words(),
                planes=shared.words()[MARGIN // 4 :],
                stride=stride // 4,
                memory=[shared, know, known, small],
            )
        )
        d = self.state[0]
        self.free[int(d["free_count"])] = number
        d["free_count"] += 1

    def message_word(self, row: "np.void", lane: int) -> tuple[Array, int]:
        """Where the number of the message at a lane's address lies."""
        at = int(row["addresses"][lane])
        if int(row["space"]) == machine_layout.SHARED:
            slot = self.slots[self.slot_number(int(row["block"]))]
            return slot.planes, at // 4 + (PLANES - 1) * slot.stride
        for region, shadow in zip(self.regions, self.shadows, strict=False):
            base = int(region["base"])
            if base <= at < base + int(region["bytes"]):
                stride = int(region["stride"]) // 4
                return shadow.words()[MARGIN // 4 :], (at - (base & ~3)) // 4 + (PLANES - 1) * stride
        raise BadLaunch(f"{at:#x} lies in no buffer: a mistake in undertorch.")


def unwritten(program: Program, given: Given) -> Iterator[tuple[int, int]]:
    """Address and bytes of arguments that no store's address is computed from, and that overlap with none that is.

    Nothing where it is not known what a store writes to, because its pointer came out of memory.
    """
    spans = list(extents(given.arguments))
    names = [parameter.name for parameter in program.flow.function.parameters]
    stores = [site for site in program.by_number if site.writes and site.space in {"global", "generic"}]
    written: set[int] = set()
    registers = computed(program)
    for site in stores:
        found = {names.index(o.name) if o.name in names else -1 for o in origins(program, site, registers)}
        if not found & {-1, *(e.number for e in spans)}:
            return
        written |= found
    reached = [e for e in spans if e.number in written]
    for one in spans:
        if not any(e.start < one.start + one.bytes and one.start < e.start + e.bytes for e in reached):
            yield one.start, one.bytes


def planes(size: int) -> tuple[Reserved, int]:
    """The shadow of so many bytes; bytes from plane to plane."""
    stride = -(-(-(-size // 4) * 4 + MARGIN) // PAGE) * PAGE + APART
    return Reserved(PLANES * stride + 2 * MARGIN), stride


def facts(sites: Sequence[Site]) -> Array:
    """What native code knows of each instruction. Raises BadLaunch for a kernel with too many."""
    if len(sites) > layout.MOST_SITES:
        raise BadLaunch(f"The kernel has {len(sites)} memory instructions; check takes up to {layout.MOST_SITES}.")
    out = np.zeros(max(1, len(sites)), FACTS)
    lines: dict[tuple[str, int], int] = {}
    for site, row in zip(sites, out, strict=False):
        place = site.instruction.place
        key = (place.file, place.line) if place else ("", site.instruction.text_line)
        row["flags"], row["bytes"] = _flags(site), site.bytes
        vector = int(site.instruction.options.get("vector", "v1")[1:])
        row["element"] = site.bytes // vector if site.bytes else 0
        row["line"] = lines.setdefault(key, len(lines))
    return out


def _flags(site: Site) -> int:
    i = site.instruction
    wide = site.scope in {"gpu", "sys"}
    held = {
        layout.READS: site.reads,
        layout.WRITES: site.writes,
        layout.ATOMIC: site.atomic,
        layout.STRONG: site.order != "weak" and site.space is not None,
        layout.WIDE: wide,
        layout.RELEASES: site.order in {"release", "acq_rel"} and site.space is not None,
        layout.ACQUIRES: site.order in {"acquire", "acq_rel"} and site.space is not None,
        layout.NC: site.reads and "nc" in i.options.values(),
        layout.ASYNC: site.proxy == "async",
        layout.VOLATILE: site.order == "volatile",
        layout.IGNORED: site.space in FOREIGN_SPACES,
        layout.CAS: site.atomic and i.options.get("op") == "cas",
        layout.WAITS: i.name in {"bar.sync", "bar.red"},
    }
    return sum(bit for bit, is_so in held.items() if is_so)


CONSTANTS: dict[str, object] = {
    **ALWAYS,
    **{name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)},
    "MEETING_BYTES": layout.MEETING.itemsize,
}


@cache
def function() -> int:
    """The address of `detect`."""
    folder = Path(layout.__file__).parent / "native"
    files = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]
    said = "\0".join([*files, Path(layout.__file__).read_text(encoding="utf-8")])
    digest = hashlib.sha256(said.encode()).hexdigest()
    return linker().library(("races", digest), lambda: native_text(files), ["races_detect"])["races_detect"]


def native_text(files: Sequence[str]) -> str:
    """The detector as LLVM IR."""
    import ast

    from undertorch.simt.codegen.dialect import Program

    trees = [node for text in files for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    program = Program({node.name: node for node in trees}, CONSTANTS, structs=layout.STRUCTS)
    return program.text({"detect": "races_detect"})


assert EventKind.ACCESS == machine_layout.ACCESS
