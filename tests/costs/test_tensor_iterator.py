"""The order in which PyTorch walks tensors, by hand and by its meaning: every element once, whatever is merged."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from costs.by_hand import tensor, transposed
from undertorch.costs.geometry.tensor_iterator import (
    TensorIterator,
    dense,
    in_32_bits,
    reduction_iterator,
    tensor_iterator,
)
from undertorch.records import TensorRef


def layout(iterator: TensorIterator) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    return iterator.shape, [operand.strides for operand in iterator.operands]


def test_row_major_tensors_are_one_run():
    x = tensor(32, 1024, 768)
    iterator = tensor_iterator([x], [x, x])
    assert layout(iterator) == ((32 * 1024 * 768,), [(4,), (4,), (4,)])
    assert iterator.contiguous


def test_a_bias_stands_still_along_the_batch():
    """The two inner dimensions merge; the bias does not move along the outer one."""
    x, bias = tensor(32, 1024, 768), tensor(1024, 768)
    iterator = tensor_iterator([x], [x, bias])
    assert layout(iterator) == ((1024 * 768, 32), [(4, 4 * 1024 * 768), (4, 4 * 1024 * 768), (4, 0)])
    assert not iterator.contiguous


def test_tensors_transposed_alike_are_one_run():
    x, y, out = (transposed(tensor(40, 30)) for _ in range(3))
    assert tensor_iterator([out], [x, y]).contiguous


def test_one_transposed_tensor_among_others_is_none():
    """The output's fastest dimension comes first; the input strides over it."""
    iterator = tensor_iterator([tensor(30, 40)], [transposed(tensor(40, 30))])
    assert layout(iterator) == ((40, 30), [(4, 160), (120, 4)])


def test_channels_last_tensors_are_one_run():
    x = tensor(4, 3, 20, 20, strides=(1200, 1, 60, 3))
    assert tensor_iterator([x], [x]).contiguous


def test_numbers_are_contiguous_and_broadcast():
    assert tensor_iterator([tensor()], [tensor(), tensor()]).contiguous
    assert layout(tensor_iterator([tensor(5)], [tensor(5), tensor()])) == ((5,), [(4,), (4,), (0,)])


def test_a_slice_begins_where_it_begins_and_keeps_its_rows():
    rows = tensor(4096, 1024, dtype="bfloat16", strides=(2048, 1), offset=3)
    iterator = tensor_iterator([tensor(4096, 1024, dtype="bfloat16")], [rows])
    assert layout(iterator) == ((1024, 4096), [(2, 2048), (2, 4096)])
    assert iterator.inputs[0].address == 6


def test_an_iterator_past_32_bits_is_halved_until_its_bytes_fit():
    """2,200,000,001 elements of 2 bytes: halves reach 2.2 GB still, quarters 1.1 GB."""
    x = tensor(2_200_000_001, dtype="bfloat16")
    parts = in_32_bits(tensor_iterator([x], [x]))
    assert [part.elements for part in parts] == [550_000_000, 550_000_000, 550_000_000, 550_000_001]
    assert [part.inputs[0].address for part in parts] == [0, 1_100_000_000, 2_200_000_000, 3_300_000_000]


def test_the_largest_iterator_of_32_bits_is_not_split():
    """The last byte's offset is 2³¹ - 1 of 2³¹ bytes; one element more does not fit."""
    assert len(in_32_bits(tensor_iterator([], [tensor(2**31 - 1, dtype="uint8")]))) == 1
    assert len(in_32_bits(tensor_iterator([], [tensor(2**31, dtype="uint8")]))) == 2


def test_reduced_dimensions_come_first():
    source = tensor(64, 128, 32)
    iterator = reduction_iterator([tensor(128)], source, [0, 2], keepdim=False)
    assert iterator.shape == (32, 64, 128)
    assert iterator.outputs[0].strides == (0, 0, 4)
    assert (iterator.reduced_dimensions, iterator.output_elements) == (2, 128)


def test_kept_dimensions_change_nothing():
    source = tensor(64, 128, 32)
    kept = reduction_iterator([tensor(1, 128, 1)], source, [0, 2], keepdim=True)
    assert layout(kept) == layout(reduction_iterator([tensor(128)], source, [0, 2], keepdim=False))


def test_of_dimensions_with_equal_strides_the_smaller_comes_first():
    """Windows that overlap: 3 of 5 elements, one further each."""
    windows = tensor(3, 5, strides=(1, 1))
    assert reduction_iterator([tensor()], windows, None, keepdim=False).shape == (3, 5)


def test_what_fills_its_memory_once_is_dense():
    assert dense(tensor(3, 4))
    assert dense(transposed(tensor(3, 4)))
    assert dense(tensor(0, 4))
    assert not dense(tensor(3, 4, strides=(8, 1)))
    assert not dense(tensor(3, 4, strides=(0, 1)))


def addresses(tensors: list[TensorRef]) -> list[tuple[int, ...]]:
    """The bytes at which the elements of broadcast tensors meet, by definition: index times stride."""
    shape = tensors[0].shape
    met = []
    for index in product(*(range(size) for size in shape)):
        row = []
        for each in tensors:
            own = index[len(shape) - len(each.shape) :]
            moved = (
                0 if size == 1 else i * stride for i, size, stride in zip(own, each.shape, each.strides, strict=True)
            )
            row.append((each.offset + sum(moved)) * each.itemsize)
        met.append(tuple(row))
    return sorted(met)


def walked(iterator: TensorIterator) -> list[tuple[int, ...]]:
    return sorted(
        tuple(o.address + sum(i * s for i, s in zip(index, o.strides, strict=True)) for o in iterator.operands)
        for index in product(*(range(size) for size in iterator.shape))
    )


@st.composite
def operands(draw: st.DrawFn) -> list[TensorRef]:
    """An output and two inputs: some permuted, sliced out of something larger, or broadcast."""
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 5]), min_size=0, max_size=4)))
    made = []
    for which in range(3):
        own = shape if which == 0 else tuple(draw(st.sampled_from([size, 1])) for size in shape)
        if which and draw(st.booleans()):
            own = own[draw(st.integers(0, len(own))) :]
        order = draw(st.permutations(range(len(own))))
        strides, step = [0] * len(own), 1
        for dimension in order:
            strides[dimension] = step
            step *= own[dimension] + draw(st.integers(0, 1))
        dtype = draw(st.sampled_from(["float32", "bfloat16", "bool"]))
        made.append(tensor(*own, dtype=dtype, strides=tuple(strides), offset=draw(st.integers(0, 3))))
    return made


@given(operands())
def test_ordering_and_merging_keep_which_elements_meet(tensors: list[TensorRef]):
    assert walked(tensor_iterator(tensors[:1], tensors[1:])) == addresses(tensors)


@given(operands())
def test_merging_leaves_nothing_to_merge(tensors: list[TensorRef]):
    iterator = tensor_iterator(tensors[:1], tensors[1:])
    for d in range(1, len(iterator.shape)):
        assert 1 not in (iterator.shape[d - 1], iterator.shape[d])
        assert any(o.strides[d - 1] * iterator.shape[d - 1] != o.strides[d] for o in iterator.operands)


def test_what_is_broadcast_along_every_dimension_is_split_where_it_is_long():
    """A gradient of ones over 10,000,000,000 rows has no stride at all: rows are halved until 32 bits count them."""
    parts = in_32_bits(reduction_iterator([tensor(1, 1)], tensor(10**10, 1, strides=(0, 0)), (0,), True))
    assert sum(max(part.shape) for part in parts) == 10**10
    assert all(part.fits_32_bits for part in parts)
