"""One launch of a kernel on the machine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertorch.records import Gpu
from undertorch.simt.errors import BadLaunch
from undertorch.simt.events import Counters, EventConsumer, counters
from undertorch.simt.program import Program, prepare
from undertorch.simt.runtime.buffers import Buffers, pack, place_variables
from undertorch.simt.schedule import Schedule

Dim = int | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a launch left besides the memory it wrote."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    printed: tuple[str, ...] | None
    """What threads printed, a printf each; None where a GPU ran it: its driver prints to standard output."""
    counters: Counters | None
    """None where nothing was counted."""


@dataclass(slots=True)
class Memory:
    """Global and const variables of one loaded file: they keep their values from launch to launch."""

    arrays: dict[str, "np.ndarray[Any, Any]"] = field(default_factory=dict)


def launch(
    ptx: str,
    kernel: str,
    grid: Dim,
    block: Dim,
    arguments: Sequence[object],
    *,
    gpu: Gpu,
    dynamic_shared: int = 0,
    instrument: str = "none",
    seed: int | None = None,
    threads: int = 1,
    patience: float = 30.0,
    time_limit: float | None = None,
    on_events: EventConsumer | None = None,
    memory: Memory | None = None,
) -> Result:
    """Runs a kernel of a file of PTX on the machine, as `gpu` would.

    `grid` and `block`: blocks and threads in x, y, z. `arguments`: NumPy arrays and torch tensors on the CPU (as
    pointers), numbers, NumPy scalars, bytes (structs by value). `dynamic_shared`: bytes. `instrument`: `none`,
    `counters`, `events` (then `on_events` gets them). `seed` shuffles the order of warps; None: ascending.
    `threads` of the host. `patience`: seconds without any warp ending or barrier opening that count as a deadlock where
    loops still turn; `time_limit`: seconds for all of it, None: no limit. `memory`: where global variables keep their
    values between launches.
    Raises PtxError, Unsupported and BadLaunch before anything runs; Fault and Deadlock while it does.
    """
    grid3, block3 = three(grid, "grid"), three(block, "block")
    program = prepare(ptx, kernel, instrument)
    check_limits(program, grid3, block3, dynamic_shared, gpu)
    buffers = Buffers()
    packed = np.frombuffer(pack(program.flow.function.parameters, arguments, buffers) or bytearray(8), np.uint8)
    symbols = _symbols(program, memory or Memory(), buffers)
    buffers.add(packed.ctypes.data, packed.size, read_only=True, owner=packed)
    schedule = Schedule(
        program=program,
        gpu=gpu,
        grid=grid3,
        block=block3,
        dynamic_shared=dynamic_shared,
        parameters=packed,
        symbols=symbols,
        buffers=buffers.table(),
        seed=seed,
        threads=threads,
        patience=patience,
        time_limit=time_limit,
        on_events=on_events,
    )
    schedule.run()
    counted = counters(program, *schedule.counts()) if program.level else None
    return Result(kernel=kernel, grid=grid3, block=block3, printed=tuple(schedule.printed), counters=counted)


def three(given: Dim, what: str) -> tuple[int, int, int]:
    """One to three numbers as three. Raises BadLaunch for what is no size."""
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(sizes) <= 3 or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise BadLaunch(f"{what}={given!r}: it takes one to three numbers from 1 on.")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def check_limits(
    program: Program, grid: tuple[int, int, int], block: tuple[int, int, int], dynamic_shared: int, gpu: Gpu
) -> None:
    """Raises BadLaunch where a launch asks for more than the GPU has.

    Limits that are not the sheet's: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """
    threads = block[0] * block[1] * block[2]
    most = min(gpu.max_threads_per_block, program.flow.function.max_threads or gpu.max_threads_per_block)
    if threads > most:
        raise BadLaunch(f"{program.name} was launched with {threads} threads a block; at most {most} are allowed.")
    if block[2] > 64:
        raise BadLaunch(f"block={block}: at most 64 threads in z are allowed.")
    if grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535:
        raise BadLaunch(f"grid={grid}: at most 2147483647 blocks in x and 65535 in y and z are allowed.")
    shared = program.static_shared + dynamic_shared
    if shared > gpu.shared_per_block_optin:
        raise BadLaunch(
            f"{program.name} asks for {shared} bytes of shared memory a block; "
            f"{gpu.name} has {gpu.shared_per_block_optin}."
        )
    if gpu.warp_size != 32:
        raise BadLaunch(f"{gpu.name} has warps of {gpu.warp_size} lanes; PTX, which the machine runs, has 32.")


def _symbols(program: Program, memory: Memory, buffers: Buffers) -> "np.ndarray[Any, Any]":
    """Addresses of the file's variables, in the order of the program's numbers."""
    variables = [v for v in (*program.module.variables, *program.flow.variables) if v.space in {"global", "const"}]
    missing = [v for v in variables if v.name not in memory.arrays]
    if missing:
        memory.arrays |= place_variables(missing)
    for variable in variables:
        room = memory.arrays[variable.name]
        buffers.add(room.ctypes.data, room.size, read_only=variable.space == "const", owner=room)
    return np.array([memory.arrays[v.name].ctypes.data for v in variables] or [0], np.uint64)
