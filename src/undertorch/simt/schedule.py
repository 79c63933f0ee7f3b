"""Turns of blocks, and of host threads; what native code cannot do itself.

The unit of scheduling is the cluster, of one block today. A block runs until it ends or until all its loops have used
up their fuel; then the next one starts, as many as the GPU would hold at once, and they take turns: a spin lock, a
look-back scan and a grid-wide barrier move on.
"""

import ctypes
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertorch.records import Gpu
from undertorch.simt.codegen.sites import Site
from undertorch.simt.errors import Deadlock, Fault, Thread
from undertorch.simt.events import EventConsumer
from undertorch.simt.program import Program
from undertorch.simt.runtime import layout
from undertorch.simt.runtime.layout import BLOCK, CONTEXT, COPY, EVENT, SITE, SLOTS, WARP, WARP_STATE
from undertorch.simt.runtime.printf import assertion, formatted

Array = np.ndarray[Any, Any]
FUEL = 1 << 14
"""Backward branches of a warp's turn."""
CHUNK = 1024
"""Blocks that native code starts before it returns, so that somebody can stop a launch."""
EVENTS = 1 << 12
"""Rows of the event buffer: 1.3 MB stay in a core's L2, and a consumer has enough to do at once."""
HOST_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_uint32
)
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def aligned(size: int, alignment: int = 64) -> Array:
    """Zeroed bytes at an aligned address."""
    raw = np.zeros(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]


@dataclass(slots=True)
class Resident:
    """The memory of one block that is on the machine."""

    state: Array
    warps: Array
    shared: Array
    local: Array
    queues: Array | None

    @property
    def address(self) -> int:
        """Of its state."""
        return int(self.state.ctypes.data)


@dataclass(slots=True, kw_only=True)
class Schedule:
    """A launch under way."""

    program: Program
    gpu: Gpu
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    parameters: Array
    symbols: Array
    buffers: Array
    seed: int | None
    threads: int
    patience: float
    time_limit: float | None
    on_events: EventConsumer | None
    printed: list[str] = field(default_factory=list)
    lanes: "list[HostThread]" = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    consuming: threading.Lock = field(default_factory=threading.Lock)
    """Held while somebody looks at events."""
    following: int = 0
    stop: bool = False

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        """Of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Of a block."""
        return -(-self.threads_per_block // WARP)

    @property
    def warp_bytes(self) -> int:
        """State and register slots of a warp."""
        return -(-(SLOTS + self.program.flow.slot_bytes) // 64) * 64

    @property
    def residents(self) -> int:
        """Blocks that the GPU holds at once, by threads and shared memory (registers are ptxas's to say)."""
        by_threads = self.gpu.max_threads_per_sm // (self.warps * WARP)
        shared = self.program.static_shared + self.dynamic_shared + self.gpu.shared_reserved_per_block
        by_shared = self.gpu.shared_per_sm // shared if shared else self.gpu.max_blocks_per_sm
        return max(1, min(by_threads, by_shared, self.gpu.max_blocks_per_sm)) * self.gpu.sms

    def take(self, count: int) -> tuple[int, int]:
        """The next blocks that nobody has started: from, to."""
        with self.lock:
            start = self.following
            self.following = min(self.blocks, start + count)
            return start, self.following

    def run(self) -> None:
        """Runs every block. Raises Fault or Deadlock."""
        count = max(1, min(self.threads, self.blocks))
        self.lanes = [HostThread(self, number, count) for number in range(count)]
        if count == 1:
            self.lanes[0].run()
        else:
            hosts = [threading.Thread(target=lane.run_quietly, daemon=True) for lane in self.lanes]
            for host in hosts:
                host.start()
            for host in hosts:
                host.join()
        for lane in self.lanes:
            if lane.error is not None:
                raise lane.error
            lane.drain()

    def counts(self) -> tuple[Array, Array]:
        """Counts per basic block and per site, of all host threads."""
        blocks = np.sum([lane.counts for lane in self.lanes], axis=0)
        sites = self.lanes[0].sites.copy()
        for lane in self.lanes[1:]:
            for name in ("requests", "lanes", "units", "ideal"):
                sites[name] += lane.sites[name]
        return blocks, sites


class HostThread:
    """Runs blocks on one thread of the host."""

    def __init__(self, schedule: Schedule, number: int, of: int) -> None:
        self.schedule, self.number, self.of = schedule, number, of
        program = schedule.program
        self.context = np.zeros(1, CONTEXT)
        self.sites = aligned(SITE.itemsize * max(1, len(program.sites))).view(SITE)
        self.counts = np.zeros((len(program.flow.blocks), 2), np.uint64)
        self.events = aligned(EVENT.itemsize * (EVENTS if program.level > 1 else 1)).view(EVENT)
        self.callback = HOST_FUNCTION(self.host)
        self.error: BaseException | None = None
        self.run_blocks = RUN(program.runtime("run_blocks"))
        self.run_block = RUN(program.runtime("run_block"))
        self._fill_context()

    def _fill_context(self) -> None:
        s, program, c = self.schedule, self.schedule.program, self.context[0]
        c["params"], c["symbols"] = s.parameters.ctypes.data, s.symbols.ctypes.data
        c["buffers"], c["buffer_count"] = s.buffers.ctypes.data, len(s.buffers) - 1
        c["sites"], c["block_counts"] = self.sites.ctypes.data, self.counts.ctypes.data
        c["full"] = program.address("full")
        c["masked"] = program.loaded["masked"][1] if "masked" in program.loaded else 0
        c["host"] = ctypes.cast(self.callback, ctypes.c_void_p).value
        c["events"], c["event_capacity"] = self.events.ctypes.data, len(self.events)
        c["fuel_slice"], c["warps"], c["threads"] = FUEL, s.warps, s.threads_per_block
        c["warp_bytes"], c["local_bytes"] = s.warp_bytes, program.local_bytes
        c["shared_bytes"] = program.static_shared + s.dynamic_shared
        c["dynamic_shared"], c["sms"] = s.dynamic_shared, s.gpu.sms
        c["grid"], c["ntid"] = s.grid, s.block
        c["level"] = program.level
        c["order"] = 0 if s.seed is None else (s.seed * 2 + 1) & 0x7FFFFFFF

    # -- turns

    def run_quietly(self) -> None:
        """As `run`, for a thread: keeps the error for the one who waits."""
        try:
            self.run()
        except BaseException as error:
            self.error = error
            self.schedule.stop = True

    def run(self) -> None:
        """Starts blocks and gives them turns until none is left."""
        s = self.schedule
        held: deque[Resident] = deque()
        free: list[Resident] = []
        chunk = max(1, min(CHUNK, s.blocks // (8 * self.of) if self.of > 1 else CHUNK))
        most = max(1, s.residents // self.of)
        began = time.monotonic()
        progress, since = -1, began
        while not s.stop:
            start, end = s.take(chunk) if len(held) < most else (0, 0)
            if start < end:
                self._start(start, end, held, free, most)
            elif not held:
                break
            for _ in range(len(held)):
                resident = held.popleft()
                if self._turn(resident, self.run_block):
                    free.append(resident)
                else:
                    held.append(resident)
            now = int(self.context[0]["progress"])
            if now != progress:
                progress, since = now, time.monotonic()
            elif held and time.monotonic() - since > s.patience:
                raise self._deadlock(held, f"no warp ended and no barrier opened for {s.patience:g} seconds")
            if s.time_limit is not None and held and time.monotonic() - began > s.time_limit:
                raise self._deadlock(held, f"it has not ended after {s.time_limit:g} seconds")
        if self.error is not None:
            raise self.error

    def _start(self, start: int, end: int, held: deque[Resident], free: list[Resident], most: int) -> None:
        """Runs blocks from `start`; each that cannot go on by itself stays resident."""
        c = self.context[0]
        c["next_block"], c["end_block"] = start, end
        while int(c["next_block"]) < end and not self.schedule.stop:
            resident = free.pop() if free else self._resident()
            if self._turn(resident, self.run_blocks):
                free.append(resident)
                continue
            held.append(resident)
            while len(held) >= most:
                for _ in range(len(held)):
                    other = held.popleft()
                    (free if self._turn(other, self.run_block) else held).append(other)

    def _turn(self, resident: Resident, function: Any) -> bool:
        """One turn; whether the block (or all that were to start) ended."""
        c = self.context
        while True:
            status = function(c.ctypes.data, resident.address)
            if status == layout.DONE:
                return True
            if status == layout.OUT_OF_FUEL:
                return False
            if status == layout.NEED_MASKED:
                c[0]["masked"] = self.schedule.program.address("masked")
                function = self.run_block
                if self._finish(resident):
                    return int(c[0]["next_block"]) >= int(c[0]["end_block"]) or self._turn(resident, self.run_blocks)
                return False
            if status == layout.STUCK:
                raise self._deadlock(deque([resident]), "every thread of the block waits")
            raise self._fault(resident)

    def _finish(self, resident: Resident) -> bool:
        """Goes on with one block."""
        return self._turn(resident, self.run_block)

    # -- memory

    def _resident(self) -> Resident:
        s, program = self.schedule, self.schedule.program
        warps = aligned(s.warps * s.warp_bytes)
        shared = aligned(max(16, program.static_shared + s.dynamic_shared), 1024)
        local = aligned(max(16, s.warps * WARP * program.local_bytes))
        asynchronous = any(site.proxy == "async" for site in program.by_number)
        queues = np.zeros(s.warps * layout.QUEUE, COPY) if asynchronous else None
        state = np.zeros(1, BLOCK)
        state[0]["shared"], state[0]["warps"] = shared.ctypes.data, warps.ctypes.data
        numbers = np.arange(s.warps * WARP, dtype=np.int32)
        x, y = s.block[0], s.block[1]
        for n in range(s.warps):
            warp = self._warp(warps, n)
            tid = numbers[n * WARP : (n + 1) * WARP]
            warp["tid_x"], warp["tid_y"], warp["tid_z"] = tid % x, tid // x % y, tid // (x * y)
            alive = min(WARP, s.threads_per_block - n * WARP)
            warp["alive"] = np.array((1 << alive) - 1, np.uint32).view(np.int32)
            warp["index"], warp["block"] = n, state.ctypes.data
            warp["local"] = local.ctypes.data + n * WARP * program.local_bytes
            warp["queue"] = queues.ctypes.data + n * layout.QUEUE * COPY.itemsize if queues is not None else 0
            warp["leader"] = -1
        return Resident(state, warps, shared, local, queues)

    def _warp(self, warps: Array, n: int) -> Any:
        size = self.schedule.warp_bytes
        return warps[n * size : n * size + WARP_STATE.itemsize].view(WARP_STATE)[0]

    # -- what went wrong

    def _thread(self, state: Any, warp: int, lane: int) -> Thread:
        x, y = self.schedule.block[0], self.schedule.block[1]
        n = warp * WARP + lane
        ctaid = tuple(int(i) for i in state["ctaid"])
        return Thread(block=(ctaid[0], ctaid[1], ctaid[2]), thread=(n % x, n // x % y, n // (x * y)))

    def _fault(self, resident: Resident) -> BaseException:
        if self.error is not None:
            return self.error
        c = self.context[0]
        kind = layout.FAULTS[int(c["fault"])]
        thread = self._thread(resident.state[0], int(c["fault_warp"]), int(c["fault_lane"]))
        site = self.schedule.program.by_number[int(c["fault_site"])]
        what = {
            "out-of-bounds": f"{verb(site)} {site.bytes} bytes at {int(c['fault_address']):#x} of {site.space} memory, "
            "outside of what the launch was given",
            "misaligned": f"{verb(site)} {site.bytes} bytes at {int(c['fault_address']):#x} of {site.space} memory, "
            f"which is no multiple of {site.bytes}",
            "trap": "executed trap",
        }[kind]
        return fault(self.schedule.program, site, thread, kind, what)

    def _deadlock(self, held: deque[Resident], why: str) -> Deadlock:
        waiting: list[str] = []
        for resident in held:
            for n in range(self.schedule.warps):
                waiting += self._waits(resident, n)
        shown = "; ".join(waiting[:8]) + (f"; and {len(waiting) - 8} more" if len(waiting) > 8 else "")
        return Deadlock(f"{self.schedule.program.name}: deadlock: {why}: {shown}.", tuple(waiting))

    def _waits(self, resident: Resident, n: int) -> list[str]:
        """Who of a warp waits where, grouped."""
        state, warp = resident.state[0], self._warp(resident.warps, n)
        groups: dict[tuple[int, int], list[int]] = {}
        for lane in range(WARP):
            pc = int(warp["pc"][lane])
            if pc != layout.EXITED:
                groups.setdefault((pc, int(warp["barrier"][lane]) if pc >= layout.WAITING else -1), []).append(lane)
        ctaid = ", ".join(str(int(i)) for i in state["ctaid"])
        return [
            f"block ({ctaid}) warp {n} lanes {ranges(lanes)} {self._where(state, pc, barrier)}"
            for (pc, barrier), lanes in groups.items()
        ]

    def _where(self, state: Any, pc: int, barrier: int) -> str:
        blocks = self.schedule.program.flow.blocks
        if pc >= layout.WAITING:
            before = blocks[(pc & layout.PC_MASK) - 1].end
            row = state["barriers"][barrier]
            of = int(row["expected"]) or self.schedule.threads_per_block - int(state["exited"])
            return f"wait at barrier {barrier} ({int(row['arrived'])} of {of} threads came){line_of(before)}"
        block = blocks[pc & layout.PC_MASK]
        first = block.parts[0].instructions[0] if block.parts else block.end
        word = "wait for lanes of their mask" if pc >= layout.PARKED else "run"
        return f"{word}{line_of(first)}"

    # -- what native code asks for

    def drain(self) -> None:
        """Hands on the events that are left."""
        count = int(self.context[0]["event_count"])
        self.context[0]["event_count"] = 0  # first: native code goes on writing whatever the consumer raises
        if count and self.schedule.on_events is not None and self.error is None:
            with self.schedule.consuming:
                self.schedule.on_events(self.events[:count], self.schedule.program.by_number)

    def host(self, context: int, warp_address: int, kind: int, number: int, mask: int) -> int:
        """Called by native code: a full event buffer, a printf, an assert. An error is kept: it may not pass C."""
        try:
            if kind == layout.EVENTS_FULL:
                self.drain()
                return layout.GO_ON
            return self._call(warp_address, kind, number, mask)
        except BaseException as error:
            self.error = error
        return layout.FAULT

    def _call(self, warp_address: int, kind: int, number: int, mask: int) -> int:
        program = self.schedule.program
        site = program.by_number[number]
        warp = np.ctypeslib.as_array((ctypes.c_uint8 * WARP_STATE.itemsize).from_address(warp_address)).view(
            WARP_STATE
        )[0]
        readable = Reader(self.schedule, int(warp["local"]))
        for lane in range(WARP):
            if not mask >> lane & 1:
                continue
            arguments = readable.arguments(site, program.places.local, lane)
            if kind == layout.PRINT:
                text = formatted(readable, *arguments[:2])
                with self.schedule.lock:
                    self.schedule.printed.append(text)
            else:
                state = np.ctypeslib.as_array((ctypes.c_uint8 * BLOCK.itemsize).from_address(int(warp["block"]))).view(
                    BLOCK
                )[0]
                thread = self._thread(state, int(warp["index"]), lane)
                raise fault(program, site, thread, "assert", assertion(readable, arguments))
        return layout.GO_ON


@dataclass(slots=True)
class Reader:
    """Reads memory of the launch for the host; outside of its buffers nothing is touched."""

    schedule: Schedule
    local: int

    def arguments(self, site: Site, places: Any, lane: int) -> list[int]:
        """Addresses and numbers that a call passed through parameter memory."""
        group = site.instruction.sources[2]
        size = self.schedule.program.local_bytes
        return [self.word(self.local + lane * size + places[item.name]) for item in group.items]  # type: ignore[union-attr]

    def word(self, address: int) -> int:
        """8 bytes."""
        return int.from_bytes(self.bytes(address, 8), "little")

    def bytes(self, address: int, count: int) -> bytes:
        """Some bytes; of what lies outside, nothing."""
        for start, size in self._spans():
            if start <= address < start + size:
                return ctypes.string_at(address, min(count, start + size - address))
        return b""

    def text(self, address: int) -> str:
        """A string that ends with a zero."""
        return self.bytes(address, 1 << 16).split(b"\0")[0].decode(errors="replace")

    def _spans(self) -> list[tuple[int, int]]:
        spans = [(int(row["base"]), int(row["bytes"])) for row in self.schedule.buffers[:-1]]
        return [*spans, (self.local, WARP * self.schedule.program.local_bytes)]


def fault(program: Program, site: Site, thread: Thread, kind: str, what: str) -> Fault:
    """The error of one thread."""
    place = site.instruction.place
    where = f"{place.file}:{place.line}" if place else f"PTX line {site.instruction.text_line}"
    return Fault(
        f"{where}: {kind}: {thread} of {program.name} {what} ({site.instruction.text}).",
        kind=kind,
        thread=thread,
        file=place.file if place else None,
        line=place.line if place else None,
    )


def verb(site: Site) -> str:
    """What an access does."""
    return "updates" if site.reads and site.writes else "writes" if site.writes else "reads"


def line_of(instruction: Any) -> str:
    """` at FILE:LINE` of an instruction, as far as it is known."""
    if instruction is None:
        return ""
    if instruction.place is None:
        return f" at PTX line {instruction.text_line}"
    return f" at {instruction.place.file}:{instruction.place.line}"


def ranges(numbers: list[int]) -> str:
    """`0-3, 7`."""
    out: list[list[int]] = []
    for n in numbers:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)
