"""Blocks, threads and vectors of PyTorch's kernels, worked by hand from its headers; unrecorded GPUs and builds too."""

from dataclasses import replace

import pytest

from costs.by_hand import tensor, transposed
from costs.recorded import H200
from undertorch.costs.geometry.builds import TORCH_2_11, TORCH_2_13
from undertorch.costs.geometry.loops import Functor, gpu_kernel, jitted_kernel, multiple_outputs_kernel
from undertorch.costs.geometry.multi_tensor import launches
from undertorch.costs.geometry.reduce_config import Reducer, reduce_launches
from undertorch.costs.geometry.tensor_iterator import reduction_iterator, tensor_iterator

A100 = replace(H200, name="A100", compute_capability=(8, 0), sms=108)
RTX_5090 = replace(H200, name="RTX 5090", compute_capability=(12, 0), sms=170, max_threads_per_sm=1536)


def copy_of(dtype: str) -> Functor:
    return Functor(name="copy", result=dtype, arguments=(dtype,))


def unary(dtype: str, size: int, gpu=H200, offset: int = 0):
    x, y = tensor(size, dtype=dtype, offset=offset), tensor(size, dtype=dtype)
    (launch,) = gpu_kernel(tensor_iterator([y], [x]), copy_of(dtype), gpu)
    return launch.name, launch.grid, launch.block


@pytest.mark.parametrize(
    ("dtype", "vector"), [("float64", 2), ("complex64", 2), ("float32", 4), ("int32", 4), ("bfloat16", 8), ("uint8", 4)]
)
def test_a_thread_loads_16_bytes_at_once_but_4_of_single_bytes(dtype: str, vector: int):
    assert unary(dtype, 5000) == (f"vectorized_elementwise_kernel<{vector}, copy>", (5, 1, 1), (128, 1, 1))


@pytest.mark.parametrize("gpu", [A100, RTX_5090])
def test_loads_of_8_exist_for_hopper_and_datacentre_blackwell_alone(gpu):
    assert unary("bfloat16", 5000, gpu)[0] == "vectorized_elementwise_kernel<4, copy>"
    assert (
        unary("bfloat16", 5000, replace(gpu, compute_capability=(10, 0)))[0] == "vectorized_elementwise_kernel<8, copy>"
    )


@pytest.mark.parametrize(("offset", "vector"), [(8, 8), (4, 4), (2, 2), (6, 2), (16, 8)])
def test_an_unaligned_view_loads_as_far_as_it_is_aligned(offset: int, vector: int):
    assert unary("bfloat16", 5000, offset=offset)[0] == f"vectorized_elementwise_kernel<{vector}, copy>"


def test_a_view_at_an_odd_element_is_not_vectorized_and_takes_4_a_thread():
    """5000 elements in blocks of 128 · 4."""
    assert unary("bfloat16", 5000, offset=1) == ("unrolled_elementwise_kernel<copy>", (10, 1, 1), (128, 1, 1))


def test_a_type_of_16_bytes_is_not_vectorized():
    assert unary("complex128", 5000)[0] == "unrolled_elementwise_kernel<copy>"


def test_a_fill_of_single_bytes_takes_16_a_thread():
    """One byte moves an element: 128 · 16 = 2048 a block."""
    flags = tensor(2049, dtype="bool")
    (launch,) = gpu_kernel(tensor_iterator([flags], []), Functor(name="fill", result="bool", arguments=()), H200)
    assert (launch.name, launch.grid) == ("vectorized_elementwise_kernel<4, fill>", (2, 1, 1))


def test_torch_2_13_loads_8_single_bytes_at_once():
    flags = tensor(2049, dtype="bool")
    fill = Functor(name="fill", result="bool", arguments=())
    (launch,) = gpu_kernel(tensor_iterator([flags], []), fill, H200, TORCH_2_13)
    assert launch.name == "vectorized_elementwise_kernel<8, fill>"


def test_offsets_cost_4_byte_results_half_the_unrolling():
    """30 · 40 elements in blocks of 128 · 2 and of 128 · 4."""
    for dtype, name, grid in (
        ("float32", "elementwise_kernel<128, 2, copy>", (5, 1, 1)),
        ("bfloat16", "elementwise_kernel<128, 4, copy>", (3, 1, 1)),
    ):
        source = transposed(tensor(40, 30, dtype=dtype))
        (launch,) = gpu_kernel(tensor_iterator([tensor(30, 40, dtype=dtype)], [source]), copy_of(dtype), H200)
        assert (launch.name, launch.grid) == (name, grid)


def test_a_cast_while_running_takes_4_a_thread_whatever_the_types():
    casts = Functor(name="copy", result="float64", arguments=("float64",))
    contiguous = tensor_iterator([tensor(1200, dtype="float64")], [tensor(1200)])
    strided = tensor_iterator([tensor(30, 40, dtype="float64")], [transposed(tensor(40, 30))])
    assert [launch.name for launch in gpu_kernel(contiguous, casts, H200)] == ["unrolled_elementwise_kernel<copy>"]
    assert [launch.name for launch in gpu_kernel(strided, casts, H200)] == ["elementwise_kernel<128, 4, copy>"]


@pytest.mark.parametrize("kernel", [gpu_kernel, jitted_kernel])
def test_empty_tensors_launch_nothing(kernel):
    assert kernel(tensor_iterator([tensor(0, 7)], [tensor(0, 7)]), copy_of("float32"), H200) == ()


def test_several_outputs_are_not_vectorized():
    """1025 elements in blocks of 128 · 8."""
    iterator = tensor_iterator([tensor(1025), tensor(1025)], [tensor(1025)])
    (launch,) = multiple_outputs_kernel(iterator, copy_of("float32"), H200)
    assert (launch.name, launch.grid) == ("unrolled_elementwise_kernel_for_multi_outputs<2, copy>", (2, 1, 1))


SUM = Reducer(name="sum", scalar="float32", accumulator_bytes=4)


def reduction(shape: tuple[int, ...], dimensions: list[int], reducer: Reducer = SUM, gpu=H200):
    source = tensor(*shape, dtype=reducer.scalar)
    kept = tuple(size for d, size in enumerate(shape) if d not in dimensions)
    iterator = reduction_iterator([tensor(*kept, dtype=reducer.scalar)], source, dimensions, keepdim=False)
    (launch,) = reduce_launches(iterator, reducer, gpu)
    return launch


def test_column_sums_of_a_tall_matrix_share_the_gpu():
    """A thread makes 4 results: 192 threads wide, of which a warp (32) and 4 rows fit 128 threads; 6 columns of blocks.

    108 SMs hold 16 such blocks each: 1728 / 6 = 288 rows. 32768 / 4 = 8192 values a thread, 29 after that.
    """
    launch = reduction((32768, 768), [0], gpu=A100)
    assert (launch.threads, launch.output_vector) == (128, 4)
    assert (launch.block, launch.grid) == ((32, 4, 1), (6, 288, 1))
    assert launch.shared_bytes == 16 + 4 * 128 * 4
    assert launch.semaphore_bytes == 4 * 6
    assert launch.staging_bytes == 4 * 768 * 288


def test_row_sums_give_each_row_a_warp():
    """768 loaded 4 at once are 192, of which 32 wide and 16 rows fit 512 threads; a thread sums 768 / 32 = 24."""
    launch = reduction((32768, 768), [1])
    assert (launch.block, launch.grid, launch.shared_bytes) == ((32, 16, 1), (2048, 1, 1), 16)


def test_few_long_rows_give_each_a_block():
    """16384 / 4 = 4096: 512 wide for one row, 64 · 8 for 8 rows; 16384 / 64 = 256 values a thread split across warps.

    Then 32 are left a thread, too few to split across blocks.
    """
    launch = reduction((8, 16384), [1])
    assert (launch.block, launch.grid) == ((64, 8, 1), (8, 1, 1))
    assert launch.shared_bytes == 16 + 4 * 512
    assert launch.semaphore_bytes == 0


def test_the_sum_of_everything_fills_the_gpu_once():
    """512 threads, 4 blocks an SM: 528 on 132 SMs, while at least 16 values a thread are left."""
    assert reduction((32, 1024, 768), [0, 1, 2]).grid == (1, 528, 1)
    assert reduction((1_000_003,), [0]).grid == (1, 123, 1)  # 1,954 values a thread, in parts of 16


def test_odd_columns_are_summed_one_a_thread():
    assert reduction((32768, 769), [0]).output_vector == 1
    assert reduction((32768, 770), [0]).output_vector == 2
    assert reduction((32768, 772), [0]).output_vector == 4


def test_256_values_a_thread_are_split_across_warps_however_high_the_block():
    """4 columns are one thread wide and 128 high; 1000 values are fewer than 16 for each row, but more than 256."""
    launch = reduction((1000, 4), [0])
    assert (launch.block, launch.grid, launch.shared_bytes) == ((1, 128, 1), (1, 1, 1), 16 + 4 * 128 * 4)


def test_columns_that_fill_the_gpu_are_not_split_across_blocks():
    """256 columns of blocks for 10 SMs of 16 blocks; each thread sums 512 values alone."""
    assert reduction((2048, 32768), [0], gpu=replace(H200, sms=10)).grid == (256, 1, 1)


def test_variances_load_two_at_once():
    """128 / 2 = 64 threads wide for 4 rows, where 128 / 4 would be 32."""
    welford = Reducer(name="Welford", scalar="float32", accumulator_bytes=16, load_vector=2)
    assert reduction((4, 128), [1], welford).block == (64, 4, 1)
    assert reduction((4, 128), [1]).block == (32, 4, 1)


def test_what_a_thread_carries_sizes_the_shared_memory():
    """A value with its index: 16 bytes for each of 512 threads."""
    search = Reducer(name="argmax", scalar="float32", accumulator_bytes=16)
    assert reduction((8, 16384), [1], search).shared_bytes == 16 + 16 * 512


def test_chunks_go_to_blocks_until_320():
    """21 M elements are 321 chunks of 65,536; the last has 28,480."""
    size = 320 * 65536 + 28480
    first, second = launches([size], 1, TORCH_2_11)
    assert len(first) == 320
    assert second == (28480,)


def test_a_launch_is_full_with_its_tensors_too():
    """110 of one list, 64 of two, 48 of three; 96 of one where each brings a scalar."""
    for lists, scalars, most in ((1, False, 110), (2, False, 64), (3, False, 48), (4, False, 36), (1, True, 96)):
        assert len(launches([5] * 200, lists, TORCH_2_11, scalars=scalars)[0]) == most


def test_the_last_tensor_of_a_launch_is_served_whole():
    """109 numbers, and as the 110th a tensor of 3 chunks."""
    assert [len(chunks) for chunks in launches([1] * 109 + [3 * 65536, 1], 1, TORCH_2_11)] == [112, 1]


def test_a_tensor_that_runs_over_counts_in_the_next_launch():
    """Its 10 last chunks and 109 more tensors fill the second launch."""
    counted = [len(chunks) for chunks in launches([330 * 65536] + [1] * 150, 1, TORCH_2_11)]
    assert counted == [320, 10 + 109, 41]


def test_empty_tensors_take_no_place():
    assert launches([0, 5, 0, 7], 1, TORCH_2_11) == ((5, 7),)
    assert launches([0, 0], 1, TORCH_2_11) == ()


def test_torch_2_13_has_32_kb_of_arguments():
    """GPT-2's step counters, 148 numbers, go in one launch where torch 2.11 takes two."""
    assert [len(chunks) for chunks in launches([1] * 148, 1, TORCH_2_11)] == [110, 38]
    assert [len(chunks) for chunks in launches([1] * 148, 1, TORCH_2_13)] == [148]
