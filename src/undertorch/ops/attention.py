"""Attention: softmax(q @ k.T * scale) @ v, by the fastest of torch's kernels; with softcap or window by ours.

Contract
    q: (batch, heads, queries, size); k and v: (batch, kv_heads, keys, size), kv_heads a divisor of heads; of one dtype
    (under autocast of its dtype), any strides. causal: query i sees the keys up to i. window: query i sees keys nearer
    than that, |i - j| < window. softcap: scores are softcap * tanh(score / softcap). scale: 1 / sqrt(size) by default.
    A query that sees no key has the result 0. The result has q's shape and dtype.

    Without window and softcap torch's kernels run: cuDNN's, FlashAttention's or the memory-efficient ones, measured
    once; their backward may add up in another order from run to run. With them our kernels run on heads of up to 256
    elements in float32, bfloat16 or float16 (FlashAttention's for a window where it is measured ahead): scores and sums
    are float32, the same result every time. What neither takes, and the CPU, goes through the reference, which holds
    all scores. Raises BadCall.
"""

import itertools
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from undertorch.costs.building import ceil_div
from undertorch.costs.capped_attention import FORWARD_TILES, KEYS_TILES, QUERIES_TILES, Tile, head_size, tiles
from undertorch.costs.training_ops import padded
from undertorch.ops import attention_kernels as kernels
from undertorch.ops.calls import (
    Arguments,
    BadCall,
    as_autocast_hands_them,
    compiles_for_amd,
    is_fake,
    is_int64,
    is_number,
    most_warps,
    no_tensor,
    on_device_of,
    runs_own,
    without_autocast,
)
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import chosen, prefers_library
from undertorch.ops.launching import launch
from undertorch.ops.operators import differentiable, operator

LARGEST_HEAD = 256

ARGUMENTS = Arguments(
    layout="q (batch, heads, tokens, size); k and v (batch, kv_heads, keys, size), alike, kv_heads a divisor of heads; "
    "the result is as q",
    unlike_torch="F.scaled_dot_product_attention says is_causal, and enable_gqa for fewer kv heads, which are taken "
    "here as they are; it has attn_mask and dropout_p, which this has not. Its defaults are the same: not causal, a "
    "scale of 1 / sqrt(size). flash-attn has (batch, tokens, heads, size): transpose(1, 2)",
)

# Reference


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    check(q, k, v, causal, window, softcap, scale)
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // max(k.shape[1], 1)
    near, value = (tensor.to(wide).repeat_interleave(group, 1) for tensor in (k, v))
    scale = scale if scale is not None else max(q.shape[-1], 1) ** -0.5
    with without_autocast(q):  # which would multiply in a half type
        power = weights(q.to(wide), near, causal=causal, window=window, softcap=softcap, scale=scale)
        return (power @ value).to(q.dtype)


def weights(q: Tensor, k: Tensor, *, causal: bool, window: int | None, softcap: float | None, scale: float) -> Tensor:
    """Of each query over the keys of its head: softmax of the scores, 0 for keys that it does not see."""
    score = q @ k.mT * scale
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    apart = torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)
    seen = torch.ones_like(apart, dtype=torch.bool)
    if causal:
        seen = seen & (apart >= 0)
    if window is not None:
        seen = seen & (apart.abs() < window)
    power = torch.softmax(score.masked_fill(~seen, -float("inf")), -1)
    return torch.where(seen.any(-1, keepdim=True), power, 0.0)


def check(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int | None, softcap: float | None, scale: float | None
) -> None:
    """Raises BadCall where the arguments do not fit together."""
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        raise no_tensor("attention", q=q, k=k, v=v)
    shapes = f"q is {tuple(q.shape)} {q.dtype}, k {tuple(k.shape)} {k.dtype}, v {tuple(v.shape)} {v.dtype}"
    alike = q.dim() == k.dim() == v.dim() == 4 and q.dtype == k.dtype == v.dtype and q.is_floating_point()
    if not alike or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise BadCall(f"attention: {shapes}; pass (batch, heads, tokens, size), k and v alike, all of one dtype.")
    if q.shape[1] and (not k.shape[1] or q.shape[1] % k.shape[1]):
        raise BadCall(f"attention: {shapes}; the heads of k are to divide those of q.")
    if not isinstance(causal, bool | torch.SymBool):
        raise BadCall(f"attention: causal is {causal!r}; it is True or False.")
    if window is not None and (not is_int64(window) or window < 1):
        raise BadCall(f"attention: window is {window!r}; it is a whole number from 1 on, which sees one key, or None.")
    if softcap is not None and not (is_number(softcap) and 0 < softcap < inf):
        raise BadCall(f"attention: softcap is {softcap!r}; it is a number above 0, or None.")
    if scale is not None and not is_number(scale):
        raise BadCall(f"attention: scale is {scale!r}; it is a number, or None for 1 / sqrt(size).")


# Kernels: torch's, and attention_kernels.py.

BACKENDS = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "FlashAttention": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}
"""On an H200 the fastest first, forward and backward (facts: 537 and 455 TFLOP/s against 316 and 264, 168 and 120)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One of torch's; where it does not take a call, the next that does."""

    name: str

    def __str__(self) -> str:
        return self.name

    def run(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, *, only: bool = False) -> Tensor:
        """`only`: raises RuntimeError where it does not take the call."""
        others = [] if only else [*(BACKENDS[name] for name in BACKENDS if name != self.name), SDPBackend.MATH]
        _settle_torchs_order(q.device)
        with sdpa_kernel([BACKENDS[self.name], *others], set_priority=True):
            return _torchs(q, k, v, causal, scale)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _settle_torchs_order(device: torch.device) -> None:
    """Has torch put its own order of backends in place, which it does when it first chooses one (priority_order of
    sdp_utils.cpp). Were that inside of sdpa_kernel, leaving it would restore an order from before, and torch's own
    attention would run FlashAttention from then on where it prefers cuDNN: 1.9 times as long (H200). A compiler calls
    this while it traces.
    """
    if device.type not in _SETTLED:
        _SETTLED.add(device.type)
        one = torch.empty((1, 1, 1, 8), dtype=torch.float16, device=device)
        torch._fused_sdp_choice(one, one, one)


_SETTLED: set[str] = set()
"""Kinds of devices whose order is in place. A memory of the process, as the order is."""


def _torchs(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> Tensor:
    # By branches: where a compiler takes sizes for unknown, what they are compared to is no bool, which torch wants.
    flags: dict[str, Any] = {
        name: True for name, on in (("is_causal", causal), ("enable_gqa", q.shape[1] != k.shape[1])) if on
    }
    return functional.scaled_dot_product_attention(q, k, v, scale=scale, **flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """FlashAttention with a window, as torch has it below scaled_dot_product_attention; or ours."""

    flash: bool

    def __str__(self) -> str:
        return "FlashAttention, windowed" if self.flash else "ours"

    def run(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int, scale: float) -> Tensor:
        """Differentiable."""
        if not self.flash:
            return _own(q, k, v, causal, window, None, scale)
        turned, window = (tensor.transpose(1, 2) for tensor in (q, k, v)), _at_most_all(window, q, k)
        out: Tensor = torch.ops.aten._flash_attention_forward(
            *turned, None, None, q.shape[2], k.shape[2], 0.0, causal, False, scale=scale,
            window_size_left=window - 1, window_size_right=0 if causal else window - 1,
        )[0]  # fmt: skip
        return out.transpose(1, 2)


def serves_flash_window(q: Tensor, k: Tensor) -> bool:
    """Of unequal lengths FlashAttention aligns the last query with the last key, and we the first with the first."""
    return (
        q.dtype != torch.float32 and q.shape[3] % 8 == 0 and q.shape[2] == k.shape[2] and torch.version.cuda is not None
    )


def _both(way: Any, given: Any, *settings: Any) -> Any:
    """A call with its backward, for measuring."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in given]
        out = way.run(*leaves, *settings)
        return torch.autograd.grad(out, leaves, out.detach())


def _chosen(name: str, q: Tensor, k: Tensor, v: Tensor, ways: tuple[Any, ...], settings: tuple[Any, ...], detail: str,
            **only: bool) -> Any:  # fmt: skip
    """A way for forward and backward together; lengths count up to the next power of two."""
    batch, heads, queries, size = q.shape
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))

    def call(way: Any, given: Any) -> Any:
        return _both(way, given, *settings) if training else way.run(*given, *settings, **only)

    lengths = "x".join(str(padded(length)) for length in (queries, k.shape[2]))
    return chosen(
        name, q, batch * heads, size, ways, call, (q, k, v),
        detail=f"{lengths}, {heads // max(k.shape[1], 1)} heads a key's, {detail}{', with gradients' * training}",
    )  # fmt: skip


def has_heads_inside(x: Tensor) -> bool:
    """Whether a token's heads lie nearer to each other than a head's tokens."""
    return bool(x.stride(1) < x.stride(2))


def _empty(x: Tensor, inner: bool) -> Tensor:
    """For a result of x's shape: in memory (batch, tokens, heads, size) where `inner`."""
    batch, heads, tokens, size = x.shape
    if inner:
        return x.new_empty((batch, tokens, heads, size)).transpose(1, 2)
    return x.new_empty((batch, heads, tokens, size))


def _at_most_all(window: int | None, q: Tensor, k: Tensor) -> int:
    """A window that kernels, whose numbers have 32 bits, can add to a position; 0 for none."""
    return 0 if window is None else min(window, max(q.shape[2], k.shape[2]))


def _side_by_side(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 or x.shape[3] <= 1 else x.contiguous()


def _launched(tile: Tile) -> dict[str, int]:
    """AMD's shared memory does not hold blocks in flight."""
    stages = 1 if compiles_for_amd() else tile.stages
    return {"ROWS": tile.rows, "KEYS": tile.keys, "num_warps": most_warps(tile.warps), "num_stages": stages}


def _flags(q: Tensor, causal: bool, window: int | None, softcap: float | None) -> dict[str, Any]:
    return {
        "CAUSAL": causal,
        "WINDOWED": window is not None,
        "CAPPED": softcap is not None,
        "WIDE": q.dtype == torch.float32,
        "SIZE": head_size(q.shape[3]),
    }


@dataclass(frozen=True, slots=True)
class Both:
    """How the two kernels of the backward are cut."""

    queries: Tile
    keys: Tile

    def __str__(self) -> str:
        return f"queries {self.queries}; keys {self.keys}"


def backward_ways(size: int, *, wide: bool) -> tuple[Both, ...]:
    """Ways to cut the backward, the usual one first; the others change one of its kernels at a time."""
    first, *others = tiles(QUERIES_TILES, size, wide=wide)
    second, *more = tiles(KEYS_TILES, size, wide=wide)
    changed = itertools.zip_longest((Both(first, one) for one in more), (Both(one, second) for one in others))
    return Both(first, second), *(way for way in itertools.chain(*changed) if way is not None)


def forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int | None, softcap: float | None, scale: float,
    q_inner: bool, k_inner: bool, *, tile: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result; of each query the largest score (as the kernels have it), and log2 of its sum of powers."""
    out = _empty(q, q_inner)
    lse = torch.empty((2, *q.shape[:3]), dtype=torch.float32, device=q.device)
    batch, heads, rows, size = q.shape
    if out.numel() == 0 or k.numel() == 0:
        return out.zero_(), lse.fill_(float("inf"))
    if tile is None:
        again: Any = forward
        tile = _tile(
            "attention_forward", q, k, tiles(FORWARD_TILES, size, wide=q.dtype == torch.float32),
            lambda way, given: again(*given, causal, window, softcap, scale, q_inner, k_inner, tile=way), (q, k, v),
            causal, window, softcap,
        )  # fmt: skip
    q, k, v = (_side_by_side(tensor) for tensor in (q, k, v))
    with on_device_of(q):
        launch(
            kernels.attend, (ceil_div(rows, tile.rows), batch * heads),
            q, k, v, out, lse, rows, k.shape[2], size, heads, heads // k.shape[1],
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], scale, softcap or 1.0, _at_most_all(window, q, k),
            INNER=q_inner, **_flags(q, causal, window, softcap), **_launched(tile),
        )  # fmt: skip
    return out, lse


def backward(
    given: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, window: int | None,
    softcap: float | None, scale: float, q_inner: bool, k_inner: bool, need_keys: bool, *, tile: Any = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of q, k and v; of q alone where those of keys are not needed. `tile`: of both kernels."""
    dq = _empty(q, q_inner)
    dk, dv = (_empty(k, k_inner) if need_keys else None for _ in range(2))
    batch, heads, rows, size = q.shape
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), None if dk is None else dk.zero_(), None if dv is None else dv.zero_()
    if tile is None:
        again: Any = backward
        same = (causal, window, softcap, scale, q_inner, k_inner, need_keys)
        tile = _tile(
            "attention_backward", q, k, backward_ways(size, wide=q.dtype == torch.float32),
            lambda way, tensors: again(*tensors, *same, tile=way), (given, q, k, v, out, lse),
            causal, window, softcap,
        )  # fmt: skip
    given, q, k, v = (_side_by_side(tensor) for tensor in (given, q, k, v))
    along = torch.empty_like(lse[0])
    numbers = (rows, k.shape[2], size, heads, heads // k.shape[1])
    strides = tuple(itertools.chain.from_iterable(tensor.stride()[:3] for tensor in (q, k, v, given)))
    limits = (scale, softcap or 1.0, _at_most_all(window, q, k))
    flags = _flags(q, causal, window, softcap)
    with on_device_of(q):
        launch(
            kernels.attend_backward_queries, (ceil_div(rows, tile.queries.rows), batch * heads),
            q, k, v, out, given, lse, along, dq, *numbers, *strides, *limits,
            INNER=q_inner, **flags, **_launched(tile.queries),
        )  # fmt: skip
        if need_keys:
            launch(
                kernels.attend_backward_keys, (ceil_div(k.shape[2], tile.keys.keys), batch * k.shape[1]),
                q, k, v, given, lse, along, dk, dv, *numbers, *strides, *limits,
                INNER=k_inner, **flags, **_launched(tile.keys),
            )  # fmt: skip
    return dq, dk, dv


def _tile(name: str, q: Tensor, k: Tensor, ways: tuple[Any, ...], call: Any, tensors: tuple[Tensor, ...], causal: bool,
          window: int | None, softcap: float | None) -> Any:  # fmt: skip
    lengths = "x".join(str(padded(length)) for length in (q.shape[2], k.shape[2]))
    how = f"{', causal' * causal}{', windowed' * (window is not None)}{', capped' * (softcap is not None)}"
    return chosen(name, q, q.shape[0] * q.shape[1], q.shape[3], ways, call, tensors, detail=lengths + how)


# Autograd

SCHEMA = "bool causal, int? window, float? softcap, float scale, bool q_inner, bool k_inner"
FORWARD = operator(
    "attention_forward",
    f"(Tensor q, Tensor k, Tensor v, {SCHEMA}) -> (Tensor, Tensor)",
    forward,
    lambda q, k, v, *rest: (_empty(q, rest[-2]), q.new_empty((2, *q.shape[:3]), dtype=torch.float32)),
)
BACKWARD = operator(
    "attention_backward",
    f"(Tensor given, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {SCHEMA}, bool need_keys)"
    " -> (Tensor, Tensor, Tensor)",
    backward,
    lambda given, q, k, v, out, lse, *rest: (
        _empty(q, rest[-3]),
        _empty(k, rest[-2]) if rest[-1] else None,
        _empty(v, rest[-2]) if rest[-1] else None,
    ),
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    q, k, v, *ctx.settings = inputs
    out, lse = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, out, lse)


def _gradients(ctx: Any, given: Tensor | None, *_: Any) -> tuple[Any, ...]:
    nothing = (None,) * 6
    if given is None:
        return None, None, None, *nothing
    needs = ctx.needs_input_grad[:3]
    found = BACKWARD(given, *ctx.saved_tensors, *ctx.settings, needs[1] or needs[2])
    return *(gradient if need else None for gradient, need in zip(found, needs, strict=True)), *nothing


_CALL = differentiable(FORWARD, _setup, _gradients)


def _own(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int | None, softcap: float | None, scale: float
) -> Tensor:
    out: Tensor = _CALL(q, k, v, causal, window, softcap, scale, has_heads_inside(q), has_heads_inside(k))[0]
    return out


# Cost: costs/capped_attention.py, and torch's of torch's.

# Candidates

CANDIDATES = (
    Candidate(
        passes="both",
        who="PyTorch",
        kernel="scaled_dot_product_attention: cuDNN, FlashAttention, memory-efficient",
        serves="calls without window and softcap; a window, FlashAttention",
        why="measured together with the backward: which is fastest changes with length, size and mask",
    ),
    Candidate(
        passes="forward, backward",
        who="undertorch",
        kernel="attend, attend_backward_queries and attend_backward_keys (Triton)",
        serves="softcap, and windows; heads of up to 256 elements",
        why="a new operator: no library that torch calls caps scores. flex_attention does, through torch.compile only",
    ),
    Candidate(
        passes="both",
        who="PyTorch",
        kernel="the reference",
        serves="softcap and windows: UNDERTORCH_OPS=library, other dtypes, larger heads, the CPU",
        why="for what the kernels do not take; it holds all scores",
    ),
)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> Tensor:
    """softmax(q @ k.T * scale) @ v, differentiable in all three. Raises BadCall."""
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        raise no_tensor("attention", q=q, k=k, v=v)
    q, k, v = as_autocast_hands_them(q, k, v)
    check(q, k, v, causal, window, softcap, scale)
    if window is None and softcap is None:
        return _by_torch(q, k, v, causal, scale)
    if prefers_library() or not runs_own(q, k, v) or q.shape[3] > LARGEST_HEAD:
        return reference(q, k, v, causal=causal, window=window, softcap=softcap, scale=scale)
    scale = max(q.shape[3], 1) ** -0.5 if scale is None else scale
    if window is None or softcap is not None or torch.compiler.is_compiling() or not serves_flash_window(q, k):
        return _own(q, k, v, causal, window, softcap, scale)
    ways = (Windowed(flash=False), Windowed(flash=True))
    way: Windowed = _chosen("attention_windowed", q, k, v, ways, (causal, window, scale), f"window {window}")
    return way.run(q, k, v, causal, window, scale)


def _by_torch(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> Tensor:
    """On CUDA by the backend that was measured to be the fastest; of half types cuDNN's where nothing is measured."""
    if q.device.type != "cuda" or prefers_library() or is_fake(q) or not runs_own(q, k, v) or 0 in q.shape + k.shape:
        return _torchs(q, k, v, causal, scale)
    half = q.dtype != torch.float32 or torch.is_autocast_enabled("cuda")
    if torch.compiler.is_compiling():
        return Backend(name="cuDNN" if half else "memory-efficient").run(q, k, v, causal, scale)
    ways = tuple(Backend(name=name) for name in BACKENDS if half or name == "memory-efficient")
    way: Backend = _chosen("attention", q, k, v, ways, (causal, scale), "causal" * causal, only=True)
    return way.run(q, k, v, causal, scale)
