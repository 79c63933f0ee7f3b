"""Own kernels of gradients for which torch goes over a large matrix once more than is needed (kernels.py)."""

import torch
import triton
from torch import Tensor

from undertorch.costs.linear_act import GELU_TANH, STRIP_COLUMNS, STRIP_ROWS, STRIP_WARPS, shares_of
from undertorch.costs.training_layers import ADDED_FEW, ADDED_ROWS, SUM_WARPS, SUMMED_ROWS, added_warps, head_blocks
from undertorch.costs.training_ops import SUMMED_COLUMNS, SUMMED_WARPS
from undertorch.ops import linear_act_kernels
from undertorch.ops.calls import multiprocessors, on_device_of
from undertorch.ops.norm_kernels import column_sums
from undertorch.ops.operators import operator
from undertorch.train import kernels


def summed(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """The columns' sums over all shares."""
    shares, width = sums.shape
    out = torch.empty(width, dtype=dtype, device=sums.device)
    columns = SUMMED_COLUMNS[width > 8192]
    column_sums[(triton.cdiv(width, columns), 1)](
        sums, out, out, shares, width, ROWS=32, BLOCK=columns, num_warps=SUMMED_WARPS
    )
    return out


def column_sums_of(rows: Tensor) -> Tensor:
    """The sums of the columns of (M, F)."""
    count, width = rows.shape
    shares = shares_of(count, width, multiprocessors(rows))
    sums = torch.empty((shares, width), dtype=torch.float32, device=rows.device)
    with on_device_of(rows):
        kernels.column_strips[(triton.cdiv(width, STRIP_COLUMNS), shares)](
            rows, sums, count, width, rows.stride(0), ROWS=SUMMED_ROWS, COLUMNS=STRIP_COLUMNS, num_warps=SUM_WARPS
        )
        return summed(sums, rows.dtype)


def joined(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
    """(batch, heads, tokens, size) each, joined: (batch * tokens, heads of all * size); the columns' sums."""
    dq, dk, dv = (part if part.stride(3) == 1 else part.contiguous() for part in (dq, dk, dv))
    batch, queries, tokens, size = dq.shape
    keys, rows = dk.shape[1], batch * tokens
    width = (queries + 2 * keys) * size
    at_once, blocks = head_blocks(queries, keys, size)
    shares = shares_of(rows, blocks * STRIP_COLUMNS, multiprocessors(dq))
    out = torch.empty((rows, width), dtype=dq.dtype, device=dq.device)
    sums = torch.empty((shares, width), dtype=torch.float32, device=dq.device)
    with on_device_of(dq):
        kernels.joined[(blocks, shares)](
            dq, dk, dv, out, sums, rows, tokens, queries, keys,
            *dq.stride()[:3], *dk.stride()[:3], *dv.stride()[:3],
            SIZE=size, HEADS=at_once, ROWS=STRIP_ROWS, num_warps=STRIP_WARPS,
        )  # fmt: skip
        return out, summed(sums, dq.dtype)


def added(table: Tensor, rows: Tensor, tokens: Tensor, order: Tensor, least: int) -> None:
    """Adds each row to the table's of its token; `tokens` are sorted, from `least`; `order`: their rows."""
    width = rows.shape[1]
    with on_device_of(rows):
        kernels.rows_added[(tokens.numel(),)](
            table, rows, tokens, order, tokens.numel(), width, least,
            FEW=ADDED_FEW, ROWS=ADDED_ROWS, COLUMNS=triton.next_power_of_2(width), num_warps=added_warps(width),
        )  # fmt: skip


def gelu_slope(dy: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """dy times gelu_tanh's slope at `before`, both (M, F), and the sums of its columns."""
    rows, width = before.shape
    shares = shares_of(rows, width, multiprocessors(dy))
    dbefore = torch.empty_like(before)
    sums = torch.empty((shares, width), dtype=torch.float32, device=dy.device)
    with on_device_of(dy):
        linear_act_kernels.activate_backward[(triton.cdiv(width, STRIP_COLUMNS), shares)](
            dy, before, dbefore, sums, rows, width, dy.stride(0),
            NEED_BIAS=True, KIND=GELU_TANH, ROWS=STRIP_ROWS, COLUMNS=STRIP_COLUMNS, num_warps=STRIP_WARPS,
        )  # fmt: skip
        return dbefore, summed(sums, dy.dtype)


bias_gradient = operator(
    "column_sums", "(Tensor rows) -> Tensor", column_sums_of, lambda rows: rows.new_empty(rows.shape[1:])
)
join = operator(
    "heads_joined",
    "(Tensor dq, Tensor dk, Tensor dv) -> (Tensor, Tensor)",
    joined,
    lambda dq, dk, dv: (
        dq.new_empty((dq.shape[0] * dq.shape[2], (dq.shape[1] + 2 * dk.shape[1]) * dq.shape[3])),
        dq.new_empty((dq.shape[1] + 2 * dk.shape[1]) * dq.shape[3]),
    ),
)
rows_added = operator(
    "rows_added",
    "(Tensor(a!) table, Tensor rows, Tensor tokens, Tensor order, int least) -> ()",
    added,
    lambda *_: None,
)
gelu_gradient = operator(
    "gelu_gradient",
    "(Tensor dy, Tensor before) -> (Tensor, Tensor)",
    gelu_slope,
    lambda dy, before: (before.new_empty(before.shape), before.new_empty(before.shape[1:])),
)
