"""Calls of undertorch's own ops. In eager code they pass the dispatcher by, so that the profiler sees their kernels and
no op: each call has a range of ours, and beside it stands what it was given and what it answered.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from undertorch.records import Argument, TensorRef, Value
from undertorch.steps.measure.exchange import OwnCall
from undertorch.steps.record.patching import put

OPERATORS = "undertorch.ops.operators"
"""Where the class of their operators stands."""

ABSENT = TensorRef(shape=(0,), strides=(1,), dtype="float32", device="cuda:0", storage=0, offset=0, version=0)
"""In the place of a result that nobody asked for, as their operators have it."""

Ranged = Callable[[Any, Callable[..., Any], tuple[Any, ...]], Any]


def follow_own_ops(ranged: Ranged) -> None:
    """From here on `ranged(operator, function, arguments)` makes each call of one. Nothing is done where the script has
    not imported them.
    """
    module = sys.modules.get(OPERATORS)
    if module is None:
        return
    body = vars(module.Operator)["body"]

    def followed(operator: Any) -> Callable[..., Any]:
        function = body.__get__(operator)
        return lambda *arguments: ranged(operator, function, arguments)

    put(module.Operator, "body", property(followed))


def called(operator: Any, arguments: Sequence[Any]) -> OwnCall:
    """What it was given, under the names of its schema."""
    declared = operator.overload._schema.arguments
    described = _Described()
    return OwnCall(
        name=f"undertorch::{operator.name}",
        arguments=tuple(
            Argument(name=one.name, value=described.value(value))
            for one, value in zip(declared, arguments, strict=True)
        ),
    )


def answered(result: Any) -> tuple[TensorRef, ...]:
    """What it made."""
    if result is None:
        return ()
    described = _Described()
    made = result if isinstance(result, tuple) else (result,)
    return tuple(ABSENT if one is None else described.tensor(one) for one in made)


class _Described:
    """Tensors of one call as records: those of one storage have one number."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}

    def value(self, value: Any) -> Value:
        """An argument: a tensor, a list of them, a number, a dtype."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, list | tuple):
            return tuple(self.tensor(one) if isinstance(one, torch.Tensor) else _scalar(one) for one in value)
        return _scalar(value)

    def tensor(self, tensor: torch.Tensor) -> TensorRef:
        """Asked past the modes, which would put a range around each question."""
        with torch._C.DisableTorchFunction():
            return TensorRef(
                shape=tuple(tensor.shape),
                strides=tuple(tensor.stride()),
                dtype=str(tensor.dtype).removeprefix("torch."),
                device=str(tensor.device),
                storage=self._storages.setdefault(tensor.untyped_storage()._cdata, len(self._storages)),
                offset=int(tensor.storage_offset()),
                version=0,
            )


def _scalar(value: Any) -> bool | int | float | str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value).removeprefix("torch.")
