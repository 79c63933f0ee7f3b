"""What stands under a line: its kernels by phase, each once however often it was launched."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from undertorch.records import Gpu, Kernel, Launch, Origin, Phase
from undertorch.records.totals import longest_first
from undertorch.reports.page.geometry import (
    BlockPicture,
    GridPicture,
    SmPicture,
    Waves,
    block_picture,
    blocks_per_sm,
    grid_picture,
    sm_picture,
    waves,
)
from undertorch.reports.page.rates import Rates, rates
from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.runs import Run, busy, by_phase, grouped, longest

MOST = 40
"""Kernels shown of a line in a phase; the rest is counted in one row."""
SMALL = 0.02
"""Kernels below this share of their line's time stay folded, where there are several."""
WARP = 32
"""Lanes of a warp where the GPU's sheet is not there: those of every GPU of NVIDIA's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One kernel under one line in one phase, with its pictures. None: it cannot be drawn, for want of a figure."""

    kernel: Kernel
    launch: Launch
    """The longest one."""
    launches: int
    time_us: float
    """Their part of the busy time."""
    mean_us: float
    """Of a launch, by its own clock."""
    ops: tuple[str, ...]
    modules: tuple[str, ...]
    bound: str
    rates: Rates
    grid: GridPicture | None
    block: BlockPicture | None
    sm: SmPicture | None
    waves: Waves | None
    blocks_per_sm: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePart:
    """A line's launches of one phase."""

    phase: Phase
    time_us: float
    launches: int
    kernels: tuple[Launched, ...]
    """The longest first."""
    small: tuple[Launched, ...]
    """And those that hardly count."""
    rest: int
    """Kernels that are not shown, with their launches and their time."""
    rest_launches: int
    rest_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Of each group of figures, the origin that all launches share; None: they differ, or have none."""

    time: Origin | None
    geometry: Origin | None
    occupancy: Origin | None
    bytes: Origin | None


def origins(runs: Sequence[Run]) -> Origins:
    """Of a line's launches: what they share stands once, above the column."""
    launches = [run.launch for run in runs]
    return Origins(
        time=_shared(launch.time_origin for launch in launches),
        geometry=_shared(launch.kernel.geometry_origin for launch in launches),
        occupancy=_shared(occupancy_origin(launch) for launch in launches),
        bytes=_shared(launch.kernel.bytes_origin for launch in launches),
    )


def occupancy_origin(launch: Launch) -> Origin | None:
    """Of what stands about an SM: the occupancy, or without it registers and shared memory."""
    return launch.occupancy_origin or launch.kernel.resources_origin


def _shared(found: Iterable[Origin | None]) -> Origin | None:
    different = {origin for origin in found if origin is not None}
    return different.pop() if len(different) == 1 else None


def by_phases(runs: Sequence[Run], gpu: Gpu | None) -> tuple[PhasePart, ...]:
    """The runs of a line, in the order of the phases."""
    whole = busy(runs)
    return tuple(_part(phase, some, whole, gpu) for phase, some in by_phase(runs))


def _part(phase: Phase, runs: Sequence[Run], whole: float, gpu: Gpu | None) -> PhasePart:
    groups = longest_first(grouped(runs, lambda run: run.launch.kernel).values(), busy)
    rest = groups[MOST:]
    small = [group for group in groups[:MOST] if busy(group) < SMALL * whole]
    if len(small) < 2:
        small = []
    large = groups[: min(len(groups), MOST) - len(small)]
    return PhasePart(
        phase=phase,
        time_us=busy(runs),
        launches=len(runs),
        kernels=tuple(launched(group, gpu) for group in large),
        small=tuple(launched(group, gpu) for group in small),
        rest=len(rest),
        rest_launches=sum(len(group) for group in rest),
        rest_us=sum(busy(group) for group in rest),
    )


def launched(runs: Sequence[Run], gpu: Gpu | None) -> Launched:
    """The runs of one kernel as one row."""
    launch = longest(runs)
    kernel = launch.kernel
    mean_us = sum(run.launch.time_us for run in runs) / len(runs)
    lanes = WARP if gpu is None else gpu.warp_size
    block = block_picture(kernel.threads, lanes) if kernel.threads else None
    resident = None if gpu is None else blocks_per_sm(launch, gpu)
    sm = None
    if gpu is not None and block is not None and resident is not None:
        sm = sm_picture(block.warps, resident, gpu.max_warps_per_sm)
    return Launched(
        kernel=kernel,
        launch=launch,
        launches=len(runs),
        time_us=busy(runs),
        mean_us=mean_us,
        ops=_once(None if run.op is None else run.op.name for run in runs),
        modules=_once(None if run.op is None else run.op.module for run in runs),
        bound=bound(runs),
        rates=rates(kernel, mean_us, gpu),
        grid=None if kernel.grid is None else grid_picture(kernel.grid),
        block=block,
        sm=sm,
        waves=None if gpu is None else waves(kernel, resident, gpu),
        blocks_per_sm=resident,
    )


def _once(names: Iterable[str | None]) -> tuple[str, ...]:
    """Each name once, in the order in which it first appears."""
    return tuple(dict.fromkeys(name for name in names if name))
