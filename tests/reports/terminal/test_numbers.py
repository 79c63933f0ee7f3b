"""Figures for people: rounded to three digits by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from steps_by_hand import kernel
from undertorch.records import Origin
from undertorch.reports.terminal.numbers import bar, count, dims, flops, geometry, percent, ratio, size, time
from undertorch.reports.terminal.text import cut, cut_middle, padded


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "–"),
        (0, "0 µs"),
        (0.5, "0.50 µs"),
        (7.314, "7.31 µs"),
        (10, "10 µs"),
        (12.34, "12.3 µs"),
        (123.4, "123 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (1234.5, "1.23 ms"),
        (92_399, "92.4 ms"),
        (999_600, "1.00 s"),
        (4_200_000_000, "4200 s"),
    ],
)
def test_time(us, text):
    assert time(us) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (1000, "1.00 kB"), (38_200_000_000, "38.2 GB"), (4.8e12, "4.80 TB")],
)
def test_size(amount, text):
    assert size(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(None, "–"), (0, "0 FLOP"), (3.714e12, "3.71 TFLOP"), (6e22, "60000 EFLOP")]
)
def test_flops(amount, text):
    assert flops(amount) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0, "0.0 %"),
        (0.0004, "<0.1 %"),
        (0.0005, "0.1 %"),
        (0.132, "13.2 %"),
        (0.9994, "99.9 %"),
        (0.9996, "100 %"),
        (1, "100 %"),
        (1.2, "120.0 %"),
    ],
)
def test_percent(share, text):
    assert percent(share) == text


def test_counts_carry_the_noun_that_fits():
    assert count(1234) == "1,234"
    assert count(1, "launch", "launches") == "1 launch"
    assert count(0, "launch", "launches") == "0 launches"
    assert count(2, "op") == "2 ops"
    assert count(None) == "–"


def test_dims_leave_out_what_is_one_at_the_end():
    assert [dims(d) for d in [(132, 1, 1), (32, 12, 1), (1, 1, 4), (1, 1, 1)]] == ["132", "(32,12)", "(1,1,4)", "1"]


def test_geometry_marks_a_predicted_tile_and_a_memset_has_none():
    assert geometry(kernel("k", grid=(32, 12, 1), block=(128, 1, 1))) == "(32,12) × 128"
    assert geometry(kernel("k", geometry=Origin.PREDICTED)) == "~1024 × 256"
    assert geometry(kernel("Memset", grid=None, block=None)) == "–"


def test_a_ratio_of_the_unknown_is_unknown():
    assert ratio(None, 1) is None
    assert ratio(1, None) is None
    assert ratio(1, 0) is None
    assert ratio(0, 4) == 0


def test_bars_are_eighths_of_a_cell():
    assert bar(1, 8) == "████████"
    assert bar(0.5, 8) == "████"
    assert bar(1 / 16, 8) == "▌"
    assert bar(0, 8) == ""
    assert bar(1e-9, 8) == "▏"  # what is there is seen


@given(st.text(max_size=30), st.integers(1, 20))
def test_what_is_cut_fits_its_cells(text, width):
    text = "".join(text.split())
    assert cell_len(cut(text, width)) <= width
    assert cell_len(cut_middle(text, width)) <= width
    assert cell_len(padded(cut(text, width), width)) == width


def test_names_of_kernels_keep_both_ends():
    name = "vectorized_elementwise_kernel<4>"
    assert cut_middle(name, len(name)) == name
    assert cut_middle(name, 21) == "vectorized…kernel<4>"[:10] + "…" + name[-10:]
    assert cut("abcdef", 4) == "abc…"
