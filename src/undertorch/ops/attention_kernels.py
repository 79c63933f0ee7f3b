"""Triton kernels of attention with capped scores and sliding windows, both ways (FlashAttention-2: Dao, 2023).

Scores never exist whole, and key blocks that no query of a block sees are not read. Scores, sums and the softmax are
float32; products take the inputs' dtype, as torch's do. The backward reads scores twice, once for the queries' gradient
and once for the keys' and values', so that nothing is added by atomics and the result is the same every time.
"""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _scored(product, scale, cap, CAPPED: tl.constexpr, WIDE: tl.constexpr):
    """The score of q @ k, and its derivative by scale * q @ k. It is in units of log(2), which _raised knows; of
    float32 inputs (WIDE) as it stands, for a rounded log2(e) would turn all scores by as much.
    """
    unit = 1.0 if WIDE else LOG2E
    slope = 1.0
    if CAPPED:
        tanh = 2.0 / (1.0 + tl.exp2(product * (-2.0 * LOG2E * scale / cap))) - 1.0
        if WIDE:
            # Near 0 the difference above keeps few bits; the series does, to 1e-8 of it below a quarter.
            x = product * (scale / cap)
            y = x * x
            series = 1.0 + y * (-1.0 / 3.0 + y * (2.0 / 15.0 + y * (-17.0 / 315.0 + y * (62.0 / 2835.0))))
            tanh = tl.where(y < 0.0625, x * series, tanh)
        score = tanh * (cap * unit)
        slope = 1.0 - tanh * tanh
    else:
        score = product * (scale * unit)
    return score, slope


@triton.jit
def _product(a, b, total, WIDE: tl.constexpr):
    """total + a @ b; float32 without TF32, whose 10 bits are no float32."""
    if WIDE:
        return tl.dot(a, b, total, input_precision="ieee")
    return tl.dot(a, b, total)


@triton.jit
def _raised(difference, WIDE: tl.constexpr):
    """e to the power of a difference of scores."""
    return tl.exp2(difference * LOG2E) if WIDE else tl.exp2(difference)


@triton.jit
def _power(score, top, logarithm, WIDE: tl.constexpr):
    """A query's weight of a key. Of float32 the largest score is taken off first, which rounds nothing."""
    return tl.exp2((score - top) * LOG2E - logarithm) if WIDE else tl.exp2(score - (top + logarithm))


@triton.jit
def _sees(row, key, keys, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Whether a query sees a key."""
    seen = key < keys
    if CAUSAL:
        seen = seen & (key <= row)
    if WINDOWED:
        seen = seen & (row - key < window)
        if not CAUSAL:
            seen = seen & (key - row < window)
    return seen


@triton.jit
def _keys_of(first, keys, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Of ROWS queries from `first` on: where the keys begin that some of them see, and how many blocks of those not all
    see; where blocks begin that all of them see, and how many; where others follow, and how many.
    """
    begin, end = 0, keys
    all_from, all_to = 0, keys
    if WINDOWED:
        begin = tl.maximum(first - window + 1, 0) // KEYS * KEYS
        all_from = tl.maximum(tl.cdiv(tl.maximum(first + ROWS - window, 0), KEYS) * KEYS, begin)
        if not CAUSAL:
            end = tl.minimum(keys, first + ROWS - 1 + window)
            all_to = tl.minimum(keys, first + window)
    if CAUSAL:
        end = tl.minimum(keys, first + ROWS)
        all_to = tl.minimum(keys, first + 1)
    all_to = tl.maximum(all_to // KEYS * KEYS, all_from)
    on_left = tl.cdiv(tl.maximum(tl.minimum(all_from, end) - begin, 0), KEYS)
    on_right = tl.cdiv(tl.maximum(end - all_to, 0), KEYS)
    return begin, on_left, all_from, (all_to - all_from) // KEYS, all_to, on_right


@triton.jit
def _rows_of(first, rows, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """The same of KEYS keys from `first` on: blocks of queries. Those past the end see nothing whatever is asked."""
    begin, end = 0, rows
    all_from, all_to = 0, rows
    if CAUSAL:
        begin = first // ROWS * ROWS
        all_from = tl.cdiv(first + KEYS - 1, ROWS) * ROWS
    if WINDOWED:
        end = tl.minimum(rows, first + KEYS - 1 + window)
        if not CAUSAL:
            begin = tl.maximum(first - window + 1, 0) // ROWS * ROWS
            all_from = tl.maximum(begin, tl.cdiv(tl.maximum(first + KEYS - window, 0), ROWS) * ROWS)
        all_to = tl.minimum(end, first + window) // ROWS * ROWS
    all_to = tl.maximum(all_to, all_from)
    on_left = tl.cdiv(tl.maximum(tl.minimum(all_from, end) - begin, 0), ROWS)
    on_right = tl.cdiv(tl.maximum(end - all_to, 0), ROWS)
    return begin, on_left, all_from, tl.cdiv(all_to - all_from, ROWS), all_to, on_right


@triton.jit
def _over_keys(
    top, total, result, query, k, v, k_token, v_token, row, left, on_left, right, count, keys, size,
    scale, cap, window,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Takes in `count` blocks of keys, the first `on_left` from `left` on and the others from `right` on."""
    feature = tl.arange(0, SIZE)
    for index in range(count):
        begin = tl.where(index < on_left, left + index * KEYS, right + (index - on_left) * KEYS)
        key = begin + tl.arange(0, KEYS)
        inside = (feature < size)[:, None] & (key < keys)[None, :]
        turned = tl.load(k + key.to(tl.int64)[None, :] * k_token + feature[:, None], mask=inside, other=0.0)
        product = _product(query, turned, tl.zeros((ROWS, KEYS), tl.float32), WIDE)
        score, _ = _scored(product, scale, cap, CAPPED, WIDE)
        if MASKED:
            score = tl.where(_sees(row[:, None], key[None, :], keys, window, CAUSAL, WINDOWED), score, -float("inf"))
        before = top
        top = tl.maximum(before, tl.max(score, axis=1))
        # A query that has seen no key yet has no largest score: -inf - -inf would be nan.
        shift = tl.where(top == -float("inf"), 0.0, top)
        power = _raised(score - shift[:, None], WIDE)
        shrunk = _raised(before - shift, WIDE)
        total = total * shrunk + tl.sum(power, axis=1)
        result *= shrunk[:, None]
        inside = (key < keys)[:, None] & (feature < size)[None, :]
        value = tl.load(v + key.to(tl.int64)[:, None] * v_token + feature[None, :], mask=inside, other=0.0)
        result = _product(power.to(value.dtype), value, result, WIDE)
    return top, total, result


@triton.jit
def attend(
    q, k, v, out, lse, rows, keys, size, heads, group,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, scale, cap, window,
    INNER: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """A block takes ROWS queries of a head. lse: of each query the largest score, and after those of all
    heads log2 of the sum of powers below it, +inf where it sees no key.
    """
    sums = (tl.num_programs(1)).to(tl.int64)
    # The last queries see most keys where they are causal; their blocks start first.
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    row = first + tl.arange(0, ROWS)
    feature = tl.arange(0, SIZE)
    inside = (row < rows)[:, None] & (feature < size)[None, :]
    at = row.to(tl.int64)[:, None]
    query = tl.load(
        q + batch * q_batch + head * q_head + at * q_token + feature[None, :], mask=inside, other=0.0
    )  # fmt: skip
    k += batch * k_batch + (head // group) * k_head
    v += batch * v_batch + (head // group) * v_head
    left, on_left, middle, in_middle, right, on_right = _keys_of(first, keys, window, CAUSAL, WINDOWED, ROWS, KEYS)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, SIZE), tl.float32)
    top, total, result = _over_keys(
        top, total, result, query, k, v, k_token, v_token, row, middle, in_middle, right, in_middle, keys, size,
        scale, cap, window, CAUSAL, WINDOWED, CAPPED, WIDE, False, ROWS, KEYS, SIZE,
    )  # fmt: skip
    top, total, result = _over_keys(
        top, total, result, query, k, v, k_token, v_token, row, left, on_left, right, on_left + on_right, keys, size,
        scale, cap, window, CAUSAL, WINDOWED, CAPPED, WIDE, True, ROWS, KEYS, SIZE,
    )  # fmt: skip
    none = total == 0.0
    result *= (1.0 / tl.where(none, 1.0, total))[:, None]
    to = ((batch * rows + at) * heads + head) * size if INNER else ((batch * heads + head) * rows + at) * size
    tl.store(out + to + feature[None, :], result.to(out.dtype.element_ty), mask=inside)
    statistics = lse + (batch * heads + head) * rows + row
    tl.store(statistics, tl.where(none, 0.0, top), mask=row < rows)
    logarithm = tl.where(none, float("inf"), tl.log2(tl.where(none, 1.0, total)))
    tl.store(statistics + sums * rows, logarithm, mask=row < rows)


@triton.jit
def _change_over_keys(
    total, mean, query, gradient, top, logarithm, k, v, k_token, v_token, row, left, on_left, right, count, keys, size,
    scale, cap, window, MEAN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Adds what blocks of keys, as _over_keys goes through them, give to their queries' gradient; MEAN: to `mean`."""
    feature = tl.arange(0, SIZE)
    for index in range(count):
        begin = tl.where(index < on_left, left + index * KEYS, right + (index - on_left) * KEYS)
        key = begin + tl.arange(0, KEYS)
        there = (key < keys)[:, None] & (feature < size)[None, :]
        near = tl.load(k + key.to(tl.int64)[:, None] * k_token + feature[None, :], mask=there, other=0.0)
        value = tl.load(v + key.to(tl.int64)[:, None] * v_token + feature[None, :], mask=there, other=0.0)
        nothing = tl.zeros((ROWS, KEYS), tl.float32)
        score, slope = _scored(_product(query, tl.trans(near), nothing, WIDE), scale, cap, CAPPED, WIDE)
        if MASKED:
            score = tl.where(_sees(row[:, None], key[None, :], keys, window, CAUSAL, WINDOWED), score, -float("inf"))
        power = _power(score, top[:, None], logarithm[:, None], WIDE)
        weighed = _product(gradient, tl.trans(value), nothing, WIDE)
        if MEAN:
            mean += tl.sum(power * weighed, axis=1)
        else:
            change = power * (weighed - mean[:, None]) * slope
            total = _product(change.to(near.dtype), near, total, WIDE)
    return total, mean


@triton.jit
def attend_backward_queries(
    q, k, v, out, given, lse, along, dq, rows, keys, size, heads, group,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token,
    given_batch, given_head, given_token, scale, cap, window,
    INNER: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The queries' gradient; and `along`, the sum of each query's result times its gradient, for the keys' kernel."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    row = first + tl.arange(0, ROWS)
    feature = tl.arange(0, SIZE)
    inside = (row < rows)[:, None] & (feature < size)[None, :]
    at = row.to(tl.int64)[:, None]
    if INNER:
        to = ((batch * rows + at) * heads + head) * size + feature[None, :]
    else:
        to = ((batch * heads + head) * rows + at) * size + feature[None, :]
    query = tl.load(q + batch * q_batch + head * q_head + at * q_token + feature[None, :], mask=inside, other=0.0)
    gradient = tl.load(
        given + batch * given_batch + head * given_head + at * given_token + feature[None, :], mask=inside, other=0.0
    )
    statistics = (batch * heads + head) * rows + row
    top = tl.load(lse + statistics, mask=row < rows, other=0.0)
    sums = tl.num_programs(1).to(tl.int64) * rows
    logarithm = tl.load(lse + sums + statistics, mask=row < rows, other=float("inf"))
    k += batch * k_batch + (head // group) * k_head
    v += batch * v_batch + (head // group) * v_head
    left, on_left, middle, in_middle, right, on_right = _keys_of(first, keys, window, CAUSAL, WINDOWED, ROWS, KEYS)
    total = tl.zeros((ROWS, SIZE), tl.float32)
    mean = tl.zeros((ROWS,), tl.float32)
    if WIDE:
        # Of the very weights and products that it is taken off from: of a query that sees one key, nothing remains.
        total, mean = _change_over_keys(
            total, mean, query, gradient, top, logarithm, k, v, k_token, v_token, row, middle, in_middle, right,
            in_middle, keys, size, scale, cap, window, True, CAUSAL, WINDOWED, CAPPED, WIDE, False, ROWS, KEYS, SIZE,
        )  # fmt: skip
        total, mean = _change_over_keys(
            total, mean, query, gradient, top, logarithm, k, v, k_token, v_token, row, left, on_left, right,
            on_left + on_right, keys, size, scale, cap, window, True, CAUSAL, WINDOWED, CAPPED, WIDE, True,
            ROWS, KEYS, SIZE,
        )  # fmt: skip
    else:
        result = tl.load(out + to, mask=inside, other=0.0)
        mean += tl.sum(result.to(tl.float32) * gradient.to(tl.float32), axis=1)
    tl.store(along + statistics, mean, mask=row < rows)
    total, mean = _change_over_keys(
        total, mean, query, gradient, top, logarithm, k, v, k_token, v_token, row, middle, in_middle, right, in_middle,
        keys, size, scale, cap, window, False, CAUSAL, WINDOWED, CAPPED, WIDE, False, ROWS, KEYS, SIZE,
    )  # fmt: skip
    total, mean = _change_over_keys(
        total, mean, query, gradient, top, logarithm, k, v, k_token, v_token, row, left, on_left, right,
        on_left + on_right, keys, size, scale, cap, window, False, CAUSAL, WINDOWED, CAPPED, WIDE, True,
        ROWS, KEYS, SIZE,
    )  # fmt: skip
    tl.store(dq + to, (total * scale).to(dq.dtype.element_ty), mask=inside)


@triton.jit
def _change_over_rows(
    to_key, to_value, near, value, q, given, lse, sums, along, key, left, on_left, right, count, rows, keys, size,
    group, q_head, q_token, given_head, given_token, scale, cap, window,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Adds what `count` blocks of queries of each of `group` heads give to the gradients of keys and values."""
    feature = tl.arange(0, SIZE)
    for index in range(group * count):
        here = (index // count).to(tl.int64)
        place = index % count
        begin = tl.where(place < on_left, left + place * ROWS, right + (place - on_left) * ROWS)
        row = begin + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None]
        there = (row < rows)[:, None] & (feature < size)[None, :]
        query = tl.load(q + here * q_head + at * q_token + feature[None, :], mask=there, other=0.0)
        gradient = tl.load(given + here * given_head + at * given_token + feature[None, :], mask=there, other=0.0)
        top = tl.load(lse + here * rows + row, mask=row < rows, other=0.0)
        logarithm = tl.load(lse + sums + here * rows + row, mask=row < rows, other=float("inf"))
        mean = tl.load(along + here * rows + row, mask=row < rows, other=0.0)
        nothing = tl.zeros((KEYS, ROWS), tl.float32)
        score, slope = _scored(_product(near, tl.trans(query), nothing, WIDE), scale, cap, CAPPED, WIDE)
        if MASKED:
            score = tl.where(_sees(row[None, :], key[:, None], keys, window, CAUSAL, WINDOWED), score, -float("inf"))
        power = _power(score, top[None, :], logarithm[None, :], WIDE)
        to_value = _product(power.to(gradient.dtype), gradient, to_value, WIDE)
        change = power * (_product(value, tl.trans(gradient), nothing, WIDE) - mean[None, :]) * slope
        to_key = _product(change.to(query.dtype), query, to_key, WIDE)
    return to_key, to_value


@triton.jit
def attend_backward_keys(
    q, k, v, given, lse, along, dk, dv, rows, keys, size, heads, group,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token,
    given_batch, given_head, given_token, scale, cap, window,
    INNER: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The gradients of KEYS keys and values of a head, over all queries of the heads that share it."""
    first = tl.program_id(0) * KEYS
    shared = heads // group
    batch, head = (tl.program_id(1) // shared).to(tl.int64), (tl.program_id(1) % shared).to(tl.int64)
    key = first + tl.arange(0, KEYS)
    feature = tl.arange(0, SIZE)
    inside = (key < keys)[:, None] & (feature < size)[None, :]
    at = key.to(tl.int64)[:, None]
    near = tl.load(k + batch * k_batch + head * k_head + at * k_token + feature[None, :], mask=inside, other=0.0)
    value = tl.load(v + batch * v_batch + head * v_head + at * v_token + feature[None, :], mask=inside, other=0.0)
    q += batch * q_batch + head * group * q_head
    given += batch * given_batch + head * group * given_head
    lse += (batch * heads + head * group) * rows
    sums = (tl.num_programs(1) * group).to(tl.int64) * rows
    along += (batch * heads + head * group) * rows
    left, on_left, middle, in_middle, right, on_right = _rows_of(first, rows, window, CAUSAL, WINDOWED, ROWS, KEYS)
    to_key = tl.zeros((KEYS, SIZE), tl.float32)
    to_value = tl.zeros((KEYS, SIZE), tl.float32)
    to_key, to_value = _change_over_rows(
        to_key, to_value, near, value, q, given, lse, sums, along, key, middle, in_middle, right, in_middle,
        rows, keys, size, group, q_head, q_token, given_head, given_token, scale, cap, window,
        CAUSAL, WINDOWED, CAPPED, WIDE, False, ROWS, KEYS, SIZE,
    )  # fmt: skip
    to_key, to_value = _change_over_rows(
        to_key, to_value, near, value, q, given, lse, sums, along, key, left, on_left, right, on_left + on_right,
        rows, keys, size, group, q_head, q_token, given_head, given_token, scale, cap, window,
        CAUSAL, WINDOWED, CAPPED, WIDE, True, ROWS, KEYS, SIZE,
    )  # fmt: skip
    if INNER:
        to = ((batch * keys + at) * shared + head) * size + feature[None, :]
    else:
        to = ((batch * shared + head) * keys + at) * size + feature[None, :]
    tl.store(dk + to, (to_key * scale).to(dk.dtype.element_ty), mask=inside)
    tl.store(dv + to, to_value.to(dv.dtype.element_ty), mask=inside)
