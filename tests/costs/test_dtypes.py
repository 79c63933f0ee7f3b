"""Promotion, against torch's own answers."""

from itertools import product

import pytest
import torch

from costs.by_hand import tensor
from undertorch.costs.dtypes import compute_dtype, math_of, promoted, result_type
from undertorch.records import Math

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
)


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize(("a", "b"), list(product(DTYPES, DTYPES)))
def test_two_dtypes_promote_as_in_torch(a: str, b: str):
    assert promoted(a, b) == name(torch.promote_types(getattr(torch, a), getattr(torch, b)))


@pytest.mark.parametrize(("a", "b"), [("uint16", "float32"), ("uint32", "float16"), ("bfloat16", "uint64")])
def test_wide_unsigned_dtypes_promote_with_floats(a: str, b: str):
    assert promoted(a, b) == name(torch.promote_types(getattr(torch, a), getattr(torch, b)))


@pytest.mark.parametrize(
    ("a", "b"), [("uint16", "int32"), ("uint32", "bool"), ("complex64", "uint64"), ("float8_e4m3fn", "bool")]
)
def test_what_torch_does_not_promote_is_refused(a: str, b: str):
    with pytest.raises(RuntimeError):
        torch.promote_types(getattr(torch, a), getattr(torch, b))
    with pytest.raises(ValueError, match="do not promote"):
        promoted(a, b)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(("a", "b"), list(product(DTYPES, DTYPES)))
def test_dimensions_outrank_numbers_as_in_torch(a: str, b: str):
    first, second = getattr(torch, a), getattr(torch, b)
    answer = torch.result_type(torch.empty(2, dtype=first), torch.empty((), dtype=second))
    assert result_type([tensor(2, dtype=a), tensor(dtype=b)]) == name(answer)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(("dtype", "number"), list(product(DTYPES, (True, 3, 0.5))))
def test_python_numbers_rank_last_as_in_torch(dtype: str, number: float):
    for shape in ((2,), ()):
        answer = torch.result_type(torch.empty(shape, dtype=getattr(torch, dtype)), number)
        assert result_type([tensor(*shape, dtype=dtype), number]) == name(answer)


def test_halves_are_computed_in_float32_and_whole_numbers_are_no_flops():
    assert [compute_dtype(dtype) for dtype in ("bfloat16", "float16", "float64", "int64")] == [
        "float32",
        "float32",
        "float64",
        "int64",
    ]
    assert [math_of(dtype) for dtype in ("bfloat16", "float64", "int64", "bool")] == [Math.FP32, Math.FP64, None, None]
