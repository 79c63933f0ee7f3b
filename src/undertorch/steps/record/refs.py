"""Tensors and arguments as the records hold them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from undertorch.records import Argument, TensorRef, Value
from undertorch.steps.record.storages import Storages


def tensors_in(values: Sequence[Any], named: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors among an op's arguments or results, lists flattened."""
    found: list[torch.Tensor] = []
    for value in (*values, *named.values()):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(item for item in value if isinstance(item, torch.Tensor))
    return found


class Refs:
    """Makes records of tensors and of arguments."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._dtypes: dict[torch.dtype, str] = {}
        self._devices: dict[torch.device, str] = {}

    def tensor(self, tensor: torch.Tensor, written: bool = False) -> TensorRef:
        """`written`: torch counts the write only after the op has returned to it, so the count is taken one ahead.

        A tensor of inference mode has no count and stands at 0, a sparse one has no strides and stands as if it were
        dense.
        """
        dense = tensor.layout == torch.strided
        version = 0 if tensor.is_inference() else tensor._version + written
        return TensorRef(
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()) if dense else _row_major(tensor.shape),
            dtype=self._dtype(tensor.dtype),
            device=self._device(tensor.device),
            storage=self._storages.number(tensor),
            offset=int(tensor.storage_offset()) if dense else 0,
            version=version,
        )

    def arguments(
        self, schema: torch.FunctionSchema, values: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Argument, ...]:
        """Every argument under its name in the schema, those left at their default too."""
        return tuple(
            Argument(
                name=argument.name,
                value=self.value(_given(argument, index, values, named)),
            )
            for index, argument in enumerate(schema.arguments)
        )

    def value(self, value: Any) -> Value:
        """One argument: a tensor, a list of them or of scalars, or a scalar."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, list | tuple):
            return tuple(self.tensor(item) if isinstance(item, torch.Tensor) else self._scalar(item) for item in value)
        return self._scalar(value)

    def _scalar(self, value: Any) -> bool | int | float | str | None:
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)  # JSON has no such numbers
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return str(value).removeprefix("torch.")

    def _dtype(self, dtype: torch.dtype) -> str:
        if dtype not in self._dtypes:
            self._dtypes[dtype] = str(dtype).removeprefix("torch.")
        return self._dtypes[dtype]

    def _device(self, device: torch.device) -> str:
        if device not in self._devices:
            self._devices[device] = str(device)
        return self._devices[device]


def _given(argument: torch.Argument, index: int, values: Sequence[Any], named: Mapping[str, Any]) -> Any:
    return values[index] if index < len(values) else named.get(argument.name, argument.default_value)


def _row_major(shape: torch.Size) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
