"""How the gated activations launch their kernels and hand gradients on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undertorch.costs.building import ceil_div
from undertorch.costs.training_ops import GATED_PIECE, GATED_WARPS
from undertorch.ops import gated_kernels as kernels
from undertorch.ops.calls import BadCall, no_tensor, on_device_of, rows_in, rows_of
from undertorch.ops.candidates import Candidate, by_reference
from undertorch.ops.launching import launch
from undertorch.ops.operators import differentiable, operator

KINDS = {"silu": 0, "gelu": 1, "gelu_tanh": 2}
"""As gated_kernels.py numbers them."""

CANDIDATES = (
    Candidate(
        passes="forward, backward",
        who="undertorch",
        kernel="gated_forward and gated_backward (Triton)",
        serves="float32, bfloat16, float16 on one GPU",
        why="one launch a pass where torch makes two and three, and stores no activation",
    ),
    by_reference("forward, backward"),
)


def check(name: str, gate: Tensor, up: Tensor) -> None:
    """Raises BadCall where the two are not alike."""
    if not (isinstance(gate, Tensor) and isinstance(up, Tensor)):
        raise no_tensor(name, gate=gate, up=up)
    if gate.shape != up.shape or gate.dtype != up.dtype or not gate.is_floating_point():
        raise BadCall(
            f"{name}: gate is {tuple(gate.shape)} {gate.dtype} and up {tuple(up.shape)} {up.dtype}; "
            "they are multiplied, and have to be floats and alike."
        )


def gated(name: str) -> Callable[[Tensor, Tensor, int], Tensor]:
    """Registers the operators of one of them; the function takes gate, up and the kind."""
    forward_op = operator(
        f"{name}_forward",
        "(Tensor gate, Tensor up, int kind) -> Tensor",
        forward,
        lambda gate, up, kind: gate.new_empty(gate.shape),
    )
    backward_op = operator(
        f"{name}_backward",
        "(Tensor dy, Tensor gate, Tensor up, int kind, bool need_gate, bool need_up) -> (Tensor, Tensor)",
        backward,
        lambda dy, gate, up, kind, need_gate, need_up: (
            gate.new_empty(gate.shape) if need_gate else None,
            up.new_empty(up.shape) if need_up else None,
        ),
    )

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        gate, up, ctx.kind = inputs
        ctx.save_for_backward(gate, up)

    def gradients(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad[:2]
        dgate, dup = backward_op(dy, *ctx.saved_tensors, ctx.kind, *needs)
        return dgate if needs[0] else None, dup if needs[1] else None, None

    return differentiable(forward_op, setup, gradients)


def _matrix(*tensors: Tensor) -> tuple[list[Tensor], int, int]:
    """The tensors as rows, with how many and how wide: one long row where all lie without gaps."""
    if all(tensor.is_contiguous() for tensor in tensors):
        return [tensor.view(1, -1) for tensor in tensors], 1, tensors[0].numel()
    width = tensors[0].shape[-1]
    return [rows_of(tensor, width) for tensor in tensors], rows_in(tensors[0], width), width


def forward(gate: Tensor, up: Tensor, kind: int) -> Tensor:
    """act(gate) * up, row-major."""
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if y.numel() == 0:
        return y
    (first, second), rows, width = _matrix(gate, up)
    pieces = ceil_div(width, GATED_PIECE)
    with on_device_of(gate):
        launch(
            kernels.gated_forward, (rows * pieces,),
            first, second, y, pieces, width, first.stride(0), second.stride(0),
            KIND=kind, BLOCK=GATED_PIECE, num_warps=GATED_WARPS,
        )  # fmt: skip
    return y


def backward(
    dy: Tensor, gate: Tensor, up: Tensor, kind: int, need_gate: bool, need_up: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of gate and up that are needed."""
    dgate, dup = (
        torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if need else None for need in (need_gate, need_up)
    )
    if gate.numel() == 0:
        return dgate, dup
    (given, first, second), rows, width = _matrix(dy, gate, up)
    pieces = ceil_div(width, GATED_PIECE)
    with on_device_of(gate):
        launch(
            kernels.gated_backward, (rows * pieces,),
            given, first, second, dgate, dup, pieces, width, given.stride(0), first.stride(0), second.stride(0),
            NEED_GATE=need_gate, NEED_UP=need_up, KIND=kind, BLOCK=GATED_PIECE, num_warps=GATED_WARPS,
        )  # fmt: skip
    return dgate, dup
