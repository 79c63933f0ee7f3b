"""Whole kernels in Triton, of our own, one of each kind that people write: what a GPU and the machine are both given.

Each case is a function that gets `new(name, how it is filled)` for its tensors and launches its kernels. It runs under
`with undertorch.machine():`, where benchmarks/triton_conformance.py --compile listens and keeps the PTX and the
launches; `right` says in float64 what must come out, so that no wrong kernel is held against a GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from simt.conformance.launched import Addresses, Drawn, Filled, Integers

ROWS, COLUMNS = 3, 1000
TOKENS, HEAD = 128, 32


@dataclass(frozen=True)
class WholeCase:
    name: str
    run: Callable
    """Given `new`, fills and launches."""
    right: Callable
    """Of all tensors by name, as they were and are: what the results are in float64, by name."""
    tolerance: float = 1e-5
    """Of the largest value."""


CASES = []


def case(name, right, tolerance=1e-5):
    def kept(run):
        CASES.append(WholeCase(name, run, right, tolerance))
        return run

    return kept


# -- rows: softmax, norms, cross-entropy


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + at, values / tl.sum(values, 0), mask=at < columns)


@case("softmax", lambda t: {"y": t["x"].softmax(1)})
def softmax(new):
    x, y = new("x", Drawn(1, (ROWS, COLUMNS), "float32", 6.0)), new("y", Filled((ROWS, COLUMNS), "float32"))
    softmax_kernel[(ROWS,)](x, y, COLUMNS, BLOCK=1024)


@triton.jit
def rms_norm_kernel(x, w, y, scales, columns, epsilon, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / columns + epsilon)
    tl.store(scales + row, scale)
    weight = tl.load(w + at, mask=at < columns).to(tl.float32)
    tl.store(y + row * columns + at, values * scale * weight, mask=at < columns)


def rms_right(t):
    scales = torch.rsqrt(t["x"].square().mean(1) + 1e-6)
    return {"scales": scales, "y": t["x"] * scales[:, None] * t["w"]}


@case("rms_norm", rms_right, 4e-3)
def rms_norm(new):
    x, w = new("x", Drawn(2, (ROWS, 520), "bfloat16", 2.0)), new("w", Drawn(3, (520,), "bfloat16", 1.0))
    y, scales = new("y", Filled((ROWS, 520), "bfloat16")), new("scales", Filled((ROWS,), "float32"))
    rms_norm_kernel[(ROWS,)](x, w, y, scales, 520, 1e-6, BLOCK=1024)


@triton.jit
def layer_norm_kernel(x, w, b, y, means, scales, columns, epsilon, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    here = at < columns
    values = tl.load(x + row * columns + at, mask=here, other=0.0)
    mean = tl.sum(values, 0) / columns
    centred = tl.where(here, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    result = centred * scale * tl.load(w + at, mask=here) + tl.load(b + at, mask=here)
    tl.store(y + row * columns + at, result, mask=here)


@triton.jit
def layer_norm_backward_kernel(x, w, dy, means, scales, dx, dw, db, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    here = at < columns
    scale = tl.load(scales + row)
    normed = (tl.load(x + row * columns + at, mask=here, other=0.0) - tl.load(means + row)) * scale
    normed = tl.where(here, normed, 0.0)
    upstream = tl.load(dy + row * columns + at, mask=here, other=0.0)
    inner = upstream * tl.load(w + at, mask=here, other=0.0)
    along = tl.sum(inner * normed, 0) / columns
    mean = tl.sum(inner, 0) / columns
    tl.store(dx + row * columns + at, (inner - (normed * along + mean)) * scale, mask=here)
    tl.store(dw + row * columns + at, upstream * normed, mask=here)
    tl.store(db + row * columns + at, upstream, mask=here)


@triton.jit
def column_sums_kernel(parts, sums, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    down, across = tl.arange(0, ROWS)[:, None], tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    values = tl.load(parts + down * columns + across, mask=(down < rows) & (across < columns), other=0.0)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(sums + at, tl.sum(values, 0), mask=at < columns)


def layer_right(t):
    x, w, b = (t[name].clone().requires_grad_() for name in "xwb")
    y = torch.nn.functional.layer_norm(x, (x.shape[1],), w, b, 1e-5)
    dx, dw, db = torch.autograd.grad(y, (x, w, b), t["dy"])
    return {"y": y.detach(), "dx": dx, "dw": dw, "db": db}


@case("layer_norm", layer_right)
def layer_norm(new):
    rows, columns = 6, 500
    x, dy = (new(name, Drawn(n, (rows, columns), "float32", 2.0)) for n, name in ((4, "x"), (5, "dy")))
    w, b = (new(name, Drawn(n, (columns,), "float32", 1.0)) for n, name in ((6, "w"), (7, "b")))
    y, dx, dws, dbs = (new(name, Filled((rows, columns), "float32")) for name in ("y", "dx", "dws", "dbs"))
    means, scales = (new(name, Filled((rows,), "float32")) for name in ("means", "scales"))
    dw, db = (new(name, Filled((columns,), "float32")) for name in ("dw", "db"))
    layer_norm_kernel[(rows,)](x, w, b, y, means, scales, columns, 1e-5, BLOCK=512, num_warps=2)
    layer_norm_backward_kernel[(rows,)](x, w, dy, means, scales, dx, dws, dbs, columns, BLOCK=512, num_warps=8)
    for parts, sums in ((dws, dw), (dbs, db)):
        column_sums_kernel[(triton.cdiv(columns, 128),)](parts, sums, rows, columns, ROWS=8, BLOCK=128)


@triton.jit
def cross_entropy_kernel(logits, labels, losses, gradients, columns, ignored, BLOCK: tl.constexpr):
    """Online: largest value and sum in one pass, the gradient in a second one."""
    row = tl.program_id(0)
    label = tl.load(labels + row)
    logits += row * columns
    gradients += row * columns
    most, total = -float("inf"), 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(logits + at, mask=at < columns, other=-float("inf"))
        higher = tl.maximum(most, tl.max(values, 0))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(values - higher), 0)
        most = higher
    loss = most + tl.log(total) - tl.load(logits + tl.maximum(label, 0))
    kept = label != ignored
    tl.store(losses + row, tl.where(kept, loss, 0.0))
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(logits + at, mask=at < columns, other=-float("inf"))
        gradient = tl.exp(values - most) / total - tl.where(at == label, 1.0, 0.0)
        tl.store(gradients + at, tl.where(kept, gradient, 0.0), mask=at < columns)


def cross_entropy_right(t):
    logits = t["logits"].clone().requires_grad_()
    losses = torch.nn.functional.cross_entropy(logits, t["labels"].long(), reduction="none")
    return {"losses": losses.detach(), "gradients": torch.autograd.grad(losses.sum(), logits)[0]}


@case("cross_entropy", cross_entropy_right)
def cross_entropy(new):
    logits = new("logits", Drawn(8, (4, COLUMNS), "float32", 8.0))
    labels = new("labels", Integers(9, (4,), "int64", 0, COLUMNS))
    labels[2] = -100
    losses, gradients = new("losses", Filled((4,), "float32")), new("gradients", Filled((4, COLUMNS), "float32"))
    cross_entropy_kernel[(4,)](logits, labels, losses, gradients, COLUMNS, -100, BLOCK=256)


@triton.jit
def dropout_kernel(x, y, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.where(tl.rand(seed, at) > p, values / (1 - p), 0.0), mask=at < n)


@case("dropout", lambda t: {"y": torch.where(t["y"] == 0, 0, t["x"] / 0.75)})
def dropout(new):
    x, y = new("x", Drawn(10, (COLUMNS,), "float32", 1.0)), new("y", Filled((COLUMNS,), "float32"))
    dropout_kernel[(triton.cdiv(COLUMNS, 256),)](x, y, COLUMNS, 0.25, 123, BLOCK=256)


# -- matmuls


@triton.jit
def matmul_kernel(
    a, b, c, m, n, k, a_row, a_column, b_row, b_column, c_row,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=WIDE)
    for start in range(0, k, K):
        at = start + tl.arange(0, K)
        left = tl.load(
            a + rows[:, None] * a_row + at[None, :] * a_column,
            mask=(rows[:, None] < m) & (at[None, :] < k),
            other=0.0,
        )
        right = tl.load(
            b + at[:, None] * b_row + columns[None, :] * b_column,
            mask=(at[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total = tl.dot(left, right, total, out_dtype=WIDE)
    where = c + rows[:, None] * c_row + columns[None, :]
    tl.store(where, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


def product_right(t):
    return {"c": t["a"].double() @ t["b"].double().T}


def matmul(new, dtype, wide, seed, *, m=72, n=80, k=144, stages=3):
    kind = {"int8": "int32", "float64": "float64"}.get(dtype, "float32")
    if dtype == "int8":
        a, b = (
            new("a", Integers(seed, (m, k), dtype, -128, 128)),
            new("b", Integers(seed + 1, (n, k), dtype, -128, 128)),
        )
    else:
        a, b = new("a", Drawn(seed, (m, k), dtype, 0.7)), new("b", Drawn(seed + 1, (n, k), dtype, 1.1))
    c = new("c", Filled((m, n), kind))
    tile = 32
    matmul_kernel[(triton.cdiv(m, tile), triton.cdiv(n, tile))](
        a, b, c, m, n, k, k, 1, 1, k, n, M=tile, N=tile, K=tile, WIDE=wide, num_stages=stages, num_warps=4
    )  # fmt: skip


case("matmul_f16", product_right)(lambda new: matmul(new, "float16", tl.float32, 20))
case("matmul_bf16", product_right)(lambda new: matmul(new, "bfloat16", tl.float32, 22))
case("matmul_tf32", product_right, 2e-3)(lambda new: matmul(new, "float32", tl.float32, 24))
case("matmul_s8", product_right)(lambda new: matmul(new, "int8", tl.int32, 26))
case("matmul_f64", product_right, 1e-14)(lambda new: matmul(new, "float64", tl.float64, 28, m=24, n=40, stages=2))


@triton.jit
def grouped_matmul_kernel(lefts, rights, results, sizes, groups, programs, TILE: tl.constexpr):
    """Tiles of all products, dealt out to the programs; matrices by addresses that lie in memory."""
    tile = tl.program_id(0)
    passed = 0
    for group in range(groups):
        m, n, k = tl.load(sizes + 3 * group), tl.load(sizes + 3 * group + 1), tl.load(sizes + 3 * group + 2)
        across = tl.cdiv(n, TILE)
        tiles = tl.cdiv(m, TILE) * across
        while tile >= passed and tile < passed + tiles:
            a = tl.load(lefts + group).to(tl.pointer_type(tl.float16))
            b = tl.load(rights + group).to(tl.pointer_type(tl.float16))
            c = tl.load(results + group).to(tl.pointer_type(tl.float16))
            rows = (tile - passed) // across * TILE + tl.arange(0, TILE)
            columns = (tile - passed) % across * TILE + tl.arange(0, TILE)
            total = tl.zeros((TILE, TILE), dtype=tl.float32)
            for start in range(0, k, TILE):
                at = start + tl.arange(0, TILE)
                left = tl.load(a + rows[:, None] * k + at[None, :])
                right = tl.load(b + at[:, None] * n + columns[None, :])
                total += tl.dot(left, right)
            tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))
            tile += programs
        passed += tiles


GROUPS = ((32, 64, 32), (64, 32, 96), (32, 32, 64))


@case("grouped_gemm", lambda t: {f"c{n}": t[f"a{n}"] @ t[f"b{n}"] for n in range(len(GROUPS))}, 2e-3)
def grouped_gemm(new):
    for number, (m, n, k) in enumerate(GROUPS):
        new(f"a{number}", Drawn(30 + number, (m, k), "float16", 1.0))
        new(f"b{number}", Drawn(40 + number, (k, n), "float16", 1.0))
        new(f"c{number}", Filled((m, n), "float16"))
    tables = [new(f"table_{x}", Addresses(tuple(f"{x}{n}" for n in range(len(GROUPS))))) for x in "abc"]
    sizes = new("sizes", Filled((len(GROUPS), 3), "int32"))
    sizes.copy_(torch.tensor(GROUPS))
    grouped_matmul_kernel[(3,)](*tables, sizes, len(GROUPS), 3, TILE=32)


# -- flash attention


@triton.jit
def attention_kernel(q, k, v, o, logs, scale, tokens, CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                     D: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * M
    base = tl.program_id(1) * tokens * D
    rows, channel = first + tl.arange(0, M), tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + channel[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    total, mixed = tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    last = first + M if CAUSAL else tokens
    for start in range(0, last, N):
        at = start + tl.arange(0, N)
        keys = tl.load(k + base + at[None, :] * D + channel[:, None])
        scores = tl.dot(queries, keys) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= at[None, :], scores, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrunk = tl.exp2(most - higher)
        total = total * shrunk + tl.sum(weights, 1)
        values = tl.load(v + base + at[:, None] * D + channel[None, :])
        mixed = tl.dot(weights.to(tl.float16), values, mixed * shrunk[:, None])
        most = higher
    tl.store(o + base + rows[:, None] * D + channel[None, :], (mixed / total[:, None]).to(tl.float16))
    tl.store(logs + tl.program_id(1) * tokens + rows, most + tl.log2(total))


@triton.jit
def attention_deltas_kernel(o, do, deltas, M: tl.constexpr, D: tl.constexpr):
    rows, channel = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    at = rows[:, None] * D + channel[None, :]
    tl.store(deltas + rows, tl.sum(tl.load(o + at).to(tl.float32) * tl.load(do + at).to(tl.float32), 1))


@triton.jit
def attention_keys_kernel(q, k, v, do, logs, deltas, dk, dv, scale, plain, tokens, CAUSAL: tl.constexpr,
                          M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * N
    base, line = tl.program_id(1) * tokens * D, tl.program_id(1) * tokens
    at, channel = first + tl.arange(0, N), tl.arange(0, D)
    keys = tl.load(k + base + at[:, None] * D + channel[None, :])
    values = tl.load(v + base + at[:, None] * D + channel[None, :])
    for_keys, for_values = tl.zeros((N, D), tl.float32), tl.zeros((N, D), tl.float32)
    for start in range(first // M * M if CAUSAL else 0, tokens, M):
        rows = start + tl.arange(0, M)
        queries = tl.load(q + base + rows[None, :] * D + channel[:, None])
        weights = tl.exp2(tl.dot(keys, queries) * scale - tl.load(logs + line + rows)[None, :])
        if CAUSAL:
            weights = tl.where(rows[None, :] >= at[:, None], weights, 0.0)
        upstream = tl.load(do + base + rows[:, None] * D + channel[None, :])
        for_values += tl.dot(weights.to(tl.float16), upstream)
        slopes = tl.dot(values, tl.trans(upstream)) - tl.load(deltas + line + rows)[None, :]
        for_keys += tl.dot((weights * slopes).to(tl.float16), tl.trans(queries))
    tl.store(dv + base + at[:, None] * D + channel[None, :], for_values.to(tl.float16))
    tl.store(dk + base + at[:, None] * D + channel[None, :], (for_keys * plain).to(tl.float16))


@triton.jit
def attention_queries_kernel(q, k, v, do, logs, deltas, dq, scale, plain, tokens, CAUSAL: tl.constexpr,
                             M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):  # fmt: skip
    first = tl.program_id(0) * M
    base, line = tl.program_id(1) * tokens * D, tl.program_id(1) * tokens
    rows, channel = first + tl.arange(0, M), tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + channel[None, :])
    upstream = tl.load(do + base + rows[:, None] * D + channel[None, :])
    logarithms, delta = tl.load(logs + line + rows), tl.load(deltas + line + rows)
    for_queries = tl.zeros((M, D), tl.float32)
    for start in range(0, first + M if CAUSAL else tokens, N):
        at = start + tl.arange(0, N)
        keys = tl.load(k + base + at[None, :] * D + channel[:, None])
        values = tl.load(v + base + at[None, :] * D + channel[:, None])
        weights = tl.exp2(tl.dot(queries, keys) * scale - logarithms[:, None])
        if CAUSAL:
            weights = tl.where(rows[:, None] >= at[None, :], weights, 0.0)
        slopes = tl.dot(upstream, values) - delta[:, None]
        for_queries += tl.dot((weights * slopes).to(tl.float16), tl.trans(keys))
    tl.store(dq + base + rows[:, None] * D + channel[None, :], (for_queries * plain).to(tl.float16))


PLAIN = HEAD**-0.5
LOG2E = 1.4426950408889634


def attention_right(causal):
    def right(t):
        q, k, v = (t[name].clone().requires_grad_() for name in "qkv")
        scores = q @ k.mT * PLAIN
        if causal:
            scores = scores.masked_fill(~torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(), -torch.inf)
        o = scores.softmax(-1) @ v
        dq, dk, dv = torch.autograd.grad(o, (q, k, v), t["do"])
        return {"o": o.detach(), "dq": dq, "dk": dk, "dv": dv, "logs": (scores.logsumexp(-1) * LOG2E).detach()}

    return right


def attention(new, causal, seed, heads):
    shape = (heads, TOKENS, HEAD)
    q, k, v, do = (new(x, Drawn(seed + n, shape, "float16", 1.5)) for n, x in enumerate(("q", "k", "v", "do")))
    o, dq, dk, dv = (new(x, Filled(shape, "float16")) for x in ("o", "dq", "dk", "dv"))
    logs, deltas = (new(x, Filled((heads, TOKENS), "float32")) for x in ("logs", "deltas"))
    sizes = {"CAUSAL": causal, "M": 64, "N": 32, "D": HEAD}
    attention_kernel[(TOKENS // 64, heads)](q, k, v, o, logs, PLAIN * LOG2E, TOKENS, num_stages=2, **sizes)
    attention_deltas_kernel[(heads * TOKENS // 64,)](o, do, deltas, M=64, D=HEAD)
    given = (q, k, v, do, logs, deltas)
    attention_keys_kernel[(TOKENS // 32, heads)](*given, dk, dv, PLAIN * LOG2E, PLAIN, TOKENS, **sizes)
    attention_queries_kernel[(TOKENS // 64, heads)](*given, dq, PLAIN * LOG2E, PLAIN, TOKENS, **sizes)


case("attention", attention_right(False), 4e-3)(lambda new: attention(new, False, 50, 1))
case("attention_causal", attention_right(True), 4e-3)(lambda new: attention(new, True, 60, 2))


# -- sorts, scans, reductions, atomics


@triton.jit
def sort_kernel(x, y, least, which, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(y + at, tl.sort(values))
    tl.store(least + tl.program_id(0), tl.min(values, 0))
    tl.store(which + tl.program_id(0), tl.argmax(values, 0))


def sort_right(t):
    return {"y": t["x"].sort(1).values, "least": t["x"].min(1).values, "which": t["x"].argmax(1)}


def sort(new, dtype, filled):
    x, y = new("x", filled), new("y", Filled((3, 256), dtype))
    least, which = new("least", Filled((3,), dtype)), new("which", Filled((3,), "int32"))
    sort_kernel[(3,)](x, y, least, which, N=256)


case("sort_f32", sort_right)(lambda new: sort(new, "float32", Drawn(70, (3, 256), "float32", 100.0)))
case("sort_i32", sort_right)(lambda new: sort(new, "int32", Integers(71, (3, 256), "int32", -(1 << 31), 1 << 31)))


@triton.jit
def added(a, b):
    return a + b


@triton.jit
def decayed(gate_a, value_a, gate_b, value_b):
    """x ← gate·x + value, as state-space models scan."""
    return gate_a * gate_b, value_a * gate_b + value_b


@triton.jit
def scan_kernel(x, gates, sums, products, states, N: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, N)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values, gate = tl.load(x + at), tl.load(gates + at)
    tl.store(sums + at, tl.associative_scan(values, 0, added))
    tl.store(products + at, tl.cumprod(gate, 0, reverse=True))
    _, state = tl.associative_scan((gate, values), 0, decayed)
    tl.store(states + at, state)


def scan_right(t):
    states, state = [], 0
    for gate, value in zip(t["gates"], t["x"], strict=True):
        state = gate * state + value
        states.append(state)
    products = t["gates"].flip(0).cumprod(0).flip(0)
    return {"sums": t["x"].cumsum(0), "products": products, "states": torch.stack(states)}


@case("scan", scan_right)
def scan(new):
    shape = (128, 8)
    x, gates = new("x", Drawn(72, shape, "float32", 1.0)), new("gates", Drawn(73, shape, "float32", 1.2))
    scan_kernel[(1,)](
        x, gates, *(new(name, Filled(shape, "float32")) for name in ("sums", "products", "states")), N=128, COLUMNS=8
    )


@triton.jit
def atomics_kernel(x, whole, counts, most, least, bits, lock, guarded, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(whole, tl.sum(values.to(tl.int64), 0))
    tl.atomic_add(counts + (values & 63), 1, mask=at < n)
    tl.atomic_max(most + (at & 7), values, mask=at < n, sem="relaxed")
    tl.atomic_min(least + (at & 7), values, mask=at < n, scope="gpu")
    tl.atomic_or(bits, tl.sum(values, 0))
    tl.atomic_xor(bits + 1, tl.sum(values, 0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(guarded, tl.load(guarded) + tl.program_id(0) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def atomics_right(t):
    x = t["x"].long()
    blocks = x.split(256)
    columns = [x[n::8] for n in range(8)]
    return {
        "whole": x.sum()[None],
        "counts": torch.bincount(x & 63, minlength=64),
        "most": torch.stack([c.max() for c in columns]),
        "least": torch.stack([c.min() for c in columns]),
        "guarded": torch.tensor([len(blocks) * (len(blocks) + 1) // 2]),
    }


@case("atomics", atomics_right)
def atomics(new):
    n = 2000
    x = new("x", Integers(74, (n,), "int32", -1000, 1000))
    whole, counts = new("whole", Filled((1,), "int64")), new("counts", Filled((64,), "int32"))
    most, least = new("most", Filled((8,), "int32", -(1 << 31))), new("least", Filled((8,), "int32", (1 << 31) - 1))
    bits, lock, guarded = (new(x, Filled((n,), "int32")) for n, x in ((2, "bits"), (1, "lock"), (1, "guarded")))
    atomics_kernel[(triton.cdiv(n, 256),)](x, whole, counts, most, least, bits, lock, guarded, n, BLOCK=256)


@triton.jit
def float_atomics_kernel(x, singles, halves, doubles, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(singles + (at & 15), values, mask=at < n)
    tl.atomic_add(halves + (at & 15), values.to(tl.float16), mask=at < n)
    tl.atomic_add(doubles + (at & 15), values.to(tl.float64), mask=at < n)


@case("float_atomics", lambda t: {n: t["x"].reshape(-1, 16).sum(0) for n in ("singles", "halves", "doubles")}, 5e-2)
def float_atomics(new):
    x = new("x", Drawn(75, (1024,), "float32", 1.0))
    singles, halves = new("singles", Filled((16,), "float32")), new("halves", Filled((16,), "float16"))
    float_atomics_kernel[(4,)](x, singles, halves, new("doubles", Filled((16,), "float64")), 1024, BLOCK=256)


@triton.jit
def libdevice_kernel(x, erf, log1p, tanh, cbrt, power, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(erf + at, libdevice.erf(values))
    tl.store(log1p + at, libdevice.log1p(tl.abs(values)))
    tl.store(tanh + at, libdevice.tanh(values))
    tl.store(cbrt + at, libdevice.cbrt(values))
    tl.store(power + at, libdevice.pow(tl.abs(values), values))


def libdevice_right(t):
    x = t["x"]
    cbrt = x.sign() * x.abs().pow(1 / 3)
    return {"erf": x.erf(), "log1p": x.abs().log1p(), "tanh": x.tanh(), "cbrt": cbrt, "power": x.abs().pow(x)}


@case("libdevice", libdevice_right)
def libdevice_functions(new):
    x = new("x", Drawn(76, (512,), "float32", 3.0))
    libdevice_kernel[(1,)](
        x, *(new(name, Filled((512,), "float32")) for name in ("erf", "log1p", "tanh", "cbrt", "power")), N=512
    )
