"""Dtypes: promotion (c10/core/ScalarType.cpp, ATen/native/TypeProperties.cpp), and what the GPU computes in."""

from collections.abc import Iterable

from undertorch.records import DTYPE_BYTES, Math, Scalar, TensorRef

DEFAULT_FLOAT = "float32"
"""torch.get_default_dtype() as scripts leave it."""

SIGNED = ("int8", "int16", "int32", "int64")
WIDE_UNSIGNED = ("uint16", "uint32", "uint64")
"""Torch defines their promotion with floats alone."""
UNSIGNED = ("uint8", *WIDE_UNSIGNED)
HALF_DTYPES = ("float16", "bfloat16")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex32", "complex64", "complex128")
COMPLEX_OF = {"float16": "complex32", "bfloat16": "complex64", "float32": "complex64", "float64": "complex128"}


def real(dtype: str) -> str:
    """The dtype of a complex number's parts; of any other, itself."""
    return {"complex32": "float16", "complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def is_integral(dtype: str) -> bool:
    """Whether it holds whole numbers; bool counts."""
    return dtype == "bool" or dtype in SIGNED or dtype in UNSIGNED


def promoted(a: str, b: str) -> str:
    """The smallest dtype that both convert to. Raises ValueError where there is none (8-bit floats and others)."""
    if a == b:
        return a
    inexact = [dtype for dtype in (a, b) if dtype in FLOATS or dtype in COMPLEX]
    whole = [dtype for dtype in (a, b) if is_integral(dtype)]
    floats_only = a in WIDE_UNSIGNED or b in WIDE_UNSIGNED
    if len(inexact) + len(whole) < 2 or (floats_only and not any(dtype in FLOATS for dtype in inexact)):
        raise ValueError(f"{a} and {b} do not promote to a common dtype")
    if inexact:
        return _promoted_inexact(a, b)
    if "bool" in whole:
        return b if a == "bool" else a
    if "uint8" in whole:
        # The next signed dtype holds both.
        return max("int16", *(dtype for dtype in whole if dtype != "uint8"), key=DTYPE_BYTES.__getitem__)
    return max(whole, key=DTYPE_BYTES.__getitem__)


def _promoted_inexact(a: str, b: str) -> str:
    if a in COMPLEX or b in COMPLEX:
        wide = [dtype if dtype in COMPLEX else COMPLEX_OF.get(dtype) for dtype in (a, b)]
        return max((dtype for dtype in wide if dtype is not None), key=DTYPE_BYTES.__getitem__)
    floats = [dtype for dtype in (a, b) if dtype in FLOATS]
    if len(floats) == 1:
        return floats[0]
    if set(floats) == {"float16", "bfloat16"}:
        return "float32"
    return max(floats, key=DTYPE_BYTES.__getitem__)


def result_type(values: Iterable[TensorRef | Scalar]) -> str:
    """torch.result_type: tensors with dimensions decide; 0-d tensors, then numbers, only if their kind is higher."""
    with_dimensions, without, numbers = None, None, None
    for value in values:
        if isinstance(value, TensorRef):
            if value.shape:
                with_dimensions = _joined(with_dimensions, value.dtype)
            else:
                without = _joined(without, value.dtype)
        elif isinstance(value, bool):
            numbers = _joined(numbers, "bool")
        elif isinstance(value, int):
            numbers = _joined(numbers, "int64")
        elif value is not None:
            numbers = _joined(numbers, DEFAULT_FLOAT)
    result = _combined(with_dimensions, _combined(without, numbers))
    if result is None:
        raise ValueError("nothing to take a dtype from")
    return result


def _joined(a: str | None, b: str) -> str:
    return b if a is None else promoted(a, b)


def _combined(higher: str | None, lower: str | None) -> str | None:
    """The dtype of the higher category, unless the lower one's kind (bool, whole, real, complex) is above it."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher in COMPLEX:
        return higher
    if not is_integral(higher):
        return COMPLEX_OF[higher] if lower in COMPLEX else higher
    if higher == "bool" or not is_integral(lower):
        return promoted(higher, lower)
    return higher


def compute_dtype(dtype: str) -> str:
    """What a kernel computes in, ATen's opmath_type: float32 for halves, else the dtype itself."""
    if dtype in HALF_DTYPES or dtype.startswith("float8"):
        return "float32"
    return "complex64" if dtype == "complex32" else dtype


def math_of(dtype: str) -> Math | None:
    """The unit that computes elements of a dtype; None for whole numbers, whose work is no FLOPs."""
    if is_integral(dtype):
        return None
    return Math.FP64 if compute_dtype(dtype) in ("float64", "complex128") else Math.FP32
