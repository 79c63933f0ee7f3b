"""The terms of a kernel's time, worked by hand for a GPU of round numbers."""

from dataclasses import replace

import pytest

from undertorch import gpus
from undertorch.records import Bound, Kernel, Kind, Math, Origin
from undertorch.steps.predict import shares
from undertorch.steps.predict.times import timing

ROUND = replace(
    gpus.find("H200"),
    sms=100,
    boost_clock_mhz=1000.0,
    memory_bandwidth=1e12,
    achieved_bandwidth=1e12,
    pcie_bandwidth=1e10,
    peaks={Math.TENSOR_BF16: 1e15, Math.FP32: 1e14},
)


def kernel(**changes: object) -> Kernel:
    """A big copy: 10⁵ blocks of 256 threads, 0.5 GB in and 0.5 GB out."""
    plain = Kernel(
        name="copy",
        kind=Kind.COPY,
        library="PyTorch",
        grid=(100_000, 1, 1),
        block=(256, 1, 1),
        geometry_origin=Origin.COMPUTED,
        min_bytes_read=500_000_000,
        min_bytes_written=500_000_000,
        flops=0,
    )
    return replace(plain, **changes)


def test_a_large_copy_takes_its_bytes_over_the_bandwidth():
    """10⁹ bytes at 10¹² bytes a second: 1000 µs, and the start of the kernel."""
    found = timing(kernel(), ROUND, 8)
    assert found.time_us == pytest.approx(1000 + shares.START_US)
    assert found.bound is Bound.MEMORY


def test_bytes_that_the_algorithm_moves_again_count_for_the_time():
    assert timing(kernel(traffic_bytes=3_000_000_000), ROUND, 8).memory_us == pytest.approx(3000)


def test_a_large_matmul_takes_its_flops_over_the_share_of_the_peak():
    """10¹² FLOPs at 76 % of 10¹⁵ a second: 1000/0.76 µs; 1000 blocks fill 100 SMs ten times over."""
    big = kernel(kind=Kind.MATMUL, grid=(1000, 1, 1), flops=10**12, math=Math.TENSOR_BF16, min_bytes_read=10**6)
    found = timing(big, ROUND, 1)
    assert found.compute_us == pytest.approx(1000 / 0.76)
    assert found.bound is Bound.COMPUTE


def test_tiles_that_are_padded_count_as_they_are_worked_off():
    big = kernel(kind=Kind.MATMUL, grid=(1000, 1, 1), flops=10**12, math=Math.TENSOR_BF16, min_bytes_read=10**6)
    assert timing(replace(big, done_flops=2 * 10**12), ROUND, 1).compute_us == pytest.approx(2000 / 0.76)


def test_sectors_that_lanes_ask_for_apart_take_their_clocks():
    """32 · 61 · 10⁶ bytes are 61 · 10⁶ sectors: 100 SMs take 0.61 each of 10³ clocks a microsecond."""
    assert timing(kernel(sector_bytes=32 * 61 * 10**6), ROUND, 8).memory_us == pytest.approx(1000)
    assert timing(kernel(sector_bytes=2 * 32 * 61 * 10**6), ROUND, 8).memory_us == pytest.approx(2000)


def test_random_numbers_come_on_top_of_the_products():
    """10⁹ of them at 40 instructions: 100 SMs start 4 warps of 32 in each of 10³ clocks a microsecond, 3125 µs."""
    big = kernel(kind=Kind.MATMUL, grid=(1000, 1, 1), flops=10**12, math=Math.TENSOR_BF16, min_bytes_read=10**6)
    found = timing(replace(big, random_numbers=10**9), ROUND, 1)
    assert found.compute_us == pytest.approx(1000 / 0.76 + 3125)


def test_blocks_that_load_ahead_wait_for_the_first_and_the_last_bytes_alone():
    """One block an SM of a product of 10⁹ bytes: 1000 µs of memory, and not a quarter more, as where every load of a
    block is waited for."""
    stays = kernel(name="nvjet_sm90", kind=Kind.MATMUL, grid=(100, 1, 1), block=(128, 1, 1))
    assert timing(stays, ROUND, 1).latency_us == pytest.approx(1000 + 10)


def test_a_last_wave_that_is_half_empty_costs_as_much_as_a_full_one():
    """150 tiles on 100 SMs need two waves, as 200 tiles do: three quarters of the SMs are busy."""
    tiles = {
        n: kernel(kind=Kind.MATMUL, grid=(n, 1, 1), flops=n * 10**9, math=Math.TENSOR_BF16, min_bytes_read=10**6)
        for n in (150, 200)
    }
    assert timing(tiles[150], ROUND, 1).compute_us == pytest.approx(timing(tiles[200], ROUND, 1).compute_us)


def test_one_block_cannot_keep_the_memory_busy():
    """1600 bytes a thread, 0.02 µs each after the first 0.8: the block lives 32.8 µs; the memory needs 1.6."""
    one = kernel(grid=(1, 1, 1), block=(1024, 1, 1), min_bytes_read=1_638_400, min_bytes_written=0)
    found = timing(one, ROUND, 2)
    assert found.latency_us == pytest.approx(0.8 + 1600 * 0.02)
    assert found.bound is Bound.LATENCY


def test_short_blocks_come_in_waves():
    """Without bytes each of 1600 blocks lives 0.8 µs, and 100 SMs hold 8 each: two waves."""
    blocks = kernel(grid=(1600, 1, 1), min_bytes_read=0, min_bytes_written=0)
    assert timing(blocks, ROUND, 8).latency_us == pytest.approx(1.6)


def test_a_reduction_over_many_blocks_ends_with_the_last_block_adding_partial_sums():
    """352 partial sums over 4 rows of threads are 88 rounds; over one row of 512 threads less than one."""
    columns = kernel(name="reduce_kernel<128, 4>", grid=(6, 352, 1), block=(32, 4, 1), min_bytes_read=0)
    whole = kernel(name="reduce_kernel<512, 1>", grid=(1, 352, 1), block=(512, 1, 1), min_bytes_read=0)
    alone = kernel(name="reduce_kernel<512, 1>", grid=(352, 1, 1), block=(512, 1, 1), min_bytes_read=0)
    tails = [
        timing(k, ROUND, 4).time_us - shares.START_US - timing(k, ROUND, 4).memory_us for k in (columns, whole, alone)
    ]
    assert tails[0] - tails[2] == pytest.approx(shares.REDUCE_TAIL_US + 88 * shares.REDUCE_ROUND_US)
    assert tails[1] - tails[2] < 2


def test_an_empty_kernel_is_bound_by_latency_and_takes_more_than_nothing():
    found = timing(kernel(grid=(1, 1, 1), min_bytes_read=0, min_bytes_written=4), ROUND, 8)
    assert found.bound is Bound.LATENCY
    assert found.time_us > 0


def test_unknown_bytes_and_flops_leave_the_start_and_the_latency():
    unknown = kernel(min_bytes_read=None, min_bytes_written=None, flops=None, bytes_origin=None)
    found = timing(unknown, ROUND, None)
    assert found.memory_us == found.compute_us == 0
    assert found.time_us > shares.START_US


def test_a_copy_from_pinned_memory_runs_at_the_speed_of_pcie():
    """10⁷ bytes at 84 % of 10¹⁰ a second: each byte crosses once."""
    memcpy = kernel(
        name="Memcpy HtoD (Pinned -> Device)",
        kind=Kind.MEMCPY,
        grid=None,
        block=None,
        min_bytes_read=10**7,
        min_bytes_written=10**7,
    )
    found = timing(memcpy, ROUND, None)
    assert found.memory_us == pytest.approx(1000 / 0.84)
    assert found.bound is Bound.LINK


@pytest.mark.parametrize(
    ("name", "size", "bound"),
    [
        ("Memcpy DtoH (Device -> Pinned)", 10**7, Bound.LINK),
        ("Memcpy DtoH (Device -> Pinned)", 8, Bound.LATENCY),
        ("Memcpy DtoD", 10**7, Bound.MEMORY),
    ],
)
def test_a_copy_waits_for_the_link_or_the_memory_that_its_bytes_go_over(name, size, bound):
    memcpy = kernel(name=name, kind=Kind.MEMCPY, grid=None, block=None, min_bytes_read=0, min_bytes_written=size)
    assert timing(memcpy, ROUND, None).bound is bound


def test_a_copy_from_pageable_memory_is_no_faster_than_the_cpu_copies():
    """The H200 took 351 µs for 4 MiB, over a link of 64 GB/s."""
    size = 4 << 20
    pageable = kernel(
        name="Memcpy HtoD (Pageable -> Device)", kind=Kind.MEMCPY, grid=None, block=None, min_bytes_read=size,
        min_bytes_written=size,
    )  # fmt: skip
    assert timing(pageable, gpus.find("H200"), None).time_us == pytest.approx(351, rel=0.02)


def test_work_for_a_unit_that_the_gpu_lacks_runs_at_the_rate_of_float32():
    """A V100 has no bfloat16 tensor cores: 10¹² FLOPs take no less than at 10¹⁴ a second."""
    halves = kernel(kind=Kind.MATMUL, grid=(1000, 1, 1), flops=10**12, math=Math.TENSOR_TF32, min_bytes_read=10**6)
    assert timing(halves, ROUND, 1).compute_us >= 10_000


def test_long_blocks_on_a_full_gpu_wait_for_memory_and_not_for_more_blocks():
    """Layer norm over 32768 rows: the GPU is full; what each block waits for are its trips to memory."""
    rows = kernel(
        name="vectorized_layer_norm_kernel", grid=(32768, 1, 1), block=(32, 4, 1), min_bytes_read=10**6,
        min_bytes_written=10**6,
    )  # fmt: skip
    found = timing(rows, ROUND, 12)
    assert found.latency_us > found.memory_us
    assert found.bound is Bound.MEMORY


def test_kernels_built_for_older_gpus_keep_their_rate_an_sm_and_clock_and_not_their_share_of_the_peak():
    """Turing's instructions: 4096 operations a clock are the peak of an H200's SM, 15 % of that was recorded; an A100
    has 108 SMs at 1410 MHz."""
    tile = kernel(
        name="Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>", kind=Kind.MATMUL,
        grid=(108 * 132, 1, 1), flops=10**13, math=Math.TENSOR_BF16, min_bytes_read=10**6,
    )  # fmt: skip
    a100, h200 = gpus.find("A100-80GB"), gpus.find("H200")
    assert timing(tile, h200, 1).compute_us == pytest.approx(10**13 / (0.148 * 4096 * 132 * 1830), rel=0.01)
    assert timing(tile, a100, 1).compute_us == pytest.approx(10**13 / (0.148 * 4096 * 108 * 1410), rel=0.01)


def test_flash_attention_2_reaches_half_to_three_quarters_of_an_a100():
    """Dao 2023 (FlashAttention-2): 50 to 73 % of the peak, forward and backward; 2048 to 16384 tokens, heads of 128."""
    tokens, heads = 4096, 16 * 16
    flops = 4 * tokens * tokens * 128 * heads
    read, written = 3 * tokens * 128 * heads * 2, tokens * 128 * heads * 2
    call = kernel(
        name="flash_fwd_kernel", kind=Kind.ATTENTION, grid=(tokens // 128, 16, 16), block=(128, 1, 1), flops=flops,
        math=Math.TENSOR_BF16, min_bytes_read=read, min_bytes_written=written,
    )  # fmt: skip
    reached = flops / timing(call, gpus.find("A100-80GB"), 2).time_us * 1e6
    assert 0.5 * 312e12 < reached < 0.76 * 312e12


def test_blocks_that_last_alike_come_in_whole_waves():
    """132 SMs hold three blocks each: 512 blocks are two waves, however few the second has. A thread of 512 has 196 of
    51.4 million elements at 0.46 µs each."""
    elements = 512 * 512 * 196
    moments = kernel(
        name="batch_norm_collect_statistics_channels_last_kernel", kind=Kind.NORM, grid=(4, 128, 1), block=(32, 16, 1),
        flops=4 * elements, math=Math.FP32, min_bytes_read=2 * elements, min_bytes_written=0,
    )  # fmt: skip
    found = timing(moments, gpus.find("H200"), 3)
    assert found.latency_us == pytest.approx(2 * (3.6 + 196 * 0.46), rel=0.001)
    assert found.time_us > timing(moments, gpus.find("H200"), 4).time_us * 1.9
