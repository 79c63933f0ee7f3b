"""How the four norms launch their kernels and hand gradients on. Which norm it is, is two flags: is the mean taken off
(layer norm), and is a residual added first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undertorch.costs.building import ceil_div
from undertorch.costs.training_norms import (
    DW_COLUMNS,
    DW_ROWS,
    DW_STAGES,
    DW_WARPS,
    WIDE_BLOCKS_PER_SM,
    WIDEST_NARROW,
    backward_shares,
)
from undertorch.costs.training_ops import SUMMED_COLUMNS, SUMMED_WARPS
from undertorch.ops import held_kernels
from undertorch.ops import norm_kernels as kernels
from undertorch.ops.calls import (
    VECTOR_BYTES,
    BadCall,
    begin_at_vectors,
    compiles_for_amd,
    is_number,
    multiprocessors,
    no_tensor,
    on_device_of,
    row_major_like,
    rows_in,
    rows_of,
    shared_memory,
)
from undertorch.ops.choose import chosen
from undertorch.ops.launching import launch
from undertorch.ops.norm_cuts import Held, NormWay, Pieces, Tile, backward_tiles, forward_tiles
from undertorch.ops.operators import Operator, differentiable, operator


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
        ctx.save_for_backward(total if residual else x, weight, mean if centred else None, rstd)
        ctx.bias_dtype = None if bias is None else bias.dtype

    def gradients(ctx: Any, dy: Tensor | None, dtotal: Tensor | None = None, *_: Any) -> tuple[Any, ...]:
        kept, weight, mean, rstd = ctx.saved_tensors
        need_x, need_added, need_weight, need_bias, _ = ctx.needs_input_grad
        if dy is None and dtotal is None:
            return None, None, None, None, None
        dtotal = dtotal if residual else None
        needs = (need_x or need_added, need_weight, need_bias)
        if dy is None:  # only the sum was used
            return (dtotal if need_x else None), (dtotal if need_added else None), None, None, None
        dx, dweight, dbias = backward_op(dy, dtotal, kept, weight, mean, rstd, ctx.bias_dtype, *needs)
        return (
            dx if need_x else None,
            dx if need_added else None,
            dweight if need_weight else None,
            dbias if need_bias else None,
            None,
        )

    call = differentiable(forward_op, setup, gradients, shown=1 + residual)
    return Norm(name=name, centred=centred, residual=residual, call=call, forward=forward_op, backward=backward_op)


def check(
    name: str, x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
) -> None:
    """Raises BadCall where shapes or dtypes do not fit together."""
    if not isinstance(x, Tensor):
        raise no_tensor(name, x=x)
    if x.dim() == 0:
        raise BadCall(f"{name}: x has no dimensions, and its rows are normalised; pass a tensor of one at least.")
    if not x.is_floating_point():
        raise BadCall(f"{name}: x is {x.dtype}; pass a floating-point tensor.")
    if residual is not None and not isinstance(residual, Tensor):
        raise no_tensor(name, residual=residual)
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise BadCall(
            f"{name}: residual is {tuple(residual.shape)} {residual.dtype} and x {tuple(x.shape)} {x.dtype}; "
            "they are added, and have to be alike."
        )
    for called, tensor in (("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise no_tensor(name, **{called: tensor})
        if tensor.shape != x.shape[-1:]:
            raise BadCall(
                f"{name}: {called} has shape {tuple(tensor.shape)} and rows of x have {x.shape[-1]} elements."
            )
    if type(eps) is not float and not is_number(eps):
        shown = "None" if eps is None else f"of type {type(eps).__name__}"
        raise BadCall(
            f"{name}: eps is {shown}; it is a number (F.rms_norm's, which is None by default, is "
            "torch.finfo(torch.float32).eps)."
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
    tile: Tile | Pieces | str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """y, the sum (with a residual), mean (of a layer norm) and reciprocal deviation, both float32."""
    width = x.shape[-1]
    rows = rows_in(x, width)
    y = row_major_like(x)
    total = torch.empty_like(y) if residual is not None else None
    rstd = x.new_empty(x.shape[:-1], dtype=torch.float32)
    mean = torch.empty_like(rstd) if centred else None
    if y.numel() == 0:
        return y, total, None if mean is None else mean.zero_(), rstd.zero_()
    source, added = rows_of(x, width), None if residual is None else rows_of(residual, width)
    weight, bias = _packed(weight), _packed(bias)
    if tile is None:
        alike = (weight is None or weight.dtype == x.dtype) and (bias is None or bias.dtype == x.dtype)
        tile = chosen(
            f"{name}_forward",
            x,
            rows,
            width,
            lambda: forward_tiles(
                width, rows, multiprocessors(x), centred=centred, residual=residual is not None, amd=compiles_for_amd()
            ),
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
        if isinstance(tile, Pieces):
            launch(
                kernels.wide_norm_forward, (rows,), *arguments, **flags, BLOCK=tile.block, UNROLL=tile.unroll,
                num_warps=tile.warps,
            )  # fmt: skip
        else:
            grid = (ceil_div(rows, tile.rows),)
            launch(
                kernels.norm_forward, grid, *arguments, **flags, ROWS=tile.rows, TILE=tile.tile, TILES=tile.tiles,
                WHOLE=tile.whole, num_warps=tile.warps,
            )  # fmt: skip
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
    tile: NormWay | str | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of input, weight and bias: those that are needed. `dtotal` is the sum's own, added to the input's."""
    width = x.shape[-1]
    rows = rows_in(x, width)
    dx = row_major_like(x) if need_x else None
    dweight = weight.new_empty(width) if need_weight and weight is not None else None
    dbias = x.new_empty(width, dtype=bias_dtype) if need_bias else None
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
        vectors = width <= WIDEST_NARROW or (need_x and _in_vectors(given, source, passed, weight))
        tile = chosen(
            f"{name}_backward",
            x,
            rows,
            width,
            lambda: backward_tiles(
                width,
                rows,
                multiprocessors(x),
                centred=centred,
                total=dtotal is not None,
                itemsize=x.element_size(),
                shared=shared_memory(x),
                vectors=vectors,
                amd=compiles_for_amd(),
            ),
            lambda way, given: again(*given, *needs_all, centred=centred, name=name, tile=way),
            (dy, dtotal, x, weight, mean, rstd),
            library=alike,
            detail=f"{need_weight:d}{need_bias:d}{dtotal is not None:d}{'' if vectors else ' odd'}",
        )
    if isinstance(tile, str):
        return _library_backward(dy, dtotal, x, weight, mean, rstd, need_weight, need_bias)
    sms = multiprocessors(x)
    if isinstance(tile, Pieces):
        shares = backward_shares(width, rows, sms, None)
    elif isinstance(tile, Held):
        shares = min(sms, rows)
    else:
        shares = min(sms * tile.blocks_per_sm, ceil_div(rows, tile.rows))
    partial = torch.empty((len(sums), shares, width), dtype=torch.float32, device=x.device) if sums else None
    passed_stride = 0 if passed is None else passed.stride(0)
    strides = (given.stride(0), passed_stride, source.stride(0))
    flags = {"CENTRED": centred, "TOTAL": passed is not None, "WEIGHT": weight is not None}
    needs = {"NEED_WEIGHT": dweight is not None, "NEED_BIAS": dbias is not None}
    with on_device_of(x):
        if isinstance(tile, Held):
            own = partial[-1] if tile.bias_apart and partial is not None and dbias is not None else None
            launch(
                held_kernels.held_norm_backward, (shares,), given, passed, source, weight, mean, rstd, dx, partial,
                rows, *strides, width, **flags,
                NEED_WEIGHT=dweight is not None, NEED_BIAS=dbias is not None and own is None, TILE=tile.tile,
                TILES=tile.tiles, SLOTS=tile.tiles + tile.more, VECTOR=VECTOR_BYTES // x.element_size(),
                num_warps=tile.warps, maxnreg=tile.registers,
            )  # fmt: skip
            if own is not None:
                launch(
                    kernels.wide_norm_dw, (ceil_div(width, DW_COLUMNS), shares), given, source, mean, rstd,
                    own, rows, given.stride(0), source.stride(0), width, CENTRED=centred, NEED_WEIGHT=False,
                    NEED_BIAS=True, ROWS=DW_ROWS, BLOCK=DW_COLUMNS, STAGES=DW_STAGES, num_warps=DW_WARPS,
                )  # fmt: skip
        elif not isinstance(tile, Pieces):
            limited = {} if tile.registers is None else {"maxnreg": tile.registers}
            launch(
                kernels.norm_backward, (shares,), given, passed, source, weight, mean, rstd, dx, partial, rows,
                *strides, width, **flags, **needs, NEED_X=need_x, ROWS=tile.rows, TILE=tile.tile, TILES=tile.tiles,
                WHOLE=tile.whole, STAGES=tile.stages, AHEAD=tile.ahead, KEEP=tile.keep, TWICE=tile.twice,
                num_warps=tile.warps, **limited,
            )  # fmt: skip
        else:
            if need_x:
                launch(
                    kernels.wide_norm_dx, (min(rows, sms * WIDE_BLOCKS_PER_SM),), given, passed, source, weight, mean,
                    rstd, dx, rows, *strides, width, **flags, BLOCK=tile.block, num_warps=tile.warps,
                )  # fmt: skip
            if sums:
                launch(
                    kernels.wide_norm_dw, (ceil_div(width, DW_COLUMNS), shares), given, source, mean, rstd, partial,
                    rows, given.stride(0), source.stride(0), width, CENTRED=centred, **needs,
                    ROWS=DW_ROWS, BLOCK=DW_COLUMNS, STAGES=tile.stages, num_warps=DW_WARPS,
                )  # fmt: skip
        if sums:
            columns = SUMMED_COLUMNS[width > 8192]
            grid = (ceil_div(width, columns), len(sums))
            launch(
                kernels.column_sums, grid, partial, sums[0], sums[-1], shares, width,
                ROWS=32, BLOCK=columns, num_warps=SUMMED_WARPS,
            )  # fmt: skip
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


def _in_vectors(given: Tensor, source: Tensor, passed: Tensor | None, weight: Tensor | None) -> bool:
    """Whether all of it can be copied into shared memory; a weight of a wider dtype leaves the rows no room there."""
    if weight is not None and (weight.element_size() > source.element_size() or weight.data_ptr() % VECTOR_BYTES):
        return False
    return begin_at_vectors(given, source) and (passed is None or begin_at_vectors(passed))
