"""Advice as the terminal shows it."""

from dataclasses import replace

from drawn import drawn, one_row, part
from steps_by_hand import CLIP, HEAD, NORM, STEP
from undertorch.records import Advice, Where

FUSE = Advice(
    kind="fuse-norm", lines=(NORM, HEAD, CLIP), saves_us=189, saves_bytes=2_000_000_000, what="Do this.", op=None
)
LAUNCHES = Advice(kind="launching", lines=(), saves_us=500, saves_bytes=0, what="Do that.", op=None)


def shown(*advice, width=80):
    return one_row(part(drawn(replace(STEP, advice=advice), width), "Advice"))


def test_each_stands_with_its_saving_its_share_of_the_busy_time_and_its_places():
    """189 of 1890 µs."""
    text = shown(FUSE)
    assert "189 µs 10.0 % Do this. fuse-norm · 2.00 GB less moved · model.py:3, 4; train.py:11" in text


def test_time_in_which_the_gpu_is_idle_is_a_share_of_the_step():
    """500 of 2000 µs; and what saves GPU time helps only after that."""
    text = shown(LAUNCHES, FUSE)
    assert "500 µs 25.0 % Do that. launching · –" in text
    assert "The GPU waits for launches" in text
    assert "The GPU waits for launches" not in shown(FUSE)


def test_of_many_places_some_are_named_and_all_are_counted():
    many = replace(FUSE, lines=tuple(Where(file="a.py", line=n, function="f") for n in range(1, 8)))
    assert "a.py:1, 2, 3, 4 and 3 more lines" in shown(many)


def test_where_nothing_is_advised_the_part_is_left_out():
    assert "Advice" not in drawn(STEP)


def test_it_stands_between_the_lines_and_the_kernels():
    text = drawn(replace(STEP, advice=(FUSE,)))
    assert text.index("\nLines") < text.index("\nAdvice") < text.index("\nKernels")


def test_no_row_is_wider_than_the_screen():
    for width in (80, 120):
        rows = drawn(replace(STEP, advice=(FUSE, LAUNCHES)), width).splitlines()
        assert max(map(len, rows)) <= width
