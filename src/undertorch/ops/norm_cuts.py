"""Ways to cut the norms' kernels, for `choose` to measure: the usual one first (costs/training_norms.py, with figures),
then those that may be ahead of it at such a width.
"""

from dataclasses import dataclass, replace

from undertorch.costs.training_norms import (
    DW_STAGES,
    WIDE_PIECE,
    WIDE_WARPS,
    NormCut,
    backward_cut,
    bias_apart,
    fitted,
    forward_cut,
    held_cut,
    tiling,
)
from undertorch.costs.training_ops import WARP, padded, spread
from undertorch.ops.calls import MOST_SHARED

REGISTERS, MOST_REGISTERS = 65536, 255
"""Of an SM, and of a thread (CUDA C++ Programming Guide, table of technical specifications)."""


def registers_of(warps: int, blocks_per_sm: int) -> int:
    """Of a thread at most, where so many blocks are to fit on an SM."""
    return min(REGISTERS // (max(blocks_per_sm, 1) * warps * WARP) // 8 * 8, MOST_REGISTERS)


AMD_WARPS = 16
"""That make up 1024 threads, the most of a block, of 64 lanes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Rows in tiles that stay in a block's registers: rows at a time, elements of a tile, tiles of a row, and warps.
    For the backward also how the block walks over the rows.
    """

    rows: int
    warps: int
    tile: int
    tiles: int = 1
    whole: bool = True
    """Whether tiles end where rows do."""
    blocks_per_sm: int = 0
    stages: int = 1
    """Rows in flight through shared memory (Triton's pipeliner); 1: none."""
    ahead: bool = False
    """Whether the next rows are loaded into registers before these are computed."""
    keep: bool = True
    """Whether the weight stays in registers."""
    twice: bool = False
    """Whether rows are read again instead of kept."""
    registers: int | None = None
    """Of a thread at most, so that as many blocks fit on an SM; None: as the compiler likes."""

    def __str__(self) -> str:
        tiles = f" in {self.tiles} tiles" if self.tiles > 1 else ""
        how = f"{self.rows} row{'s' * (self.rows > 1)}{tiles}, {self.warps} warps"
        if not self.blocks_per_sm:
            return how
        loads = ", a row ahead" if self.ahead else f", {self.stages} stages" if self.stages > 1 else ""
        return f"{how}, {self.blocks_per_sm} blocks an SM{loads}{', read twice' if self.twice else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A row in pieces of so many elements, read twice. In the backward, the weights' gradients have a second kernel."""

    block: int = WIDE_PIECE
    warps: int = WIDE_WARPS
    stages: int = DW_STAGES
    """Of the second kernel."""
    unroll: int = 1
    """Pieces of the forward in a row of loads."""

    def __str__(self) -> str:
        more = f", {self.unroll} at a time" if self.unroll > 1 else ""
        return f"pieces of {self.block} elements, {self.warps} warps{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Rows of the backward in shared memory (held_kernels.py), with the weight and so many `more` tiles of the rows to
    come: elements of a tile, tiles of a row, warps of a block; there is one on an SM.
    """

    tile: int
    tiles: int
    warps: int
    more: int = 0
    bias_apart: bool = False
    """Whether the bias's gradient has a kernel of its own."""

    @property
    def registers(self) -> int:
        """Of a thread at most, so that a block fits on an SM."""
        return registers_of(self.warps, 1)

    def __str__(self) -> str:
        apart = ", the bias apart" if self.bias_apart else ""
        return f"{self.tiles} and {self.more} tiles of {self.tile} in shared memory, {self.warps} warps{apart}"


NormWay = Tile | Pieces | Held

PIECES = ((4096, 16, 1), (4096, 16, 4), (2048, 8, 1), (8192, 32, 4))
"""Elements, warps, and pieces in a row of loads. rms_norm on an H200, µs: 16384 x 8192 136, –, 137, –, where rows in
registers take 142; 8192 x 32768 286, 260, –, 263, in registers 271; in fours, and read again from the end, 290. A layer
norm's take a fifth more time than its rows in registers."""

FORWARD_WAYS = ((4096, 16), (4096, 32), (8192, 32), (2048, 16), (8192, 16), (8192, 8))
"""Elements of a block and of a thread."""

BACKWARD_WAYS = ((8192, 32, 1, 3), (4096, 32, 2, 3), (8192, 16, 1, 3), (4096, 16, 2, 3))
"""Elements of a block and of a thread, blocks on an SM, stages, of rows of up to 8,192: the fastest of 43 for
16384 x 4096 bfloat16 on an H200 (104 to 107 µs). With nothing in flight during the reduction it was 124 at best."""


def forward_tiles(
    width: int, rows: int, sms: int, *, centred: bool = False, residual: bool = False, amd: bool = False
) -> tuple[NormWay, ...]:
    """Ways to cut the forward, the usual one first. `amd`: warps of 64 lanes."""
    usual = forward_cut(width, rows, sms, centred=centred, residual=residual)
    first = Pieces(block=usual.tile, warps=usual.warps, unroll=usual.unroll) if usual.twice else tile_of(usual, width)
    found: list[NormWay] = [first]
    block = padded(width)
    if block >= 4096 and not centred:
        wide = block >= 32768  # where a row of loads is short beside a row
        pieces = (Pieces(block=size, warps=warps, unroll=n) for size, warps, n in PIECES if wide or n == 1)
        found += (way for way in pieces if way.block < width and way.block * way.unroll <= width)
    if block <= 32768:
        tile, tiles = tiling(width)
        if tile in (4096, 8192) and tiles == 1 and centred and not residual:
            found.append(tile_of(NormCut(rows=1, warps=tile // 1024, tile=tile // 4, tiles=4), width))
        for elements, a_thread in FORWARD_WAYS:
            at_once = max(elements // block, 1)
            warps = at_once * block // (WARP * a_thread)
            if 1 <= warps <= 32:
                found.append(tile_of(NormCut(rows=at_once, warps=warps, tile=tile, tiles=tiles), width))
    return _listed(found, amd=amd)


def backward_tiles(
    width: int,
    rows: int,
    sms: int,
    *,
    centred: bool = False,
    total: bool = False,
    itemsize: int = 2,
    shared: int = MOST_SHARED,
    vectors: bool = True,
    amd: bool = False,
) -> tuple[NormWay, ...]:
    """Ways to cut the backward, the usual one first. `total`: whether the gradient of a sum is added. `shared`: bytes
    of shared memory that a block can get. `vectors`: whether all rows begin at multiples of 16 bytes.
    """
    block = padded(width)
    if amd:  # its registers hold rows in flight in the place of shared memory, if they are not too wide
        shared = MOST_SHARED if block <= 8192 else 0
    held = held_cut(width, centred=centred, total=total, itemsize=itemsize, shared=shared) if vectors else None
    usual = backward_cut(
        width, rows, sms, centred=centred, total=total, itemsize=itemsize, shared=shared, vectors=False
    )  # fmt: skip
    cuts = [] if usual is None else [usual]
    tile, tiles = tiling(width)
    if block <= 8192:
        for elements, a_thread, per_sm, stages in BACKWARD_WAYS:
            at_once = max(elements // block, 1)
            warps = max(at_once * block // (WARP * a_thread), 1)
            cuts.append(NormCut(rows=at_once, warps=warps, tile=block, blocks_per_sm=per_sm, stages=stages))
    elif usual is not None:
        again = NormCut(rows=1, warps=16, tile=tile, tiles=tiles, blocks_per_sm=1, keep=False, twice=True)
        cuts += [again, replace(again, warps=32)]
    cuts = [fitted(spread(cut, rows, sms), total=total, itemsize=itemsize, shared=shared) for cut in cuts]
    tiled = [tile_of(cut, width) for cut in cuts]
    last: NormWay = replace(tiled[-2], stages=1, ahead=True) if block <= 8192 else Pieces()
    first = [held_of(held, width, centred=centred)] if held else []
    return _listed([*first, *tiled, last], amd=amd)


def held_of(cut: NormCut, width: int, *, centred: bool) -> Held:
    """A cut of rows in shared memory."""
    apart = bias_apart(width, centred=centred)
    return Held(tile=cut.tile, tiles=cut.tiles, warps=cut.warps, more=cut.more, bias_apart=apart)


def tile_of(cut: NormCut, width: int) -> Tile:
    """A cut of rows that are so wide."""
    return Tile(
        rows=cut.rows,
        warps=cut.warps,
        tile=cut.tile,
        tiles=cut.tiles,
        whole=cut.tile * cut.tiles == width,
        blocks_per_sm=cut.blocks_per_sm,
        stages=cut.stages,
        keep=cut.keep,
        twice=cut.twice,
        registers=registers_of(cut.warps, cut.blocks_per_sm) if cut.blocks_per_sm else None,
    )


def _listed(ways: list[NormWay], *, amd: bool) -> tuple[NormWay, ...]:
    """Each once. AMD's shared memory does not hold rows in flight, its registers do."""
    if amd:
        ways = [
            replace(way, warps=min(way.warps, AMD_WARPS), stages=1, ahead=way.ahead or way.stages > 1, registers=None)
            if isinstance(way, Tile)
            else replace(way, warps=min(way.warps, AMD_WARPS), stages=1)
            for way in ways
            if not isinstance(way, Held)
        ]
    return tuple(dict.fromkeys(ways))
