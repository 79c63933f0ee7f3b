"""Whether arguments fit a kernel's C++ types: elements, integers. PTX does not say; the kernel's name may."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from undertorch.simt.errors import BadLaunch
from undertorch.simt.frontends.mangled import CppType, parameters

INTEGERS = {
    8: ("int8", "uint8", "bool"),
    16: ("int16", "uint16"),
    32: ("int32", "uint32"),
    64: ("int64", "uint64"),
}
DTYPES = {
    "bool": INTEGERS[8],
    "signed char": INTEGERS[8],
    "short": INTEGERS[16],
    "unsigned short": INTEGERS[16],
    "int": INTEGERS[32],
    "unsigned int": INTEGERS[32],
    "long": INTEGERS[64],
    "unsigned long": INTEGERS[64],
    "long long": INTEGERS[64],
    "unsigned long long": INTEGERS[64],
    "float": ("float32", "complex64"),
    "double": ("float64", "complex128"),
    "__half": ("float16", "uint16"),
    "__nv_bfloat16": ("bfloat16", "uint16"),
    "__nv_fp8_e4m3": ("float8_e4m3fn", "uint8"),
    "__nv_fp8_e5m2": ("float8_e5m2", "uint8"),
}
"""What may be passed for a pointer to these; the first is named. NumPy has no short floats but float16, so their bits
come as unsigned integers. Pointers to all else (void, char, structs, pointers) take anything."""

HALVES = {"__half": "float16", "__nv_bfloat16": "bfloat16"}
"""Values of two bytes, which PTX does not tell apart."""


BITS = {
    "bool": (0, 1), "signed char": (-7, 7), "char": (-7, 8), "unsigned char": (0, 8), "short": (-15, 15),
    "unsigned short": (0, 16), "int": (-31, 31), "unsigned int": (0, 32), "long": (-63, 63), "unsigned long": (0, 64),
    "long long": (-63, 63), "unsigned long long": (0, 64),
}  # fmt: skip
"""What integers hold: from -2^n (or 0) to 2^m - 1."""


def check_values(kernel: str, arguments: Sequence[object]) -> None:
    """Raises BadLaunch where the kernel's mangled name says that a parameter's C++ type has no such value."""
    types = parameters(kernel) or ()
    if len(types) != len(arguments):
        return
    for number, (type, argument) in enumerate(zip(types, arguments, strict=True)):
        if type.pointee is not None:
            if isinstance(argument, float | list | tuple | np.floating | np.bool_ | bool):
                raise BadLaunch(
                    f"Argument {number}: the kernel takes a pointer, {type.name}, and a {argument.__class__.__name__} "
                    "was given; pass an array or a tensor."
                )
            continue
        given = _whole(argument)
        if given is None or type.name not in BITS:
            continue
        low, high = BITS[type.name]
        if not -(1 << -low if low else 0) <= given < 1 << high:
            only = " (True or False, 1 or 0)" if type.name == "bool" else ""
            raise BadLaunch(f"Argument {number}: the kernel takes {type.name}{only}, which {given} does not fit into.")


def _whole(argument: Any) -> int | None:
    """The value of an integer or a bool, in an array or tensor without dimensions too; None for all else."""
    if isinstance(argument, int | np.integer | np.bool_) and not isinstance(argument, np.timedelta64):
        return int(argument)
    if isinstance(argument, np.ndarray) and not argument.shape and argument.dtype.kind in "iub":
        return int(argument[()])
    if hasattr(argument, "untyped_storage") and not argument.shape and argument.device.type == "cpu":
        kind = str(argument.dtype)
        return int(argument.item()) if "int" in kind or "bool" in kind else None
    return None


def check_pointers(kernel: str, arguments: Sequence[object]) -> None:
    """Raises BadLaunch where an array's dtype is not what the kernel's mangled name says that its pointer points to."""
    types = parameters(kernel) or ()
    if len(types) != len(arguments):
        return  # not a name of this kind, or a launch that is refused for its number of arguments
    for number, (type, argument) in enumerate(zip(types, arguments, strict=True)):
        dtype = _dtype(argument)
        fitting = _fitting(type)
        half, scalar = HALVES.get(type.name), argument.dtype.name if isinstance(argument, np.generic) else dtype
        if half is not None and scalar in HALVES.values() and scalar != half:
            raise BadLaunch(
                f"Argument {number}: the kernel takes {type.name}, which is {half}, and a {scalar} was given."
            )
        if dtype is not None and fitting and dtype not in fitting:
            same_size = re.findall(r"\d+", dtype)[:1] == re.findall(r"\d+", fitting[0])[:1]
            view = f", or pass .view({fitting[0]}) if their bits are meant" if same_size else ""
            raise BadLaunch(
                f"Argument {number}: the kernel takes {type.name}, which is {fitting[0]}, and the elements given are "
                f"{dtype}; convert them{view}."
            )


def _fitting(type: CppType) -> tuple[str, ...]:
    return DTYPES.get(type.pointee.name, ()) if type.pointee is not None else ()


def _dtype(argument: Any) -> str | None:
    """Of memory; None where it is a value, or has elements of several parts."""
    if isinstance(argument, np.ndarray):
        return None if argument.dtype.fields or argument.dtype.kind == "V" else argument.dtype.name
    if hasattr(argument, "untyped_storage"):
        return str(argument.dtype).removeprefix("torch.")
    return None
