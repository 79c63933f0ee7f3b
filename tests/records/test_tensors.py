"""Bytes of tensors, counted by hand from shape, strides and item size."""

import pytest

from undertorch.records import TensorRef


def ref(shape, strides, dtype="float32", offset=0):
    return TensorRef(shape=shape, strides=strides, dtype=dtype, device="cuda:0", storage=0, offset=offset, version=0)


@pytest.mark.parametrize(
    ("tensor", "bytes_"),
    [
        pytest.param(ref((3, 5), (5, 1)), 60, id="contiguous: 15 elements of 4"),
        pytest.param(ref((5, 3), (1, 5)), 60, id="transposed: the same 15"),
        pytest.param(ref((7, 5), (0, 1)), 20, id="expanded rows: one row of 5"),
        pytest.param(ref((7, 5), (1, 0), "bfloat16"), 14, id="expanded columns: one column of 7, 2 bytes each"),
        pytest.param(ref((7, 5), (0, 0), "int64"), 8, id="expanded scalar: one element"),
        pytest.param(ref((7, 3, 2), (0, 4, 1)), 24, id="expanded, with gaps: 3 pairs, whatever the 7"),
        pytest.param(ref((4, 3), (1, 1)), 24, id="windows of 3 over 6: elements 0..5"),
        pytest.param(ref((3, 4), (2, 1)), 32, id="windows of 4 that advance by 2: elements 0..7"),
        pytest.param(ref((3, 2), (4, 1)), 24, id="every second pair: 6 elements, the gaps are not read"),
        pytest.param(ref((0, 5), (5, 1)), 0, id="empty"),
        pytest.param(ref((5, 0), (0, 0)), 0, id="empty and expanded"),
        pytest.param(ref((), ()), 4, id="0-dim: one element"),
        pytest.param(ref((), (), "bool"), 1, id="0-dim bool"),
        pytest.param(ref((1, 1), (17, 99), "float64"), 8, id="size-1 dimensions, whatever their strides"),
        pytest.param(ref((6,), (1,), offset=100), 24, id="an offset moves nothing"),
    ],
)
def test_bytes_are_the_distinct_elements(tensor, bytes_):
    assert tensor.bytes == bytes_


def test_elements_count_what_numel_counts():
    assert ref((7, 5), (0, 1)).elements == 35
    assert ref((), ()).elements == 1
    assert ref((3, 0, 2), (0, 2, 1)).elements == 0


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((3, 5), (5, 1), True),
        ((5, 3), (1, 5), False),
        ((3, 5), (6, 1), False),
        ((1, 5), (99, 1), True),  # torch: the stride of a dimension of size 1 does not matter
        ((3, 1), (1, 42), True),
        ((), (), True),
        ((0, 5), (1, 77), True),  # torch: an empty tensor is contiguous
        ((4,), (0,), False),
    ],
)
def test_contiguous_is_what_torch_calls_contiguous(shape, strides, contiguous):
    assert ref(shape, strides).contiguous is contiguous


def test_a_dtype_that_nobody_listed_is_not_guessed():
    with pytest.raises(KeyError, match="float3"):
        _ = ref((2,), (1,), "float3").bytes
