"""Whether arrays have the elements that a kernel's C++ pointers point to. PTX does not say; the kernel's name may."""

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
