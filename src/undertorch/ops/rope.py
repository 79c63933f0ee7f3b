"""Rotary position embedding (Su et al., 2021) of queries and keys, in one launch.

Of each head the first R elements are turned in pairs by the angles of the token's position; the others pass. A pair is
(x[i], x[i + R/2]) as in Llama and GPT-NeoX, or with `interleaved` (x[2i], x[2i + 1]) as in GPT-J:

    (a, b) -> (a cos - b sin, b cos + a sin)

Contract
    q: (..., heads, tokens, size) and k: None, or the same with any number of heads; of one dtype, float32, bfloat16 or
    float16 on CUDA (anything that floats elsewhere), any strides. cos, sin: (table, R/2), or (batch, tokens, R/2) where
    each sample has its own; any such dtypes; R is at most the size of a head. positions: None (0, 1, 2, …), or integers
    of (tokens,) or (batch, tokens), looked up in tables of two dimensions; one outside of the table gives nan. Results
    have the shapes and dtypes of q and k, and their memory: a token's heads side by side where q's (k's) are, else a
    head's tokens. Inputs are not written to, nor kept for the backward. Arithmetic is float32; the same result every
    time. cos and sin have no gradients. Raises BadCall.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undertorch.costs.building import ceil_div
from undertorch.costs.softmax_and_rope import ROPE_PAIRS, ROPE_WARPS, rope_cut
from undertorch.costs.training_ops import padded
from undertorch.ops import rope_kernels as kernels
from undertorch.ops.calls import Arguments, BadCall, no_tensor, on_device_of, runs_own, without_autocast
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import chosen, prefers_library
from undertorch.ops.launching import launch
from undertorch.ops.operators import differentiable, operator

INTEGERS = (torch.int64, torch.int32)

ARGUMENTS = Arguments(
    layout="q (..., heads, tokens, size); k the same with any number of heads, or None; cos and sin of half a head's "
    "width, (table, R/2) or (batch, tokens, R/2), R at most the size; positions (tokens,) or (batch, tokens), int64 or "
    "int32, or None; the result is (q, k)",
    unlike_torch="There is none. Transformers' apply_rotary_pos_emb has cos and sin of the whole width, its half "
    "twice (torch.cat((freqs, freqs), -1)): pass cos[..., : size // 2]",
)

# Reference


def reference(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    *,
    positions: Tensor | None = None,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The definition, in plain torch: half types are computed in float32."""
    check(q, k, cos, sin, positions, interleaved)
    wide = torch.promote_types(q.dtype, torch.float32)
    c, s = (_of_each_token(table.to(wide), positions, q.shape[-2]) for table in (cos, sin))
    with without_autocast(q):  # which has no word for a half type that is not its own
        turned = [None if x is None else _turned(x, c, s, interleaved) for x in (q, k)]
    assert turned[0] is not None
    return turned[0], turned[1]


def _of_each_token(table: Tensor, positions: Tensor | None, tokens: int) -> Tensor:
    """(batch or 1, 1, tokens, R/2)."""
    if positions is None:
        return (table[:tokens] if table.dim() == 2 else table).unsqueeze(-3)
    known = (positions >= 0) & (positions < table.shape[0])
    if table.shape[0] == 0:
        return table.new_full((*positions.shape, table.shape[1]), float("nan")).unsqueeze(-3)
    found = table[torch.where(known, positions, 0).long()]
    return torch.where(known.unsqueeze(-1), found, float("nan")).unsqueeze(-3)


def _turned(x: Tensor, c: Tensor, s: Tensor, interleaved: bool) -> Tensor:
    turned, rest = x[..., : 2 * c.shape[-1]].to(c.dtype), x[..., 2 * c.shape[-1] :]
    flat = turned.reshape(x.shape[:-3].numel(), *x.shape[-3:-1], turned.shape[-1])
    if interleaved:
        first, second = flat[..., ::2], flat[..., 1::2]
        result = torch.stack((first * c - second * s, second * c + first * s), -1).flatten(-2)
    else:
        first, second = flat.tensor_split(2, -1)
        result = torch.cat((first * c - second * s, second * c + first * s), -1)
    return torch.cat((result.reshape(turned.shape).to(x.dtype), rest), -1)


def check(q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, interleaved: bool) -> None:
    """Raises BadCall where shapes or dtypes do not fit together."""
    if not (isinstance(q, Tensor) and isinstance(cos, Tensor) and isinstance(sin, Tensor)):
        raise no_tensor("rope", q=q, cos=cos, sin=sin)
    if (k is not None and not isinstance(k, Tensor)) or (positions is not None and not isinstance(positions, Tensor)):
        raise no_tensor("rope", k=k, positions=positions)
    if q.dim() < 3 or not q.is_floating_point():
        raise BadCall(f"rope: q is {tuple(q.shape)} {q.dtype}; pass floats of (..., heads, tokens, size).")
    if k is not None and (
        k.dtype != q.dtype or k.dim() != q.dim() or k.shape[:-3] != q.shape[:-3] or k.shape[-2:] != q.shape[-2:]
    ):
        raise BadCall(
            f"rope: k is {tuple(k.shape)} {k.dtype} and q {tuple(q.shape)} {q.dtype}; only their heads may differ."
        )
    batch, tokens, size = q.shape[:-3].numel(), q.shape[-2], q.shape[-1]
    if cos.shape != sin.shape or not cos.is_floating_point() or not sin.is_floating_point():
        raise BadCall(f"rope: cos is {tuple(cos.shape)} {cos.dtype} and sin {tuple(sin.shape)} {sin.dtype}.")
    if 2 * cos.shape[-1] > size:
        raise BadCall(
            f"rope: cos has {cos.shape[-1]} angles, one to a pair, and heads of q have {size} elements; of a table "
            "that has every angle twice pass half, cos[..., : size // 2]."
        )
    own = cos.dim() == 3 and cos.shape[0] in (1, batch) and cos.shape[1] == tokens and positions is None
    if not own and not (cos.dim() == 2 and (positions is not None or cos.shape[0] >= tokens)):
        raise BadCall(
            f"rope: cos is {tuple(cos.shape)} for {batch} samples of {tokens} tokens; pass (table, R/2), its length as "
            "many tokens at least unless there are positions, or (batch, tokens, R/2) without."
        )
    if positions is not None and (
        positions.dtype not in INTEGERS or tuple(positions.shape) not in ((tokens,), (1, tokens), (batch, tokens))
    ):
        raise BadCall(
            f"rope: positions are {tuple(positions.shape)} {positions.dtype} for {batch} samples of {tokens} tokens; "
            "pass int64 or int32 of (tokens,) or (batch, tokens)."
        )
    if not isinstance(interleaved, bool):
        raise BadCall(f"rope: interleaved is {interleaved!r}; it is True or False.")


# Kernels: rope_kernels.py.


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Pairs that a block turns, and its warps."""

    pairs: int
    warps: int

    def __str__(self) -> str:
        return f"{self.pairs} pairs, {self.warps} warps"


PIECES = tuple(
    Piece(pairs=pairs, warps=warps)
    for pairs, warps in (
        (ROPE_PAIRS, ROPE_WARPS), (512, 2), (4096, 4), (1024, 4), (2048, 4), (4096, 8),
    )
)  # fmt: skip
"""The fastest first: 85 µs, .98 of the copy rate, to 97 (4 x 4096 x (32 + 8) x 128 bfloat16 on an H200)."""


def has_heads_inside(x: Tensor) -> bool:
    """Whether a token's heads lie nearer to each other than a head's tokens."""
    return bool(x.stride(-3) < x.stride(-2))


def _matrix(x: Tensor) -> Tensor:
    """(batch, heads, tokens, size), a head's elements side by side: a view where strides allow."""
    flat = x.reshape(_flat(x))
    return flat if flat.stride(-1) == 1 or flat.shape[-1] <= 1 else flat.contiguous()


def _flat(x: Tensor) -> tuple[int, ...]:
    return (x.shape[:-3].numel(), *x.shape[-3:])


def _empty(x: Tensor, inner: bool) -> Tensor:
    """For the result: in memory (batch, tokens, heads, size) where `inner`, else (batch, heads, tokens, size)."""
    *batch, heads, tokens, size = x.shape
    if inner:
        return x.new_empty((*batch, tokens, heads, size)).transpose(-3, -2)
    return x.new_empty((*batch, heads, tokens, size))


def turn(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None,
    interleaved: bool, q_inner: bool, k_inner: bool, *, back: bool = False, piece: Any = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """q and k turned; `back`: by the opposite angles, which is the gradient."""
    turned_q, turned_k = _empty(q, q_inner), None if k is None else _empty(k, k_inner)
    if turned_q.numel() == 0 and (turned_k is None or turned_k.numel() == 0):
        return turned_q, turned_k
    half = cos.shape[-1]
    batch, heads, tokens, size = _flat(q)
    queries, keys = _matrix(q), None if k is None else _matrix(k)
    cos, sin = (table if half <= 1 or table.stride(-1) == 1 else table.contiguous() for table in (cos, sin))
    if piece is None:
        piece = chosen(
            "rope",
            q,
            batch * tokens,
            heads * size,
            PIECES,
            lambda way, given: turn(
                given[0], given[1], cos, sin, positions, interleaved, q_inner, k_inner, back=back, piece=way
            ),
            (q, k),
            detail=f"{heads} and {keys.shape[1] if keys is not None else 0} heads"
            f"{', interleaved' * interleaved}{', heads inside' * q_inner}",
        )
    cut = rope_cut(heads, half, q_inner, piece.pairs, piece.warps)
    rest = size - 2 * half
    k_heads = 0 if keys is None else keys.shape[1]
    chunks = ceil_div(heads, cut.heads) + ceil_div(k_heads, cut.heads)
    with on_device_of(q):
        launch(
            kernels.rotate, (ceil_div(batch * tokens, cut.tokens) * chunks,),
            # Without k no block takes any, but what would is compiled.
            queries, queries if keys is None else keys, turned_q, turned_q if turned_k is None else turned_k,
            cos, sin, positions,
            batch * tokens, tokens, size, heads, k_heads, cos.shape[0],
            *queries.stride()[:3], *((0, 0, 0) if keys is None else keys.stride()[:3]),
            *_steps(cos), *_steps(sin), *(_steps(positions, last=True) if positions is not None else (0, 0)),
            BACK=back, POSITIONS=positions is not None, INTERLEAVED=interleaved, Q_INNER=q_inner, K_INNER=k_inner,
            HALF=half, PADDED=padded(max(half, 1)), REST=padded(rest) if rest else 0,
            TOKENS=cut.tokens, HEADS=cut.heads, num_warps=cut.warps,
        )  # fmt: skip
    return turned_q, turned_k


def _steps(table: Tensor, *, last: bool = False) -> tuple[int, int]:
    """From sample to sample and from token to token; `last`: tokens are the last dimension."""
    strides = table.stride() if last else table.stride()[:-1]
    return (strides[0] if len(strides) == 2 and table.shape[0] > 1 else 0), strides[-1]


# Autograd

SCHEMA = "Tensor cos, Tensor sin, Tensor? positions, bool interleaved, bool q_inner, bool k_inner"


def _fake(q: Tensor, k: Tensor | None, *rest: Any) -> Any:
    return _empty(q, rest[-2]), None if k is None else _empty(k, rest[-1])


def _turn_back(*arguments: Any) -> Any:
    return turn(*arguments, back=True)


FORWARD = operator("rope_forward", f"(Tensor q, Tensor? k, {SCHEMA}) -> (Tensor, Tensor)", turn, _fake)
BACKWARD = operator("rope_backward", f"(Tensor q, Tensor? k, {SCHEMA}) -> (Tensor, Tensor)", _turn_back, _fake)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, _, cos, sin, positions, *ctx.layout = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(cos, sin, positions)


def _gradients(ctx: Any, dq: Tensor | None, dk: Tensor | None) -> tuple[Any, ...]:
    need_q, need_k = ctx.needs_input_grad[:2]
    dq, dk = dq if need_q else None, dk if need_k else None
    interleaved, q_inner, k_inner = ctx.layout
    if dq is not None:
        dq, dk = BACKWARD(dq, dk, *ctx.saved_tensors, interleaved, q_inner, k_inner)
        dk = dk if need_k else None
    elif dk is not None:
        dk = BACKWARD(dk, None, *ctx.saved_tensors, interleaved, k_inner, k_inner)[0]
    return dq, dk, None, None, None, None, None, None


_CALL = differentiable(FORWARD, _setup, _gradients)

# Cost: costs/softmax_and_rope.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="forward, backward",
        who="undertorch",
        kernel="rotate (Triton)",
        serves="float32, bfloat16, float16 on one GPU",
        why="torch has no such op: slices, products and sums of its own go over queries and keys some ten times",
    ),
    Candidate(
        passes="forward, backward",
        who="PyTorch",
        kernel="the reference",
        serves="UNDERTORCH_OPS=library, other dtypes, the CPU",
        why="for what the kernel does not take",
    ),
)


def rope(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    *,
    positions: Tensor | None = None,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """q and k turned by their positions' angles, differentiable in both. Raises BadCall."""
    if not (isinstance(cos, Tensor) and isinstance(sin, Tensor)):
        raise no_tensor("rope", cos=cos, sin=sin)
    if any(table.requires_grad for table in (cos, sin)) and torch.is_grad_enabled():
        raise BadCall("rope: cos or sin asks for a gradient, and they have none; detach them.")
    if prefers_library() or not runs_own(q, k, cos, sin):
        return reference(q, k, cos, sin, positions=positions, interleaved=interleaved)
    check(q, k, cos, sin, positions, interleaved)
    if positions is not None and positions.device != q.device:
        raise BadCall(f"rope: positions lie on {positions.device} and q on {q.device}.")
    turned: tuple[Tensor, Tensor | None] = _CALL(
        q, k, cos, sin, positions, interleaved, has_heads_inside(q), k is not None and has_heads_inside(k)
    )
    return (turned[0], turned[1]) if k is not None else (turned[0], None)
