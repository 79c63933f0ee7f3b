"""The source listing: every line of a file is shown once or lies in a gap, and the figures are the lines' own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged import paged
from steps_by_hand import STEP, with_launches
from undertorch import gpus
from undertorch.records import IdleCause, Where
from undertorch.reports.page.listing import AROUND, SHORTEST_GAP, Gap, HotLine, QuietLine, listing, shown_lines
from undertorch.reports.page.span import span
from undertorch.reports.terminal.runs import runs

H200 = gpus.find("H200")


def listed(step):
    return listing(step, runs(step), H200, span(step), "s0")


def on_lines(text, numbers, file="long.py"):
    """STEP's launches on those lines of one file, by turns."""
    ops = tuple(
        replace(op, where=Where(file=file, line=numbers[op.id % len(numbers)], function="f")) for op in STEP.ops
    )
    environment = replace(STEP.environment, script=file, sources={file: text})
    return replace(STEP, ops=ops, environment=environment)


def numbers_of(rows):
    """The line numbers that rows stand for, in order."""
    for row in rows:
        if isinstance(row, Gap):
            yield from range(row.first, row.last + 1)
        else:
            yield row.number


@given(st.data())
def test_each_line_is_a_row_or_in_one_gap_in_order(data):
    length = data.draw(st.integers(1, 300))
    numbers = data.draw(st.lists(st.integers(1, length), min_size=1, max_size=8, unique=True))
    text = "".join(data.draw(st.sampled_from(["x = 1\n", "def f():\n", "    y = 2\n", "\n"])) for _ in range(length))
    (file, *_) = listed(on_lines(text, numbers))
    assert list(numbers_of(file.rows)) == list(range(1, length + 1))
    assert {row.number for row in file.rows if isinstance(row, HotLine)} <= set(numbers)
    assert all(row.count >= SHORTEST_GAP for row in file.rows if isinstance(row, Gap))


@given(st.integers(1, 400), st.lists(st.integers(1, 400), max_size=6))
def test_lines_around_a_busy_one_stay(length, busy_lines):
    rows = ["x"] * length
    shown = shown_lines(rows, busy_lines)
    for number in busy_lines:
        if number <= length:
            assert set(range(max(1, number - AROUND), min(length, number + AROUND) + 1)) <= shown
    assert shown <= set(range(1, length + 1))


def test_the_def_and_class_of_a_busy_line_stay():
    rows = [
        "class Model:",
        *["    a = 1"] * 20,
        "    def forward(self, x):",
        *["        x = x"] * 20,
        "        if x:",
        *["            x = x"] * 20,
        "            x = busy(x)",
    ]
    shown = shown_lines(rows, [len(rows)])
    assert {1, 22} <= shown
    assert 10 not in shown
    assert 43 not in shown  # the `if` is no definition


def test_a_file_of_20000_lines_has_few_rows():
    text = "\n".join(f"value_{n} = compute({n})" for n in range(1, 20_001))
    (file, *_) = listed(on_lines(text, [37, 5000, 19_999]))
    assert len(file.rows) < 30
    assert sum(row.count for row in file.rows if isinstance(row, Gap)) > 19_900


def test_lines_sum_to_the_busy_time():
    files = listed(STEP)
    assert sum(file.time_us for file in files) == pytest.approx(1890)
    assert [file.name for file in files] == ["train.py", "model.py", None]
    hot = {(file.name, row.number): row for file in files for row in file.rows if isinstance(row, HotLine)}
    assert hot["model.py", 4].seen.line.time_us == 900
    assert hot["model.py", 4].heat == 1
    assert hot["train.py", 9].share == pytest.approx(250 / 1890)
    assert hot["train.py", 12].phases[0].kernels[0].kernel.name == "FusedAdamW"


def test_a_line_opens_into_its_kernels_by_phase():
    """The head: one matmul forward, two launches of another backward."""
    (row,) = [
        row for file in listed(STEP) for row in file.rows if isinstance(row, HotLine) and row.seen.line.time_us == 900
    ]
    forward, backward = row.phases
    assert [(one.kernel.name, one.launches) for one in forward.kernels] == [("nvjet_forward", 1)]
    assert [(one.kernel.name, one.launches, one.time_us) for one in backward.kernels] == [("nvjet_backward", 2, 600)]


@pytest.mark.parametrize(("smaller", "folded"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_kernels_that_hardly_count_are_folded_where_there_are_several(smaller, folded):
    """One of 97 µs and some of 1 µs each, on one line."""
    launch = STEP.launches[0]
    times = [97.0, *[1.0] * smaller]
    step = with_launches(
        *(
            replace(launch, kernel=replace(launch.kernel, name=f"k{n}"), start_us=100.0 * n, time_us=time)
            for n, time in enumerate(times)
        )
    )
    (row,) = [row for file in listed(step) for row in file.rows if isinstance(row, HotLine)]
    assert (len(row.phases[0].kernels), len(row.phases[0].small)) == (1 + smaller - folded, folded)


def test_kernels_past_the_fortieth_are_counted():
    """45 kernels of 1 µs each on one line."""
    launch = STEP.launches[0]
    step = with_launches(
        *(
            replace(launch, kernel=replace(launch.kernel, name=f"k{n}"), start_us=float(n), time_us=1.0)
            for n in range(45)
        )
    )
    (row,) = [row for file in listed(step) for row in file.rows if isinstance(row, HotLine)]
    (part,) = row.phases
    assert len(part.kernels) + len(part.small) == 40
    assert (part.rest, part.rest_launches, part.rest_us) == (5, 5, 5.0)
    assert "and 5 more kernels: 5 µs, 5 launches" in paged(step, gpus={"H200": H200}).text


def test_lines_that_a_changed_file_does_not_have_are_still_listed():
    step = on_lines("only = 1\n", [1, 7])
    (file, *_) = listed(step)
    assert [row.number for row in file.rows] == [1, 7]
    assert "the file has no such line now" in paged(step).text


def test_a_file_without_its_text_lists_its_lines():
    step = replace(STEP, environment=replace(STEP.environment, sources={}))
    root = paged(step)
    assert "in forward" in root.text
    assert "its text is not known" in root.text


def test_lines_say_what_else_happens_there():
    """The peak is reached by an op of train.py:9; train.py:13 has no launch; a value is assumed and the GPU waits."""
    marked = {
        row.number: [mark.text for mark in row.marks]
        for file in listed(STEP)
        if file.name == "train.py"
        for row in file.rows
        if isinstance(row, HotLine | QuietLine) and row.marks
    }
    assert marked == {9: ["memory peak 30.4 GB"], 13: ["assumed 3×", "GPU waits for the script: 100 µs"]}


def test_the_gpus_own_gaps_are_no_lines_fault():
    step = replace(STEP, idle=tuple(replace(idle, cause=IdleCause.GAP) for idle in STEP.idle))
    said = [mark.text for file in listed(step) for row in file.rows if not isinstance(row, Gap) for mark in row.marks]
    assert not any("waits" in text for text in said)
