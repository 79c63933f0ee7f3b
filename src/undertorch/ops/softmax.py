"""Softmax over one dimension: exp(x) / sum(exp(x)).

Contract
    x: any rank, any strides, float32, bfloat16 or float16 on CUDA (anything that floats elsewhere). dim: the dimension
    that sums to 1. The result has x's shape and dtype (under autocast too), row-major but for that dimension, which is
    innermost in memory. Arithmetic is float32. x may hold -inf, whose result and gradient are 0; a row of nothing else
    is nan, as torch's. The backward keeps the result, not x. The same result every time. Raises BadCall.
"""

from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undertorch.costs.building import ceil_div
from undertorch.costs.softmax_and_rope import WIDEST_SOFTMAX
from undertorch.costs.training_ops import padded
from undertorch.ops import held_kernels
from undertorch.ops import softmax_kernels as kernels
from undertorch.ops.calls import (
    VECTOR_BYTES,
    Arguments,
    BadCall,
    begin_at_vectors,
    compiles_for_amd,
    most_warps,
    multiprocessors,
    no_tensor,
    on_device_of,
    on_machine,
    row_major_like,
    rows_in,
    rows_of,
    runs_own,
    shared_memory,
)
from undertorch.ops.candidates import Candidate
from undertorch.ops.captures import beside_capture, captures
from undertorch.ops.choose import DOES_NOT_RUN, LIBRARY, chosen, prefers_library
from undertorch.ops.cuda_source import CudaSource
from undertorch.ops.launching import launch
from undertorch.ops.operators import differentiable, operator
from undertorch.ops.softmax_ways import Cluster, Held, Pieces, Whole, ways

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
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise BadCall(f"softmax: dim is {dim!r}; it is one whole number, -1 for the last dimension.")
    rank = max(x.dim(), 1)
    if not x.is_floating_point() or not -rank <= dim < rank:
        raise BadCall(
            f"softmax: x is {tuple(x.shape)} {x.dtype} and dim {dim}; pass floats, and one of its dimensions."
        )


# Kernels: softmax_kernels.py, held_kernels.py, softmax.cu; softmax_ways.py cuts them.

BF16 = torch.bfloat16
WIDEST_NARROW = 16384
"""Elements of the widest rows that are always whole in one block's registers."""

SOURCE = CudaSource(Path(__file__).with_name("softmax.cu"))


@cache
def loads_clusters(device: torch.device) -> bool:
    """Whether softmax.cu can be compiled and loaded there: on Hopper."""
    if torch.version.cuda is None or torch.cuda.get_device_capability(device)[0] != 9:
        return False
    try:
        with beside_capture() if torch.cuda.is_current_stream_capturing() else nullcontext():  # a module is loaded
            SOURCE.kernel("softmax_forward", Cluster(blocks=1, threads=32, resident=1).defines(256, BF16), device)
    except DOES_NOT_RUN:
        return False
    return True


def room(like: Tensor, *, vectors: bool) -> dict[str, Any]:
    """What ways depend on beside the matrix's shape. `vectors`: whether all rows begin at multiples of 16 bytes."""
    half = like.dtype in (torch.bfloat16, torch.float16)
    cuda = half and like.is_cuda and like.shape[-1] > WIDEST_NARROW and not on_machine()
    return {
        "itemsize": like.element_size(),
        "shared": shared_memory(like),
        "vectors": vectors,
        "cuda": cuda and loads_clusters(like.device),
    }


def _launch_cluster(cluster: Cluster, name: str, strides: str, *arguments: Any, shared: int = 0) -> None:
    like: Tensor = arguments[0]
    width = like.shape[-1]
    with beside_capture() if captures(like) else nullcontext():  # a module is loaded
        kernel = SOURCE.kernel(name, cluster.defines(width, like.dtype), like.device)
    rows = rows_in(like, width)
    kernel.launch((rows * cluster.blocks, 1, 1), (cluster.threads, 1, 1), shared, strides, *arguments, width)


def forward(x: Tensor, *, tile: Any = None) -> Tensor:
    """Softmax over the last dimension, row-major."""
    width = x.shape[-1]
    rows = rows_in(x, width)
    y = row_major_like(x)
    if y.numel() == 0:
        return y
    source = rows_of(x, width)
    if tile is None:
        vectors = width <= WIDEST_NARROW or begin_at_vectors(source)
        tile = chosen(
            "softmax_forward",
            x,
            rows,
            width,
            lambda: ways(width, rows, multiprocessors(x), **room(x, vectors=vectors)),
            lambda way, given: forward(given[0], tile=way),
            (x,),
            library=True,
            detail="" if vectors else "odd",
        )
    if tile == LIBRARY:
        return torch.softmax(x, -1).contiguous()
    with on_device_of(x):
        if isinstance(tile, Cluster):
            shared = tile.staged_bytes(width)
            _launch_cluster(tile, "softmax_forward", "PPqi", source, y, source.stride(0), shared=shared)
        elif isinstance(tile, Held):
            launch(
                held_kernels.held_softmax_forward, _grid(tile, rows, x), source, y, rows, source.stride(0), width,
                TILE=tile.tile, SLOTS=tile.row.slots, VECTOR=VECTOR_BYTES // x.element_size(), num_warps=tile.warps,
            )  # fmt: skip
        elif isinstance(tile, Pieces):
            launch(
                kernels.wide_softmax_forward, _grid(tile, rows, x), source, y, rows, source.stride(0), width,
                BLOCK=tile.block, VECTOR=VECTOR_BYTES // x.element_size(), num_warps=most_warps(tile.warps),
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
        vectors = width <= WIDEST_NARROW or begin_at_vectors(given, value)
        tile = chosen(
            "softmax_backward",
            y,
            rows,
            width,
            lambda: ways(width, rows, multiprocessors(y), backward=True, **room(y, vectors=vectors)),
            lambda way, tensors: backward(tensors[0], tensors[1], tile=way),
            (dy, y),
            library=True,
            detail="" if vectors else "odd",
        )
    if tile == LIBRARY:
        return torch._softmax_backward_data(dy, y, -1, y.dtype).contiguous()
    strides = (given.stride(0), value.stride(0))
    with on_device_of(y):
        if isinstance(tile, Cluster):
            _launch_cluster(tile, "softmax_backward", "PPPqqi", given, value, dx, *strides)
        elif isinstance(tile, Held):
            launch(
                held_kernels.held_softmax_backward, _grid(tile, rows, y), given, value, dx, rows, *strides, width,
                TILE=tile.tile, SLOTS=tile.row.slots, KEPT=tile.row.kept, AGAIN=tile.row.again,
                VECTOR=VECTOR_BYTES // y.element_size(),
                num_warps=tile.warps,
            )  # fmt: skip
        elif isinstance(tile, Pieces):
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


def _grid(tile: Whole | Pieces | Held, rows: int, like: Tensor) -> tuple[int]:
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
        kernel="softmax_forward and softmax_backward (Triton; of wide rows of half types CUDA C++)",
        serves=f"rows of up to {WIDEST_SOFTMAX} elements; wider ones held_softmax_forward and held_softmax_backward if "
        "they begin at multiples of 16 bytes, else wide_softmax_forward and wide_softmax_backward",
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
