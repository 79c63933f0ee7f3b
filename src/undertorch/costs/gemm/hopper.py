"""Which kernel cuBLAS launches on Hopper for factors of 16 or 8 bits: a model of its choice, fitted to an H200's.

Resident blocks, one an SM, take tiles of the result in turn; blocks of a cluster share what they load. For each tile
that cuBLAS offers, each cluster and each number of parts of the inner dimension the model estimates the time: rounds
of tiles, times the steps along the inner dimension, times a step's work and loads. It takes the quickest.

Fitted to the layers of tests/golden/h200_gemms.json.gz that are not marked `held`, and to h200_ops.json.gz beside it.
Of the 256 held bfloat16 products it gets right: the tile of 54 %, the grid of 61 %, the number of rounds of 89 %,
how many kernels and memsets there are of 90 %. (Of the 375 fitted: 80, 81, 97, 96 %.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from undertorch.costs.building import ceil_div
from undertorch.costs.gemm.hopper_tiles import TILES, Tile
from undertorch.costs.gemm.product import Epilogue, Plan, Product

THREADS = 384
"""A warp group that loads and two that multiply; every recorded kernel has it."""

REGISTERS = 168
"""Every recorded kernel has it: 65,536 registers of an SM for 384 threads, in steps of 8."""

STEP_BYTES = 128
"""Of the inner dimension, a step: the row that a tensor map swizzles at most."""

ALIGNMENT = 16
"""Bytes that a tensor map asks of strides and addresses (CUDA driver API, cuTensorMapEncodeTiled)."""

CLUSTERS = ((2, 1), (1, 2), (4, 1), (1, 4), (4, 2), (2, 4))
"""Blocks along columns and rows; of equals the first. A single block is rare: 3 of 631 recorded."""

CLUSTERS_OF_GRADIENTS = ((1, 2), (2, 1), (1, 4), (4, 1), (4, 2), (2, 4))
"""The same with `cr`."""

RESIDENT = {2: 66, 4: 30, 8: 15}
"""Clusters of 2, 4, 8 blocks that an H200's 132 SMs hold (recorded): a cluster stays in a GPC, some SMs are left."""
RESIDENT_SMS = 132

# The model's constants, in units of a step's multiplications of one element by one element.
NARROW = 75
"""A step multiplies 64 by n in the time of at least 64 by (75 + n) / 2: its larger side comes through shared memory."""
LOAD = 20
"""For each row and column that a block loads in a step, after what its cluster shares."""
STEP = 1500
ROUND = 7850
"""For each tile: filling the pipeline."""
WRITE = 6.7
"""For each element of a tile: writing it."""
REDUCE = 60_700
"""The kernel that adds the parts up, on an idle GPU."""
REDUCE_BIAS = 103_000
"""The same where a bias is to be added: cuBLAS avoids it."""
REDUCE_PART = 0.19
"""For each element of each part."""
PADDING = 0.035
"""For what part of the clusters' blocks has no tile."""
UNUSUAL_SIDE = 1.002
"""Where the other of two mirrored tiles is preferred: by columns, and with `cr` by rows."""
UNUSUAL_WIDTH = 1.026
"""Where the side that wgmma takes at once is no multiple of 64."""
EFFICIENCY = {(192, 192): 0.968, (256, 160): 1.34}
"""Tiles that are better or worse than the rest of the model says."""

WITHOUT_EPILOGUE = ((320, 128), (320, 64), (256, 160))
"""Tiles that were never seen with a bias."""

SPLIT_LESS = {None: 16, "A": 32, "B": 48}
"""Bytes of shared memory that the kernels need less which split the inner dimension, by `cooperative` (recorded)."""

LEAST_STEPS = 4
"""Of a part of the inner dimension."""

TYPES = {"bfloat16": "tst", "float16": "hsh", "float8_e4m3fn": "qqtst", "float8_e5m2": "qqtst"}
"""As in the kernel's name. Those of 8 bits were not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A tile, the cluster it is worked off in, and parts of the inner dimension."""

    tile: Tile
    across: int
    """Blocks of a cluster along columns."""
    along: int
    """And along rows."""
    splits: int

    @property
    def size(self) -> int:
        """Blocks of a cluster."""
        return self.across * self.along


@cache
def plan(product: Product, sms: int, architecture: str = "sm90") -> Plan:
    """The kernel, for a GPU with that many SMs; `architecture` goes into its name."""
    choice = min(_choices(product, sms), key=lambda choice: _estimate(product, choice, sms))
    tile = choice.tile
    clusters = min(_resident(choice.size, sms), _clusters(product, choice) * choice.splits)
    tiles = product.batch * ceil_div(product.columns, tile.columns) * ceil_div(product.rows, tile.rows)
    rounds = tiles * choice.splits / (_resident(choice.size, sms) * choice.size)
    return Plan(
        name=_name(product, choice, architecture),
        tile=(tile.columns, tile.rows),
        grid=(choice.size, clusters, 1),
        threads=THREADS,
        registers=REGISTERS,
        shared=tile.shared - (SPLIT_LESS[tile.cooperative] if choice.splits > 1 else 0),
        splits=choice.splits,
        # Blocks take their third tile and later ones off a counter in global memory (630 of 631 recorded).
        counters=4 if rounds > 2 else None,
        reduced=choice.splits > 1,
    )


def _choices(product: Product, sms: int) -> Iterator[Choice]:
    # Both factors stored along rows and columns the other way round were not recorded; they load as `cr` does.
    layout = "cr" if product.layout == "cc" else product.layout
    steps = _steps(product)
    for tile in TILES:
        if layout not in tile.layouts:
            continue
        if product.epilogue is not Epilogue.NONE and (tile.columns, tile.rows) in WITHOUT_EPILOGUE:
            continue
        for across, along in CLUSTERS_OF_GRADIENTS if layout == "cr" else CLUSTERS:
            whole = Choice(tile=tile, across=across, along=along, splits=1)
            if whole.size > 2 and not _fills(product, whole):
                continue
            yield whole
            most = _resident(whole.size, sms) // _clusters(product, whole)
            for splits in range(2, min(most, steps // LEAST_STEPS) + 1):
                yield Choice(tile=tile, across=across, along=along, splits=splits)


def _fills(product: Product, choice: Choice) -> bool:
    columns, rows = _tiles(product, choice.tile)
    return (choice.across == 1 or choice.across <= columns) and (choice.along == 1 or choice.along <= rows)


def _estimate(product: Product, choice: Choice, sms: int) -> float:
    """Time, in units of one multiplication each."""
    tile = choice.tile
    major, minor = (tile.columns, tile.rows) if tile.major == "T" else (tile.rows, tile.columns)
    multiply = major * max(minor, (NARROW + minor) / 2) * EFFICIENCY.get((tile.columns, tile.rows), 1.0)
    if minor % 64:
        multiply *= UNUSUAL_WIDTH
    load = LOAD * (tile.columns / choice.along + tile.rows / choice.across)
    steps = ceil_div(_steps(product), choice.splits)
    each = steps * (multiply + load + STEP) + ROUND + WRITE * tile.columns * tile.rows
    clusters = _clusters(product, choice)
    columns, rows = _tiles(product, tile)
    padding = clusters * choice.size / (product.batch * columns * rows) - 1
    time = ceil_div(clusters * choice.splits, _resident(choice.size, sms)) * each * (1 + PADDING * padding)
    if tile.major != ("N" if product.layout in ("cr", "cc") else "T"):
        time *= UNUSUAL_SIDE
    if choice.splits > 1:
        fixed = REDUCE if product.epilogue is Epilogue.NONE else REDUCE_BIAS
        elements = product.batch * product.rows * product.columns
        time += fixed + REDUCE_PART * elements * choice.splits
    return time


def _steps(product: Product) -> int:
    return ceil_div(product.inner * product.itemsize, STEP_BYTES)


def _tiles(product: Product, tile: Tile) -> tuple[int, int]:
    return ceil_div(product.columns, tile.columns), ceil_div(product.rows, tile.rows)


def _clusters(product: Product, choice: Choice) -> int:
    columns, rows = _tiles(product, choice.tile)
    return product.batch * ceil_div(columns, choice.across) * ceil_div(rows, choice.along)


def _resident(size: int, sms: int) -> int:
    return max(1, RESIDENT[size] * sms // RESIDENT_SMS)


def _name(product: Product, choice: Choice, architecture: str) -> str:
    tile = choice.tile
    cooperative = tile.cooperative
    if cooperative is None and product.epilogue is not Epilogue.NONE and tile.columns * tile.rows >= 128 * 144:
        # With a bias the larger tiles are shared by both warp groups (recorded).
        cooperative = "A"
    parts = (
        f"nvjet_{architecture}_{TYPES[product.dtype]}",
        tile.name,
        f"{STEP_BYTES // product.itemsize}x{tile.stages}",
        f"{choice.across}x{choice.along}",
        "v" if choice.along == 1 else "h",
        "bz",
        f"coop{cooperative}" if cooperative else "",
        "splitK" if choice.splits > 1 else "",
        product.epilogue.value,
        product.letters.upper() + tile.major,
    )
    return "_".join(part for part in parts if part)
