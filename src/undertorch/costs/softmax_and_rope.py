"""Kernels of undertorch's softmax and rotary embedding (undertorch/ops), as they are usually cut: costs know no torch.

FLOPs of softmax as of torch's (costs/softmax.py); of a rotation 6 a pair: four products and two sums.
"""

from dataclasses import dataclass

from undertorch.costs.building import ceil_div, pytorch
from undertorch.costs.registry import cost, other_ways
from undertorch.costs.training_ops import LIBRARY, WARP, Cut, padded, spread
from undertorch.records import Gpu, Kernel, Kind, Math, Op, TensorRef

WIDEST_SOFTMAX = 32768
"""Widest rows that a block keeps in registers: 32 elements a thread."""

SOFTMAX_PIECE, SOFTMAX_PIECE_WARPS, SOFTMAX_PIECE_BLOCKS_PER_SM = 16384, 32, 1
"""Elements of a wider row that a block works on at a time, its warps, and blocks on an SM that walk over the rows: the
caches have to hold what is read again. 2048 x 131072 bfloat16 on an H200: 334 µs, and 366 with pieces of 8,192."""

SOFTMAX_TILE, SOFTMAX_TILE_WARPS, SOFTMAX_TILES_KEPT = 4096, 16, 6
"""Of a wide row of half types that lies in shared memory: elements of a tile, warps of the block that walks over the
rows, and tiles of a backward that registers hold beside it. On an H200, µs: 4096 x 65536 forward 290 (read twice 362),
backward 407 (484); 2048 x 131072 backward 488 (561)."""

CLUSTERS = {
    (32768, False): (2, 256),
    (65536, False): (4, 256),
    (131072, False): (8, 256),
    (65536, True): (8, 256),
    (131072, True): (8, 512),
}
"""Blocks of a cluster and threads of each, where registers hold a row of half types (softmax.cu): by the power of two
that holds the row, and whether it is the backward. On an H200, µs, with the best other way: forward 4096 x 32768 132,
148; 4096 x 65536 261, 291; 2048 x 131072 259, 328; backward 4096 x 65536 410, 398; 2048 x 131072 386, 493."""

WALKED_FROM = 8192
"""Rows of the forward above this are walked by blocks that stay, with the next ones on their way into shared memory:
one block cannot hide such a row's loads behind another's stores."""

STAGE_ROOM = 1024
"""Bytes of shared memory beside each row in flight: what the sums over a row need."""

ROPE_PAIRS, ROPE_WARPS = 1024, 2
"""Pairs that a block turns, and its warps."""

HEADS_OF_A_TOKEN_MAJOR_BLOCK = 4
"""Of a block where a head's tokens lie side by side: so many heads share the angles that it reads."""


def softmax_cut(width: int, rows: int, sms: int, itemsize: int, shared: int, *, backward: bool) -> Cut | None:
    """Rows of a block and its warps, as measured fastest on an H200 (bfloat16, 128 to 32768 columns). None: rows wider
    than registers hold, which are read twice in pieces. `shared`: bytes of shared memory that a block can get.
    """
    if width > WIDEST_SOFTMAX:
        return None
    row = padded(width) * itemsize
    stages = 1 + min(shared // (row + STAGE_ROOM), 2)
    if width > WALKED_FROM and stages > 1 and not backward:
        return Cut(rows=1, warps=16, blocks_per_sm=2 if row <= 32768 else 1, stages=stages)
    at_once = max((4096 if backward else 2048) // padded(width), 1)
    return spread(Cut(rows=at_once, warps=min(max(at_once * padded(width) // 512, 1), 16)), rows, sms)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    """Tiles of a wide row (of a backward, of its result and of its gradient): in `slots` of shared memory, `kept` in
    registers, and read `again`.
    """

    slots: int
    kept: int
    again: int


def held_row(width: int, itemsize: int, shared: int, *, backward: bool) -> HeldRow | None:
    """How a row wider than registers hold lies in shared memory; None: it is read twice in pieces. Whole tiles only."""
    if width <= WIDEST_SOFTMAX or width % SOFTMAX_TILE or itemsize > 2:
        return None
    tiles = width // SOFTMAX_TILE
    slots = min((shared - STAGE_ROOM) // (SOFTMAX_TILE * itemsize * (1 + backward)), tiles)
    kept = min(tiles - slots, SOFTMAX_TILES_KEPT * backward)
    again = tiles - slots - kept
    return HeldRow(slots=slots, kept=kept, again=again) if again <= (slots if backward else 0) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """Of a block of the rotary embedding: tokens, heads, and warps."""

    tokens: int
    heads: int
    warps: int = ROPE_WARPS


def rope_cut(heads: int, half: int, heads_inner: bool, pairs: int = ROPE_PAIRS, warps: int = ROPE_WARPS) -> Turned:
    """`half`: pairs of a head. `heads_inner`: whether a token's heads lie side by side."""
    room = max(pairs // padded(half), 1)
    most = padded(heads) if heads_inner else min(padded(heads), HEADS_OF_A_TOKEN_MAJOR_BLOCK)
    at_once = min(most, room)
    return Turned(tokens=max(room // at_once, 1), heads=at_once, warps=warps)


@other_ways("undertorch::softmax_forward", "undertorch::softmax_backward")
def softmax_in_clusters(op: Op, gpu: Gpu) -> tuple[tuple[Kernel, ...], ...]:
    """Rows in the registers of a few blocks."""
    (result,) = op.results
    name, width = op.name.removeprefix("undertorch::"), result.shape[-1]
    backward = name == "softmax_backward"
    blocks, threads = CLUSTERS.get((padded(width), backward), (0, 0))
    if not blocks:
        return ()
    read = op.tensor_bytes("dy", "y") if backward else op.tensor_bytes("x")
    return ((_rows(name, result.elements // width * blocks, threads, read, result),),)


@cost("undertorch::softmax_forward")
def softmax(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the rows, writes as many."""
    return _softmax(op, gpu, "softmax_forward", op.tensor_bytes("x"))


@cost("undertorch::softmax_backward")
def softmax_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the result and its gradient, writes that of the rows."""
    return _softmax(op, gpu, "softmax_backward", op.tensor_bytes("dy", "y"))


def _softmax(op: Op, gpu: Gpu, name: str, read: int) -> tuple[Kernel, ...]:
    (result,) = op.results
    if result.elements == 0:
        return ()
    width = result.shape[-1]
    rows = result.elements // width
    itemsize, shared, backward = result.itemsize, gpu.shared_per_block_optin, name == "softmax_backward"
    cut = softmax_cut(width, rows, gpu.sms, itemsize, shared, backward=backward)
    if cut:
        blocks = ceil_div(rows, cut.rows)
        walkers = min(blocks, gpu.sms * cut.blocks_per_sm) if cut.blocks_per_sm else blocks
        return (_rows(name, walkers, WARP * cut.warps, read, result),)
    if held_row(width, itemsize, shared, backward=backward):
        return (_rows(f"held_{name}", min(rows, gpu.sms), WARP * SOFTMAX_TILE_WARPS, read, result),)
    walkers = min(rows, gpu.sms * SOFTMAX_PIECE_BLOCKS_PER_SM)
    return (_rows(f"wide_{name}", walkers, WARP * SOFTMAX_PIECE_WARPS, read, result),)


def _rows(name: str, blocks: int, threads: int, read: int, result: TensorRef) -> Kernel:
    """A kernel of softmax: 4 FLOPs an element, as torch's."""
    flops = 4 * result.elements
    return pytorch(
        name, Kind.SOFTMAX, blocks, threads, read=read, written=result.bytes, flops=flops, math=Math.FP32,
        library=LIBRARY,
    )  # fmt: skip


@cost("undertorch::rope_forward", "undertorch::rope_backward")
def rope(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads queries, keys and the angles' cosines and sines once; writes queries and keys."""
    turned = [op.tensor("q"), *op.tensors("k")]
    if not any(tensor.elements for tensor in turned):
        return ()
    batch, heads, tokens, _ = turned[0].shape
    half = op.tensor("cos").shape[-1]
    inner = op.arg("q_inner") is True
    cut = rope_cut(heads, half, inner)
    chunks = sum(ceil_div(tensor.shape[1], cut.heads) for tensor in turned)
    pairs = sum(tensor.elements // tensor.shape[-1] for tensor in turned if tensor.elements) * half
    angles = min(tokens, op.tensor("cos").shape[-2]) * half
    looked_up = angles * (op.tensor("cos").itemsize + op.tensor("sin").itemsize)
    return (
        pytorch(
            "rotate",
            Kind.ELEMENTWISE,
            ceil_div(batch * tokens, cut.tokens) * chunks,
            WARP * cut.warps,
            read=sum(tensor.bytes for tensor in turned) + looked_up + op.tensor_bytes("positions"),
            written=sum(tensor.bytes for tensor in turned),
            flops=6 * pairs,
            math=Math.FP32,
            library=LIBRARY,
        ),
    )
