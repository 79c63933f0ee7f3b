"""The norm of all gradients together: sqrt(sum of squares), without touching them.

Contract
    tensors: any number of floats of any shapes; float32, bfloat16, float16 on CUDA are read once, in one launch a dtype
    (anything else goes through torch). DTensors are read in their local parts, and the sum is all-reduced over the mesh
    dimensions they are sharded along; a partial one is refused. The answer is a float32 tensor without dimensions
    (float64 where one of them is), on the first tensor's device; of no tensors 0. Squares are summed in float32, in a
    fixed order. To scale gradients by it costs another pass: `adamw` takes the norm instead and clips while it reads
    them. Raises BadCall.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from undertorch.ops import grad_norm_kernels as kernels
from undertorch.ops.calls import Arguments, BadCall, on_device_of, runs_own
from undertorch.ops.candidates import Candidate, by_reference
from undertorch.ops.choose import prefers_library
from undertorch.ops.launching import launch
from undertorch.ops.operators import operator
from undertorch.ops.tensor_lists import Tables, by_dtypes, dense, local

ARGUMENTS = Arguments(
    layout="tensors, the gradients themselves: [p.grad for p in parameters if p.grad is not None], of any shapes; the "
    "result is float32 (float64 where one of them is), without dimensions",
    unlike_torch="torch.nn.utils.get_total_norm takes them too, for any p, here 2. clip_grad_norm_ takes parameters "
    "and scales their gradients, which AdamW's max_norm does while it updates",
)

# Reference


def reference(tensors: Iterable[Tensor]) -> Tensor:
    """The definition, in plain torch."""
    given = list(tensors)
    if not given:
        return torch.zeros(())
    squares = [
        tensor.float().square().sum() if tensor.dtype != torch.float64 else tensor.square().sum() for tensor in given
    ]
    return torch.stack([square.to(squares[0].device) for square in squares]).sum().sqrt()


# Kernels: grad_norm_kernels.py.

CHUNK, BLOCK, WARPS = 32768, 4096, 8
"""Elements of a block, and of those at a time: 16 a thread."""

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}

_TABLES = Tables()


# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="forward",
        who="undertorch",
        kernel="squares and root (Triton)",
        serves="float32, bfloat16, float16 on one GPU",
        why="one launch over all tensors, each read once, and nothing written",
    ),
    by_reference("forward"),
)


def grad_norm(tensors: Iterable[Tensor]) -> Tensor:
    """sqrt(sum of squares) of all tensors together, float32. Raises BadCall."""
    if not isinstance(tensors, Iterable):
        raise BadCall(f"grad_norm: tensors is of type {type(tensors).__name__}; pass {ARGUMENTS.layout}.")
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for place, tensor in enumerate(given):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            what = tensor.dtype if isinstance(tensor, Tensor) else tensor
            raise BadCall(
                f"grad_norm: tensor {place} is {what}; pass tensors of floats (no parameters without gradient)."
            )
    if not given:
        return torch.zeros(())
    meshes = [_sharded_over(tensor) for tensor in given]
    total: Tensor | None = None
    for mesh in dict.fromkeys(meshes):
        part = SQUARES([local(tensor) for tensor, its in zip(given, meshes, strict=True) if its == mesh])
        for group in () if mesh is None else mesh:
            torch.distributed.all_reduce(part, group=group)
        total = part if total is None else total + part.to(total.device)
    assert total is not None
    return total.sqrt()


def sum_of_squares(tensors: Sequence[Tensor], config: tuple[int, int, int] | None = None) -> Tensor:
    """Of all tensors together, on the first one's device."""
    chunk, block, warps = config or (CHUNK, BLOCK, WARPS)
    if (
        prefers_library()
        or not all(runs_own(tensor) for tensor in tensors)
        or len({tensor.device for tensor in tensors}) > 1
    ):
        return reference(tensors).square()
    device = tensors[0].device
    flat = [tensor if dense(tensor) else tensor.contiguous() for tensor in tensors]
    tables = [(_TABLES.of([[place[0] for place in group]], chunk), group[0][0].dtype) for group in by_dtypes(flat)]
    total = torch.zeros((), dtype=torch.float32, device=device)
    if not tables:
        return total
    partial = torch.empty(sum(table.blocks for table, _ in tables), dtype=torch.float32, device=device)
    with on_device_of(partial):
        done = 0
        for table, dtype in tables:
            launch(
                kernels.squares, (table.blocks,),
                table.pointers, table.sizes, table.tensor_of_block, table.start_of_block, partial[done:], table.tensors,
                DTYPE=DTYPES[dtype], ALIGNED=table.aligned, CHUNK=chunk, BLOCK=block, num_warps=warps,
            )  # fmt: skip
            done += table.blocks
        launch(kernels.root, (1,), partial, total, done, ROOT=False, BLOCK=8192, num_warps=16)
    return total


def _wide(tensors: Sequence[Tensor]) -> torch.dtype:
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


SQUARES = operator(
    "sum_of_squares",
    "(Tensor[] tensors) -> Tensor",
    sum_of_squares,
    lambda tensors: tensors[0].new_empty((), dtype=_wide(tensors)),
)


def _sharded_over(tensor: Tensor) -> Any:
    """The process groups that the parts of a DTensor are summed over; None for other tensors."""
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return None
    if any(placement.is_partial() for placement in placements):
        raise BadCall("grad_norm: a gradient is a partial DTensor, whose parts are still to be added; redistribute it.")
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is None:
        return None
    return tuple(mesh.get_group(dim) for dim, placement in enumerate(placements) if placement.is_shard())
