"""A call's arguments and results as an Op has them, from what the profiler wrote down of it (record_shapes).

The profiler writes shapes, strides, dtypes and numbers without names; the names come from ATen's schemas and the
results from running the call on meta tensors. Both need torch, and nothing is known without it.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any

import msgspec

from undertorch.records import Argument, TensorRef, Value
from undertorch.steps.traces.fields import Args
from undertorch.steps.traces.reading import Seen

DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
"""Torch's dtypes by the C++ type that the profiler names (torch/csrc/profiler/util.cpp)."""

SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
}
"""Torch's dtypes by their number, as which a `dtype` argument is written (c10/core/ScalarType.h)."""

META_FAILS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)
"""What a call on meta tensors raises that cannot run there, or that was not described in full."""


class NotDescribed(Exception):
    """The trace does not say enough of a call."""


def described(call: Seen) -> tuple[str, tuple[Argument, ...], tuple[TensorRef | None, ...]] | None:
    """Overload, arguments and results of a call; None where the trace or torch does not know them."""
    args = call.args
    if not bytes(args.shapes) or not bytes(args.types) or "::" not in call.name or find_spec("torch") is None:
        return None
    return _described(call.name, *(bytes(raw) for raw in _columns(args)))


def _columns(args: Args) -> Iterable[msgspec.Raw]:
    return args.types, args.shapes, args.strides, args.values


@cache
def _described(
    name: str, types: bytes, shapes: bytes, strides: bytes, values: bytes
) -> tuple[str, tuple[Argument, ...], tuple[TensorRef | None, ...]] | None:
    kinds = json.loads(types)
    columns = [json.loads(column) if column else [None] * len(kinds) for column in (shapes, strides, values)]
    if any(len(column) != len(kinds) for column in columns):
        return None
    try:
        given = [_value(index, *each) for index, each in enumerate(zip(kinds, *columns, strict=True))]
        overload, arguments = _named(name, given)
        return overload, arguments, _results(name, overload, arguments)
    except NotDescribed:
        return None


def _value(index: int, kind: str, shape: Any, strides: Any, value: Any) -> Value:
    """One argument, by position. Raises NotDescribed."""
    if kind in {"TensorList", "GenericList"}:
        raise NotDescribed(f"{kind}: the profiler leaves out the dtypes of its tensors")
    if kind in DTYPES and (shape or strides is None or not value):
        return _tensor(index, DTYPES[kind], tuple(shape or ()), strides)
    if value in (None, ""):
        return None
    if value in ("True", "False"):
        return bool(value == "True")
    try:
        found = json.loads(str(value).lower().rstrip("."))
    except json.JSONDecodeError:
        return str(value)
    return tuple(found) if isinstance(found, list) else found


def _tensor(index: int, dtype: str, shape: tuple[int, ...], strides: Any) -> TensorRef:
    """Row-major where the profiler did not write strides, as before torch 2.1."""
    if not strides or len(strides) != len(shape):
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
    return TensorRef(
        shape=shape, strides=tuple(strides), dtype=dtype, device="cuda:0", storage=index, offset=0, version=0
    )


def _named(name: str, given: list[Value]) -> tuple[str, tuple[Argument, ...]]:
    """The overload that takes such arguments, and these under its names. Raises NotDescribed."""
    import torch

    for schema in torch._C._jit_get_schemas_for_operator(name):
        declared = schema.arguments
        if len(declared) == len(given) and all(_fits(one, value) for one, value in zip(declared, given, strict=True)):
            arguments = tuple(
                Argument(name=one.name, value=_as_declared(one, value))
                for one, value in zip(declared, given, strict=True)
            )
            return schema.overload_name or "default", arguments
    raise NotDescribed(f"no overload of {name} takes them")


def _fits(declared: Any, value: Value) -> bool:
    kind = str(declared.type)
    if value is None:
        # Strings, devices and undefined tensors are written as nothing.
        return "Optional" in kind or declared.has_default_value() or kind in ("str", "Generator", "Tensor", "Device")
    if isinstance(value, TensorRef):
        # A number where a tensor may stand travels as a tensor of no dimensions.
        return "Tensor" in kind and "List" not in kind
    if isinstance(value, tuple):
        return "List" in kind and "Tensor" not in kind
    return "List" not in kind and "Tensor" not in kind


def _as_declared(declared: Any, value: Value) -> Value:
    """A dtype by its name; what was left out at its default. Raises NotDescribed."""
    if declared.name == "dtype" and value is not None:
        if value not in SCALAR_TYPES:
            raise NotDescribed(f"a dtype numbered {value}")
        return SCALAR_TYPES[int(str(value))]
    if value is not None:
        return value
    value = declared.default_value if declared.has_default_value() else None
    return tuple(value) if isinstance(value, list) else value


def _results(name: str, overload: str, arguments: tuple[Argument, ...]) -> tuple[TensorRef | None, ...]:
    """What the call answers: the tensor that it writes, or what torch answers for meta tensors. Raises NotDescribed."""
    import torch

    space, _, bare = name.partition("::")
    operator = getattr(getattr(getattr(torch.ops, space), bare), overload)
    declared = operator._schema.arguments
    for one, given in zip(declared, arguments, strict=True):
        if one.alias_info is not None and one.alias_info.is_write and isinstance(given.value, TensorRef):
            return (given.value,)
    positional = [_meta(given.value) for one, given in zip(declared, arguments, strict=True) if not one.kwarg_only]
    named = {
        given.name: _dtype(given.value) if given.name == "dtype" else _meta(given.value)
        for one, given in zip(declared, arguments, strict=True)
        if one.kwarg_only and given.name not in ("device", "layout", "generator")
    }
    try:
        with torch.no_grad():
            made = operator(*positional, **named)
    except META_FAILS as error:
        raise NotDescribed(f"{name} does not run on meta tensors") from error
    flat = made if isinstance(made, tuple | list) else (made,)
    return tuple(_from_meta(1000 + place, one) for place, one in enumerate(flat))


def _dtype(name: Value) -> Any:
    import torch

    return None if name is None else getattr(torch, str(name))


def _meta(value: Value) -> Any:
    import torch

    if isinstance(value, TensorRef):
        return torch.empty_strided(value.shape, value.strides, dtype=getattr(torch, value.dtype), device="meta")
    return list(value) if isinstance(value, tuple) else value


def _from_meta(storage: int, made: Any) -> TensorRef | None:
    import torch

    if not isinstance(made, torch.Tensor):
        return None
    return TensorRef(
        shape=tuple(made.shape),
        strides=tuple(made.stride()),
        dtype=str(made.dtype).removeprefix("torch."),
        device="cuda:0",
        storage=storage,
        offset=0,
        version=0,
    )
