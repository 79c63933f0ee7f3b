"""Whole kernels against NumPy."""

import numpy as np
import pytest


def random(seed):
    return np.random.default_rng(seed)


def test_doubling_8_blocks_of_128_leaves_what_lies_behind_n(run):
    x = np.arange(1024, dtype=np.float32)
    run("doubling", 8, 128, x, 1000)
    assert np.array_equal(x, np.where(np.arange(1024) < 1000, 2, 1) * np.arange(1024, dtype=np.float32))


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "n"),
    [
        ("naive_matmul", (5, 20), (16, 4), 77),
        ("tiled_matmul", (3, 3), (32, 32), 96),
        ("register_tiled_matmul", (1, 1), 256, 128),
    ],
)
@pytest.mark.parametrize("instrument", ["none", "counters", "events"])
def test_matmul_is_the_product_within_float32s_error(run, kernel, grid, block, n, instrument):
    """Each sum of n products has a relative error of at most n·2⁻²⁴ of the sum of magnitudes (Higham, 3.5)."""
    a, b = (random(1).standard_normal((2, n, n))).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    run(kernel, grid, block, a, b, c, n, instrument=instrument)
    exact = a.astype(np.float64) @ b
    bound = np.abs(a.astype(np.float64)) @ np.abs(b) * n * 2.0**-24
    assert np.all(np.abs(c - exact) <= bound)


def test_fused_multiply_adds_round_once(run):
    """naive_matmul of 1 × 1: fma(x, y, 0) is the rounded product; for n = 2 the second product is not rounded."""
    a = np.array([[1, 1 + 2**-12], [0, 0]], np.float32)
    b = np.array([[-(1 + 2**-11), 0], [1 + 2**-12, 0]], np.float32)
    c = np.zeros((2, 2), np.float32)
    run("naive_matmul", 1, (2, 2), a, b, c, 2)
    assert c[0, 0] == 2.0**-24  # (1 + 2⁻¹²)² - (1 + 2⁻¹¹); rounded before the sum it would be 0


@pytest.mark.parametrize("kernel", ["naive_transpose", "conflicting_transpose", "padded_transpose"])
@pytest.mark.parametrize("n", [32, 75])
def test_transposes(run, kernel, n):
    a = random(2).standard_normal((n, n)).astype(np.float32)
    b = np.zeros_like(a)
    tiles = -(-n // 32)
    run(kernel, (tiles, tiles), (32, 32), a, b, n)
    assert np.array_equal(b, a.T)


@pytest.mark.parametrize(
    ("kernel", "each"),
    [("reduce_interleaved", 1), ("reduce_strided", 1), ("reduce_sequential", 1), ("reduce_last_warp", 2)],
)
@pytest.mark.parametrize("n", [1, 1000, 4096])
def test_each_reduction_adds_up_its_block(run, kernel, each, n):
    x = random(n).integers(-1000, 1000, n, np.int32)
    blocks = -(-n // (128 * each))
    out = np.zeros(blocks, np.int32)
    run(kernel, blocks, 128, x, out, n, dynamic_shared=128 * 4)
    padded = np.pad(x, (0, blocks * 128 * each - n)).reshape(blocks, -1)
    assert np.array_equal(out, padded.sum(1))


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_reduction_by_shuffles(run, seed):
    x = random(3).integers(-1000, 1000, 10007, np.int32)
    out = np.zeros(1, np.int32)
    run("reduce_shuffle", 7, 256, x, out, x.size, seed=seed)
    assert out[0] == x.sum()


@pytest.mark.parametrize("threads", [1, 2])
def test_histogram(run, threads):
    x = random(4).integers(0, 256, 20011, np.uint8)
    out = np.zeros(256, np.uint32)
    run("histogram", 9, 96, x, out, x.size, threads=threads)
    assert np.array_equal(out, np.bincount(x, minlength=256))


@pytest.mark.parametrize("n", [256, 3000])
def test_scan_with_look_back(run, n):
    x = random(5).integers(-50, 50, n, np.int32)
    blocks = -(-n // 256)
    out, sums, ready = np.zeros(n, np.int32), np.zeros(blocks, np.int32), np.zeros(blocks, np.int32)
    run("look_back_scan", blocks, 256, x, out, sums, ready, n)
    assert np.array_equal(out, np.cumsum(x))


def test_blocks_that_wait_for_later_blocks_end(run):
    ready, order = np.zeros(20, np.int32), np.zeros(21, np.int32)
    run("backwards_wait", 20, 32 * 2, ready, order)
    assert np.all(ready == 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_spin_lock_between_all_threads_loses_no_count(run, threads):
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run("spin_lock", 4, 64, lock, count, threads=threads)
    assert count[0] == 4 * 64


def test_a_barrier_of_the_whole_grid(run):
    n = 12 * 64
    arrived, x, out = np.zeros(1, np.int32), random(6).integers(0, 99, n, np.int32), np.zeros(2 * n, np.int32)
    run("grid_barrier", 12, 64, arrived, x, out, n)
    assert np.array_equal(out[n:], (x + 1)[::-1])


def test_lanes_that_part_in_every_round(run):
    x = np.arange(1, 501, dtype=np.int32)
    out = np.zeros_like(x)
    run("collatz", 4, 128, x, out, x.size)

    def steps(v):
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v & 1 else v // 2), count + 1
        return count

    assert out.tolist() == [steps(v) for v in range(1, 501)]


def test_a_strided_gather(run):
    n = 5003
    x = random(7).integers(0, 100, n).astype(np.float32)
    out = np.zeros(256, np.float32)
    run("strided_gather", 2, 128, x, out, n, 31)
    index = (np.arange(256)[:, None] * 31 + np.arange(64) * 97) % n
    assert np.array_equal(out, x[index].sum(1))
