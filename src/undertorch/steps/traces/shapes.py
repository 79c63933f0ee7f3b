"""A call's arguments and results as an Op has them, from what the profiler wrote down of it (record_shapes).

The profiler writes shapes, strides, dtypes and numbers without names; the names come from ATen's schemas and the
results from running the call on meta tensors. Both need torch, and nothing is known without it.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from math import prod
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

MEMORY_FORMATS = {0: "contiguous_format", 1: "preserve_format", 2: "channels_last", 3: "channels_last_3d"}
"""As `memory_format` arguments are written (c10/core/MemoryFormat.h)."""

NAMED = {"dtype": SCALAR_TYPES, "memory_format": MEMORY_FORMATS}
"""Arguments that torch has as objects, by their numbers."""

LISTS = frozenset({"TensorList", "GenericList", "OptionalTensorList"})
"""What the profiler calls lists of tensors."""

LISTED = 1_000_000
"""Numbers of memory from which on those of lists' tensors are: of arguments and results they are below."""

MOST = 2**48
"""Elements of a tensor, by its sizes, and what is beyond is damaged: no GPU has the memory by far."""

META_FAILS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)
"""What a call on meta tensors raises that cannot run there, or that was not described in full."""


class NotDescribed(Exception):
    """The trace does not say enough of a call."""


Listed = tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
"""The tensors of a list: dtype, shape and strides of each."""


def described(
    call: Seen, lists: tuple[Listed, ...] = (), memories: tuple[tuple[int, ...], ...] = ()
) -> tuple[str, tuple[Argument, ...], tuple[TensorRef | None, ...]] | None:
    """Overload, arguments and results of a call; None where the trace or torch does not know them.

    `lists`: what the arguments hold that are lists of tensors, where that is known from elsewhere; `memories`: of each
    of these tensors a number, the same for those that are one memory.
    """
    args = call.args
    if not bytes(args.shapes) or not bytes(args.types) or "::" not in call.name or find_spec("torch") is None:
        return None
    types, shapes, strides, values = (bytes(raw) for raw in _columns(args))
    return _described(call.name, types, shapes, strides, values, lists, memories)


def _columns(args: Args) -> Iterable[msgspec.Raw]:
    return args.types, args.shapes, args.strides, args.values


@cache
def _described(
    name: str,
    types: bytes,
    shapes: bytes,
    strides: bytes,
    values: bytes,
    lists: tuple[Listed, ...],
    memories: tuple[tuple[int, ...], ...] = (),
) -> tuple[str, tuple[Argument, ...], tuple[TensorRef | None, ...]] | None:
    try:
        kinds, *columns = _decoded(types, shapes, strides, values)
        given = [_value(index, *each) for index, each in enumerate(zip(kinds, *columns, strict=True))]
        given = _with_lists(kinds, columns[0], given, lists, memories)
        overload, arguments = _named(name, given)
        return overload, arguments, _results(name, overload, arguments)
    except NotDescribed:
        return None


def _decoded(types: bytes, *columns: bytes) -> tuple[list[Any], ...]:
    """The columns, one entry an argument each; of types, shapes, strides and values. Raises NotDescribed where they are
    not what a profiler writes."""
    try:
        kinds = json.loads(types)
        if not isinstance(kinds, list):
            raise NotDescribed("types that are no list")
        shapes, strides, values = (json.loads(column) if column else [None] * len(kinds) for column in columns)
    except (ValueError, RecursionError) as error:
        raise NotDescribed("a column that cannot be read") from error
    for column, sound in ((kinds, _is_text), (shapes, _are_sizes), (strides, _are_strides), (values, _is_value)):
        if not isinstance(column, list) or len(column) != len(kinds) or not all(map(sound, column)):
            raise NotDescribed("a column of another shape than profilers write")
    return kinds, shapes, strides, values


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_value(value: Any) -> bool:
    """Profilers write all as text; older ones numbers as numbers."""
    return value is None or isinstance(value, str | int | float)


def _are_sizes(value: Any) -> bool:
    """Of a tensor, or of each tensor of a list."""
    return _all_counts(value) and all(prod(max(size, 1) for size in one) < MOST for one in _each(value))


def _are_strides(value: Any) -> bool:
    """Likewise. A stride may be as large as the tensor."""
    return _all_counts(value) and all(stride < MOST for one in _each(value) for stride in one)


def _all_counts(value: Any) -> bool:
    """Whether it is nothing, a list of numbers of at least 0, or a list of such lists."""
    if value is not None and not isinstance(value, list):
        return False
    return all(isinstance(one, list) and all(type(size) is int and size >= 0 for size in one) for one in _each(value))


def _each(value: Any) -> list[Any]:
    if not value:
        return []
    return value if any(isinstance(one, list) for one in value) else [value]


def _value(index: int, kind: str, shape: Any, strides: Any, value: Any) -> Value:
    """One argument, by position. Raises NotDescribed."""
    if kind in LISTS:
        return None  # filled in by _with_lists
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


def _with_lists(
    kinds: list[str],
    shapes: list[Any],
    given: list[Value],
    lists: tuple[Listed, ...],
    memories: tuple[tuple[int, ...], ...],
) -> list[Value]:
    """With the lists of tensors, of which the profiler leaves out the dtypes, and of long ones all. Where nothing is
    said of their memory each has its own. Raises NotDescribed where they are not known.
    """
    places = [place for place, kind in enumerate(kinds) if kind in LISTS]
    same = all(
        not shapes[place] or [list(shape) for _, shape, _ in tensors] == shapes[place]
        for place, tensors in zip(places, lists, strict=False)
    )
    if len(places) != len(lists) or not same:
        raise NotDescribed("the profiler leaves out the dtypes of a list's tensors")
    filled = list(given)
    own = 0
    for number_, (place, tensors) in enumerate(zip(places, lists, strict=True)):
        numbers = memories[number_] if memories else range(own, own + len(tensors))
        own += len(tensors)
        filled[place] = tuple(
            _tensor(LISTED + memory, dtype, shape, list(strides))
            for memory, (dtype, shape, strides) in zip(numbers, tensors, strict=True)
        )
    return filled


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
        of_tensors = any(isinstance(one, TensorRef) for one in value)
        return "List" in kind and (not value or of_tensors == ("Tensor" in kind))
    return "List" not in kind and "Tensor" not in kind


def _as_declared(declared: Any, value: Value) -> Value:
    """A dtype or a memory format by its name; what was left out at its default. Raises NotDescribed."""
    if declared.name in NAMED and value is not None:
        names = NAMED[declared.name]
        if not isinstance(value, int) or value not in names:
            raise NotDescribed(f"a {declared.name} numbered {value}")
        return names[value]
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
        if one.alias_info is not None and one.alias_info.is_write and isinstance(given.value, tuple):
            return tuple(value for value in given.value if isinstance(value, TensorRef))
    positional = [_meta_argument(given) for one, given in zip(declared, arguments, strict=True) if not one.kwarg_only]
    named = {
        given.name: _meta_argument(given)
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


def _meta_argument(given: Argument) -> Any:
    import torch

    if given.name in NAMED and given.value is not None:
        return getattr(torch, str(given.value))
    return _meta(given.value)


def _meta(value: Value) -> Any:
    import torch

    if isinstance(value, TensorRef):
        return torch.empty_strided(value.shape, value.strides, dtype=getattr(torch, value.dtype), device="meta")
    return [_meta(one) for one in value] if isinstance(value, tuple) else value


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
