"""Kernels of undertorch's softmax and rotary embedding (undertorch/ops), as they are usually cut: costs know no torch.

FLOPs of softmax as of torch's (costs/softmax.py); of a rotation 6 a pair: four products and two sums.
"""

from dataclasses import dataclass

from undertorch.costs.building import ceil_div, pytorch
from undertorch.costs.registry import cost
from undertorch.costs.training_ops import LIBRARY, WARP, Cut, padded, spread
from undertorch.records import Gpu, Kernel, Kind, Math, Op

WIDEST_SOFTMAX = 32768
"""Widest rows that a block keeps in registers: 32 elements a thread."""

SOFTMAX_PIECE, SOFTMAX_PIECE_WARPS, SOFTMAX_PIECE_BLOCKS_PER_SM = 16384, 32, 1
"""Elements of a wider row that a block works on at a time, its warps, and blocks on an SM that walk over the rows: the
caches have to hold what is read again. 2048 x 131072 bfloat16 on an H200: 350 µs, and 383 with a block for each row."""

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


@cost("undertorch::softmax_forward")
def softmax(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the rows, writes as many."""
    return _softmax(op, gpu, "softmax_forward", op.tensor_bytes("x"), 4)


@cost("undertorch::softmax_backward")
def softmax_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the result and its gradient, writes that of the rows."""
    return _softmax(op, gpu, "softmax_backward", op.tensor_bytes("dy", "y"), 4)


def _softmax(op: Op, gpu: Gpu, name: str, read: int, flops: int) -> tuple[Kernel, ...]:
    (result,) = op.results
    if result.elements == 0:
        return ()
    width = result.shape[-1]
    rows = result.elements // width
    cut = softmax_cut(
        width, rows, gpu.sms, result.itemsize, gpu.shared_per_block_optin, backward=name == "softmax_backward"
    )  # fmt: skip
    blocks = ceil_div(rows, cut.rows) if cut else rows
    per_sm = cut.blocks_per_sm if cut else SOFTMAX_PIECE_BLOCKS_PER_SM
    if per_sm:
        blocks = min(blocks, gpu.sms * per_sm)
    return (
        pytorch(
            name if cut else f"wide_{name}",
            Kind.SOFTMAX,
            blocks,
            WARP * (cut.warps if cut else SOFTMAX_PIECE_WARPS),
            read=read,
            written=result.bytes,
            flops=flops * result.elements,
            math=Math.FP32,
            library=LIBRARY,
        ),
    )


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
