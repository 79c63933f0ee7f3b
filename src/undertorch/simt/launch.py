"""One launch of a kernel on the machine."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np

from undertorch.gpus import find
from undertorch.records import Gpu, TextOrigin
from undertorch.simt.errors import BadLaunch, Deadlock, Fault
from undertorch.simt.events import Counters, EventConsumer, counters
from undertorch.simt.faults import Given
from undertorch.simt.numerics import numerics_of
from undertorch.simt.program import Program, prepare
from undertorch.simt.ptx.instructions import Variable
from undertorch.simt.runtime.buffers import Buffers, add_reachable, pack, place_variables
from undertorch.simt.runtime.heap import BYTES as HEAP_BYTES
from undertorch.simt.runtime.heap import Heap
from undertorch.simt.schedule import Schedule, resident_blocks

Dim = int | tuple[int, ...]
WORKSPACE_BYTES = 64
"""Of a cooperative launch. Cooperative groups need 8: a size and the grid's barrier (details/driver_abi.h)."""

STATIC_SHARED = 48 << 10
"""Bytes (CUDA C++ Programming Guide, "Compute Capability 8.x": kernels with more have to use dynamic shared memory)."""
LOCAL = 512 << 10
"""Bytes of a thread (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a launch left besides the memory it wrote."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    printed: tuple[str, ...] | None
    """What threads printed, a printf each: it went to sys.stdout, too, when the launch ended. None where a GPU ran it:
    its driver prints to standard output."""
    counters: Counters | None
    """None where nothing was counted."""


Placed = tuple["np.ndarray[Any, Any]", list[tuple[int, int, bool, "np.ndarray[Any, Any]"]]]
"""Addresses of a kernel's variables, and of each its start, bytes, whether it is constant, and its memory."""


@dataclass(slots=True)
class Memory:
    """Variables and heap of one loaded file: they keep their values from launch to launch."""

    arrays: dict[str, "np.ndarray[Any, Any]"] = field(default_factory=dict)
    placed: dict[tuple[Variable, ...], Placed] = field(default_factory=dict)
    heap: Heap | None = None
    """Of malloc and new, from the first launch of a kernel on that allocates."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it grows: several threads of the host may launch kernels of one file."""


def launch(
    ptx: str,
    kernel: str,
    grid: Dim,
    block: Dim,
    arguments: Sequence[object],
    *,
    gpu: Gpu | str,
    dynamic_shared: int = 0,
    instrument: str = "none",
    seed: int | None = None,
    threads: int = 1,
    patience: float = 30.0,
    time_limit: float | None = None,
    on_events: EventConsumer | None = None,
    memory: Memory | None = None,
    reachable: Sequence[object] = (),
    cooperative: bool = False,
    mma: str = "fast",
    sources: Mapping[str, str] | None = None,
    origins: Mapping[str, TextOrigin] | None = None,
    names: Sequence[str] = (),
    on_start: Callable[[Schedule], None] | None = None,
) -> Result:
    """Runs a kernel of a file of PTX on the machine, as `gpu` would.

    `gpu`: its name, the path of a sheet, or a Gpu. `grid` and `block`: blocks and threads in x, y, z. `arguments`:
    NumPy arrays and torch tensors on the CPU (as pointers), numbers, NumPy scalars, bytes and ctypes structs (by
    value). `dynamic_shared`: bytes. `instrument`: `none`, `counters`, `events` (then `on_events` gets them). `seed`
    shuffles the order of warps; None: ascending.
    `threads` of the host. `patience`: seconds without any warp ending or barrier opening that count as a deadlock where
    loops still turn, but never repeat themselves; `time_limit`: seconds for all of it, None: no limit. `memory`: where
    global variables keep their values between launches. `reachable`: arrays and tensors that the kernel may touch by
    pointers that lie in memory. `cooperative`: all blocks have to be resident at once, whether the PTX says so or not.
    `mma`: how tensor cores add, `fast` (in float32, rounded after each product) or `exact` (as `gpu` does, bit for bit
    where numerics.py has its model). `sources`: text of source files by the names that the PTX gives them, to be
    quoted, and `origins` where those of them stand that are no files; `names`: of the arguments, for messages.
    `on_start` gets the launch before its first block starts.
    What threads print goes to sys.stdout when the launch ends, however it does.
    Raises PtxError, Unsupported and BadLaunch before anything runs; Fault and Deadlock while it does.
    """
    grid3, block3 = three(grid, "grid"), three(block, "block")
    dynamic_shared = dynamic_bytes(dynamic_shared)
    gpu = find(gpu) if isinstance(gpu, str) else gpu
    if on_events is not None and instrument != "events":
        raise BadLaunch(f"on_events= gets nothing with instrument={instrument!r}; pass instrument='events'.")
    program = prepare(ptx, kernel, instrument, numerics_of(gpu, mma))
    check_limits(program, grid3, block3, dynamic_shared, gpu, cooperative=cooperative or program.cooperative)
    buffers = Buffers()
    given = pack(program.flow.function.parameters, arguments, buffers, names)
    packed = np.frombuffer(given or bytearray(8), np.uint8)
    add_reachable(reachable, buffers)
    memory = memory or Memory()
    with memory.lock:
        symbols = _symbols(program, memory, buffers)
        if memory.heap is None and program.allocates:
            memory.heap = Heap()
    if memory.heap is not None:
        buffers.add(memory.heap.start, HEAP_BYTES, owner=memory.heap)
    buffers.add(packed.ctypes.data, packed.size, read_only=True, owner=packed)
    workspace = np.zeros(WORKSPACE_BYTES if program.cooperative else 0, np.uint8)
    if program.cooperative:
        buffers.add(workspace.ctypes.data, workspace.size, owner=workspace)
    schedule = Schedule(
        program=program,
        gpu=gpu,
        grid=grid3,
        block=block3,
        dynamic_shared=dynamic_shared,
        parameters=packed,
        symbols=symbols,
        heap=memory.heap,
        workspace=workspace.ctypes.data if program.cooperative else 0,
        buffers=buffers.table(),
        seed=seed,
        threads=threads,
        patience=patience,
        time_limit=time_limit,
        on_events=on_events,
        given=Given(
            arguments=arguments,
            dynamic_shared=dynamic_shared,
            sources=sources or {},
            origins=origins or {},
            names=names,
        ),
    )
    if on_start is not None:
        on_start(schedule)
    try:
        schedule.run()
    except (Fault, Deadlock) as error:
        error.printed = tuple(schedule.printed)
        raise
    finally:
        if schedule.printed:
            _show("".join(schedule.printed))
    counted = counters(program, *schedule.counts(), sources) if program.level else None
    return Result(kernel=kernel, grid=grid3, block=block3, printed=tuple(schedule.printed), counters=counted)


def _show(text: str) -> None:
    """What threads printed, as far as standard output can write it: an error here would hide the launch's own."""
    try:
        print(end=text)
    except UnicodeEncodeError:
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        print(end=text.encode(encoding, "backslashreplace").decode(encoding))


def three(given: Dim, what: str) -> tuple[int, int, int]:
    """One to three numbers as three. Raises BadLaunch for what is no size."""
    try:
        sizes = [index(n) for n in given] if isinstance(given, Sequence) else [index(given)]
    except TypeError:
        sizes = []
    if 0 in sizes and all(n >= 0 for n in sizes):
        raise BadLaunch(
            f"{what}={given!r}: nothing is launched with 0 of them (CUDA: cudaErrorInvalidConfiguration); launch only "
            "where there is something to do."
        )
    if not 1 <= len(sizes) <= 3 or any(n < 1 for n in sizes):
        raise BadLaunch(f"{what}={given!r}: it takes one to three integers from 1 on.")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def dynamic_bytes(given: object) -> int:
    """Bytes of dynamic shared memory. Raises BadLaunch for what is no number of bytes."""
    count = index(given) if hasattr(given, "__index__") else -1
    if count < 0:
        raise BadLaunch(f"dynamic shared memory={given!r}: it takes a number of bytes, an integer from 0 on.")
    return count


def check_limits(
    program: Program,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic_shared: int,
    gpu: Gpu,
    *,
    cooperative: bool,
) -> None:
    """Raises BadLaunch where a launch asks for more than the GPU has.

    Limits that are not the sheet's: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """
    threads = block[0] * block[1] * block[2]
    most = min(gpu.max_threads_per_block, program.flow.function.max_threads or gpu.max_threads_per_block)
    if threads > most:
        raise BadLaunch(f"{program.name} was launched with {threads} threads a block; at most {most} are allowed.")
    required = program.flow.function.required_block
    if required is not None and block != required:
        raise BadLaunch(f"{program.name} was launched with block={block}; its .reqntid asks for {required}.")
    if block[2] > 64:
        raise BadLaunch(f"block={block}: at most 64 threads in z are allowed.")
    if grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535:
        raise BadLaunch(f"grid={grid}: at most 2147483647 blocks in x and 65535 in y and z are allowed.")
    if program.static_shared > STATIC_SHARED:
        raise BadLaunch(
            f"{program.name} declares {program.static_shared} bytes of shared memory; at most {STATIC_SHARED} can be "
            "declared with a size, more only as dynamic shared memory (extern __shared__)."
        )
    if program.local_bytes > LOCAL:
        raise BadLaunch(
            f"{program.name} asks for {program.local_bytes} bytes of local memory a thread; at most {LOCAL} are "
            "allowed."
        )
    shared = program.static_shared + dynamic_shared
    if shared > gpu.shared_per_block_optin:
        raise BadLaunch(
            f"{program.name} asks for {shared} bytes of shared memory a block; "
            f"{gpu.name} has {gpu.shared_per_block_optin}."
        )
    if program.reserved_shared > gpu.shared_reserved_per_block:
        raise BadLaunch(
            f"{program.name} asks for the shared memory that the system reserves (cooperative groups of more than a "
            f"warp do, compiled for sm_80 and later); {gpu.name} reserves none."
        )
    blocks, most = grid[0] * grid[1] * grid[2], resident_blocks(gpu, threads, shared)
    if cooperative and blocks > most:
        asked = "waits for its whole grid (cooperative_groups::this_grid())"
        asked = asked if program.cooperative else "is launched as a cooperative grid"
        raise BadLaunch(
            f"{program.name} {asked}, so that all its {blocks} "
            f"blocks have to be resident at once; {gpu.name} holds {most} of {threads} threads and {shared} bytes of "
            "shared memory."
        )
    if gpu.warp_size != 32:
        raise BadLaunch(f"{gpu.name} has warps of {gpu.warp_size} lanes; PTX, which the machine runs, has 32.")


def _symbols(program: Program, memory: Memory, buffers: Buffers) -> "np.ndarray[Any, Any]":
    """Addresses of the file's variables, in the order of the program's numbers."""
    placed = memory.placed.get(program.placed)
    if placed is None:
        missing = [v for v in program.placed if v.name not in memory.arrays]
        memory.arrays = place_variables(missing, memory.arrays)
        rooms = [memory.arrays[v.name] for v in program.placed]
        addresses = np.array([room.ctypes.data for room in rooms] or [0], np.uint64)
        seen = [
            (int(address), room.size, variable.space == "const", room)
            for variable, room, address in zip(program.placed, rooms, addresses, strict=False)
            if variable.space != "code"
        ]
        placed = memory.placed[program.placed] = (addresses, seen)
    for start, size, constant, room in placed[1]:
        buffers.add(start, size, read_only=constant, owner=room)
    return placed[0]
