"""Into how many parts a kernel that ran had cut the inner dimension of its product, by its name and its grid."""

import re

from undertorch.costs.building import ceil_div
from undertorch.records import Kernel

REDUCES = "splitKreduce"
"""Begins the name of cuBLASLt's kernel that adds the parts up."""

RESIDENT = re.compile(r"nvjet_\w*?_(\d+)x(\d+)_\d+x\d+_(\d+)x(\d+)_")
"""Columns and rows of a tile, and of a cluster's blocks, in the names of Hopper's kernels (hopper.py)."""

BY_GRID = "CUTLASS"
"""The library whose grids have a part in each z (cutlass/gemm/device/gemm_splitk_parallel.h)."""


def parts(kernel: Kernel, rows: int, columns: int, batch: int = 1) -> int | None:
    """None where neither tells: blocks that take several parts in turn do not (2 of 78 recorded)."""
    found = RESIDENT.search(kernel.name)
    if found is not None and kernel.blocks is not None:
        across, along, wide, high = map(int, found.groups())
        tiles = batch * _whole(columns, across, wide) * _whole(rows, along, high)
        return kernel.blocks // tiles if kernel.blocks > tiles and kernel.blocks % tiles == 0 else None
    if kernel.library == BY_GRID and kernel.grid is not None and batch == 1 and kernel.grid[2] > 1:
        return kernel.grid[2]
    return None


def _whole(size: int, tile: int, blocks: int) -> int:
    """Tiles that cover it, in whole clusters."""
    return ceil_div(ceil_div(size, tile), blocks) * blocks
