"""Least bytes and FLOPs of element-by-element Ops, copies, reductions and lists, worked by hand."""

import pytest

from costs.by_hand import op, tensor, transposed
from costs.recorded import H200
from undertorch.costs import COSTS, kernels
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.pointwise import shares
from undertorch.costs.resources import registers_of
from undertorch.records import Kind, Math, Op, Origin

N = 1000


def moved(op_: Op) -> list[tuple[str, int | None, int | None]]:
    """Kind, bytes read, bytes written, of each kernel."""
    return [(kernel.kind.value, kernel.min_bytes_read, kernel.min_bytes_written) for kernel in kernels(op_, H200)]


def test_a_sum_reads_two_tensors_and_writes_one():
    x, y = tensor(N), tensor(N)
    (kernel,) = kernels(op("add", tensor(N), overload="Tensor", self=x, other=y, alpha=1), H200)
    assert (kernel.min_bytes_read, kernel.min_bytes_written, kernel.flops) == (8 * N, 4 * N, N)
    assert (kernel.kind, kernel.math, kernel.library) == (Kind.ELEMENTWISE, Math.FP32, "PyTorch")
    assert (kernel.geometry_origin, kernel.bytes_origin) == (Origin.COMPUTED, Origin.COMPUTED)
    assert kernel.resources_origin is Origin.PREDICTED


def test_in_place_sums_read_and_write_the_same_tensor():
    x = tensor(N)
    assert moved(op("add_", x, overload="Tensor", self=x, other=tensor(N), alpha=1)) == [("elementwise", 8 * N, 4 * N)]


def test_a_tensor_times_itself_is_read_once():
    x = tensor(N)
    assert moved(op("mul", tensor(N), overload="Tensor", self=x, other=x)) == [("elementwise", 4 * N, 4 * N)]


def test_a_number_is_not_read():
    for number in (0.5, tensor(device="cpu")):
        out = tensor(N, dtype="bfloat16")
        call = op("mul", out, overload="Tensor", self=tensor(N, dtype="bfloat16"), other=number)
        assert moved(call) == [("elementwise", 2 * N, 2 * N)]


def test_a_broadcast_bias_is_read_once():
    x, out = tensor(32, 1024, 768), tensor(32, 1024, 768)
    call = op("add", out, overload="Tensor", self=x, other=tensor(1024, 768), alpha=1)
    assert moved(call) == [("elementwise", 4 * (32 + 1) * 1024 * 768, 4 * 32 * 1024 * 768)]


def test_an_expanded_input_is_read_once():
    row = tensor(300, 768, strides=(0, 1))
    assert moved(op("neg", tensor(300, 768), self=row)) == [("elementwise", 4 * 768, 4 * 300 * 768)]


def test_a_comparison_writes_a_byte_an_element_and_computes_nothing():
    (kernel,) = kernels(op("eq", tensor(N, dtype="bool"), overload="Tensor", self=tensor(N), other=tensor(N)), H200)
    assert (kernel.min_bytes_read, kernel.min_bytes_written, kernel.flops, kernel.math) == (8 * N, N, 0, None)


def test_whole_numbers_are_no_flops():
    x = tensor(N, dtype="int64")
    (kernel,) = kernels(op("add", tensor(N, dtype="int64"), overload="Tensor", self=x, other=x, alpha=1), H200)
    assert (kernel.flops, kernel.math) == (0, None)


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (op("add", tensor(N), overload="Tensor", self=tensor(N), other=tensor(N), alpha=2), 2),  # a + 2·b
        (op("addcmul", tensor(N), self=tensor(N), tensor1=tensor(N), tensor2=tensor(N), value=0.1), 3),  # a + v·b·c
        (op("lerp", tensor(N), overload="Scalar", self=tensor(N), end=tensor(N), weight=0.1), 3),  # a + w·(b - a)
        (op("silu", tensor(N), self=tensor(N)), 3),  # exp, 1 + ·, x / ·
        (op("sigmoid", tensor(N), self=tensor(N)), 3),
        (op("gelu", tensor(N), self=tensor(N), approximate="none"), 5),  # /√2, erf, + 1, x/2, ·
        (op("relu", tensor(N), self=tensor(N)), 0),
        (op("pow", tensor(N), overload="Tensor_Scalar", self=tensor(N), exponent=3), 2),
    ],
)
def test_flops_follow_the_formula(call: Op, flops: int):
    assert [kernel.flops for kernel in kernels(call, H200)] == [flops * N]


def test_float64_is_computed_by_its_own_unit():
    x = tensor(N, dtype="float64")
    (kernel,) = kernels(op("exp", tensor(N, dtype="float64"), self=x), H200)
    assert kernel.math is Math.FP64


def test_casts_read_one_dtype_and_write_the_other():
    call = op("_to_copy", tensor(N, dtype="bfloat16"), self=tensor(N), dtype="bfloat16")
    assert moved(call) == [("copy", 4 * N, 2 * N)]
    assert moved(op("_to_copy", tensor(N), self=tensor(N, dtype="bfloat16"), dtype="float32")) == [
        ("copy", 2 * N, 4 * N)
    ]


def test_copies_of_one_run_are_the_drivers():
    (kernel,) = kernels(op("clone", tensor(N), self=tensor(N), memory_format=None), H200)
    assert (kernel.name, kernel.kind, kernel.grid, kernel.block) == ("Memcpy DtoD", Kind.MEMCPY, None, None)
    assert (kernel.min_bytes_read, kernel.min_bytes_written, kernel.geometry_origin) == (4 * N, 4 * N, None)


def test_a_view_of_the_same_elements_is_not_copied():
    x = tensor(N)
    assert moved(op("copy_", x, self=x, src=x, non_blocking=False)) == []
    assert moved(op("contiguous", x, self=x)) == []


def test_a_number_fetched_is_a_memcpy_of_its_size():
    (kernel,) = kernels(op("_local_scalar_dense", self=tensor(dtype="float64")), H200)
    assert (kernel.name, kernel.min_bytes_written) == ("Memcpy DtoH (Device -> Pinned)", 8)


def test_masked_fill_copies_and_then_fills_in_place():
    x, mask, out = tensor(30, 40), tensor(40, dtype="bool"), tensor(30, 40)
    call = op("masked_fill", out, overload="Scalar", self=x, mask=mask, value=0.0)
    assert moved(call) == [("memcpy", 4800, 4800), ("elementwise", 4800 + 40, 4800)]


def test_cat_moves_each_input_once():
    parts = (tensor(300, 48), tensor(300, 80))
    assert moved(op("cat", tensor(300, 128), tensors=parts, dim=1)) == [("copy", 4 * 300 * 128, 4 * 300 * 128)]


def test_cat_of_more_inputs_than_a_launch_takes_shares_the_bytes():
    """128 inputs of 200 bytes, then 2."""
    parts = tuple(tensor(50) for _ in range(130))
    call = op("cat", tensor(130 * 50), tensors=parts, dim=0)
    assert moved(call) == [("copy", 128 * 200, 128 * 200), ("copy", 400, 400)]


def test_dropout_writes_a_mask_of_a_byte_an_element():
    x = tensor(N, dtype="bfloat16")
    out, mask = tensor(N, dtype="bfloat16"), tensor(N, dtype="bool")
    call = op("native_dropout", out, mask, input=x, p=0.1, train=True)
    assert moved(call) == [("random", 2 * N, 3 * N)]
    backward = op("native_dropout_backward", tensor(N, dtype="bfloat16"), grad_output=x, mask=mask, scale=1.1)
    assert moved(backward) == [("elementwise", 3 * N, 2 * N)]


def test_glu_reads_both_halves_and_writes_one():
    assert moved(op("glu", tensor(30, 20), self=tensor(30, 40), dim=-1)) == [("elementwise", 4 * 1200, 4 * 600)]


def test_a_variance_carries_four_numbers_and_loads_two_at_once():
    """512 threads of 16 bytes in shared memory where one block sums all; for 4 rows of 128 blocks of 64 · 4 threads."""
    call = op("var", tensor(), overload="correction", self=tensor(5000), dim=None, correction=1, keepdim=False)
    assert [kernel.shared_bytes for kernel in kernels(call, H200)] == [16 + 16 * 512]
    rows = op("var", tensor(4), overload="correction", self=tensor(4, 128), dim=(1,), correction=1, keepdim=False)
    assert [kernel.block for kernel in kernels(rows, H200)] == [(64, 4, 1)]


def test_fills_read_nothing():
    assert moved(op("zeros", tensor(N), size=(N,))) == [("fill", 0, 4 * N)]
    assert moved(op("rand", tensor(N), size=(N,))) == [("random", 0, 4 * N)]
    assert moved(op("arange", tensor(N, dtype="int64"), end=N)) == [("fill", 0, 8 * N)]


def test_a_reduction_clears_its_semaphores_and_passes_partial_results_through_memory():
    """6 semaphores of 4 bytes; 352 partial results of 4 bytes for each of 768 columns, written and read."""
    x = tensor(32768, 768, dtype="bfloat16")
    call = op("sum", tensor(768, dtype="bfloat16"), overload="dim_IntList", self=x, dim=(0,), keepdim=False)
    memset, kernel = kernels(call, H200)
    assert (memset.name, memset.kind, memset.min_bytes_written) == ("Memset", Kind.MEMSET, 24)
    assert (kernel.min_bytes_read, kernel.min_bytes_written) == (2 * 32768 * 768, 2 * 768)
    assert kernel.traffic_bytes == 2 * 32768 * 768 + 2 * 768 + 2 * 4 * 768 * 352
    assert (kernel.flops, kernel.math) == (32768 * 768, Math.FP32)


def test_a_reduction_in_one_pass_has_no_traffic_of_its_own():
    call = op("mean", tensor(64), overload="dim", self=tensor(64, 100), dim=(-1,), keepdim=False)
    (kernel,) = kernels(call, H200)
    assert (kernel.traffic_bytes, kernel.flops) == (None, 64 * 100 + 64)


def test_a_search_writes_values_and_indices():
    values, indices = tensor(64), tensor(64, dtype="int64")
    call = op("max", values, indices, overload="dim", self=tensor(64, 100), dim=1, keepdim=False)
    assert moved(call) == [("reduction", 4 * 6400, 12 * 64)]


def test_lists_share_their_bytes_among_launches():
    """330 chunks: 320 and 10. Two lists are read and the first is written: 8 and 4 bytes an element."""
    first, second = (tensor(330 * 65536),), (tensor(330 * 65536),)
    call = op("_foreach_add_", overload="List", self=first, other=second, alpha=1)
    assert moved(call) == [
        ("elementwise", 8 * 320 * 65536, 4 * 320 * 65536),
        ("elementwise", 8 * 10 * 65536, 4 * 10 * 65536),
    ]
    assert sum(kernel.flops for kernel in kernels(call, H200)) == 330 * 65536


def test_a_list_used_twice_is_read_once():
    """Adam's second moment: v + (1 - β₂) · g · g."""
    moments, gradients = (tensor(N), tensor(N)), (tensor(N), tensor(N))
    call = op("_foreach_addcmul_", overload="Scalar", self=moments, tensor1=gradients, tensor2=gradients, value=0.1)
    assert moved(call) == [("elementwise", 2 * 8 * N, 2 * 4 * N)]


def test_norms_of_a_list_are_zeroed_taken_and_put_together():
    """Of 70,000 and 1,000 elements: 2 · 2 partial results zeroed, 3 chunks, then 2 tensors of 2 results each."""
    tensors, results = (tensor(70_000), tensor(1_000)), (tensor(), tensor())
    call = op("_foreach_norm", *results, overload="Scalar", self=tensors, ord=2, dtype=None)
    assert moved(call) == [("fill", 0, 16), ("reduction", 4 * 71_000, 12), ("reduction", 16, 8)]


@pytest.mark.parametrize(
    "call",
    [
        op("view", tensor(6), self=tensor(2, 3), size=(6,)),
        op("t", tensor(3, 2), self=tensor(2, 3)),
        op("detach", tensor(6), self=tensor(6)),
        op("_unsafe_view", tensor(6), self=tensor(6), size=(6,)),
        op("empty_like", tensor(6), self=tensor(6)),
        op("expand", tensor(4, 6, strides=(0, 1)), self=tensor(6), size=(4, 6)),
    ],
)
def test_views_and_allocations_launch_nothing(call: Op):
    assert kernels(call, H200) == ()


@pytest.mark.parametrize("name", ["add", "sum", "neg", "zero_", "cat", "native_dropout", "copy_", "amax"])
def test_empty_tensors_launch_nothing(name: str):
    empty = tensor(0, 7)
    mask = tensor(0, 7, dtype="bool")
    arguments = {"self": empty, "other": empty, "src": empty, "tensors": (empty, empty), "dim": 0, "input": empty}
    assert kernels(op(name, empty, mask, **arguments), H200) == ()


def test_tensors_on_the_cpu_launch_nothing_even_in_ops_without_a_cost():
    host = tensor(N, device="cpu")
    assert kernels(op("add", host, overload="Tensor", self=host, other=host, alpha=1), H200) == ()
    assert kernels(op("no_such_op", host, self=host), H200) == ()


def test_an_op_that_nobody_knows_has_no_cost():
    assert kernels(op("no_such_op", tensor(N), self=tensor(N)), H200) is None
    assert "aten::no_such_op" not in COSTS


def test_more_than_32_bits_of_bytes_are_several_launches_that_share_the_bytes():
    """3 G elements of bfloat16, 6 GB: halves of 3 GB, quarters of 1.5 GB."""
    x = tensor(3 * 2**30, dtype="bfloat16")
    launched = kernels(op("neg", tensor(3 * 2**30, dtype="bfloat16"), self=x), H200)
    assert [kernel.min_bytes_read for kernel in launched] == [3 * 2**29] * 4
    assert [kernel.grid for kernel in launched] == [(3 * 2**28 // 1024, 1, 1)] * 4


def test_interleaved_views_of_one_storage_count_each_byte_once():
    """q, k and v of one projection: together all of it; q alone a third; q twice, still a third."""
    q, k, v = (tensor(100, 64, strides=(192, 1), offset=64 * i, storage=77) for i in range(3))
    assert least_bytes([q, k, v]) == 100 * 192 * 4
    assert least_bytes([q, q]) == least_bytes([q]) == 100 * 64 * 4


def test_overlapping_views_are_bounded_by_their_span():
    whole, part = tensor(100, storage=78), tensor(50, offset=25, storage=78)
    assert least_bytes([whole, part]) == 400
    assert least_bytes([tensor(10, storage=78), tensor(10, offset=90, storage=78)]) == 80


def test_a_transposed_view_is_as_large_as_what_it_shows():
    assert least_bytes([transposed(tensor(30, 40))]) == 4800


def test_shares_are_whole_and_sum_to_the_total():
    assert shares(10, [1, 1, 1]) == [3, 3, 4]
    assert shares(0, [5, 6]) == [0, 0]
    assert sum(shares(1_000_003, [7, 11, 13, 17])) == 1_000_003


def test_registers_are_those_of_the_longest_name_that_was_recorded():
    assert registers_of("vectorized_elementwise_kernel<8, add>") == 34
    assert registers_of("vectorized_elementwise_kernel<8, tanh>") == 32
    assert registers_of("reduce_kernel<128, 4, sum>") == 54
    assert registers_of("reduce_kernel<512, 1, sum>") == 32
    assert registers_of("kernel_of_somebody<8>") is None


@pytest.mark.parametrize(("source", "target"), [("cpu", "cuda:0"), ("cuda:0", "cpu")])
def test_bytes_over_pcie_are_the_bytes_moved_once(source, target):
    there, here = tensor(N, device=source), tensor(N, device=target)
    (kernel,) = kernels(op("copy_", here, self=here, src=there, non_blocking=True), H200)
    assert kernel.over_link
    assert kernel.min_bytes == 4 * N


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_a_transposed_source_is_asked_for_a_sector_an_element(dtype, size):
    """4096 × 2048 read down its columns, 32 bytes a lane, and written along rows; its least bytes are each once."""
    source, copy = transposed(tensor(4096, 2048, dtype=dtype)), tensor(2048, 4096, dtype=dtype)
    (kernel,) = kernels(op("clone", copy, self=source, memory_format="contiguous_format"), H200)
    assert kernel.sector_bytes == 4096 * 2048 * (32 + size)
    assert kernel.min_bytes == 2 * 4096 * 2048 * size


def test_rows_that_lie_apart_are_read_along():
    """Of every second row each byte has its neighbour."""
    source = tensor(1024, 512, strides=(1024, 1))
    (kernel,) = kernels(op("clone", tensor(1024, 512), self=source, memory_format="contiguous_format"), H200)
    assert kernel.sector_bytes is None
