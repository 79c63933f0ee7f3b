"""Kernels of undertorch's attention with capped scores and sliding windows (undertorch/ops/attention.py).

FLOPs as of torch's attention (costs/attention.py), over the pairs that mask and window leave: two products forward;
seven backward, as the scores and their gradients are computed twice (of float32 three times: nine).
"""

from dataclasses import dataclass

from undertorch.costs.attention import MATH
from undertorch.costs.building import ceil_div, pytorch
from undertorch.costs.registry import cost
from undertorch.costs.training_ops import FLOAT32, LIBRARY, WARP, padded
from undertorch.costs.units import available
from undertorch.records import Gpu, Kernel, Kind, Math, Op

LEAST_SIZE = 16
"""Of a head in a block: what a tensor core's instruction takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Queries and keys of a block at a time, its warps, and stages of its loads."""

    rows: int
    keys: int
    warps: int
    stages: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.keys}, {self.warps} warps, {self.stages} stages"


FORWARD_TILES = {
    64: ((64, 64, 4, 3), (128, 64, 4, 3), (128, 128, 8, 3), (64, 128, 4, 3), (128, 64, 8, 3)),
    128: ((64, 64, 4, 3), (64, 64, 4, 4), (64, 32, 4, 3), (64, 128, 4, 2), (128, 64, 8, 4)),
    256: ((64, 64, 8, 2), (64, 32, 4, 2), (128, 32, 8, 2)),
}
QUERIES_TILES = {
    64: ((64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 4, 3)),
    128: ((64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (128, 64, 8, 3)),
    256: ((64, 32, 8, 1), (64, 64, 8, 1), (32, 32, 4, 1)),
}
KEYS_TILES = {
    64: ((64, 64, 4, 3), (64, 128, 8, 3), (64, 128, 4, 2)),
    128: ((64, 64, 4, 2), (32, 64, 4, 3), (64, 64, 4, 3), (32, 64, 4, 2), (64, 128, 8, 2)),
    256: ((32, 64, 8, 1), (32, 32, 4, 1), (64, 64, 8, 1)),
}
"""By the size of a head, up to. Of 128 the fastest first, on an H200 (4 x 32 x 4096, causal, bfloat16): 316 and 252
TFLOP/s both ways with softcap, 348 and 284 with a window of 1024. Those of 64 and 256 are not measured."""

WIDE_TILE = Tile(rows=32, keys=32, warps=4, stages=1)
"""Of float32, whose products run outside of tensor cores."""


def head_size(size: int) -> int:
    """Of a head in a block: a power of two."""
    return max(padded(size), LEAST_SIZE)


def tiles(kinds: dict[int, tuple[tuple[int, int, int, int], ...]], size: int, *, wide: bool) -> tuple[Tile, ...]:
    """Ways to cut a kernel, the usual one first."""
    if wide:
        return (WIDE_TILE,)
    found = next(some for most, some in kinds.items() if head_size(size) <= most)
    return tuple(Tile(rows=rows, keys=keys, warps=warps, stages=stages) for rows, keys, warps, stages in found)


def pairs_of(rows: int, keys: int, window: int | None, *, causal: bool) -> int:
    """Pairs of query and key that see each other, of one head."""
    reach = max(rows, keys) if window is None else window
    return sum(
        max(min(keys, row + 1 if causal else row + reach) - max(row - reach + 1, 0), 0) for row in range(rows)
    )  # fmt: skip


def _pairs(op: Op) -> int:
    q, window = op.tensor("q"), op.arg("window")
    reach = window if isinstance(window, int) else None
    each = pairs_of(q.shape[2], op.tensor("k").shape[2], reach, causal=op.arg("causal") is True)
    return q.shape[0] * q.shape[1] * each


def _kernel(
    op: Op, gpu: Gpu, name: str, tile: Tile, tokens: int, heads: int, read: int, written: int, products: int
) -> Kernel:
    q = op.tensor("q")
    return pytorch(
        name,
        Kind.ATTENTION,
        (ceil_div(tokens, tile.rows if name != "attend_backward_keys" else tile.keys), q.shape[0] * heads, 1),
        WARP * tile.warps,
        read=read,
        written=written,
        flops=2 * products * _pairs(op) * q.shape[3],
        math=available(gpu, MATH.get(q.dtype, Math.FP32)),
        library=LIBRARY,
    )


@cost("undertorch::attention_forward")
def attention(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads queries, keys and values; writes the result and two numbers a query."""
    q, k = op.tensor("q"), op.tensor("k")
    if q.elements == 0 or k.elements == 0:
        return ()
    (tile, *_) = tiles(FORWARD_TILES, q.shape[3], wide=q.dtype == "float32")
    read, written = op.tensor_bytes("q", "k", "v"), sum(tensor.bytes for tensor in op.results)
    return (_kernel(op, gpu, "attend", tile, q.shape[2], q.shape[1], read, written, 2),)


@cost("undertorch::attention_backward")
def attention_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Each kernel reads the inputs and the result's gradient; the queries' writes a number a query for the keys'."""
    q, k = op.tensor("q"), op.tensor("k")
    if q.elements == 0 or k.elements == 0:
        return ()
    (tile_q, *_), (tile_k, *_) = (
        tiles(kinds, q.shape[3], wide=q.dtype == "float32") for kinds in (QUERIES_TILES, KEYS_TILES)
    )
    each = FLOAT32 * q.elements // q.shape[3]
    read = op.tensor_bytes("given", "q", "k", "v", "lse")
    queries = _kernel(
        op, gpu, "attend_backward_queries", tile_q, q.shape[2], q.shape[1], read + op.tensor_bytes("out"),
        q.bytes + each, 5 if q.dtype == "float32" else 3,
    )  # fmt: skip
    keys = _kernel(
        op, gpu, "attend_backward_keys", tile_k, k.shape[2], k.shape[1], read + each, op.tensor_bytes("k", "v"), 4
    )
    return queries, keys
