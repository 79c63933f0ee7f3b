"""Triton kernels of gradients for which torch goes over a large matrix once more than is needed."""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def column_strips(x, sums, rows, width, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A block adds up some columns of every so-manieth ROWS rows."""
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    share = tl.program_id(1)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(share * ROWS, rows, tl.num_programs(1) * ROWS):
        row = (begin + tl.arange(0, ROWS)).to(tl.int64)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        total += tl.load(x + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(sums + share.to(tl.int64) * width + column, tl.sum(total, axis=0), mask=column < width)


@triton.jit
def joined(
    q, k, v, out, sums, rows, tokens, queries, keys,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token,
    SIZE: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A block copies some heads of q, k or v, of every so-manieth ROWS rows, side by side, and adds up the columns.

    q, k, v: (batch, heads, tokens, SIZE); out: (rows, heads of all three * SIZE). `queries` and `keys` are heads, of
    which a block has HEADS.
    """
    block, share = tl.program_id(0), tl.program_id(1)
    blocks_q, blocks_k = tl.cdiv(queries, HEADS), tl.cdiv(keys, HEADS)
    if block < blocks_q:
        x, first, before, heads = q, block * HEADS, 0, queries
        by_batch, by_head, by_token = q_batch, q_head, q_token
    elif block < blocks_q + blocks_k:
        x, first, before, heads = k, (block - blocks_q) * HEADS, queries, keys
        by_batch, by_head, by_token = k_batch, k_head, k_token
    else:
        x, first, before, heads = v, (block - blocks_q - blocks_k) * HEADS, queries + keys, keys
        by_batch, by_head, by_token = v_batch, v_head, v_token
    within = tl.arange(0, HEADS * SIZE)
    head, element = first + within // SIZE, within % SIZE
    there = head < heads
    column = (before + first) * SIZE + within
    width = (queries + 2 * keys) * SIZE
    total = tl.zeros((ROWS, HEADS * SIZE), tl.float32)
    for begin in range(share * ROWS, rows, tl.num_programs(1) * ROWS):
        row = begin + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & there[None, :]
        place = (row // tokens).to(tl.int64) * by_batch + (row % tokens).to(tl.int64) * by_token
        at = place[:, None] + (head.to(tl.int64) * by_head + element)[None, :]
        value = tl.load(x + at, mask=inside, other=0.0)
        tl.store(out + row.to(tl.int64)[:, None] * width + column[None, :], value, mask=inside)
        total += value.to(tl.float32)
    tl.store(sums + share.to(tl.int64) * width + column, tl.sum(total, axis=0), mask=there)


@triton.jit
def rows_added(
    table, given, tokens, order, count, width, least,
    FEW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Adds to each row of the table those of `given` that belong to it: of `tokens`, which are sorted, the first of
    each run does it, in order. `order` says which row of `given` a place of them is. Tokens count from `least`.

    Most runs are short, and what the first FEW need is loaded at once; a long one goes on ROWS at a time.
    """
    place = tl.program_id(0)
    token = tl.load(tokens + place)
    earlier = tl.load(tokens + tl.maximum(place - 1, 0))
    if (place == 0) | (earlier != token):
        column = tl.arange(0, COLUMNS)
        inside = column < width
        its = table + (token.to(tl.int64) - least) * width + column
        value = tl.load(its, mask=inside, other=0.0).to(tl.float32)
        total, more = _run(given, tokens, order, token, place, count, width, column, FEW)
        at = place + FEW
        while more:
            part, more = _run(given, tokens, order, token, at, count, width, column, ROWS)
            total += part
            at += ROWS
        tl.store(its, (value + total).to(table.dtype.element_ty), mask=inside)


@triton.jit
def _run(given, tokens, order, token, at, count, width, column, ROWS: tl.constexpr):
    """The sum of those of the next ROWS rows that are of the token, and whether all are."""
    place = at + tl.arange(0, ROWS)
    there = place < count
    same = (tl.load(tokens + place, mask=there, other=0) == token) & there
    row = tl.load(order + place, mask=there, other=0).to(tl.int64)
    inside = same[:, None] & (column < width)[None, :]
    part = tl.load(given + row[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
    return tl.sum(part, axis=0), tl.sum(same.to(tl.int32), axis=0) == ROWS
