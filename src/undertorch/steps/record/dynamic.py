"""Ops whose result, or whose result's shape, hangs on values: what they return on fake tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from undertorch.steps.record.calls import Answer, Call
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.values import UNCOMPUTED, Values

aten = torch.ops.aten
Handler = Callable[[Call, Values, Fakes], Answer]


def _nonzero(call: Call, values: Values, fakes: Fakes) -> Answer:
    mask = call.args[0]
    count, assumed = values.count(mask, call)
    return Answer(result=fakes.empty((count, mask.dim()), torch.int64, mask.device), assumed=assumed)


def _masked_select(call: Call, values: Values, fakes: Fakes) -> Answer:
    source, mask = call.args
    count, assumed = values.count(mask, call)
    whole = torch.broadcast_shapes(source.shape, mask.shape).numel()
    repeats = whole // max(mask.numel(), 1)
    return Answer(result=fakes.empty((count * repeats,), source.dtype, source.device), assumed=assumed)


def _index(call: Call, values: Values, fakes: Fakes) -> Answer:
    """Indexing with a mask is indexing with the places where it is true."""
    indices, assumed = _places(call, call.args[1], None, values, fakes)
    return Answer(result=fakes.run(call.func, call.types, (call.args[0], indices), call.named), assumed=assumed)


def _index_put(call: Call, values: Values, fakes: Fakes) -> Answer:
    written = call.args[2]
    length = written.shape[0] if written.dim() and written.shape[0] != 1 else None
    indices, assumed = _places(call, call.args[1], length, values, fakes)
    result = fakes.run(call.func, call.types, (call.args[0], indices, *call.args[2:]), call.named)
    return Answer(result=result, assumed=assumed)


def _places(
    call: Call, indices: Sequence[Any], length: int | None, values: Values, fakes: Fakes
) -> tuple[list[Any], tuple[str, ...]]:
    """The indices with each mask replaced by one index a dimension of it. `length`: how many there are, where that is
    known.
    """
    found: list[Any] = []
    notes: tuple[str, ...] = ()
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            found.append(index)
            continue
        if length is None:
            length, assumed = values.count(index, call)
            notes += assumed
        found.extend(fakes.empty((length,), torch.int64, call.args[0].device) for _ in range(index.dim()))
    return found, notes


def _unique(call: Call, values: Values, fakes: Fakes) -> Answer:
    """_unique2(self, sorted, return_inverse, return_counts)."""
    source = call.args[0]
    count, assumed = _distinct(call, source, source.numel(), values)
    inverse = source.shape if call.arg(2, "return_inverse", False) else (0,)
    counts = (count,) if call.arg(3, "return_counts", False) else (0,)
    return Answer(result=_three(fakes, source, (count,), inverse, counts), assumed=assumed)


def _unique_consecutive(call: Call, values: Values, fakes: Fakes) -> Answer:
    """unique_consecutive(self, return_inverse, return_counts, dim)."""
    source, dim = call.args[0], call.arg(3, "dim")
    return _along(
        call, source, dim, bool(call.arg(1, "return_inverse")), bool(call.arg(2, "return_counts")), values, fakes
    )


def _unique_dim(call: Call, values: Values, fakes: Fakes) -> Answer:
    """unique_dim(self, dim, sorted, return_inverse, return_counts)."""
    source, dim = call.args[:2]
    return _along(
        call, source, dim, bool(call.arg(3, "return_inverse")), bool(call.arg(4, "return_counts")), values, fakes
    )


def _along(
    call: Call, source: torch.Tensor, dim: int | None, inverse: bool, counts: bool, values: Values, fakes: Fakes
) -> Answer:
    length = source.numel() if dim is None else source.shape[dim]
    count, assumed = _distinct(call, source, length, values)
    shape = [count] if dim is None else list(source.shape)
    if dim is not None:
        shape[dim] = count
    inverse_shape = () if not inverse else source.shape if dim is None else (length,)
    result = _three(fakes, source, shape, inverse_shape if inverse else (0,), (count,) if counts else (0,))
    return Answer(result=result, assumed=assumed)


def _distinct(call: Call, source: torch.Tensor, length: int, values: Values) -> tuple[int, tuple[str, ...]]:
    fact = values.fact(source)
    count = values.given(call, min(length, fact.spread) if fact is not None and fact.spread else length)
    what = f"how many different elements there are is asked for, and {UNCOMPUTED}; {count} of {length} were taken to be"
    return count, (values.assume(what, "COUNT", call),)


def _three(
    fakes: Fakes, source: torch.Tensor, shape: Sequence[int], inverse: Sequence[int], counts: Sequence[int]
) -> Any:
    return (
        fakes.empty(shape, source.dtype, source.device),
        fakes.empty(inverse, torch.int64, source.device),
        fakes.empty(counts, torch.int64, source.device),
    )


def _repeat_interleave(call: Call, values: Values, fakes: Fakes) -> Answer:
    """repeat_interleave(repeats, output_size): the indices of what is repeated."""
    repeats, length = call.args[0], call.named.get("output_size")
    assumed: tuple[str, ...] = ()
    if length is None:
        length = values.given(call, int(values.value(repeats)) * repeats.numel())
        what = f"how often each element is repeated is asked for, and {UNCOMPUTED}; {length} elements were taken in all"
        assumed = (values.assume(what, "COUNT", call),)
    return Answer(result=fakes.empty((length,), torch.int64, repeats.device), assumed=assumed)


def _bincount(call: Call, values: Values, fakes: Fakes) -> Answer:
    """bincount(self, weights, minlength): as many of each as even choices give."""
    source, weights = call.args[0], call.arg(1, "weights")
    fact = values.fact(source)
    bins = max(call.arg(2, "minlength", 0), fact.spread if fact is not None and fact.spread else 2)
    what = (
        f"how often each number occurs is asked for, and {UNCOMPUTED}; {bins} numbers were taken to occur equally often"
    )
    result = fakes.empty((bins,), torch.int64 if weights is None else torch.float64, source.device)
    values.learn(result, source.numel() // bins)
    return Answer(result=result, assumed=(values.assume(what, None, call),))


def _equal(call: Call, values: Values, fakes: Fakes) -> Answer:
    left, right = call.args[:2]
    taken = left.shape == right.shape and values.value(left) == values.value(right)
    alike = bool(values.given(call, taken))
    what = f"whether two tensors are equal is asked for, and {UNCOMPUTED}; {str(alike).lower()} was answered"
    return Answer(result=alike, assumed=(values.assume(what, str(not alike).lower(), call),))


def _known_zero(call: Call, values: Values, fakes: Fakes) -> Answer:
    """_efficientzerotensor: the derivative of what does not change. A GPU skips the ops on it."""
    what = "a derivative that is zero is not told apart from others, so ops are shown that a GPU skips"
    result = fakes.run(call.func, call.types, call.args, call.named)
    return Answer(result=result, assumed=(values.assume(what, None, call),))


def _unique_sorted(call: Call, values: Values, fakes: Fakes) -> Answer:
    """_unique(self, sorted, return_inverse): the older form."""
    source = call.args[0]
    count, assumed = _distinct(call, source, source.numel(), values)
    inverse = source.shape if call.arg(2, "return_inverse", False) else (0,)
    return Answer(result=_three(fakes, source, (count,), inverse, (0,))[:2], assumed=assumed)


def _has_mask(handler: Handler) -> Handler:
    """An index without masks needs no answer."""

    def handled(call: Call, values: Values, fakes: Fakes) -> Answer:
        if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in call.args[1]):
            return handler(call, values, fakes)
        return Answer(result=fakes.run(call.func, call.types, call.args, call.named))

    return handled


DYNAMIC: dict[torch._ops.OpOverload, Handler] = {
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten.index.Tensor: _has_mask(_index),
    aten.index_put.default: _has_mask(_index_put),
    aten.index_put_.default: _has_mask(_index_put),
    aten._index_put_impl_.default: _has_mask(_index_put),
    aten._unique.default: _unique_sorted,
    aten._unique2.default: _unique,
    aten.unique_dim.default: _unique_dim,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten.bincount.default: _bincount,
    aten._efficientzerotensor.default: _known_zero,
    aten.equal.default: _equal,
    aten.allclose.default: _equal,
    # cuDNN's CTC loss wants targets on the host as int32; torch's own serves the rest.
    aten._use_cudnn_ctc_loss.default: lambda call, values, fakes: Answer(result=False),
    aten._use_cudnn_ctc_loss.Tensor: lambda call, values, fakes: Answer(result=False),
    **dict.fromkeys(
        # AMD's, asked for from torch 2.12 on.
        (getattr(aten._use_miopen_ctc_loss, name) for name in aten._use_miopen_ctc_loss.overloads())
        if hasattr(aten, "_use_miopen_ctc_loss")
        else (),
        lambda call, values, fakes: Answer(result=False),
    ),
}
"""By op, what answers it."""
