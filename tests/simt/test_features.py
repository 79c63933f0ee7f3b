"""One feature a kernel: what PTX and CUDA say that it does."""

import math
import struct

import numpy as np
import pytest

from undertorch.simt import Deadlock, Fault

LANES = np.arange(32)


def random(seed):
    return np.random.default_rng(seed)


def test_cp_async_fills_two_buffers_in_turn(run):
    x = random(1).standard_normal((5, 128, 4)).astype(np.float32)
    out = np.zeros_like(x)
    run("double_buffer", 1, 128, x, out, 5)
    v = x[:, ::-1]
    assert np.array_equal(out, np.stack([v[..., 0] + 1, v[..., 1] * 2, v[..., 2] - 3, -v[..., 3]], -1))


def test_cp_async_without_a_wait_leaves_what_was_there(run):
    x, out = np.ones((128, 4), np.float32), np.zeros((128, 4), np.float32)
    run("forgotten_wait", 1, 128, x, out)
    assert np.all(out == 7)


def test_shuffles(run):
    x, out = random(2).integers(0, 1000, 32, np.int32), np.zeros(6 * 32, np.int32)
    run("shuffles", 1, 32, x, out)
    out = out.reshape(6, 32)
    assert np.array_equal(out[0], x[(LANES * 7 + 3) % 32])
    assert np.array_equal(out[1], np.where(LANES >= 3, x[LANES - 3], x))
    assert np.array_equal(out[2], np.where(LANES + 5 < 32, x[(LANES + 5) % 32], x))
    assert np.array_equal(out[3], x[LANES ^ 9])
    assert np.array_equal(out[4], np.where(LANES % 8 >= 2, x[LANES - 2], x))
    assert np.array_equal(out[5], x[LANES // 16 * 16 + 5])


def test_two_halves_of_a_warp_shuffle_apart(run):
    x, out = random(3).integers(0, 1000, 32, np.int32), np.zeros(32, np.int32)
    run("parted_shuffles", 1, 32, x, out)
    assert np.array_equal(out, np.where(LANES < 16, 2 * x[LANES ^ 1], 3 * x[LANES ^ 2]))


def test_a_shuffle_waits_for_all_lanes_of_its_mask(run):
    x, out = random(4).integers(0, 1000, 32).astype(np.int32), np.zeros(32, np.int32)
    run("meeting", 1, 32, x, out)
    values = x.astype(np.uint32)
    for lane in range(0, 32, 3):
        for _ in range(lane):
            values[lane] = (int(values[lane]) * 5 + 1) % 2**32
    assert np.array_equal(out.view(np.uint32), values[LANES ^ 1])


def test_votes_matches_and_reductions(run):
    x, out = random(5).integers(0, 8, 32, np.int32), np.zeros(9 * 32, np.uint32)
    run("votes", 1, 32, x, out)
    out = out.reshape(9, 32)
    ballot = sum(1 << int(i) for i in np.flatnonzero(x > 3))
    odd = sum(1 << int(i) for i in np.flatnonzero(x & 1))
    assert np.all(out[0] == ballot)
    assert np.all(out[1] == 1)
    assert np.all(out[2] == (5 in x))
    assert out[3].tolist() == [sum(1 << int(i) for i in np.flatnonzero(x == v)) for v in x]
    assert np.all(out[4] == 0)  # all ones, and one more
    assert np.all(out[5] == x.sum())
    assert np.all(out[6].view(np.int32) == -x.max())
    assert np.all(out[7] == np.bitwise_xor.reduce(x))
    assert np.array_equal(out[8], np.where(x & 1, odd, 0))


def test_a_function_takes_a_struct_by_value_and_a_pointer_to_local_memory(run):
    pair = struct.pack("<f4xd3h2x", 1.5, 10.25, 3, -4, 100)
    out = np.zeros(40)
    run("device_function", 1, 40, pair, out)
    assert out.tolist() == [10.25 + sum([3, -4, 100][i % 3] for i in range(n)) + 1.5 * n for n in range(40)]


def test_const_and_global_variables_have_their_initial_values(run):
    out, seen = np.zeros(32, np.float32), np.zeros(4, np.int32)
    run("variables", 1, 32, out, seen)
    assert np.array_equal(out, np.array([1.5, -2, 3.25, 0, 8], np.float32)[LANES % 5])
    assert seen.tolist() == [10, 20, 30, 40]


def test_local_arrays_are_each_threads_own(run):
    x, out = random(6).integers(0, 1000, 64, np.int32), np.zeros(64, np.int32)
    run("local_array", 1, 64, x, out)
    a, b = x & 15, (x + 5) & 15
    assert np.array_equal(out, a * a + b * b + 2 * np.arange(64))


def test_one_pointer_reaches_global_shared_and_local_memory(run):
    x, out = random(7).integers(0, 1000, 32, np.int32), np.zeros(32, np.int32)
    run("generic_pointers", 1, 32, x, out)
    back = 31 - LANES
    assert np.array_equal(out, np.choose(LANES % 3, [x[back], 1000 + back, 2000 + 100 * LANES + back]))


def test_printf_prints_what_c_prints(run):
    result = run("prints", 1, 8, 3)
    assert result.printed == tuple(f"thread {n} of 8: {n * 0.5:5.2f} yes x 1099511627776\n" for n in range(3))


def test_a_failed_assert_names_thread_expression_and_line(run):
    with pytest.raises(Fault, match=r"threadIdx.x \+ blockIdx.x \* 32 < n") as caught:
        run("asserts", 2, 32, 40)
    assert caught.value.kind == "assert"
    assert (caught.value.thread.block, caught.value.thread.thread) == ((1, 0, 0), (8, 0, 0))


@pytest.mark.parametrize(
    ("kernel", "arguments", "kind", "thread"),
    [
        ("traps", (), "trap", 5),
        ("out_of_bounds", (np.zeros(16, np.int32), 3), "out-of-bounds", 6),
        ("misaligned", (np.zeros(64, np.int8), np.zeros(32, np.int32)), "misaligned", 1),
        ("shared_out_of_bounds", (np.zeros(32, np.int32), 40), "out-of-bounds", 24),
    ],
)
def test_a_fault_names_its_kind_thread_and_line_and_the_next_launch_runs(run, kernel, arguments, kind, thread):
    with pytest.raises(Fault) as caught:
        run(kernel, 1, 32, *arguments)
    assert (caught.value.kind, caught.value.thread.thread) == (kind, (thread, 0, 0))
    source = (__import__("pathlib").Path(__file__).parent / "kernels" / "features.cu").read_text().splitlines()
    start = next(n for n, line in enumerate(source, 1) if f"void {kernel}(" in line)
    assert caught.value.file == "features.cu"
    assert start <= caught.value.line <= start + 3
    x = np.ones(32, np.float32)
    run("doubling", 1, 32, x, 32)
    assert np.all(x == 2)


def test_memory_beside_an_array_is_never_touched(run):
    memory = np.zeros(32, np.int32)
    with pytest.raises(Fault):
        run("out_of_bounds", 1, 32, memory[:16], 1)
    assert not memory[16:].any()


def test_an_array_that_may_not_be_written_is_not(run):
    x = np.zeros(32, np.float32)
    x.flags.writeable = False
    with pytest.raises(Fault):
        run("doubling", 1, 32, x, 32)
    assert not x.any()


def test_a_barrier_that_too_few_reach_is_a_deadlock(run):
    with pytest.raises(Deadlock, match="barrier 1") as caught:
        run("missing_arrival", 1, 64)
    assert any("lanes 0-31" in line and "32 of 64" in line for line in caught.value.waiting)


def test_a_loop_that_waits_for_nobody_is_a_deadlock_after_some_patience(run):
    with pytest.raises(Deadlock, match=r"features\.cu"):
        run("waits_for_nobody", 2, 32, np.zeros(1, np.int32), patience=0.3)


def test_producers_arrive_and_consumers_wait_at_a_named_barrier(run):
    out = np.zeros(64, np.int32)
    run("named_barriers", 1, 128, out)
    with_order = [3 * (127 - t) if 127 - t < 64 else 0 for t in range(64, 128)]
    assert out.tolist() == with_order


def test_barriers_that_count(run):
    x = random(8).integers(-50, 50, 70, np.int32)
    out = np.zeros((3, 70), np.int32)
    run("counting_barriers", 1, 70, x, out)
    assert np.all(out[0] == (x > 0).sum())
    assert np.all(out[1] == 1)
    assert np.all(out[2] == 0)


def test_packed_halves(run):
    a, b = random(9).standard_normal((2, 64)).astype(np.float16)
    c = random(10).standard_normal(64).astype(np.float32)
    c = (c.view(np.uint32) & 0xFFFF0000).view(np.float32)
    out, d = np.zeros(64, np.float16), np.zeros(64, np.uint16)
    run("halves", 1, 32, a, b, out, (c.view(np.uint32) >> 16).astype(np.uint16), d)
    total = (a + b).astype(np.float64)
    exact = a.astype(np.float64) * b + total
    assert np.array_equal(out, exact.astype(np.float16))
    got = (d.astype(np.uint32) << 16).view(np.float32)
    exact = c.astype(np.float64) * c + c
    assert np.all(np.abs(got - exact) <= np.abs(exact) * 2.0**-8)


def test_float64(run):
    a, b = random(11).standard_normal((2, 64))
    out = np.zeros(64)
    run("doubles", 1, 64, a, b, out)
    assert np.allclose(out, a / b + np.sqrt(np.abs(a)) * b, rtol=1e-15, atol=0)


def test_64_bit_integers(run):
    a = random(12).integers(-(2**62), 2**62, 64, np.int64)
    b = random(13).integers(1, 2**40, 64, np.int64)
    out, u = np.zeros(64, np.int64), np.zeros(64, np.uint64)
    run("long_integers", 1, 64, a, b, out, u)
    for n, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        quotient = abs(x) // y * (1 if x >= 0 else -1)
        assert out[n] == quotient + (x - quotient * y) + (x >> n)
        bits = x & (2**64 - 1)
        high = bits * y >> 64
        assert int(u[n]) == high ^ bin(bits).count("1") ^ int(f"{y:064b}"[::-1], 2)


def test_atomics(run):
    i, u, f = np.zeros(4, np.int32), np.zeros(3, np.uint32), np.zeros(1, np.float32)
    d, l = np.zeros(1), np.zeros(1, np.uint64)  # noqa: E741
    run("atomics", 3, 50, i, u, f, d, l)
    assert i.tolist() == [sum(range(150)), -149, 149, int(np.bitwise_xor.reduce(np.arange(150)))]
    down = 0
    for _ in range(150):
        down = 6 if down == 0 or down > 6 else down - 1
    assert u.tolist() == [150 % 10, down, 2**32 - 1]
    assert (f[0], d[0], int(l[0])) == (75.0, 37.5, 149 << 33)


def test_threads_that_ended_count_as_arrived(run):
    out = np.zeros(64, np.int32)
    run("ends_early", 1, 64, out, 40)
    assert out.tolist() == [0 if n >= 40 else 1 if n & 1 else 2 for n in range(64)]


def test_transcendental_functions_keep_to_their_stated_errors(run):
    """CUDA C++ Programming Guide, "Mathematical Functions": ulp of precise ones, absolute errors of intrinsics."""
    x = random(14).uniform(-3, 3, 500).astype(np.float32)
    out = np.zeros((10, 500), np.float32)
    run("transcendentals", 1, 512, x, out, 500)
    x = x.astype(np.float64)
    m = np.abs(x.astype(np.float32)).astype(np.float32) + np.float32(0.1)

    def ulps(got, exact):
        return np.max(np.abs(got - exact) / np.spacing(np.abs(exact).astype(np.float32)))

    assert ulps(out[0], np.exp(x)) <= 2 + np.floor(np.abs(1.173 * 3))
    assert np.max(np.abs(out[1] - np.log(m.astype(np.float64)))) <= 2.0**-20
    assert np.max(np.abs(out[2] - np.sin(x))) <= 2.0**-21.41
    assert np.max(np.abs(out[3] - np.cos(x))) <= 2.0**-21.19
    assert ulps(out[4], np.tanh(x)) <= 2
    assert ulps(out[5], np.exp(x)) <= 2
    assert ulps(out[6], 1 / np.sqrt(m.astype(np.float64))) <= 2
    assert ulps(out[7], np.abs(x) ** float(np.float32(1.7))) <= 8
    assert ulps(out[8], np.sin(x)) <= 2
    assert ulps(out[9], np.array([math.erf(v) for v in x])) <= 2
