"""Embedding, indexing, sorting, running sums: bytes by hand, and where one way of working gives over to another."""

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200
from undertorch.costs import kernels
from undertorch.records import Kernel, Kind


def moved(found: tuple[Kernel, ...]) -> int:
    return sum(kernel.min_bytes for kernel in found)


def embedding(rows: int, width: int, count: int, dtype: str = "float32") -> tuple[Kernel, ...]:
    call = op(
        "embedding",
        tensor(count, width, dtype=dtype),
        weight=tensor(rows, width, dtype=dtype),
        indices=tensor(count, dtype="int64"),
        padding_idx=-1,
        scale_grad_by_freq=False,
        sparse=False,
    )
    return kernels(call, H200)


def embedding_backward(rows: int, width: int, count: int) -> tuple[Kernel, ...]:
    call = op(
        "embedding_dense_backward",
        tensor(rows, width),
        grad_output=tensor(count, width),
        indices=tensor(count, dtype="int64"),
        num_weights=rows,
        padding_idx=-1,
        scale_grad_by_freq=False,
    )
    return kernels(call, H200)


def test_an_embedding_reads_an_index_and_a_row_and_writes_a_row_each():
    (kernel,) = embedding(50304, 768, 32768)
    # 32,768 different rows at most, of 50,304.
    assert kernel.min_bytes_read == 32768 * 8 + 32768 * 768 * 4
    assert kernel.min_bytes_written == 32768 * 768 * 4
    assert kernel.flops == 0


def test_a_table_with_few_rows_is_read_once_however_often_they_are_asked_for():
    """1,024 positions of 768 features for 32 × 1024 tokens."""
    (kernel,) = embedding(1024, 768, 32 * 1024)
    assert kernel.min_bytes_read == 32 * 1024 * 8 + 1024 * 768 * 4


def test_no_index_is_no_launch():
    assert embedding(100, 64, 0) == ()


@pytest.mark.parametrize(("count", "sorted_"), [(1, False), (3072, False), (3073, True), (32768, True)])
def test_more_than_3072_indices_are_sorted_before_their_rows_are_added(count: int, sorted_: bool):
    found = embedding_backward(50304, 768, count)
    assert any(kernel.name.startswith("DeviceRadixSort") for kernel in found) is sorted_
    if not sorted_:
        fill, kernel = found
        assert (fill.kind, fill.min_bytes_written) == (Kind.FILL, 50304 * 768 * 4)
        assert kernel.flops == count * 768


def test_its_sort_takes_eight_passes_over_64_bits():
    names = [kernel.name for kernel in embedding_backward(50304, 768, 32768)]
    assert sum(name.startswith("DeviceRadixSortOnesweepKernel") for name in names) == 8


def test_gather_and_scatter_move_one_element_an_index():
    index = tensor(64, 10, dtype="int64")
    source, result = tensor(64, 1000), tensor(64, 10)
    (gather,) = kernels(op("gather", result, self=source, dim=1, index=index, sparse_grad=False), H200)
    assert gather.min_bytes == 64 * 10 * (8 + 4 + 4)
    (scatter,) = kernels(op("scatter_add_", source, self=source, dim=1, index=index, src=result), H200)
    assert scatter.flops == 64 * 10


def test_a_running_sum_reads_and_writes_each_element_and_adds_once():
    (kernel,) = kernels(op("cumsum", tensor(64, 1000), self=tensor(64, 1000), dim=1, dtype=None), H200)
    assert kernel.min_bytes == 2 * 64 * 1000 * 4
    assert kernel.flops == 64 * 1000


def test_slices_of_up_to_4096_elements_are_sorted_in_place_longer_ones_by_cub():
    def last(width: int) -> str:
        shape = (100, width)
        call = op(
            "sort",
            tensor(*shape),
            tensor(*shape, dtype="int64"),
            overload="stable",
            self=tensor(*shape),
            stable=False,
            dim=1,
            descending=False,
        )
        found = kernels(call, H200)
        return " ".join(kernel.name for kernel in found)

    assert "bitonicSortKVInPlace" in last(32)
    assert "InPlace" in last(4096)
    assert "InPlace" not in last(4097)
    assert "DeviceRadixSort" in last(4097)


def test_a_mask_as_index_is_turned_into_the_places_where_it_is_set():
    """`x[mask]`, a mask over rows of which 8 are set: nonzero, and then 8 rows by their numbers (expandTensors)."""
    mask = tensor(64, dtype="bool")
    places = kernels(op("nonzero", tensor(8, 1, dtype="int64"), self=mask), H200)
    source, rows, result = tensor(64, 32), tensor(8, dtype="int64"), tensor(8, 32)
    taken = kernels(op("index", result, overload="Tensor", self=source, indices=(rows,)), H200)
    found = kernels(op("index", result, overload="Tensor", self=source, indices=(mask,)), H200)
    assert found == (*places, *taken)
    # The mask is read twice, to count and to pick; 8 numbers of 8 bytes; 8 rows of 32 float32.
    assert sum(kernel.min_bytes_read for kernel in places if kernel.name.startswith("DeviceRe")) == 64
    assert moved(taken) == 8 * 8 + 2 * 8 * 32 * 4


def test_a_mask_over_two_dimensions_has_an_index_for_each():
    mask = tensor(16, 4, dtype="bool")
    found = kernels(op("index", tensor(5), overload="Tensor", self=tensor(16, 4), indices=(mask,)), H200)
    assert [kernel.name for kernel in found][-2:] == ["write_indices", "index_elementwise_kernel<128, 4>"]
    assert found[-1].min_bytes_read == 2 * 5 * 8 + 5 * 4


def test_gradients_go_back_to_where_a_mask_took_from():
    """As `x[mask]` does in backward: the places, then rows added up by their numbers."""
    target, mask, values = tensor(64, 32), tensor(64, dtype="bool"), tensor(8, 32)
    call = op("_index_put_impl_", target, self=target, indices=(mask,), values=values, accumulate=True, unsafe=True)
    found = kernels(call, H200)
    assert found[0].name == "DeviceReduceSingleTileKernel"
    assert found[-1].name.startswith("indexing_backward_kernel")
    assert found[-1].flops == 8 * 32


def test_how_many_places_a_mask_has_must_show_in_a_shape():
    """Values that are broadcast say nothing of it."""
    target = tensor(64, 32)
    mask, values = tensor(64, dtype="bool"), tensor(1, dtype="float32")
    call = op("index_put_", target, self=target, indices=(mask,), values=values, accumulate=False)
    assert kernels(call, H200) is None


def test_a_number_written_where_a_mask_says_is_a_masked_fill():
    """`x[mask] = 0`, the mask over rows: reads a byte a row, reads and writes the elements."""
    call = op(
        "index_put_",
        target := tensor(64, 32),
        self=target,
        indices=(tensor(64, dtype="bool"),),
        values=tensor(device="cpu"),
        accumulate=False,
    )
    (kernel,) = kernels(call, H200)
    assert kernel.min_bytes_written == 64 * 32 * 4
    assert kernel.min_bytes_read == 64 * 32 * 4 + 64


def test_the_k_largest_are_written_with_where_they_were():
    call = op(
        "topk",
        tensor(32, 10),
        tensor(32, 10, dtype="int64"),
        self=tensor(32, 1000),
        k=10,
        dim=1,
        largest=True,
        sorted=False,
    )
    found = kernels(call, H200)
    assert found[0].min_bytes_written == 32 * 10 * (4 + 8)
    assert moved(found) >= 32 * 1000 * 4
