"""How softmax's kernels, in Triton, Gluon and CUDA C++, are cut."""

from dataclasses import dataclass
from typing import Any

import torch

from undertorch.costs.building import ceil_div
from undertorch.costs.softmax_and_rope import (
    CLUSTERS,
    SOFTMAX_PIECE,
    SOFTMAX_PIECE_BLOCKS_PER_SM,
    SOFTMAX_PIECE_WARPS,
    SOFTMAX_TILE,
    SOFTMAX_TILE_WARPS,
    STAGE_ROOM,
    WIDEST_SOFTMAX,
    HeldRow,
    held_row,
    softmax_cut,
)
from undertorch.costs.training_ops import padded
from undertorch.ops.calls import MOST_SHARED, VECTOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Rows whole in a block's registers: how many at a time, warps, blocks on an SM that walk over all rows (0: a block
    takes its rows and ends), and rows in flight through shared memory (1: none).
    """

    rows: int
    warps: int
    blocks_per_sm: int = 0
    stages: int = 1

    def __str__(self) -> str:
        walks = f", {self.blocks_per_sm} blocks an SM, {self.stages} stages" if self.blocks_per_sm else ""
        return f"{self.rows} row{'s' * (self.rows > 1)}, {self.warps} warps{walks}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A row at a time, read twice in pieces of so many elements, by blocks that walk over all rows."""

    block: int
    warps: int
    blocks_per_sm: int

    def __str__(self) -> str:
        return f"pieces of {self.block} elements, {self.warps} warps, {self.blocks_per_sm} blocks an SM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A row at a time in shared memory, as far as there is room, by a block on each SM that walks over all rows."""

    row: HeldRow
    tile: int = SOFTMAX_TILE
    warps: int = SOFTMAX_TILE_WARPS
    blocks_per_sm: int = 1

    def __str__(self) -> str:
        others = ((self.row.kept, "in registers"), (self.row.again, "read twice"))
        more = "".join(f", {n} {how}" for n, how in others if n)
        return f"{self.row.slots} tiles of {self.tile} in shared memory{more}, {self.warps} warps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A row whole in the registers of some blocks on neighbouring SMs (softmax.cu): blocks, threads of each, and how
    many blocks are to fit on an SM.
    """

    blocks: int
    threads: int
    resident: int
    keep: bool = True
    """Whether exponentials stay in registers; otherwise they are computed again."""
    bulk: bool = False
    """Whether a forward's rows come by bulk copies into shared memory, for which no registers wait."""

    def __str__(self) -> str:
        more = f"{'' if self.keep else ', exponentials twice'}{', bulk copies' * self.bulk}"
        return f"a row in {self.blocks} blocks of {self.threads} threads, {self.resident} blocks an SM{more}"

    def vectors(self, width: int) -> int:
        """Of 16 bytes, that a thread holds."""
        return ceil_div(ceil_div(width // VECTOR, self.blocks), self.threads)

    def defines(self, width: int, dtype: torch.dtype) -> dict[str, int]:
        """The constants that softmax.cu is compiled with."""
        return {
            "THREADS": self.threads,
            "CLUSTER": self.blocks,
            "A_THREAD": self.vectors(width),
            "RESIDENT": self.resident,
            "KEEP": self.keep,
            "HALF": dtype == torch.float16,
            "BULK": self.bulk,
        }

    def staged_bytes(self, width: int) -> int:
        """Of shared memory, for a block's part of a row."""
        return self.vectors(width) * self.threads * VECTOR_BYTES if self.bulk else 0


VECTOR = 8
"""Elements of half types in 16 bytes."""

HOW = {
    (32768, False): (3, True, True),
    (65536, False): (3, True, True),
    (131072, False): (3, False, False),
    (65536, True): (4, True, False),
    (131072, True): (2, True, False),
}
"""Of the usual cluster (costs/softmax_and_rope.py): blocks on an SM, whether exponentials are kept, bulk copies."""

MORE_CLUSTERS = {
    (32768, False): ((2, 512, 3, False, True),),
    (65536, False): ((4, 256, 4, False, True),),
    (131072, False): ((8, 512, 3, False, False), (8, 256, 4, False, True)),
    (65536, True): ((4, 256, 2, True, False),),
    (131072, True): ((8, 256, 2, True, False),),
}
"""Beside it: blocks and threads, then the same. On an H200, µs, in this order and the usual one first: 4096 x 32768
132, 131; 4096 x 65536 261, 262; 2048 x 131072 259, 258, 260. Of the forward nothing is spilt: with 20 registers that
were the last one took 297. Clusters that stay, with the next rows on their way, were slower (142, 284, 321)."""

FORWARD_WAYS = (
    (32768, 32, 1, 4), (4096, 16, 0, 1), (2048, 16, 0, 1), (4096, 32, 0, 1), (8192, 16, 0, 1), (16384, 32, 1, 4),
    (8192, 32, 2, 3), (16384, 16, 0, 1), (32768, 32, 1, 3), (16384, 32, 2, 3), (4096, 16, 4, 3), (32768, 32, 0, 1),
)  # fmt: skip
BACKWARD_WAYS = (
    (32768, 32, 0, 1), (4096, 8, 0, 1), (4096, 32, 0, 1), (8192, 16, 0, 1), (2048, 16, 0, 1), (16384, 16, 0, 1),
    (16384, 32, 0, 1), (4096, 16, 2, 3), (8192, 16, 1, 4), (8192, 32, 2, 3), (32768, 32, 1, 2), (16384, 32, 1, 3),
)  # fmt: skip
"""Elements of a block at a time and of a thread, blocks on an SM, stages; the fastest first. On an H200, bfloat16, in
shares of the copy rate: forward 4096 x 32768 .93, 32768 x 4096 1.02, 65536 x 1024 1.00, 131072 x 128 .90; backward
1.04, 1.07, 1.04, .95."""

PIECES = ((SOFTMAX_PIECE, SOFTMAX_PIECE_WARPS, SOFTMAX_PIECE_BLOCKS_PER_SM), (8192, 32, 1), (8192, 16, 2))
"""Elements, warps, blocks on an SM; 2048 x 131072 bfloat16 on an H200, µs: forward 334, 366, 414, backward 561, 587, –.
"""


def ways(
    width: int, rows: int, sms: int, *, backward: bool = False, itemsize: int = 2, shared: int = MOST_SHARED,
    vectors: bool = True, cuda: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Ways to cut a kernel, the usual one first. `shared`: bytes of shared memory that a block can get. `vectors`:
    whether all rows begin at multiples of 16 bytes; `cuda`: whether softmax.cu is there for them.
    """
    found = _whole(width, rows, sms, backward=backward, itemsize=itemsize, shared=shared)
    row = held_row(width, itemsize, shared, backward=backward) if vectors else None
    if row is not None:
        found.append(Held(row=row))
    if width > WIDEST_SOFTMAX // 4:
        found += [Pieces(block=size, warps=warps, blocks_per_sm=n) for size, warps, n in PIECES if size < padded(width)]
    clusters = _clusters(width, backward=backward) if vectors and cuda and itemsize == 2 else []
    if row is not None and backward and padded(width) == 65536:  # where shared memory is ahead of them
        return *found[:1], *clusters, *found[1:]
    return *clusters[:1], *found[:1], *clusters[1:], *found[1:]


def _clusters(width: int, *, backward: bool) -> list[Cluster]:
    """Those that hold rows so wide, which consist of vectors."""
    key = (padded(width), backward)
    if width % VECTOR or key not in CLUSTERS:
        return []
    every = ((*CLUSTERS[key], *HOW[key]), *MORE_CLUSTERS[key])
    return [
        Cluster(blocks=blocks, threads=threads, resident=resident, keep=keep, bulk=bulk)
        for blocks, threads, resident, keep, bulk in every
    ]


def _whole(width: int, rows: int, sms: int, *, backward: bool, itemsize: int, shared: int) -> list[Any]:
    """Ways with whole rows in a block's registers, the usual one first."""
    block = padded(width)
    usual = softmax_cut(width, rows, sms, itemsize, shared, backward=backward)
    if usual is None:
        return []
    found = [Whole(rows=usual.rows, warps=usual.warps, blocks_per_sm=usual.blocks_per_sm, stages=usual.stages)]
    for elements, a_thread, per_sm, stages in BACKWARD_WAYS if backward else FORWARD_WAYS:
        at_once = max(elements // block, 1)
        warps = max(at_once * block // (32 * a_thread), 1)
        tile = Whole(rows=at_once, warps=warps, blocks_per_sm=per_sm, stages=stages)
        near = block <= elements <= 4 * block or elements <= 8192
        in_flight = (stages - 1) * (1 + backward) * (at_once * block * itemsize + STAGE_ROOM)
        if (
            in_flight <= shared
            and near
            and block <= elements
            and warps <= 32
            and rows >= at_once * sms
            and tile not in found
        ):
            found.append(tile)
    return list(found)
