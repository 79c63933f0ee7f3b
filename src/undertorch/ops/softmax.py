"""Softmax over one dimension: exp(x) / sum(exp(x)).

Contract
    x: any rank, any strides, float32, bfloat16 or float16 on CUDA (anything that floats elsewhere). dim: the dimension
    that sums to 1. The result has x's shape and dtype (under autocast too), row-major but for that dimension, which is
    innermost in memory. Arithmetic is float32. x may hold -inf, whose result and gradient are 0; a row of nothing else
    is nan, as torch's. The backward keeps the result, not x. The same result every time. Raises BadCall.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undertorch.costs.building import ceil_div
from undertorch.costs.softmax_and_rope import (
    SOFTMAX_PIECE,
    SOFTMAX_PIECE_BLOCKS_PER_SM,
    SOFTMAX_PIECE_WARPS,
    STAGE_ROOM,
    WIDEST_SOFTMAX,
    softmax_cut,
)
from undertorch.costs.training_ops import padded
from undertorch.ops import softmax_kernels as kernels
from undertorch.ops.calls import (
    MOST_SHARED,
    Arguments,
    BadCall,
    compiles_for_amd,
    most_warps,
    multiprocessors,
    no_tensor,
    on_device_of,
    row_major_like,
    rows_in,
    rows_of,
    runs_own,
    shared_memory,
)
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import LIBRARY, chosen, prefers_library
from undertorch.ops.launching import launch
from undertorch.ops.operators import differentiable, operator

ARGUMENTS = Arguments(
    layout="x (...); dim is one whole number",
    unlike_torch="F.softmax's dim has no default that is of use, here it is -1; there is no dtype. Under autocast "
    "torch's answers in float32, this one in x's dtype",
)

# Reference


def reference(x: Tensor, dim: int = -1) -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    check(x, dim)
    if x.dtype in (torch.bfloat16, torch.float16):
        return torch.softmax(x.float(), dim).to(x.dtype)
    return torch.softmax(x, dim)


def check(x: Tensor, dim: int) -> None:
    """Raises BadCall for what has no such dimension or does not float."""
    if not isinstance(x, Tensor):
        raise no_tensor("softmax", x=x)
    if not isinstance(dim, int):
        raise BadCall(f"softmax: dim is {dim!r}; it is one whole number, -1 for the last dimension.")
    rank = max(x.dim(), 1)
    if not x.is_floating_point() or not -rank <= dim < rank:
        raise BadCall(
            f"softmax: x is {tuple(x.shape)} {x.dtype} and dim {dim}; pass floats, and one of its dimensions."
        )


# Kernels: softmax_kernels.py.


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

PIECES = (
    (SOFTMAX_PIECE, SOFTMAX_PIECE_WARPS, SOFTMAX_PIECE_BLOCKS_PER_SM), (8192, 32, 1), (8192, 16, 2),
)  # fmt: skip
"""Elements, warps, blocks on an SM; 2048 x 131072 bfloat16 on an H200, µs: forward 350, 395, 399, backward 582, 596,
636 (before a row was read again from its end)."""


def ways(
    width: int, rows: int, sms: int, *, backward: bool = False, itemsize: int = 2, shared: int = MOST_SHARED
) -> tuple[Any, ...]:
    """Ways to cut a kernel, the usual one first. `shared`: bytes of shared memory that a block can get."""
    block = padded(width)
    usual = softmax_cut(width, rows, sms, itemsize, shared, backward=backward)
    found: list[Any] = []
    if usual is not None:
        per_sm, stages = usual.blocks_per_sm, usual.stages
        found.append(Whole(rows=usual.rows, warps=usual.warps, blocks_per_sm=per_sm, stages=stages))
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
    if width > WIDEST_SOFTMAX // 4:
        found += [Pieces(block=size, warps=warps, blocks_per_sm=n) for size, warps, n in PIECES if size < block]
    return tuple(found)


def forward(x: Tensor, *, tile: Any = None) -> Tensor:
    """Softmax over the last dimension, row-major."""
    width = x.shape[-1]
    rows = rows_in(x, width)
    y = row_major_like(x)
    if y.numel() == 0:
        return y
    source = rows_of(x, width)
    if tile is None:
        tile = chosen(
            "softmax_forward",
            x,
            rows,
            width,
            lambda: ways(width, rows, multiprocessors(x), itemsize=x.element_size(), shared=shared_memory(x)),
            lambda way, given: forward(given[0], tile=way),
            (x,),
            library=True,
        )
    if tile == LIBRARY:
        return torch.softmax(x, -1).contiguous()
    with on_device_of(x):
        if isinstance(tile, Pieces):
            launch(
                kernels.wide_softmax_forward, _grid(tile, rows, x), source, y, rows, source.stride(0), width,
                BLOCK=tile.block, num_warps=most_warps(tile.warps),
            )  # fmt: skip
        else:
            launch(
                kernels.softmax_forward, _grid(tile, rows, x), source, y, rows, source.stride(0), width,
                ROWS=tile.rows, BLOCK=padded(width), STAGES=_stages(tile), num_warps=most_warps(tile.warps),
            )  # fmt: skip
    return y


def backward(dy: Tensor, y: Tensor, *, tile: Any = None) -> Tensor:
    """The gradient of x, row-major."""
    width = y.shape[-1]
    rows = rows_in(y, width)
    dx = row_major_like(y)
    if dx.numel() == 0:
        return dx
    given, value = rows_of(dy, width), rows_of(y, width)
    if tile is None:
        tile = chosen(
            "softmax_backward",
            y,
            rows,
            width,
            lambda: ways(
                width, rows, multiprocessors(y), backward=True, itemsize=y.element_size(), shared=shared_memory(y)
            ),
            lambda way, tensors: backward(tensors[0], tensors[1], tile=way),
            (dy, y),
            library=True,
        )
    if tile == LIBRARY:
        return torch._softmax_backward_data(dy, y, -1, y.dtype).contiguous()
    strides = (given.stride(0), value.stride(0))
    with on_device_of(y):
        if isinstance(tile, Pieces):
            launch(
                kernels.wide_softmax_backward, _grid(tile, rows, y), given, value, dx, rows, *strides, width,
                BLOCK=tile.block, num_warps=most_warps(tile.warps),
            )  # fmt: skip
        else:
            launch(
                kernels.softmax_backward, _grid(tile, rows, y), given, value, dx, rows, *strides, width,
                ROWS=tile.rows, BLOCK=padded(width), STAGES=_stages(tile), num_warps=most_warps(tile.warps),
            )  # fmt: skip
    return dx


def _grid(tile: Whole | Pieces, rows: int, like: Tensor) -> tuple[int]:
    blocks = ceil_div(rows, tile.rows) if isinstance(tile, Whole) else rows
    return (min(blocks, multiprocessors(like) * tile.blocks_per_sm) if tile.blocks_per_sm else blocks,)


def _stages(tile: Whole) -> int:
    """AMD's shared memory does not hold rows in flight."""
    return 1 if tile.stages > 1 and compiles_for_amd() else tile.stages


# Autograd

FORWARD = operator("softmax_forward", "(Tensor x) -> Tensor", forward, lambda x: x.new_empty(x.shape))
BACKWARD = operator("softmax_backward", "(Tensor dy, Tensor y) -> Tensor", backward, lambda dy, y: y.new_empty(y.shape))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _gradients(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return (BACKWARD(dy, *ctx.saved_tensors),)


_CALL = differentiable(FORWARD, _setup, _gradients)

# Cost: costs/softmax_and_rope.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="forward, backward",
        who="undertorch",
        kernel="softmax_forward and softmax_backward (Triton)",
        serves=f"rows of up to {WIDEST_SOFTMAX} elements; wider ones wide_softmax_forward and wide_softmax_backward",
        why="a memory-critical path: torch's moves its bytes at half the copy rate or less, and this near all of it",
    ),
    Candidate(
        passes="forward, backward",
        who="PyTorch",
        kernel="_softmax and _softmax_backward_data",
        serves="float32, bfloat16, float16",
        why="taken where ours is not 2 % ahead of it",
    ),
)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) over a dimension, differentiable. Raises BadCall."""
    if prefers_library() or not runs_own(x) or x.dim() == 0:
        return reference(x, dim)
    check(x, dim)
    if dim in (-1, x.dim() - 1):
        y: Tensor = _CALL(x)
        return y
    y = _CALL(x.movedim(dim, -1))
    return y.movedim(-1, dim)
