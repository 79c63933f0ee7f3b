"""Roofline, memory and their axes: points that can be worked out by hand stand where they should."""

import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged import paged
from steps_by_hand import NOTHING, STEP, kernel, launch, op, with_launches
from undertorch import gpus
from undertorch.records import Kind, Math, Memory, MemorySample, Origin, Phase
from undertorch.reports.page.axes import linear_ticks, log_axis, tidy
from undertorch.reports.page.memory import POINTS, memory_chart, thinned
from undertorch.reports.page.rates import rates
from undertorch.reports.page.roofline import roofline
from undertorch.reports.page.span import span
from undertorch.reports.page.tables import kernel_rows
from undertorch.reports.terminal.kernels import rates as in_terminal
from undertorch.reports.terminal.numbers import percent
from undertorch.reports.terminal.runs import runs

H200 = gpus.find("H200")


def one_kernel(read, written, flops, math, time):
    run = launch(kernel("k", read=read, written=written, flops=flops, math=math), (0,), Phase.FORWARD, 0, time)
    return roofline(runs(with_launches(run)), H200)


def test_a_kernel_at_the_ridge_with_both_at_their_peak_stands_in_the_corner_of_the_roof():
    """4.8 GB in 1 ms is the H200's bandwidth; 989.4 GFLOP in 1 ms its bfloat16 peak: 206 FLOPs a byte."""
    found = one_kernel(2_400_000_000, 2_400_000_000, 989_400_000_000, Math.TENSOR_BF16, 1000)
    (dot,), (roof,) = found.dots, found.roofs
    assert roof.ridge_text == "206"
    assert roof.text == "989 TFLOP/s tensor-bf16"
    assert (dot.left, dot.up) == pytest.approx((roof.ridge, roof.up))
    assert (found.slope.right, found.slope.right_up) == pytest.approx((roof.ridge, roof.up))


@given(st.floats(1e-3, 200))
def test_a_kernel_at_the_memorys_bandwidth_stands_on_the_slope(intensity):
    """4.8 GB in 1 ms, with that many FLOPs a byte; in the plot the slope is a straight line."""
    found = one_kernel(4_800_000_000, 0, max(1, round(4.8e9 * intensity)), Math.TENSOR_BF16, 1000)
    (dot,), slope = found.dots, found.slope
    along = (dot.left - slope.left) / (slope.right - slope.left)
    assert dot.up == pytest.approx(slope.left_up + along * (slope.right_up - slope.left_up), abs=1e-6)


@given(st.integers(1, 10**12), st.integers(1, 10**15), st.floats(1, 1e6))
def test_no_kernel_within_the_peaks_stands_above_its_roof(moved, flops, slack):
    """Roofline: rate ≤ min(peak, intensity × bandwidth). Time is at least what each of them takes."""
    best = max(moved / 4.8e12, flops / 989.4e12) * 1e6
    found = one_kernel(moved, 0, flops, Math.TENSOR_BF16, best * slack)
    if found.x is None:
        return
    (dot,), (roof,) = found.dots, found.roofs
    on_slope = found.y.at(max(4.8e12 * 10 ** (found.x.low + dot.left / 100 * (found.x.high - found.x.low)), 1e-300))
    assert dot.up <= min(roof.up, on_slope) + 1e-6


def test_a_kernel_without_flops_stands_beside_the_roofline():
    """2.4 GB in 1 ms: 2.4 TB/s, on a logarithmic axis from 1 to 10 TB/s."""
    found = one_kernel(1_200_000_000, 1_200_000_000, 0, None, 1000)
    assert found.dots == ()
    (dot,) = found.moving
    assert dot.up == pytest.approx(38.02, abs=0.01)  # log10(2.4)
    assert found.bandwidth.at == pytest.approx(68.12, abs=0.01)  # log10(4.8)


def test_what_has_no_place_is_counted():
    found = roofline(runs(STEP), H200)
    assert found.left_out == 2
    assert found.left_out_us == 210  # the norm's gradient and somebody's kernel: bytes and FLOPs unknown
    assert "2 launches (210 µs) have no place here" in paged(STEP, gpus={"H200": H200}).one(id="s0-roofline").text


def test_the_area_of_a_dot_goes_with_its_time():
    launches = [
        launch(kernel(f"k{time}", read=10**9, written=0, flops=10**9, math=Math.FP32), (0,), Phase.FORWARD, 0, time)
        for time in (100, 400)
    ]
    small, large = sorted(
        dot.across
        for dot in roofline(
            runs(with_launches(launches[0], replace(launches[1], start_us=100))),
            H200,
        ).dots
    )
    assert large == pytest.approx(2 * small)


def test_without_a_sheet_there_are_dots_and_no_roofs():
    found = roofline(runs(STEP), None)
    assert found.dots
    assert (found.roofs, found.slope, found.bandwidth) == ((), None, None)


def test_rates_of_a_kernel():
    """60 GFLOP and 90 MB in 300 µs: 200 TFLOP/s, 300 GB/s, 667 FLOPs a byte."""
    matmul = STEP.launches[1].kernel
    found = rates(matmul, 300, H200)
    assert found.flops_a_second == pytest.approx(2e14)
    assert found.bytes_a_second == pytest.approx(3e11)
    assert found.intensity == pytest.approx(666.7, abs=0.1)
    assert found.reached == "200 TFLOP/s"
    assert found.of_peak == "20.2 % of tensor-bf16 peak"
    assert rates(matmul, 300, None).of_peak is None
    unknown = rates(STEP.launches[6].kernel, 300, H200)
    assert (unknown.share, unknown.reached, unknown.intensity) == (None, None, None)


@given(st.lists(st.floats(1e-6, 1e18), min_size=1))
def test_a_logarithmic_axis_holds_its_values(values):
    axis = log_axis(values)
    assert all(axis.holds(value) for value in values)
    assert [axis.at(value) for value in sorted(values)] == sorted(axis.at(value) for value in values)
    assert axis.at(10.0**axis.low / 100) == 0
    assert axis.at(10.0**axis.high * 100) == 100


@given(st.floats(1e-3, 1e15), st.integers(2, 10))
def test_ticks_are_round_few_and_within(most, about):
    ticks = linear_ticks(most, about)
    assert ticks[0] == 0
    assert ticks[-1] <= most * 1.0002
    assert about / 2 - 1 <= len(ticks) <= about + 1
    step = ticks[1] - ticks[0] if len(ticks) > 1 else None
    assert step is None or f"{step:.1e}"[:3] in ("1.0", "2.0", "2.5", "5.0")


def test_a_ticks_figure_has_no_idle_zeros():
    assert [tidy(text) for text in ("1.00 TB", "10.0 TB", "100 TB", "2.50 TB", "0 B")] == [
        "1 TB",
        "10 TB",
        "100 TB",
        "2.5 TB",
        "0 B",
    ]


def chart(samples, gpu=H200, start=0, peak=None, peak_op=None):
    """Of ops that each have a launch of 100 µs."""
    ops = tuple(op(number, "aten::add", None, Phase.FORWARD) for number in range(4))
    launches = tuple(launch(kernel("k"), (number,), Phase.FORWARD, 100 * number, 100) for number in range(4))
    memory = Memory(
        peak_bytes=peak,
        peak_op=peak_op,
        start_bytes=start,
        samples=tuple(MemorySample(op=number, live_bytes=alive) for number, alive in samples),
        origin=Origin.COMPUTED,
    )
    step = replace(NOTHING, ops=ops, launches=launches, memory=memory, step_us=400)
    return memory_chart(step, runs(step), gpu, span(step))


def test_memory_steps_at_the_start_of_each_ops_launch():
    """100, 200 and 100 bytes from 0, 100 and 300 of 400 µs; the highest stands at 1/1.08 of the plot."""
    found = chart([(0, 100), (1, 200), (3, 100)], gpu=None, start=50, peak=200, peak_op=1)
    top = 100 / 1.08
    heights = [100 - top / 4, 100 - top / 2, 100 - top, 100 - top / 2, 100 - top / 2]
    drawn = re.findall(r"(?:M|H)([\d.]+)(?: |V)([\d.]+)", found.curve)
    assert [float(left) for left, _ in drawn] == [0, 0, 25, 75, 100]
    assert [float(down) for _, down in drawn] == pytest.approx(heights, abs=0.01)
    assert found.peak == pytest.approx((25, top))
    assert found.limit is None


def test_the_gpus_memory_is_in_sight_where_the_peak_comes_near_it():
    limit = H200.memory_bytes
    near = chart([(0, limit // 2)], peak=limit // 2, peak_op=0)
    assert near.limit == pytest.approx(100 / 1.08)
    over = chart([(0, limit * 2)], peak=limit * 2, peak_op=0)
    assert over.limit == pytest.approx(50 / 1.08)
    assert chart([(0, limit // 100)]).limit is None


def test_without_a_figure_for_the_start_the_curve_begins_with_its_first_sample():
    """And not with nothing: unknown is no zero."""
    found = chart([(1, 200), (2, 100)], gpu=None, start=None)
    assert found.curve.startswith(f"M0.00 {100 - 100 / 1.08:.2f}")


def test_no_samples_no_chart():
    assert chart([]) is None


@given(st.integers(0, 2**32), st.integers(POINTS + 1, 5 * POINTS))
def test_thinning_keeps_the_least_the_most_and_both_ends(seed, length):
    random = Random(seed)
    heights = [random.uniform(0, 100) for _ in range(length)]
    points = [(float(index), height) for index, height in enumerate(heights)]
    kept = thinned(points)
    assert len(kept) <= POINTS + 4
    assert kept == sorted(kept)
    assert set(kept) <= set(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert max(height for _, height in kept) == max(heights)
    assert min(height for _, height in kept) == min(heights)


def test_a_kernel_of_several_shapes_has_one_rate_which_the_terminal_shows_too():
    """1 GB in 250 us and 0.2 GB in 150 us: 1.2 GB in 400 us, 3 TB/s; the longest launch alone reaches 4."""
    some = (
        launch(kernel("k", read=10**9), (1,), Phase.FORWARD, 0, 250),
        launch(kernel("k", read=2 * 10**8), (1,), Phase.FORWARD, 250, 150),
    )
    of_all = runs(with_launches(*some))
    (row,) = kernel_rows(of_all, H200)
    assert row.rates.bytes_a_second == pytest.approx(3e12)
    assert in_terminal(of_all, H200) == [f"{row.rates.reached}, {percent(row.rates.share)} of peak"]


def test_bytes_over_pcie_are_held_against_the_link():
    """32 MB in 1 ms: half of 64 GB/s."""
    copy = kernel("Memcpy DtoH (Device -> Pinned)", Kind.MEMCPY, grid=None, block=None, written=32_000_000)
    assert rates(copy, 1000, H200).of_peak == "50.0 % of the link's bandwidth"
