"""What a launch looks like: its grid of blocks, a block's warps and lanes, an SM's places, the waves of blocks.

Sizes here are in the units of the drawings; templates/pictures.html turns them into SVG.
"""

from dataclasses import dataclass
from math import ceil

from undertorch.records import Dim3, Gpu, Kernel, Launch

CELL = 6
"""A block in the picture of a grid, a warp in that of an SM: 5 and a gap of 1."""
LANE = 3
"""A lane in the picture of a block: 2 and a gap of 1."""
GRID_COLUMNS, GRID_ROWS = 16, 8
"""Blocks drawn of a grid; where it has more, the picture fades at that edge."""
SHEETS = 3
"""Layers drawn of a grid in z."""
SM_COLUMNS = 16
"""Warps of an SM drawn side by side."""
WAVE_WIDTH = SM_COLUMNS * CELL - 1
WAVES = 5
"""Waves drawn one by one; of more, the first two, then a gap, then the last two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPicture:
    """Blocks as squares: x to the right, y down, z behind."""

    columns: int
    rows: int
    sheets: int
    fades: str
    """Edges at which it goes on: "", "x", "y" or "xy"."""

    @property
    def width(self) -> int:
        """Of the front sheet."""
        return self.columns * CELL - 1

    @property
    def height(self) -> int:
        """Of the front sheet."""
        return self.rows * CELL - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPicture:
    """A block's threads: a row a warp, a column a lane. The last warp may be partly empty."""

    warps: int
    lanes: int
    full: int
    """Warps whose lanes all have a thread."""
    rest: int
    """Threads of the last warp where it is not full, otherwise 0."""

    @property
    def width(self) -> int:
        """Of a warp."""
        return self.lanes * LANE

    @property
    def height(self) -> int:
        """Of all warps."""
        return self.warps * LANE


@dataclass(frozen=True, slots=True, kw_only=True)
class SmPicture:
    """The places for warps of one SM, and which are taken: blocks alternate, so that one sees where each ends."""

    places: int
    resident: int
    odd: str
    """SVG path of the warps of every second block."""
    even: str
    """And of the others."""

    @property
    def height(self) -> int:
        """Of all rows."""
        return ceil(self.places / SM_COLUMNS) * CELL - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Waves:
    """Blocks that the whole GPU holds at once, again and again until the grid is done."""

    blocks: int
    places: int
    """Blocks that are resident at once: of a wave."""

    @property
    def count(self) -> float:
        """Waves; 1.5: a full one and a half-full one."""
        return self.blocks / self.places

    @property
    def tail(self) -> float:
        """How full the last wave is, above 0 to 1."""
        return (self.blocks % self.places or self.places) / self.places

    @property
    def bars(self) -> tuple[float | None, ...]:
        """Waves from first to last, each as its fullness; None stands for those that are left out."""
        waves = ceil(self.count)
        if waves <= WAVES:
            return (*(1.0,) * (waves - 1), self.tail)
        return (1.0, 1.0, None, 1.0, self.tail)


def grid_picture(grid: Dim3) -> GridPicture:
    """Of a grid of any size."""
    x, y, z = grid
    return GridPicture(
        columns=min(x, GRID_COLUMNS),
        rows=min(y, GRID_ROWS),
        sheets=min(z, SHEETS),
        fades=("x" if x > GRID_COLUMNS else "") + ("y" if y > GRID_ROWS else ""),
    )


def block_picture(threads: int, lanes: int) -> BlockPicture:
    """Of a block with that many threads, in warps of that many lanes."""
    full, rest = divmod(threads, lanes)
    return BlockPicture(warps=full + bool(rest), lanes=lanes, full=full, rest=rest)


def sm_picture(warps_a_block: int, blocks: int, places: int) -> SmPicture:
    """Of an SM that holds `blocks` blocks and has `places` places for warps."""
    resident = min(warps_a_block * blocks, places)
    odd: list[str] = []
    even: list[str] = []
    for warp in range(resident):
        row, column = divmod(warp, SM_COLUMNS)
        (odd if (warp // warps_a_block) % 2 else even).append(f"M{column * CELL} {row * CELL}h5v5h-5z")
    return SmPicture(places=places, resident=resident, odd="".join(odd), even="".join(even))


def blocks_per_sm(launch: Launch, gpu: Gpu) -> int | None:
    """Resident blocks of an SM, back from the occupancy; None where that is unknown."""
    threads = launch.kernel.threads
    if launch.occupancy is None or not threads:
        return None
    return round(launch.occupancy * gpu.max_warps_per_sm / ceil(threads / gpu.warp_size))


def waves(kernel: Kernel, resident: int | None, gpu: Gpu) -> Waves | None:
    """None where the kernel has no grid, or what is resident is unknown or nothing."""
    if not kernel.blocks or not resident:
        return None
    return Waves(blocks=kernel.blocks, places=gpu.sms * resident)
