"""The Triton kernel that turns queries and keys by their positions' angles. All arithmetic is float32."""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def _turned(
    x, y, c, s, batch, place, head, present, heads, tokens, size,
    batch_stride, head_stride, token_stride,
    INTERLEAVED: tl.constexpr, INNER: tl.constexpr, HALF: tl.constexpr, PADDED: tl.constexpr, REST: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Turns HALF pairs of some heads, of `size` elements, of some tokens. c, s: (TOKENS, 1, PADDED)."""
    there = x + (batch * batch_stride + place * token_stride)[:, None, None] + (head * head_stride)[None, :, None]
    if INNER:
        to = ((batch * tokens + place) * heads)[:, None, None] + head[None, :, None]
    else:
        to = (batch * heads * tokens + place)[:, None, None] + (head * tokens)[None, :, None]
    to = y + to * size
    here = present[:, None, None] & (head < heads)[None, :, None]
    if INTERLEAVED:
        both = tl.arange(0, 2 * PADDED)[None, None, :]
        inside = here & (both < 2 * HALF)
        value = tl.load(there + both, mask=inside, other=0.0).to(tl.float32)
        first, second = tl.split(tl.reshape(value, (TOKENS, HEADS, PADDED, 2)))
        result = tl.reshape(tl.join(first * c - second * s, second * c + first * s), (TOKENS, HEADS, 2 * PADDED))
        tl.store(to + both, result.to(y.dtype.element_ty), mask=inside)
    else:
        pair = tl.arange(0, PADDED)[None, None, :]
        inside = here & (pair < HALF)
        first = tl.load(there + pair, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(there + HALF + pair, mask=inside, other=0.0).to(tl.float32)
        tl.store(to + pair, (first * c - second * s).to(y.dtype.element_ty), mask=inside)
        tl.store(to + HALF + pair, (second * c + first * s).to(y.dtype.element_ty), mask=inside)
    if REST:
        other = tl.arange(0, REST)[None, None, :] + 2 * HALF
        inside = here & (other < size)
        tl.store(to + other, tl.load(there + other, mask=inside, other=0.0), mask=inside)


@triton.jit
def rotate(
    q, k, turned_q, turned_k, cos, sin, positions, count, tokens, size, q_heads, k_heads, longest,
    q_batch, q_head, q_token, k_batch, k_head, k_token,
    cos_batch, cos_token, sin_batch, sin_token, position_batch, position_token,
    BACK: tl.constexpr, POSITIONS: tl.constexpr, INTERLEAVED: tl.constexpr,
    Q_INNER: tl.constexpr, K_INNER: tl.constexpr,
    HALF: tl.constexpr, PADDED: tl.constexpr, REST: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """A block takes HEADS heads, of q or of k, of TOKENS of the batch's `count` tokens. BACK: by the opposite angles.

    The angles of a token are read once for all of them. A position outside of the table is not looked up: nan.
    """
    q_chunks = tl.cdiv(q_heads, HEADS)
    chunks = q_chunks + tl.cdiv(k_heads, HEADS)
    block = tl.program_id(0)
    chunk = block % chunks
    token = (block // chunks).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    present = token < count
    batch, place = token // tokens, token % tokens
    pair = tl.arange(0, PADDED)
    at = place
    inside = present
    if POSITIONS:
        at = tl.load(positions + batch * position_batch + place * position_token, mask=present, other=0).to(tl.int64)
        inside = present & (at >= 0) & (at < longest)
    known = inside[:, None, None] & (pair < HALF)[None, None, :]
    pair = pair[None, None, :]
    c = tl.load(
        cos + (batch * cos_batch + at * cos_token)[:, None, None] + pair, mask=known, other=float("nan")
    ).to(tl.float32)  # fmt: skip
    s = tl.load(
        sin + (batch * sin_batch + at * sin_token)[:, None, None] + pair, mask=known, other=float("nan")
    ).to(tl.float32)  # fmt: skip
    if BACK:
        s = -s
    if chunk < q_chunks:
        head = (chunk * HEADS + tl.arange(0, HEADS)).to(tl.int64)
        _turned(
            q, turned_q, c, s, batch, place, head, present, q_heads, tokens, size, q_batch, q_head, q_token,
            INTERLEAVED, Q_INNER, HALF, PADDED, REST, TOKENS, HEADS,
        )  # fmt: skip
    else:
        head = ((chunk - q_chunks) * HEADS + tl.arange(0, HEADS)).to(tl.int64)
        _turned(
            k, turned_k, c, s, batch, place, head, present, k_heads, tokens, size, k_batch, k_head, k_token,
            INTERLEAVED, K_INNER, HALF, PADDED, REST, TOKENS, HEADS,
        )  # fmt: skip
