"""How the four norms launch their kernels and hand gradients on. Which norm it is, is two flags: is the mean taken off
(layer norm), and is a residual added first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from undertorch.costs.training_ops import (
    DW_COLUMNS,
    SUMMED_COLUMNS,
    SUMMED_WARPS,
    WIDE_WARPS,
    backward_cut,
    forward_cut,
)
from undertorch.ops import norm_kernels as kernels
from undertorch.ops.calls import BadCall, compiles_for_amd, most_warps, multiprocessors, on_device_of, rows_in, rows_of
from undertorch.ops.choose import chosen
from undertorch.ops.operators import Operator, differentiable, operator

WIDE_PIECE = 512 * WIDE_WARPS
"""Elements of a wider row that a block works on at a time: 16 a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How a kernel is cut: rows of a block at a time, its warps, and for the backward how it overlaps loads."""

    rows: int = 1
    warps: int = 4
    blocks_per_sm: int = 2
    stages: int = 1
    """Rows in flight through shared memory (Triton's pipeliner); 1: none."""
    ahead: bool = False
    """Whether the next rows are loaded into registers before these are computed."""

    def __str__(self) -> str:
        how = f"{self.rows} row{'s' * (self.rows > 1)}, {self.warps} warps"
        loads = ", a row ahead" if self.ahead else f", {self.stages} stages" if self.stages > 1 else ""
        return f"{how}, {self.blocks_per_sm} blocks an SM{loads}"


AHEAD = 0
"""In the place of stages: the next rows are loaded into registers."""

BACKWARD_WAYS = (
    (8192, 32, 1, 3), (8192, 16, 1, 3), (4096, 32, 2, 3), (4096, 16, 2, 3), (8192, 16, 1, AHEAD), (4096, 8, 2, 3),
    (4096, 16, 2, AHEAD), (8192, 32, 1, 4), (4096, 16, 1, 4), (8192, 32, 2, 3), (2048, 16, 4, 3), (2048, 8, 4, 3),
    (2048, 8, 4, AHEAD), (8192, 32, 1, 1), (16384, 32, 1, 1), (16384, 16, 1, 1), (16384, 16, 1, 3), (16384, 32, 1, 3),
)  # fmt: skip
"""Elements of a block at a time and of a thread, blocks on an SM, stages: the fastest first, as measured on an H200 for
16384 x 4096 bfloat16 (104 to 130 µs). Without anything in flight during the reduction it was 124 µs at best."""


def forward_tiles(width: int, rows: int, sms: int) -> tuple[Tile, ...]:
    """Ways to cut the forward, the usual one first. None for rows wider than registers hold."""
    usual = forward_cut(width, rows, sms)
    if usual is None:
        return ()
    block = triton.next_power_of_2(width)
    tiles = [Tile(rows=usual.rows, warps=usual.warps)]
    for elements in (4096, 8192, 2048, 1024, 16384):  # of a block
        at_once = max(elements // block, 1)
        for a_thread in (16, 32, 8):
            warps = min(max(at_once * block // (32 * a_thread), 1), 32)
            tile = Tile(rows=at_once, warps=warps)
            if at_once * block <= 32 * 32 * warps and tile not in tiles:
                tiles.append(tile)
    return tuple(tiles)


def backward_tiles(width: int, rows: int, sms: int) -> tuple[Tile, ...]:
    """Ways to cut the backward, the usual one first. None for rows wider than registers hold."""
    usual = backward_cut(width, rows, sms)
    if usual is None:
        return ()
    block = triton.next_power_of_2(width)
    tiles = [Tile(rows=usual.rows, warps=usual.warps, blocks_per_sm=usual.blocks_per_sm, stages=usual.stages)]
    for elements, a_thread, per_sm, stages in BACKWARD_WAYS:
        at_once = max(elements // block, 1)
        warps = at_once * block // (32 * a_thread)
        tile = Tile(rows=at_once, warps=warps, blocks_per_sm=per_sm, stages=max(stages, 1), ahead=stages == AHEAD)
        if 1 <= warps <= 32 and tile not in tiles:
            tiles.append(tile)
    return tuple(tiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """One of the four."""

    name: str
    centred: bool
    residual: bool
    call: Callable[..., Any]
    """(x, residual, weight, bias, eps) -> y, or y and the sum."""
    forward: Operator
    backward: Operator


def norm(name: str, *, centred: bool, residual: bool) -> Norm:
    """Registers the operators of one norm, forward and backward, and its gradients."""

    def run(x: Tensor, added: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        return forward(x, added, weight, bias, eps, centred=centred, name=name)

    def run_fake(x: Tensor, added: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        row = x.new_empty(x.shape[:-1], dtype=torch.float32)
        y = x.new_empty(x.shape)
        return y, y.new_empty(x.shape) if residual else None, torch.empty_like(row) if centred else None, row

    def run_backward(dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor | None, *rest: Any) -> Any:
        return backward(dy, dtotal, x, weight, *rest, centred=centred, name=name)

    def fake_backward(dy: Tensor | None, dtotal: Tensor | None, x: Tensor, weight: Tensor | None, *rest: Any) -> Any:
        *_, bias_dtype, need_x, need_weight, need_bias = rest
        return (
            x.new_empty(x.shape) if need_x else None,
            weight.new_empty(weight.shape) if need_weight and weight is not None else None,
            x.new_empty(x.shape[-1:], dtype=bias_dtype) if need_bias else None,
        )

    forward_op = operator(
        f"{name}_forward",
        "(Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
        run,
        run_fake,
    )
    backward_op = operator(
        f"{name}_backward",
        "(Tensor? dy, Tensor? dtotal, Tensor x, Tensor? weight, Tensor? mean, Tensor rstd, ScalarType? bias_dtype,"
        " bool need_x, bool need_weight, bool need_bias) -> (Tensor, Tensor, Tensor)",
        run_backward,
        fake_backward,
    )

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        x, _, weight, bias, _ = inputs
        _, total, mean, rstd = output
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(tensor for tensor in (mean, rstd) if tensor is not None))
        ctx.save_for_backward(total if residual else x, weight, mean, rstd)
        ctx.bias_dtype = None if bias is None else bias.dtype

    def gradients(ctx: Any, dy: Tensor | None, dtotal: Tensor | None, *_: Any) -> tuple[Any, ...]:
        kept, weight, mean, rstd = ctx.saved_tensors
        need_x, need_added, need_weight, need_bias, _ = ctx.needs_input_grad
        if dy is None and dtotal is None:
            return None, None, None, None, None
        dtotal = dtotal if residual else None
        needs = (need_x or need_added, need_weight, need_bias)
        if dy is None:  # only the sum was used
            return (dtotal if need_x else None), (dtotal if need_added else None), None, None, None
        dx, dweight, dbias = backward_op(
            dy, dtotal, kept, weight, mean if centred else None, rstd, ctx.bias_dtype, *needs
        )
        return (
            dx if need_x else None,
            dx if need_added else None,
            dweight if need_weight else None,
            dbias if need_bias else None,
            None,
        )

    call = differentiable(forward_op, setup, gradients)
    return Norm(name=name, centred=centred, residual=residual, call=call, forward=forward_op, backward=backward_op)


def check(name: str, x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> None:
    """Raises BadCall where shapes or dtypes do not fit together."""
    if x.dim() == 0:
        raise BadCall(f"{name}: x has no dimensions, and its rows are normalised; pass a tensor of one at least.")
    if not x.is_floating_point():
        raise BadCall(f"{name}: x is {x.dtype}; pass a floating-point tensor.")
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise BadCall(
            f"{name}: residual is {tuple(residual.shape)} {residual.dtype} and x {tuple(x.shape)} {x.dtype}; "
            "they are added, and have to be alike."
        )
    for called, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != x.shape[-1:]:
            raise BadCall(
                f"{name}: {called} has shape {tuple(tensor.shape)} and rows of x have {x.shape[-1]} elements."
            )


def forward(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    centred: bool,
    name: str,
    tile: Tile | str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """y, the sum (with a residual), mean (of a layer norm) and reciprocal deviation, both float32."""
    width = x.shape[-1]
    rows = rows_in(x, width)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(y) if residual is not None else None
    rstd = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    mean = torch.empty_like(rstd) if centred else None
    if y.numel() == 0:
        return y, total, None if mean is None else mean.zero_(), rstd.zero_()
    source, added = rows_of(x, width), None if residual is None else rows_of(residual, width)
    weight, bias = _packed(weight), _packed(bias)
    if tile is None:
        alike = all(vector is None or vector.dtype == x.dtype for vector in (weight, bias))
        tile = chosen(
            f"{name}_forward",
            x,
            rows,
            width,
            forward_tiles(width, rows, multiprocessors(x)),
            lambda way, given: forward(
                given[0], given[1], given[2], given[3], eps, centred=centred, name=name, tile=way
            ),
            (x, residual, weight, bias),
            library=alike,
        )
    if isinstance(tile, str):
        return _library_forward(x, residual, weight, bias, eps, centred)
    flags = {
        "CENTRED": centred,
        "RESIDUAL": residual is not None,
        "WEIGHT": weight is not None,
        "BIAS": bias is not None,
    }
    strides = (source.stride(0), 0 if added is None else added.stride(0))
    arguments = (source, added, weight, bias, y, total, mean, rstd, rows, *strides, width, eps)
    with on_device_of(x):
        if tile is None:
            kernels.wide_norm_forward[(rows,)](*arguments, **flags, ROWS=1, BLOCK=WIDE_PIECE, num_warps=WIDE_WARPS)
        else:
            block = triton.next_power_of_2(width)
            grid = (triton.cdiv(rows, tile.rows),)
            kernels.norm_forward[grid](
                *arguments, **flags, ROWS=tile.rows, BLOCK=block, num_warps=most_warps(tile.warps)
            )
    return y, total, mean, rstd


def backward(
    dy: Tensor,
    dtotal: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor,
    bias_dtype: torch.dtype | None,
    need_x: bool,
    need_weight: bool,
    need_bias: bool,
    *,
    centred: bool,
    name: str,
    tile: Tile | str | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of input, weight and bias: those that are needed. `dtotal` is the sum's own, added to the input's."""
    width = x.shape[-1]
    rows = rows_in(x, width)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if need_x else None
    dweight = torch.empty(width, dtype=weight.dtype, device=x.device) if need_weight and weight is not None else None
    dbias = torch.empty(width, dtype=bias_dtype, device=x.device) if need_bias else None
    sums = [tensor for tensor in (dweight, dbias) if tensor is not None]
    if x.numel() == 0:
        for tensor in sums:
            tensor.zero_()
        return dx, dweight, dbias
    given, source = rows_of(dy, width), rows_of(x, width)
    passed = None if dtotal is None else rows_of(dtotal, width)
    weight = _packed(weight)
    if tile is None:
        again: Callable[..., Any] = backward
        needs_all = (bias_dtype, need_x, need_weight, need_bias)
        alike = weight is not None and weight.dtype == x.dtype and bias_dtype in (None, x.dtype) and need_x
        tile = chosen(
            f"{name}_backward",
            x,
            rows,
            width,
            backward_tiles(width, rows, multiprocessors(x)),
            lambda way, given: again(*given, *needs_all, centred=centred, name=name, tile=way),
            (dy, dtotal, x, weight, mean, rstd),
            library=alike,
            detail=f"{need_weight:d}{need_bias:d}",
        )
    if isinstance(tile, str):
        return _library_backward(dy, dtotal, x, weight, mean, rstd, need_weight, need_bias)
    sms = multiprocessors(x)
    shares = min(sms * (tile.blocks_per_sm if tile is not None else 4), triton.cdiv(rows, tile.rows if tile else 1))
    partial = torch.empty((len(sums), shares, width), dtype=torch.float32, device=x.device) if sums else None
    strides = (given.stride(0), 0 if passed is None else passed.stride(0), source.stride(0))
    arguments = (given, passed, source, weight, mean, rstd, dx, partial, rows, *strides, width)
    flags = {"CENTRED": centred, "TOTAL": passed is not None, "WEIGHT": weight is not None}
    needs = {"NEED_WEIGHT": dweight is not None, "NEED_BIAS": dbias is not None}
    with on_device_of(x):
        if tile is not None:
            block = triton.next_power_of_2(width)
            # AMD's shared memory does not hold rows in flight, its registers do.
            amd = tile.stages > 1 and compiles_for_amd()
            kernels.norm_backward[(shares,)](
                *arguments, **flags, **needs, NEED_X=need_x, ROWS=tile.rows, BLOCK=block,
                STAGES=1 if amd else tile.stages, AHEAD=tile.ahead or amd, num_warps=most_warps(tile.warps),
            )  # fmt: skip
        else:
            if need_x:
                kernels.wide_norm_dx[(rows,)](*arguments, **flags, BLOCK=WIDE_PIECE, num_warps=WIDE_WARPS)
            if sums:
                grid = (triton.cdiv(width, DW_COLUMNS), shares)
                kernels.wide_norm_dw[grid](*arguments, CENTRED=centred, **needs, BLOCK=DW_COLUMNS, num_warps=4)
        if sums:
            columns = SUMMED_COLUMNS[width > 8192]
            grid = (triton.cdiv(width, columns), len(sums))
            kernels.column_sums[grid](
                partial, sums[0], sums[-1], shares, width, ROWS=32, BLOCK=columns, num_warps=SUMMED_WARPS
            )
    return dx, dweight, dbias


def _library_forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, centred: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """torch's kernels, which keep the same statistics."""
    total = None if residual is None else x + residual
    source, shape = x if total is None else total, x.shape[-1:]
    if centred:
        y, mean, rstd = torch.native_layer_norm(source, shape, weight, bias, eps)
        return y, total, mean.squeeze(-1), rstd.squeeze(-1)
    y, rstd = torch.ops.aten._fused_rms_norm(source, shape, weight, eps)
    return y, total, None, rstd.squeeze(-1)


def _library_backward(
    dy: Tensor,
    dtotal: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor,
    need_weight: bool,
    need_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """torch's kernels. Of the bias they ask only what it is like, and it is like the weight."""
    shape, aten = x.shape[-1:], torch.ops.aten
    dbias = None
    if mean is not None:
        needs = [True, need_weight, need_bias]
        means = (mean.unsqueeze(-1), rstd.unsqueeze(-1))
        dx, dweight, dbias = aten.native_layer_norm_backward(dy, x, shape, *means, weight, weight, needs)
    else:
        needs = [True, need_weight]
        dx, dweight = aten._fused_rms_norm_backward(dy, x, shape, rstd.unsqueeze(-1), weight, needs)
    return dx if dtotal is None else dx.add_(dtotal), dweight, dbias


def _packed(vector: Tensor | None) -> Tensor | None:
    """Weights and biases one element after the other."""
    return None if vector is None else vector.contiguous()
