"""Each pass of an op on made-up tensors of a shape, and how each of its ways is called: for `undertorch ops bench`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from undertorch.costs.capped_attention import pairs_of
from undertorch.ops import cross_entropy_ways, norms
from undertorch.ops.calls import compiles_for_amd, multiprocessors, rows_of, shared_memory
from undertorch.ops.choose import LIBRARY, Call
from undertorch.ops.norm_cuts import backward_tiles, forward_tiles

OURS = "undertorch"
"""The one way of an op that has no choice."""

NORMS = {
    "rms_norm": (False, False),
    "layer_norm": (True, False),
    "add_rms_norm": (False, True),
    "add_layer_norm": (True, True),
}
"""Whether the mean is taken off, and whether a residual is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass of an op on some tensors, in each of its ways."""

    name: str
    ways: tuple[Any, ...]
    call: Call
    tensors: Sequence[Tensor | None]
    least_bytes: int
    """Each input once and each output once."""
    flops: int = 0
    """Of matmuls, where those are what takes the time."""


Passes = Callable[[str, tuple[int, ...], torch.dtype, str], Iterator[Pass]]
"""(op, sizes, dtype, device) -> its passes."""


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


def _randn(*shape: int, dtype: torch.dtype, device: str) -> Tensor:
    return torch.randn(*shape, device=device).to(dtype)


def _norm_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    (rows, width), (centred, residual) = sizes, NORMS[op]
    ahead: Any = norms.forward
    back: Any = norms.backward
    x, dy = (_randn(rows, width, dtype=dtype, device=device) for _ in range(2))
    added, dtotal = (torch.randn_like(x) if residual else None for _ in range(2))
    weight = _randn(width, dtype=dtype, device=device)
    bias = torch.randn_like(weight) if centred else None
    rstd = x.float().var(-1, unbiased=False).add(1e-5).rsqrt()
    mean = x.float().mean(-1) if centred else None
    yield Pass(
        name="forward",
        ways=(
            *forward_tiles(width, rows, multiprocessors(x), centred=centred, residual=residual, amd=compiles_for_amd()),
            LIBRARY,
        ),
        call=lambda way, given: ahead(*given, 1e-5, centred=centred, name=op, tile=way),
        tensors=(x, added, weight, bias),
        least_bytes=(4 if residual else 2) * _bytes(x),
    )
    needs = (dtype if centred else None, True, True, centred)
    yield Pass(
        name="backward",
        ways=(
            *backward_tiles(
                width,
                rows,
                multiprocessors(x),
                centred=centred,
                total=residual,
                itemsize=x.element_size(),
                shared=shared_memory(x),
                amd=compiles_for_amd(),
            ),
            LIBRARY,
        ),
        call=lambda way, given: back(*given, *needs, centred=centred, name=op, tile=way),
        tensors=(dy, dtotal, x, weight, mean, rstd),
        least_bytes=(4 if residual else 3) * _bytes(x),
    )


def _entropy_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    entropy: Any = import_module("undertorch.ops.cross_entropy")
    rows, width = sizes
    logits = _randn(rows, width, dtype=dtype, device=device)
    labels = torch.randint(0, width, (rows,), device=device)
    settings = (-100, 0.0, "mean", 0.0, None)
    alone = cross_entropy_ways.loss_pieces(width, logits.element_size(), gradient=False)
    together = cross_entropy_ways.ways_of_both(logits, rows_of(logits, width), None, None)

    def loss(early: bool, way: Any, given: Sequence[Any]) -> Any:
        if way != LIBRARY:
            result, _, _, gradient = entropy.forward(given[0], labels, None, *settings, early, piece=way)
            return result, gradient
        if not early:
            return functional.cross_entropy(given[0], labels)
        return _differentiated(lambda logits: functional.cross_entropy(logits, labels), given)

    for name, early, ways in (("forward", False, alone), ("forward with gradient", True, together)):
        yield Pass(
            name=name,
            ways=(*ways, LIBRARY),
            call=partial(loss, early),
            tensors=(logits,),
            least_bytes=(1 + early) * _bytes(logits),
        )
    _, lse, denominator, _ = entropy.forward(logits, labels, None, *settings, False, piece=alone[0])
    one = torch.ones((), device=device)
    yield Pass(
        name="backward",
        ways=cross_entropy_ways.pieces(width, cross_entropy_ways.GRADIENT_PIECES),
        call=lambda way, given: entropy.backward(one, given[0], labels, None, lse, denominator, *settings, piece=way),
        tensors=(logits,),
        least_bytes=2 * _bytes(logits),
    )


def _softmax_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    softmax: Any = import_module("undertorch.ops.softmax")
    rows, width = sizes
    x, dy = (_randn(rows, width, dtype=dtype, device=device) for _ in range(2))
    ways = partial(softmax.ways, width, rows, multiprocessors(x), **softmax.room(x, vectors=True))
    yield Pass(
        name="forward",
        ways=(*ways(), LIBRARY),
        call=lambda way, given: softmax.forward(given[0], tile=way),
        tensors=(x,),
        least_bytes=2 * _bytes(x),
    )
    yield Pass(
        name="backward",
        ways=(*ways(backward=True), LIBRARY),
        call=lambda way, given: softmax.backward(*given, tile=way),
        tensors=(dy, torch.softmax(x, -1)),
        least_bytes=3 * _bytes(x),
    )


def _rope_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    rope: Any = import_module("undertorch.ops.rope")
    batch, heads, tokens, size = sizes
    # As a projection leaves them: the heads of a token side by side.
    q, k = (_randn(batch, tokens, heads, size, dtype=dtype, device=device).transpose(1, 2) for _ in range(2))
    cos, sin = (_randn(tokens, size // 2, dtype=dtype, device=device) for _ in range(2))

    def turned(back: bool, way: Any, given: Sequence[Any]) -> Any:
        return rope.turn(*given, cos, sin, None, False, True, True, back=back, piece=way)

    for name, back in (("forward", False), ("backward", True)):
        yield Pass(
            name=name,
            ways=rope.PIECES,
            call=partial(turned, back),
            tensors=(q, k),
            least_bytes=2 * _bytes(q, k),
        )


def _differentiated(function: Callable[..., Any], given: Sequence[Any], *fixed: Any) -> Any:
    """The result of a function of some tensors, and their gradients, the result (of a loss, 1) taken for its own."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in given]
        out = function(*leaves, *fixed)
        incoming = out.detach() if out.dim() else torch.ones_like(out)
        return out.detach(), *torch.autograd.grad(out, leaves, incoming)


def _beside_reference(
    op: str, tensors: Sequence[Tensor], fixed: tuple[Any, ...], least_bytes: tuple[int, int], flops: int = 0
) -> Iterator[Pass]:
    """Forward and both of an op that has one way, beside its reference in plain torch."""
    file: Any = import_module(f"undertorch.ops.{op}")
    functions = {OURS: getattr(file, op), LIBRARY: file.reference}

    def both(way: Any, given: Sequence[Any]) -> Any:
        return _differentiated(functions[way], given, *fixed)

    yield Pass(
        name="forward",
        ways=(OURS, LIBRARY),
        call=lambda way, given: functions[way](*given, *fixed),
        tensors=tensors,
        least_bytes=least_bytes[0],
        flops=flops,
    )
    yield Pass(
        name="both", ways=(OURS, LIBRARY), call=both, tensors=tensors, least_bytes=least_bytes[1], flops=3 * flops
    )


def _gated_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    gate, up = (_randn(*sizes, dtype=dtype, device=device) for _ in range(2))
    size = _bytes(gate)
    return _beside_reference(op, (gate, up), (), (3 * size, 8 * size))


def _linear_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    rows, inputs, features = sizes
    x, weight = (_randn(n, inputs, dtype=dtype, device=device) for n in (rows, features))
    weight *= inputs**-0.5
    flops = 2 * rows * inputs * features
    if op == "linear_cross_entropy":
        labels = torch.randint(0, features, (rows,), device=device)
        moved = _bytes(x, weight)
        return _beside_reference(op, (x, weight), (labels,), (moved, 2 * moved), flops)
    bias = _randn(features, dtype=dtype, device=device)
    moved = _bytes(x, weight, bias) + rows * features * x.element_size()
    return _beside_reference(op, (x, weight, bias), (), (moved, 3 * moved), flops)


def _attention_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    """Causal, by torch's kernels; with a window of a quarter of the tokens and capped scores, by ours."""
    attention: Any = import_module("undertorch.ops.attention")
    batch, heads, tokens, size = sizes
    q, k, v, given = (_randn(*sizes, dtype=dtype, device=device) for _ in range(4))
    plain = tuple(attention.Backend(name=name) for name in attention.BACKENDS)
    flops = 4 * batch * heads * pairs_of(tokens, tokens, None, causal=True) * size
    yield Pass(
        name="forward, causal",
        ways=plain,
        call=lambda way, given: way.run(*given, True, None, only=True),
        tensors=(q, k, v),
        least_bytes=4 * _bytes(q),
        flops=flops,
    )
    yield Pass(
        name="both, causal",
        ways=plain,
        call=lambda way, given: _differentiated(partial(way.run, only=True), given, True, None),
        tensors=(q, k, v),
        least_bytes=12 * _bytes(q),
        flops=flops * 7 // 2,
    )
    window = max(tokens // 4, 1)
    flops = 4 * batch * heads * pairs_of(tokens, tokens, window, causal=True) * size
    settings, wide = (True, window, 30.0, size**-0.5, False, False), q.dtype == torch.float32
    forward_tiles = attention.tiles(attention.FORWARD_TILES, size, wide=wide)
    yield Pass(
        name=f"forward, causal, softcap, window {window}",
        ways=forward_tiles,
        call=lambda way, given: attention.forward(*given, *settings, tile=way),
        tensors=(q, k, v),
        least_bytes=4 * _bytes(q),
        flops=flops,
    )
    out, lse = attention.forward(q, k, v, *settings, tile=forward_tiles[0])
    yield Pass(
        name=f"backward, causal, softcap, window {window}",
        ways=attention.backward_ways(size, wide=wide),
        call=lambda way, given: attention.backward(*given, *settings, True, tile=way),
        tensors=(given, q, k, v, out, lse),
        least_bytes=8 * _bytes(q),
        flops=flops * 5 // 2,
    )


def _optimizer_passes(op: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> Iterator[Pass]:
    count, elements = sizes
    each = max(elements // count, 1)
    gradients = [_randn(each, dtype=dtype, device=device) for _ in range(count)]
    if op == "grad_norm":
        file: Any = import_module("undertorch.ops.grad_norm")
        functions = {OURS: file.grad_norm, LIBRARY: torch.nn.utils.get_total_norm}
        yield Pass(
            name="norm",
            ways=(OURS, LIBRARY),
            call=lambda way, given: functions[way](given),
            tensors=gradients,
            least_bytes=_bytes(*gradients),
        )
        return
    adamw: Any = import_module("undertorch.ops.adamw")
    parameters = [_randn(each, dtype=dtype, device=device) for _ in range(count)]
    moments = [torch.zeros(each, device=device) for _ in range(2 * count)]
    steps = [torch.zeros((), device=device) for _ in range(count)]

    def update(way: Any, given: Sequence[Any]) -> None:
        lists = [list(given[place * count : (place + 1) * count]) for place in range(5)]
        if way == LIBRARY:
            adamw.reference(*lists, lr=1e-4)
        else:
            adamw.adamw(*lists, lr=1e-4, configuration=way)

    yield Pass(
        name="update",
        ways=(*adamw.CONFIGURATIONS, LIBRARY),
        call=update,
        tensors=(*parameters, *gradients, *moments, *steps),
        least_bytes=2 * _bytes(*parameters, *moments) + _bytes(*gradients),
    )


PASSES: dict[str, tuple[Passes, str]] = {
    **dict.fromkeys(NORMS, (_norm_passes, "ROWSxWIDTH")),
    "cross_entropy": (_entropy_passes, "ROWSxCLASSES"),
    **dict.fromkeys(("adamw", "grad_norm"), (_optimizer_passes, "TENSORSxELEMENTS")),
    **dict.fromkeys(("swiglu", "geglu"), (_gated_passes, "ROWSxWIDTH")),
    "linear_cross_entropy": (_linear_passes, "ROWSxINPUTSxCLASSES"),
    "softmax": (_softmax_passes, "ROWSxWIDTH"),
    "rope": (_rope_passes, "BATCHxHEADSxTOKENSxSIZE"),
    "linear_act": (_linear_passes, "ROWSxINPUTSxFEATURES"),
    "attention": (_attention_passes, "BATCHxHEADSxTOKENSxSIZE"),
}
"""Of each op its passes, and what is told of the shape."""
