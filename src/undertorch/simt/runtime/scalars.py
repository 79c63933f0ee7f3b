"""Which value fits which parameter: C's conversions, as far as nothing but digits of a float is lost.

What PTX says of a parameter is its type; nvcc spells a struct, and with it __half and __nv_bfloat16, as an array of
bytes, and a pointer as any other integer of 64 bits. The rules:

| the kernel takes     | taken                                                                                       |
|----------------------|---------------------------------------------------------------------------------------------|
| an integer, bits     | an integer that fits (a bool is 0 or 1); of 64 bits an array, a tensor (their address), None |
| a float              | a float, rounded to nearest; an integer that is one of its values                            |
| a struct of n bytes  | n bytes; a NumPy record or complex number of n bytes; of 2 bytes a float16 or bfloat16       |

An array or tensor without dimensions is its value, but for an integer of 64 bits, where it is memory as any other.
"""

import ctypes
import math
import struct
from typing import Any

import numpy as np

from undertorch.simt.ptx.instructions import Variable

POINTER = 8
"""Bytes of an address."""
FORMATS = {16: "<e", 32: "<f", 64: "<d"}


def is_memory(argument: Any) -> bool:
    """Whether it is an array of NumPy or a tensor of torch."""
    return isinstance(argument, np.ndarray) or hasattr(argument, "untyped_storage")


def takes_address(parameter: Variable) -> bool:
    """Whether a pointer may be passed."""
    type = parameter.type
    return type is not None and parameter.size == type.bytes == POINTER and not type.floating


def is_struct(parameter: Variable) -> bool:
    """Whether it is passed as an array of bytes."""
    return parameter.type is None or parameter.size != parameter.type.bytes


def described(parameter: Variable) -> str:
    """As a sentence has it."""
    type = parameter.type
    if type is None or is_struct(parameter):
        return f"a struct of {parameter.size} bytes"
    kind = {"signed": "an integer", "unsigned": "an integer", "bits": "bits"}.get(type.kind, "a float")
    return f"{kind} (.{type.name})"


def refuse_unreadable(argument: Any) -> None:
    """Raises TypeError for arrays and tensors whose memory is not their elements, in order, as the machine has them."""
    if isinstance(argument, np.ndarray):
        if isinstance(argument, np.ma.MaskedArray):
            raise TypeError("a masked array keeps its mask apart, and a kernel sees none; pass .filled(…) or .data")
        if argument.dtype.hasobject:
            raise TypeError("an array of Python objects has no elements that a kernel could read; give it numbers")
        if not argument.dtype.isnative:
            raise TypeError(
                f"its elements are big-endian ({argument.dtype.str}), and a GPU is little-endian; pass "
                ".astype(x.dtype.newbyteorder('='))"
            )
        return
    import torch

    if not isinstance(argument, torch.Tensor):
        return
    if argument.is_nested:
        raise TypeError("a nested tensor is several; pass .values() and .offsets(), or its parts one by one")
    if str(argument.layout) != "torch.strided":
        raise TypeError(
            f"a tensor of layout {argument.layout} has no memory that a kernel could read; pass its parts "
            "(.values(), .indices()), or .to_dense()"
        )
    if argument.device.type == "meta":
        raise TypeError("a tensor on meta has a shape and no values; make one on the CPU, with torch.empty_like")
    if argument.is_quantized:
        raise TypeError("a quantized tensor is integers and a scale; pass .int_repr() and the scale")
    if argument.is_conj():
        raise TypeError("its memory is not conjugated yet (.conj() is lazy); pass .resolve_conj()")
    if argument.is_neg():
        raise TypeError("its memory is not negated yet (a lazy view of a conjugate); pass .resolve_neg()")


def value(parameter: Variable, argument: Any) -> bytes:
    """The bytes of a parameter that is no address. Raises TypeError and ValueError where the value does not fit."""
    if isinstance(argument, ctypes.Structure | ctypes.Union | ctypes.Array):
        argument = bytes(argument)
    if isinstance(argument, bytes | bytearray | memoryview):
        return _raw(parameter, argument)
    if is_memory(argument):
        if tuple(argument.shape):
            raise TypeError(
                f"the kernel takes {described(parameter)}, and an array was given ({_shape(argument)}); pass "
                "one element"
            )
        return _without_dimensions(parameter, argument)
    if isinstance(argument, np.generic):
        return _numpy(parameter, argument)
    if is_struct(parameter) and isinstance(argument, bool | int | float | complex):
        raise TypeError(_struct(parameter, argument))
    if isinstance(argument, int):
        return _integer(parameter, int(argument), argument)
    if isinstance(argument, float):
        return _float(parameter, argument, argument)
    if argument is None:
        raise TypeError(f"the kernel takes {described(parameter)}, and None was given")
    raise TypeError(
        f"the kernel takes {described(parameter)}, and a {argument.__class__.__name__} cannot be passed to a kernel"
    )


def _raw(parameter: Variable, argument: "bytes | bytearray | memoryview") -> bytes:
    if not is_struct(parameter) and not isinstance(argument, bytes):
        raise TypeError(
            f"the kernel takes {described(parameter)}, and a {argument.__class__.__name__} was given; pass "
            "np.frombuffer(…) of it as memory"
        )
    given = bytes(argument)
    if len(given) != parameter.size:
        raise ValueError(f"it has {len(given)} bytes, and the kernel takes {parameter.size}")
    return given


def _without_dimensions(parameter: Variable, argument: Any) -> bytes:
    refuse_unreadable(argument)
    if isinstance(argument, np.ndarray):
        scalar: Any = argument[()]
        return _numpy(parameter, scalar)
    dtype, held = str(argument.dtype).removeprefix("torch."), argument.detach().cpu()
    if is_struct(parameter):
        import torch

        if parameter.size == argument.element_size() and (argument.is_complex() or argument.is_floating_point()):
            return bytes(held.reshape(1).view(torch.uint8).tolist())
        raise TypeError(_struct(parameter, f"torch.{dtype}"))
    number = held.item()
    what = f"torch.{dtype} {number!r}"
    if isinstance(number, int):
        return _integer(parameter, int(number), what)
    if isinstance(number, complex):
        raise TypeError(f"the kernel takes {described(parameter)}, and {what} was given")
    return _float(parameter, number, what)


def _numpy(parameter: Variable, argument: "np.generic[Any]") -> bytes:
    what = f"np.{argument.dtype.name} {argument}"
    if is_struct(parameter):
        number = isinstance(argument, np.integer | np.bool_)
        if argument.nbytes != parameter.size or number or argument.dtype.hasobject:
            raise TypeError(_struct(parameter, what))
        return argument.tobytes()
    if isinstance(argument, np.integer | np.bool_):
        return _integer(parameter, int(argument), what)
    if isinstance(argument, np.floating):
        value = float(argument)
        if np.isfinite(argument) and argument.__class__(value) != argument:  # a long double
            raise ValueError(f"{what} is no float64; pass float(x) to have it rounded")
        return _float(parameter, value, what)
    raise TypeError(f"the kernel takes {described(parameter)}, and {what} was given")


def _integer(parameter: Variable, number: int, what: object) -> bytes:
    type, size = parameter.type, parameter.size
    if type is not None and type.floating:
        try:
            return _float(parameter, float(number), what, exactly=number)
        except OverflowError:
            raise ValueError(f"{what} does not fit into {described(parameter)}") from None
    signed = type is not None and type.signed
    if not -(1 << (8 * size - 1)) <= number < 1 << (8 * size - signed):
        raise ValueError(f"{what} does not fit into {described(parameter)}")
    return (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _float(parameter: Variable, number: float, what: object, *, exactly: int | None = None) -> bytes:
    """The nearest value that the parameter has, as C converts; `exactly`: an integer, which has to be one."""
    type = parameter.type
    if type is None or type.kind in {"signed", "unsigned"}:
        raise TypeError(f"the kernel takes {described(parameter)}, and {what} was given; round it, or view its bits")
    if type.kind == "bits" and type.bits == 16:
        raise TypeError("2 bytes may be float16 or bfloat16: pass a tensor without dimensions, or its bits, an integer")
    if type.name not in {"f16", "bf16", "f32", "f64", "b32", "b64"}:
        raise TypeError(f"the kernel takes {described(parameter)}, and {what} was given; pass its bytes")
    try:
        given, back = _brain(number) if type.kind == "brain" else _ieee(type.bits, number)
    except (OverflowError, struct.error):
        raise ValueError(f"{what} is above every value of {described(parameter)}") from None
    if exactly is not None and back != exactly:
        raise ValueError(f"{what} is no exact value of {described(parameter)}; pass float(x) to have it rounded")
    return given


def _ieee(bits: int, number: float) -> tuple[bytes, float]:
    given = struct.pack(FORMATS[bits], number)
    return given, float(struct.unpack(FORMATS[bits], given)[0])


def _brain(number: float) -> tuple[bytes, float]:
    """bfloat16: the upper half of a float32, rounded to nearest even."""
    (word,) = struct.unpack("<I", struct.pack("<f", number))
    upper = (word + 0x7FFF + (word >> 16 & 1)) >> 16 if not math.isnan(number) else 0x7FFF
    return struct.pack("<H", upper), float(struct.unpack("<f", struct.pack("<I", upper << 16))[0])


def _struct(parameter: Variable, what: object) -> str:
    if parameter.size == 2:  # __half and __nv_bfloat16 are structs
        return (
            f"the kernel takes 2 bytes, and {what} was given; they may be float16 or bfloat16: pass a tensor without "
            "dimensions, which says, or np.float16"
        )
    return f"the kernel takes {described(parameter)}, and {what} was given; pass bytes (struct.pack, or .tobytes())"


def _shape(argument: Any) -> str:
    return f"{str(argument.dtype).removeprefix('torch.')}, shape {tuple(argument.shape)}"
