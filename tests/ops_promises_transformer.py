"""What softmax, rotary embedding, linear layer with activation, and attention promise: as ops_promises.py."""

import itertools
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import undertorch.ops
from ops_promises import BF16, FLOOR, FP16, FP32, FP64, LAYOUTS, Row, compare, seed_of

attention, rope = (import_module(f"undertorch.ops.{name}") for name in ("attention", "rope"))


def same_again(ours: list[Tensor], again: list[Tensor]) -> list[str]:
    if all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(ours, again, strict=True)):
        return []
    return ["a second call gave another result"]


def untouched(before: list[Tensor], after: list[Tensor]) -> list[str]:
    if all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(before, after, strict=True)):
        return []
    return ["an input was written to"]


# Softmax


def check_softmax(
    device: str,
    shape: tuple[int, ...],
    dtype: torch.dtype = FP32,
    layout: str = "contiguous",
    gradient_layout: str = "contiguous",
    dim: int = -1,
    minus_infinity: str = "",
    scale: float = 1.0,
    mean: float = 0.0,
    gradient_scale: float = 1.0,
) -> list[str]:
    """The result and its gradient, against torch's."""
    generator = torch.Generator().manual_seed(seed_of("softmax", shape))
    x = torch.randn(*shape, generator=generator) * scale + mean
    if minus_infinity == "some":
        x[..., ::3] = -float("inf")
    elif minus_infinity == "first half":
        x[..., : shape[-1] // 2] = -float("inf")
    elif minus_infinity == "a row":
        x[0] = -float("inf")
    x = LAYOUTS[layout](x.to(device, dtype))
    incoming = LAYOUTS[gradient_layout]((torch.randn(*shape, generator=generator) * gradient_scale).to(device, dtype))

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        given = (x if to is None else x.to(to)).detach().requires_grad_()
        y = function(given, dim)
        (dx,) = torch.autograd.grad(y, given, incoming if to is None else incoming.to(to))
        return [y.detach(), dx]

    before = x.clone()
    ours = run(undertorch.ops.softmax, None)
    wrong = compare(["y", "gradient"], ours, run(torch.softmax, FP64), run(torch.softmax, None))
    if ours[0].dtype != dtype:
        wrong.append(f"y is {ours[0].dtype}")
    return wrong + untouched([before], [x]) + same_again(ours, run(undertorch.ops.softmax, None))


def softmax_rows() -> Iterator[Row]:
    """Ranks, dimensions, widths, dtypes, layouts, -inf in places and rows, values far out."""

    def row(name: str, large: bool = False, **settings: Any) -> Row:
        return Row(op="softmax", name=name, large=large, check=lambda device: check_softmax(device, **settings))

    for shape in ((5,), (3, 40), (2, 3, 40), (2, 1, 3, 40), (1, 2, 2, 3, 40), (0, 40), (3, 0), (3, 0, 40)):
        yield row(f"shape {shape}", shape=shape)
    for dim in (0, 1, -2):
        yield row(f"over dimension {dim}", shape=(5, 6, 7), dim=dim, dtype=BF16)
    for width in (1, 2, 3, 7, 64, 127, 257, 1000, 1025, 4096, 4097):
        for dtype in (FP32, BF16):
            yield row(f"width {width} {dtype}", shape=(7, width), dtype=dtype)
    for width in (8193, 16384, 32768, 32769, 50257, 65537, 131072):
        for dtype in (FP32, BF16):
            yield row(f"width {width} {dtype}", large=True, shape=(3, width), dtype=dtype)
            yield row(f"width {width} {dtype}, -inf", large=True, shape=(3, width), dtype=dtype,
                      minus_infinity="first half")  # fmt: skip
    for layout in LAYOUTS:
        yield row(f"input {layout}", shape=(6, 48), layout=layout, dtype=FP16)
        yield row(f"gradient {layout}", shape=(6, 48), gradient_layout=layout)
        yield row(f"both {layout}, rank 3", shape=(3, 5, 48), layout="transposed", gradient_layout=layout)
    for dtype, places in itertools.product((FP32, BF16), ("some", "first half", "a row")):
        yield row(f"-inf: {places}, {dtype}", shape=(4, 300), dtype=dtype, minus_infinity=places)
    for mean, scale in ((1000.0, 1.0), (-300.0, 30.0), (0.0, 1e-3), (0.0, 1e4)):
        yield row(f"mean {mean}, deviation {scale}", shape=(8, 200), mean=mean, scale=scale)
    yield row("zero gradient", shape=(9, 100), gradient_scale=0.0)
    yield row("many rows", large=True, shape=(5000, 96), dtype=BF16)


# Rotary embedding


def check_rope(
    device: str,
    batch: tuple[int, ...] = (2,),
    heads: int = 4,
    kv_heads: int | None = 2,
    tokens: int = 9,
    size: int = 16,
    pairs: int | None = None,
    dtype: torch.dtype = FP32,
    table_dtype: torch.dtype | None = None,
    layout: str = "contiguous",
    gradient_layout: str = "contiguous",
    heads_inside: bool = False,
    positions: str = "none",
    own_tables: bool = False,
    interleaved: bool = False,
    frozen: str = "",
    unused: str = "",
) -> list[str]:
    """Queries and keys turned, and both gradients. torch's own is the reference in the inputs' dtype."""
    generator = torch.Generator().manual_seed(seed_of(batch, heads, kv_heads, tokens, size))
    pairs = size // 2 if pairs is None else pairs

    def normal(n: int, how: str) -> Tensor:
        laid = (*batch, tokens, n, size) if heads_inside else (*batch, n, tokens, size)
        made = LAYOUTS[how](torch.randn(*laid, generator=generator).to(device, dtype))
        return made.transpose(-3, -2) if heads_inside else made

    q, k = normal(heads, layout), None if kv_heads is None else normal(kv_heads, layout)
    given = [normal(heads, gradient_layout), *([normal(kv_heads, gradient_layout)] if kv_heads is not None else [])]
    count = torch.Size(batch).numel()
    length = tokens if positions == "none" else tokens + 20
    table = (count, tokens) if own_tables else (length,)
    angle = torch.rand(*table, pairs, generator=generator) * 100
    cos, sin = (t.to(device, table_dtype or dtype) for t in (angle.cos(), angle.sin()))
    places = {
        "one row": torch.randint(0, length, (tokens,), generator=generator),
        "each sample's": torch.randint(0, length, (count, tokens), generator=generator),
        "int32": torch.randint(0, length, (count, tokens), generator=generator, dtype=torch.int32),
        "outside": torch.randint(-3, length + 3, (count, tokens), generator=generator),
    }.get(positions)
    places = None if places is None else places.to(device)

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        tensors = [t if to is None else t.to(to) for t in (q, k) if t is not None]
        tensors = [t.detach().requires_grad_(name != frozen) for name, t in zip("qk", tensors, strict=False)]
        c, s = (t if to is None else t.to(to) for t in (cos, sin))
        out = function(tensors[0], tensors[1] if len(tensors) > 1 else None, c, s, positions=places,
                       interleaved=interleaved)  # fmt: skip
        out = [o for o in out if o is not None]
        reached = [
            (o, g if to is None else g.to(to))
            for name, o, g in zip("qk", out, given, strict=False)
            if o.requires_grad and name != unused
        ]
        wanted = [t for t in tensors if t.requires_grad]
        grads = torch.autograd.grad([o for o, _ in reached], wanted, [g for _, g in reached], allow_unused=True)
        return [*(o.detach() for o in out), *(g for g in grads if g is not None)]

    def rounded(q: Tensor, k: Tensor | None, c: Tensor, s: Tensor, **settings: Any) -> Any:
        """As scripts have it: every product and sum in the inputs' dtype."""
        again = rope._turned
        c, s = (rope._of_each_token(t.to(q.dtype), settings["positions"], q.shape[-2]) for t in (c, s))
        return [None if t is None else again(t, c, s, settings["interleaved"]) for t in (q, k)]

    before = [t.clone() for t in (q, k) if t is not None]
    ours = run(undertorch.ops.rope, None)
    names = [f"result {n}" for n in range(len(ours))]
    wrong = compare(names, ours, run(rope.reference, FP64), run(rounded, None))
    return (
        wrong
        + untouched(before, [t for t in (q, k) if t is not None])
        + same_again(ours, run(undertorch.ops.rope, None))
    )


def rope_rows() -> Iterator[Row]:
    """Both pairings, parts of a head, positions, heads, dtypes, layouts in memory, what is frozen or unused."""

    def row(name: str, large: bool = False, **settings: Any) -> Row:
        return Row(op="rope", name=name, large=large, check=lambda device: check_rope(device, **settings))

    for interleaved, inside in itertools.product((False, True), (False, True)):
        how = f"{'interleaved' if interleaved else 'halves'}, {'heads' if inside else 'tokens'} inside"
        common = {"interleaved": interleaved, "heads_inside": inside}
        for dtype in (FP32, BF16, FP16):
            yield row(f"{how}, {dtype}", dtype=dtype, **common)
        for positions in ("one row", "each sample's", "int32", "outside"):
            yield row(f"{how}, positions {positions}", positions=positions, **common)
        for pairs, size in ((3, 16), (0, 8), (5, 11), (1, 2), (33, 80)):
            yield row(f"{how}, {pairs} pairs of {size}", pairs=pairs, size=size, **common)
        yield row(f"{how}, float32 tables", dtype=BF16, table_dtype=FP32, **common)
        yield row(f"{how}, tables of each sample", own_tables=True, **common)
    for heads, kv_heads in ((1, 1), (8, 1), (3, 5), (7, None), (33, 4)):
        yield row(f"{heads} and {kv_heads} heads", heads=heads, kv_heads=kv_heads, heads_inside=True)
    for batch in ((), (3, 2), (1, 2, 2), (0,)):
        yield row(f"batch {batch}", batch=batch)
    for tokens in (0, 1, 67):
        yield row(f"{tokens} tokens", tokens=tokens, positions="one row")
    for layout, inside in itertools.product(LAYOUTS, (False, True)):
        yield row(f"inputs {layout}, {inside}", layout=layout, heads_inside=inside)
        yield row(f"gradient {layout}, {inside}", gradient_layout=layout, heads_inside=inside, dtype=BF16)
    for name in "qk":
        yield row(f"{name} frozen", frozen=name)
        yield row(f"{name} unused", unused=name, heads_inside=True)
    yield row("many tokens", large=True, tokens=3000, heads=8, size=128, dtype=BF16)


# Linear layer and activation


def check_linear_act(
    device: str,
    rows: tuple[int, ...] = (37,),
    inputs: int = 24,
    features: int = 70,
    dtype: torch.dtype = FP32,
    activation: str = "gelu",
    layout: str = "contiguous",
    gradient_layout: str = "contiguous",
    with_bias: bool = True,
    frozen: tuple[str, ...] = (),
    scale: float = 1.0,
) -> list[str]:
    """The result and every gradient; and the result again where no gradient is asked for."""
    generator = torch.Generator().manual_seed(seed_of(rows, inputs, features))

    def normal(*shape: int, by: float = 1.0, how: str = "contiguous") -> Tensor:
        return LAYOUTS[how]((torch.randn(*shape, generator=generator) * by).to(device, dtype))

    tensors = {
        "x": normal(*rows, inputs, how=layout),
        "weight": normal(features, inputs, by=scale * max(inputs, 1) ** -0.5, how=layout),
        **({"bias": normal(features, by=scale)} if with_bias else {}),
    }
    incoming = normal(*rows, features, how=gradient_layout)

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        given = {
            n: (t if to is None else t.to(to)).detach().requires_grad_(n not in frozen) for n, t in tensors.items()
        }
        y = function(given["x"], given["weight"], given.get("bias"), activation)
        with torch.no_grad():
            free = function(given["x"], given["weight"], given.get("bias"), activation)
        wanted = [t for t in given.values() if t.requires_grad]
        grads = torch.autograd.grad(y, wanted, incoming if to is None else incoming.to(to)) if wanted else ()
        return [y.detach(), free, *grads]

    def theirs(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        before = functional.linear(x, weight, bias)
        if activation == "gelu_tanh":
            return functional.gelu(before, approximate="tanh")
        return getattr(functional, activation)(before)

    before = [t.clone() for t in tensors.values()]
    ours = run(undertorch.ops.linear_act, None)
    names = ["y", "y without gradients", *(f"gradient of {n}" for n in tensors if n not in frozen)]
    wrong = compare(names, ours, run(theirs, FP64), run(theirs, None))
    return wrong + untouched(before, list(tensors.values())) + same_again(ours, run(undertorch.ops.linear_act, None))


def linear_act_rows() -> Iterator[Row]:
    """Activations, dtypes, ranks, sizes, layouts, what is frozen; values far out."""

    def row(name: str, large: bool = False, **settings: Any) -> Row:
        return Row(op="linear_act", name=name, large=large, check=lambda device: check_linear_act(device, **settings))

    for activation in ("relu", "gelu", "gelu_tanh", "silu"):
        for dtype, with_bias in itertools.product((FP32, BF16, FP16), (True, False)):
            yield row(f"{activation}, {dtype}, bias {with_bias}", activation=activation, dtype=dtype,
                      with_bias=with_bias)  # fmt: skip
        for names in (("x",), ("weight",), ("bias",), ("x", "weight"), ("x", "bias"), ("x", "weight", "bias")):
            yield row(f"{activation}, {' and '.join(names)} frozen", activation=activation, frozen=names)
        yield row(f"{activation}, large values", activation=activation, scale=30.0)
    for rows in ((), (2, 5), (2, 3, 4), (1, 2, 2, 3), (0,), (3, 0), (1,), (300,)):
        yield row(f"rows {rows}", rows=rows, activation="silu")
    for inputs, features in ((1, 1), (0, 5), (7, 0), (33, 257), (64, 8), (5, 4097)):
        yield row(f"{inputs} to {features}", inputs=inputs, features=features, dtype=BF16)
    for layout in LAYOUTS:
        yield row(f"inputs {layout}", layout=layout)
        yield row(f"gradient {layout}", gradient_layout=layout, dtype=BF16, activation="gelu_tanh")
    yield row("4096 to 512", large=True, rows=(1000,), inputs=4096, features=512, dtype=BF16)


# Attention


def check_attention(
    device: str,
    batch: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    queries: int = 40,
    keys: int = 40,
    size: int = 16,
    dtype: torch.dtype = FP32,
    layout: str = "contiguous",
    gradient_layout: str = "contiguous",
    heads_inside: bool = False,
    spread: float = 1.0,
    frozen: tuple[str, ...] = (),
    **settings: Any,
) -> list[str]:
    """The result and the three gradients. torch's own: the products in the inputs' dtype, softmax as torch has it."""
    generator = torch.Generator().manual_seed(seed_of("attention", heads, kv_heads, queries, keys, size))

    def normal(n: int, tokens: int, how: str) -> Tensor:
        laid = (batch, tokens, n, size) if heads_inside else (batch, n, tokens, size)
        made = LAYOUTS[how]((torch.randn(*laid, generator=generator) * spread).to(device, dtype))
        return made.transpose(1, 2) if heads_inside else made

    tensors = {"q": normal(heads, queries, layout), "k": normal(kv_heads, keys, layout),
               "v": normal(kv_heads, keys, layout)}  # fmt: skip
    incoming = normal(heads, queries, gradient_layout)

    def run(function: Any, to: torch.dtype | None) -> list[Tensor]:
        given = {
            n: (t if to is None else t.to(to)).detach().requires_grad_(n not in frozen) for n, t in tensors.items()
        }
        y = function(*given.values(), **settings)
        wanted = [t for t in given.values() if t.requires_grad]
        return [y.detach(), *torch.autograd.grad(y, wanted, incoming if to is None else incoming.to(to))]

    before = [t.clone() for t in tensors.values()]
    ours = run(undertorch.ops.attention, None)
    names = ["y", *(f"gradient of {n}" for n in tensors if n not in frozen)]
    exact = run(attention.reference, FP64)
    wrong = compare(names, ours, exact, run(rounded_attention, None))
    sizes = what_cancels(*(t.double() for t in (incoming, *tensors.values())), **settings)
    for name, mine, right in zip(names, ours, exact, strict=True):
        if name in sizes and (mine.double() - right).norm() <= FLOOR[dtype] * sizes[name].norm():
            wrong = [text for text in wrong if not text.startswith(name)]
    wrong += untouched(before, list(tensors.values()))
    own = settings.get("window") is not None or settings.get("softcap") is not None
    return wrong + (same_again(ours, run(undertorch.ops.attention, None)) if own else [])


def what_cancels(
    incoming: Tensor, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: int | None = None,
    softcap: float | None = None, scale: float | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """How large the numbers are whose differences are the gradients of q and k.

    dq = scale * sum over keys of p * (d - mean) * k with d = incoming @ v and mean = sum of p * d. Where a query sees
    one key, or all its keys are alike, d is the mean and nothing remains but roundings of d, however exact everything
    is; so a rounding of p * (|d| + |mean|) * |k| is always allowed.
    """
    group = q.shape[1] // k.shape[1]
    scale = scale if scale is not None else q.shape[-1] ** -0.5
    near, value = (t.repeat_interleave(group, 1) for t in (k, v))
    power = attention.weights(q, near, causal=causal, window=window, softcap=softcap, scale=scale)
    d = incoming @ value.mT
    size = power * (d.abs() + (power * d).sum(-1, keepdim=True).abs()) * scale
    to_k = (size.mT @ q.abs()).unflatten(1, (k.shape[1], group)).sum(2)
    return {"gradient of q": size @ near.abs(), "gradient of k": to_k}


def rounded_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: int | None = None, softcap: float | None = None,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """As scripts have it."""
    group = q.shape[1] // k.shape[1]
    near, value = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    score = q @ near.mT * (scale if scale is not None else q.shape[-1] ** -0.5)
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    apart = torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)
    hidden = torch.zeros_like(apart, dtype=torch.bool)
    hidden = hidden | (apart < 0) if causal else hidden
    hidden = hidden | (apart.abs() >= window) if window is not None else hidden
    power = torch.softmax(score.masked_fill(hidden, -float("inf")), -1)
    return power.masked_fill(hidden.all(-1, keepdim=True), 0.0) @ value


def attention_rows() -> Iterator[Row]:
    """Masks, lengths, heads, sizes, dtypes, layouts, scores far out, what is frozen."""

    def row(name: str, large: bool = False, **settings: Any) -> Row:
        return Row(op="attention", name=name, large=large, check=lambda device: check_attention(device, **settings))

    masks: dict[str, dict[str, Any]] = {
        "causal": {"causal": True}, "all": {}, "window": {"window": 7}, "causal window": {"causal": True, "window": 7},
        "softcap": {"softcap": 2.0}, "causal softcap": {"causal": True, "softcap": 2.0},
        "causal window softcap": {"causal": True, "window": 33, "softcap": 2.0}, "window of one": {"window": 1},
        "wide window": {"window": 1000, "causal": True},
    }  # fmt: skip
    for name, mask in masks.items():
        for dtype in (FP32, BF16, FP16):
            yield row(f"{name}, {dtype}", large=dtype is not FP32 and name != "causal softcap", dtype=dtype, **mask)
        yield row(f"{name}, 150 tokens", large=True, queries=150, keys=150, heads=2, kv_heads=1, dtype=BF16, **mask)
    for name in ("window", "causal softcap", "causal window softcap"):
        mask = masks[name]
        for queries, keys in ((1, 1), (1, 50), (50, 1), (33, 90), (90, 33), (0, 5), (5, 0)):
            yield row(f"{name}, {queries} queries, {keys} keys", queries=queries, keys=keys, **mask)
        for heads, kv_heads in ((1, 1), (3, 1), (6, 6)):
            yield row(
                f"{name}, {heads} and {kv_heads} heads", heads=heads, kv_heads=kv_heads, heads_inside=True, **mask
            )
        for size in (1, 8, 20, 64, 80):
            yield row(f"{name}, heads of {size}", large=size > 20, size=size, dtype=BF16, **mask)
        yield row(f"{name}, spread scores", spread=6.0, **mask)
        for names in (("q",), ("k",), ("v",), ("k", "v"), ("q", "k")):
            yield row(f"{name}, {' and '.join(names)} frozen", frozen=names, **mask)
    for layout, inside in itertools.product(LAYOUTS, (False, True)):
        yield row(f"inputs {layout}, {inside}", layout=layout, heads_inside=inside, softcap=5.0)
        yield row(f"gradient {layout}, {inside}", gradient_layout=layout, heads_inside=inside, softcap=5.0)
    for size in (128, 256):
        yield row(f"heads of {size}, many tokens", large=True, queries=1000, keys=1000, size=size, dtype=BF16,
                  causal=True, softcap=20.0, window=300)  # fmt: skip


def transformer_rows() -> list[Row]:
    """The whole table, with what only a GPU can show."""
    from ops_transformer_on_gpu import transformer_gpu_rows

    return [*softmax_rows(), *rope_rows(), *linear_act_rows(), *attention_rows(), *transformer_gpu_rows()]
