"""What is known of a fake tensor's values without computing any: that all are the same number, or how they are spread.

A fact is kept for a storage, so that views share it, and struck as soon as something else is written there.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from undertorch.steps.record.schemas import written
from undertorch.steps.record.storages import Storages

Number = bool | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What is known of all elements of a storage."""

    value: Number | None = None
    """Every element is this."""
    certain: bool = True
    """False: it follows from the rule that what is unknown is 1."""
    spread: int | None = None
    """They are numbers from 0 to this (left out), as many of each: choices among so many."""
    share: float | None = None
    """This part of them is true (or not 0)."""


def unknown(dtype: torch.dtype) -> Number:
    """What an element is taken to be of which nothing is known: 1, and of a condition false."""
    if dtype is torch.bool:
        return False
    return 1.0 if dtype.is_floating_point else 1


class Facts:
    """Keeps the facts, and follows them through the ops."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._facts: dict[int, Fact] = {}
        storages.freed = self._forget

    def of(self, tensor: torch.Tensor) -> Fact | None:
        """What is known of a tensor's values."""
        return self._facts.get(self._storages.number(tensor))

    def value(self, operand: Any) -> Number:
        """What every element of a tensor is taken to be; a number is itself."""
        if not isinstance(operand, torch.Tensor):
            number: Number = operand
            return number
        fact = self.of(operand)
        return unknown(operand.dtype) if fact is None or fact.value is None else fact.value

    def certain(self, operand: Any) -> bool:
        """Whether that is no assumption."""
        if not isinstance(operand, torch.Tensor):
            return True
        fact = self.of(operand)
        return fact is not None and fact.value is not None and fact.certain

    def assume(self, tensor: torch.Tensor, value: Number) -> None:
        """Every element of a tensor is taken to be this."""
        self._set(tensor, Fact(value=value, certain=False))

    def forget(self, tensor: torch.Tensor) -> None:
        """Something unknown was written to a tensor."""
        self._forget(self._storages.number(tensor))

    def _forget(self, storage: int) -> None:
        self._facts.pop(storage, None)

    def learn(self, func: torch._ops.OpOverload, args: Sequence[Any], named: Mapping[str, Any], result: Any) -> None:
        """Draws what follows from an op that ran."""
        rule, positions = RULES.get(func._schema.name), written(func)
        if rule is None and not positions:
            return
        fact = rule(self, args, named) if rule is not None else None
        if fact is KEPT:
            return
        for position in positions:
            if position < len(args) and isinstance(args[position], torch.Tensor):
                self._set(args[position], fact)
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, FakeTensor) and not positions and _holds_integers_or_one(tensor, result):
                self._set(tensor, fact)

    def _set(self, tensor: torch.Tensor, fact: Fact | None) -> None:
        number = self._storages.number(tensor)
        if tensor.layout != torch.strided:
            self._facts.pop(number, None)
            return
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        if fact is None or not whole:
            self._facts.pop(number, None)
        else:
            self._facts[number] = fact


Rule = Callable[[Facts, Sequence[Any], Mapping[str, Any]], Fact | None]
KEPT = Fact()
"""A rule's answer where what was known before still holds."""


def _holds_integers_or_one(tensor: torch.Tensor, result: Any) -> bool:
    """Of an op with several results (values and indices) a fact is about the indices."""
    return not isinstance(result, tuple | list) or not tensor.is_floating_point()


def _number(position: int, name: str) -> Rule:
    """Filled with the number that stands at a position."""

    def rule(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
        operand = args[position] if position < len(args) else named.get(name)
        return None if operand is None else Fact(value=facts.value(operand), certain=facts.certain(operand))

    return rule


def _constant(value: Number) -> Rule:
    return lambda facts, args, named: Fact(value=value)


def _assumed(value: Number) -> Rule:
    return lambda facts, args, named: Fact(value=value, certain=False)


def _same(position: int) -> Rule:
    """As an argument; a real tensor of one element is looked at."""

    def rule(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
        source = args[position]
        if isinstance(source, FakeTensor):
            return facts.of(source)
        return Fact(value=source.item()) if source.numel() == 1 and not source.is_complex() else None

    return rule


def _compared(compare: Callable[[Any, Any], bool]) -> Rule:
    def rule(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
        left, right = args[0], args[1]
        known = facts.of(left)
        if compare is operator.eq and known is not None and known.spread and not isinstance(right, torch.Tensor):
            return Fact(share=1 / known.spread, certain=False)
        certain = facts.certain(left) and facts.certain(right)
        return Fact(value=bool(compare(facts.value(left), facts.value(right))), certain=certain)

    return rule


def _combined(combine: Callable[[Any, Any], bool]) -> Rule:
    def rule(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
        left, right = args[0], args[1]
        if not all(isinstance(side, torch.Tensor) and side.dtype is torch.bool for side in (left, right)):
            return None
        certain = facts.certain(left) and facts.certain(right)
        return Fact(value=bool(combine(facts.value(left), facts.value(right))), certain=certain)

    return rule


def _negated(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
    known = facts.of(args[0])
    if args[0].dtype is not torch.bool or known is None:
        return None
    if known.share is not None:
        return Fact(share=1 - known.share, certain=False)
    return Fact(value=not known.value, certain=known.certain)


def _reduced(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
    """all() and any() of equal elements."""
    return Fact(value=bool(facts.value(args[0])), certain=facts.certain(args[0]))


def _counted(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
    """The sum of conditions of which a share is met."""
    known = facts.of(args[0])
    if known is None or known.share is None or len(args) > 1:
        return None
    return Fact(value=round(known.share * args[0].numel()), certain=False)


def _choices(position: int) -> Rule:
    """Indices along the dimension that stands at a position: taken to be spread evenly over it."""

    def rule(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
        source = args[0]
        dim = args[position] if position < len(args) else named.get("dim", -1)
        along = source.numel() if dim is None else source.shape[dim] if source.dim() else 1
        return Fact(spread=along, certain=False)

    return rule


def _scattered(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
    """A number written to some places of zeros (one_hot)."""
    target, index, value = args[0], args[2], args[3]
    if isinstance(value, torch.Tensor) or not value or facts.value(target) != 0 or not target.numel():
        return None
    return Fact(share=index.numel() / target.numel(), certain=False)


def _scale_kept(facts: Facts, args: Sequence[Any], named: Mapping[str, Any]) -> Fact | None:
    """A GradScaler's scale and its count of steps hardly ever change; that they did not now is an assumption."""
    for tensor in args[:2]:
        if facts.of(tensor) is not None:
            facts.assume(tensor, facts.value(tensor))
    return KEPT


RULES: dict[str, Rule] = {
    **dict.fromkeys(("aten::zeros", "aten::zeros_like", "aten::new_zeros", "aten::zero_"), _constant(0)),
    **dict.fromkeys(("aten::ones", "aten::ones_like", "aten::new_ones"), _constant(1)),
    "aten::scalar_tensor": _number(0, "s"),
    "aten::full": _number(1, "fill_value"),
    "aten::full_like": _number(1, "fill_value"),
    "aten::new_full": _number(2, "fill_value"),
    "aten::fill_": _number(1, "value"),
    **dict.fromkeys(("aten::_to_copy", "aten::clone"), _same(0)),
    "aten::copy_": _same(1),
    "aten::eq": _compared(operator.eq),
    "aten::ne": _compared(operator.ne),
    "aten::lt": _compared(operator.lt),
    "aten::le": _compared(operator.le),
    "aten::gt": _compared(operator.gt),
    "aten::ge": _compared(operator.ge),
    **dict.fromkeys(("aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"), _assumed(False)),
    **dict.fromkeys(("aten::isfinite", "aten::isclose"), _assumed(True)),
    **dict.fromkeys(("aten::logical_not", "aten::bitwise_not"), _negated),
    **dict.fromkeys(("aten::logical_and", "aten::bitwise_and", "aten::mul"), _combined(operator.and_)),
    **dict.fromkeys(("aten::logical_or", "aten::bitwise_or"), _combined(operator.or_)),
    **dict.fromkeys(("aten::logical_xor", "aten::bitwise_xor"), _combined(operator.xor)),
    **dict.fromkeys(("aten::all", "aten::any"), _reduced),
    "aten::sum": _counted,
    **dict.fromkeys(("aten::argmax", "aten::argmin", "aten::sort", "aten::argsort"), _choices(1)),
    "aten::topk": _choices(2),
    "aten::multinomial": _choices(9),  # always along the last
    "aten::scatter_": _scattered,
    "aten::scatter": _scattered,
    # The gradients are taken to be finite: the scaler keeps its scale, and the optimizer steps.
    "aten::_amp_foreach_non_finite_check_and_unscale_": _assumed(0.0),
    "aten::_amp_update_scale_": _scale_kept,
}
"""What follows from an op, by its name."""
