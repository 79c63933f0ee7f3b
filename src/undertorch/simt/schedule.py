"""Turns of blocks, and of host threads; what native code cannot do itself.

The unit of scheduling is the cluster, of one block today. A block runs until it ends or until all its loops have used
up their fuel; then the next one starts, as many as the GPU would hold at once, and they take turns: a spin lock, a
look-back scan and a grid-wide barrier move on.
"""

import ctypes
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertorch.records import Gpu
from undertorch.simt.errors import Deadlock, Thread
from undertorch.simt.events import EventConsumer
from undertorch.simt.faults import Given, access, fault
from undertorch.simt.hostcalls import Reader, answer
from undertorch.simt.program import Program
from undertorch.simt.runtime import layout
from undertorch.simt.runtime.buffers import aligned
from undertorch.simt.runtime.heap import Heap
from undertorch.simt.runtime.layout import BLOCK, CONTEXT, COPY, EVENT, SITE, SLOTS, WARP, WARP_STATE
from undertorch.simt.standstill import QUIET, Standstill, can_be_told, contents
from undertorch.simt.waiting import deadlock

Array = np.ndarray[Any, Any]
CHUNK = 1024
"""Blocks that native code starts before it returns, so that somebody can stop a launch."""
EVENTS = 1 << 12
"""Rows of the event buffer: 1.3 MB stay in a core's L2, and a consumer has enough to do at once."""
HOST_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_uint32
)
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


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
    heap: Heap | None
    workspace: int
    """Address of a cooperative launch's; 0: it is none."""
    buffers: Array
    seed: int | None
    threads: int
    patience: float
    time_limit: float | None
    on_events: EventConsumer | None
    given: Given
    printed: list[str] = field(default_factory=list)
    lanes: "list[HostThread]" = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    consuming: threading.Lock = field(default_factory=threading.Lock)
    """Held while somebody looks at events."""
    following: int = 0
    stop: bool = False
    interrupted: bool = False
    """By Ctrl-C."""

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
    def shared_bytes(self) -> int:
        """Of a block: the system's, if it is asked for, static and dynamic."""
        return self.program.reserved_shared + self.program.static_shared + self.dynamic_shared

    @property
    def residents(self) -> int:
        """Blocks that the GPU holds at once."""
        return resident_blocks(self.gpu, self.threads_per_block, self.program.static_shared + self.dynamic_shared)

    def progress(self) -> tuple[int, int]:
        """Differs when any host thread took up blocks, had a warp end or a barrier open."""
        return self.following, sum(int(lane.context[0]["progress"]) for lane in self.lanes)

    def on_machine(self) -> "list[Resident]":
        """Blocks that have started, of all host threads."""
        found = [r for lane in self.lanes for r in (*list(lane.held), lane.running) if r is not None]
        return list({id(r): r for r in found}.values())  # who waits for another turn ran last, perhaps

    def contents(self) -> bytes:
        """Digest of what threads can tell each other by."""
        return contents((r.shared for r in self.on_machine()), self.buffers)

    def computes(self) -> bool:
        """Whether any thread is under way, however long: in a loop that asks for nothing of others, or as the only one.

        A lone thread that polls memory waits for nobody, since nobody is left to write; where its state repeats, that
        is told otherwise (standstill.py).
        """
        plain = np.array(sorted(self.program.computing), np.int32)
        size, running = self.warp_bytes, 0
        for resident in self.on_machine():
            for n in range(self.warps):
                warp = resident.warps[n * size : n * size + WARP_STATE.itemsize].view(WARP_STATE)[0]
                if np.isin(warp["pc"], plain).any():
                    return True
                running += int((warp["pc"] < layout.EXITED).sum())
        return running == 1

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
            with self._interruptible():
                self.lanes[0].run()
        else:
            hosts = [threading.Thread(target=lane.run_quietly, daemon=True) for lane in self.lanes]
            try:
                for host in hosts:
                    host.start()
                for lane in self.lanes:
                    while not lane.ended.wait(0.05):  # a signal may reach another thread: this one looks now and then
                        pass
            except BaseException:  # Ctrl-C: nobody may write to the launch's memory once it is out of here
                self._halt([lane for lane, host in zip(self.lanes, hosts, strict=True) if host.ident is not None])
                raise
        for lane in self.lanes:
            if lane.error is not None:
                raise lane.error
            lane.drain()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Inside, Ctrl-C ends the launch: Python's own handler would raise at the start of what native code calls, and
        C knows no exception.
        """
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, lambda number, frame: self._interrupt())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.interrupted:
            raise KeyboardInterrupt

    def _interrupt(self) -> None:
        self.interrupted = self.stop = True
        for lane in self.lanes:
            lane.context[0]["end_block"] = 0
            lane.context[0]["fuel_slice"] = 1

    def _halt(self, started: "list[HostThread]") -> None:
        """Stops all host threads and waits for their end, however often somebody presses Ctrl-C meanwhile.

        Not by join: in Python 3.11 a thread whose join was interrupted counts as ended while it runs on.
        """
        self.stop = True
        for lane in self.lanes:
            lane.context[0]["end_block"] = 0  # native code reads both again at every block, and every turn of a warp
            lane.context[0]["fuel_slice"] = 1
        for lane in started:
            while not lane.ended.is_set():
                with suppress(KeyboardInterrupt):
                    lane.ended.wait(0.05)

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
        self.ended = threading.Event()
        self.held: deque[Resident] = deque()
        """Blocks that wait for their next turn."""
        self.running: Resident | None = None
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
        c["fuel_slice"], c["warps"], c["threads"] = layout.FUEL, s.warps, s.threads_per_block
        c["warp_bytes"], c["local_bytes"] = s.warp_bytes, program.local_bytes
        c["shared_bytes"], c["user_shared"] = s.shared_bytes, s.shared_bytes - program.reserved_shared
        c["dynamic_shared"], c["sms"] = s.dynamic_shared, s.gpu.sms
        c["workspace"] = s.workspace
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
        finally:
            self.ended.set()

    def run(self) -> None:
        """Starts blocks and gives them turns until none is left."""
        s = self.schedule
        held = self.held
        free: list[Resident] = []
        chunk = max(1, min(CHUNK, s.blocks // (8 * self.of) if self.of > 1 else CHUNK))
        most = max(1, s.residents // self.of + (self.number < s.residents % self.of))
        began = time.monotonic()
        progress, since, standstill, seen = (-1, -1), began, Standstill(), b""
        alone = self.of == 1 and can_be_told(s.program)  # other host threads may change what these blocks wait for
        while not s.stop:
            start, end = s.take(min(chunk, most - len(held)))
            if start < end:
                self._start(start, end, held, free)
            elif not held:
                break
            for _ in range(len(held)):
                if s.stop:
                    break
                resident = held.popleft()
                if self._turn(resident, self.run_block):
                    free.append(resident)
                else:
                    held.append(resident)
            now = s.progress()
            if now != progress:
                progress, since, standstill, seen = now, time.monotonic(), Standstill(), b""
            elif held and alone and time.monotonic() - since > QUIET and standstill.reached(memory(held), s.buffers):
                raise self._deadlock(held, "its loops repeat themselves, and nothing that they wait for will change")
            elif held and time.monotonic() - since > s.patience / 2:
                now_held = s.contents()
                if s.computes() or (seen and seen != now_held):
                    since, seen = time.monotonic(), b""
                elif not seen:
                    seen = now_held
                elif time.monotonic() - since > s.patience:
                    why = f"no warp ended and no barrier opened, and no memory changed, for {s.patience:g} seconds"
                    raise self._deadlock(held, f"{why} of polling (undertorch.machine(patience=…) waits longer)")
            if s.time_limit is not None and held and time.monotonic() - began > s.time_limit:
                raise self._deadlock(held, f"it has not ended after {s.time_limit:g} seconds")
        if self.error is not None:
            raise self.error

    def _start(self, start: int, end: int, held: deque[Resident], free: list[Resident]) -> None:
        """Runs blocks from `start`; each that cannot go on by itself stays resident."""
        c = self.context[0]
        c["next_block"], c["end_block"] = start, end
        while int(c["next_block"]) < end and not self.schedule.stop:
            resident = free.pop() if free else self._resident()
            if self._turn(resident, self.run_blocks):
                free.append(resident)
            else:
                held.append(resident)

    def _turn(self, resident: Resident, function: Any) -> bool:
        """One turn; whether the block (or all that were to start) ended."""
        self.running = resident
        c = self.context
        while not self.schedule.stop:
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
        return False

    def _finish(self, resident: Resident) -> bool:
        """Goes on with one block."""
        return self._turn(resident, self.run_block)

    # -- memory

    def _resident(self) -> Resident:
        s, program = self.schedule, self.schedule.program
        warps = aligned(s.warps * s.warp_bytes)
        shared = aligned(max(16, s.shared_bytes), max(1024, program.alignment("shared")))
        local = aligned(max(16, s.warps * WARP * program.local_bytes), max(64, program.alignment("local")))
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
        program, given = self.schedule.program, self.schedule.given
        if kind == "barrier-number":
            what = f"names barrier {int(c['fault_address'])}; they are 0 to {layout.BARRIERS - 1}"
        elif kind == "barrier-count":
            what = f"counts {int(c['fault_address'])} threads at a barrier; they have to be whole warps"
        elif kind == "trap":
            what = site.instruction.options.get("why", "executed trap")
        else:
            what = access(program, given, site, int(c["fault_address"]), kind)
        return fault(program, given, site, thread, kind, what)

    def _deadlock(self, held: deque[Resident], why: str) -> Deadlock:
        s = self.schedule
        blocks = [(r.state[0], [self._warp(r.warps, n) for n in range(s.warps)]) for r in held]
        return deadlock(s.program, s.threads_per_block, blocks, why)

    # -- what native code asks for

    def drain(self) -> None:
        """Hands on the events that are left."""
        count = int(self.context[0]["event_count"])
        self.context[0]["event_count"] = 0  # first: native code goes on writing whatever the consumer raises
        if count and self.schedule.on_events is not None and self.error is None:
            with self.schedule.consuming:
                self.schedule.on_events(self.events[:count], self.schedule.program.by_number)

    def host(self, context: int, warp_address: int, kind: int, number: int, mask: int) -> int:
        """Called by native code: a full event buffer, a call of device code. An error is kept: it may not pass C."""
        try:
            if kind == layout.EVENTS_FULL:
                self.drain()  # before anything is raised: native code goes on writing
            if self.schedule.interrupted:
                raise KeyboardInterrupt
            if kind == layout.EVENTS_FULL:
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
        s = self.schedule
        block = np.ctypeslib.as_array((ctypes.c_uint8 * BLOCK.itemsize).from_address(int(warp["block"]))).view(BLOCK)[0]
        memory = Reader(
            buffers=s.buffers,
            local=int(warp["local"]),
            local_bytes=program.local_bytes,
            shared=int(block["shared"]),
            shared_bytes=s.shared_bytes,
            places=program.places.local,
        )
        for lane in range(WARP):
            if mask >> lane & 1:
                with s.lock:
                    wrong = answer(kind, memory, site, lane, s.printed, s.heap)
                if wrong is not None:
                    thread = self._thread(block, int(warp["index"]), lane)
                    raise fault(program, s.given, site, thread, *wrong)
        return layout.GO_ON


def memory(held: Iterable[Resident]) -> Iterator[Array]:
    """All memory of blocks."""
    for r in held:
        yield from (r.state, r.warps, r.shared, r.local, *(() if r.queues is None else (r.queues,)))


def resident_blocks(gpu: Gpu, threads: int, shared: int) -> int:
    """Blocks that a GPU holds at once, by their threads and bytes of shared memory (registers are ptxas's to say)."""
    by_threads = gpu.max_threads_per_sm // (-(-threads // WARP) * WARP)
    shared += gpu.shared_reserved_per_block
    by_shared = gpu.shared_per_sm // shared if shared else gpu.max_blocks_per_sm
    return max(1, min(by_threads, by_shared, gpu.max_blocks_per_sm)) * gpu.sms
