"""Source lines: every microsecond of the busy time stands in one of them, in file order."""

import re
from dataclasses import replace

import pytest

from drawn import drawn, part
from steps_by_hand import HEAD, LAUNCHES, STEP, kernel, launch, op, with_launches
from undertorch.records import Phase, Where

UNITS = {"µs": 1, "ms": 1e3, "s": 1e6}


def rows(step, width=80):
    return part(drawn(step, width), "Lines")


def figures(step, width=80):
    """(time in us, share, launches, bound) of each line's row of figures: the rows with a heat bar."""
    pattern = r"([█▉▊▋▌▍▎▏]+) +>?([\d.]+) (µs|ms|s) +([<\d.]+) +([\d,]+) +(\S+(?: [kMGTP]?B)?) +(\S+(?: \w*FLOP)?) (.*)"
    found = [re.search(pattern, row) for row in rows(step, width)]
    return [(float(m[2]) * UNITS[m[3]], m[4], int(m[5]), m[8].strip()) for m in found if m]


@pytest.mark.parametrize("width", [80, 150])
def test_the_times_shown_sum_to_the_busy_time(width):
    shown = figures(STEP, width)
    assert sum(time for time, *_ in shown) == 1890
    assert sum(launches for _, _, launches, _ in shown) == 11


def test_lines_stand_in_file_order_the_scripts_own_first_and_what_has_none_last():
    numbers = [row.split()[0] for row in rows(STEP) if re.match(r" +\d+  \S", row) and "µs" not in row]
    assert numbers == ["9", "11", "12", "3", "4"]
    names = [row.strip() for row in rows(STEP)]
    order = ["train.py", "<module>", "model.py", "forward", "no source line known"]
    assert [name for name in names if name in order] == order


def test_each_line_has_its_figures():
    """By hand: 250 of 1890 us is 13.2 %; the head is compute-bound throughout; of the memset nothing is known."""
    assert figures(STEP) == [
        (250, "13.2", 2, "memory"),
        (20, "1.1", 1, "latency"),
        (400, "21.2", 1, "memory"),
        (300, "15.9", 2, "memory"),
        (900, "47.6", 3, "compute"),
        (20, "1.1", 2, "–"),
    ]


def test_forward_and_backward_stand_apart():
    text = "\n".join(rows(STEP))
    assert "forward 300 µs (1×) · backward 600 µs (2×)" in text
    assert "loss 100 µs (1×) · backward 150 µs (1×)" in text
    assert "update 400 µs (1×)" in text


def test_kernels_stand_beneath_their_line_with_geometry_occupancy_and_bound():
    found = rows(STEP)
    at = next(number for number, row in enumerate(found) if "return self.head(h)" in row)
    assert found[at + 4].split() == ["600", "µs", "2×", "nvjet_backward", "~132", "×", "384", "19", "%", "compute"]
    assert found[at + 5].split() == ["300", "µs", "1×", "nvjet_forward", "~132", "×", "384", "19", "%", "compute"]


def test_bytes_that_are_partly_known_are_marked():
    """The norm's backward has none: 400 MB are what its forward moves."""
    found = rows(STEP)
    at = next(number for number, row in enumerate(found) if "h = self.norm(x)" in row)
    assert ">400 MB" in found[at + 1]
    assert ">700 MFLOP" in found[at + 1]
    at = next(number for number, row in enumerate(found) if "return self.head(h)" in row)
    assert " 270 MB" in found[at + 1]


def test_a_line_with_an_op_of_unknown_kernels_says_so_and_its_time_is_a_least_one():
    """mylib::mystery is called in the line of the head, whose known launches take 900 µs."""
    found = rows(STEP)
    at = next(number for number, row in enumerate(found) if "return self.head(h)" in row)
    assert ">900 µs" in found[at + 1]
    assert found[at + 3].strip() == "time not known: mylib::mystery"
    assert sum(">" in row.split("µs")[0] for row in found if "µs" in row) == 1


def test_a_line_of_which_no_kernel_is_known_is_there():
    """Twice the op in a line of its own, train.py:7; launches there are none."""
    where = Where(file="train.py", line=7, function="<module>")
    mystery = [op(number, "mylib::mystery", where, Phase.FORWARD) for number in (20, 21)]
    found = rows(replace(STEP, ops=(*STEP.ops[:-1], *mystery)))
    at = next(number for number, row in enumerate(found) if "for x, y in batches:" in row)
    assert found[at].split()[0] == "7"
    assert found[at + 1].strip() == "time not known: mylib::mystery (2×)"


def test_on_a_wide_screen_source_and_figures_share_a_row():
    row = next(row for row in rows(STEP, 150) if "optimizer.step()" in row)
    assert "400 µs" in row
    row = next(row for row in rows(STEP, 80) if "optimizer.step()" in row)
    assert "400 µs" not in row


def test_a_line_bound_by_several_things_says_by_what_most_and_how_much():
    """200 us of 300 wait for memory."""
    memory, arithmetic = replace(LAUNCHES[6], start_us=0), replace(LAUNCHES[1], ops=(0,), start_us=200, time_us=100)
    ((*_, bound),) = figures(with_launches(memory, arithmetic))
    assert bound == "memory 67 %"


def many_lines():
    """A line of 100 ms and twenty of 10 us each in the same file, below 0.1 % of the busy time each."""
    ops = [
        op(n, "aten::add", Where(file="train.py", line=n + 1, function="<module>"), Phase.FORWARD) for n in range(21)
    ]
    times = [100_000] + 20 * [10]
    starts = [sum(times[:n]) for n in range(21)]
    runs = [launch(kernel("k"), (n,), Phase.FORWARD, starts[n], times[n]) for n in range(21)]
    return replace(with_launches(*runs), ops=tuple(ops))


def test_short_lines_are_summed_up_and_counted():
    text = "\n".join(rows(many_lines()))
    assert "and 20 shorter lines: 200 µs, 20 launches" in text


def test_more_kernels_than_are_shown_are_summed_up():
    """Six kernels of one line, 60 to 10 us: three are shown, the rest is 30 + 20 + 10 us."""
    runs = [launch(kernel(f"kernel_{n}"), (1,), Phase.FORWARD, n * 100, 60 - 10 * n) for n in range(6)]
    text = "\n".join(rows(with_launches(*runs)))
    assert "kernel_2" in text
    assert "kernel_3" not in text
    assert re.search(r"60 µs +3× 3 more kernels", text)


def test_launches_that_overlap_count_their_own_part_only():
    """100–400 us and 300–500 us on another stream: 300 and 100 us."""
    first, second = LAUNCHES[1], replace(LAUNCHES[2], start_us=300, time_us=200, stream=13)
    assert sorted(time for time, *_ in figures(with_launches(first, second))) == [100, 300]


def test_a_source_that_was_not_found_is_said():
    bare = replace(STEP, environment=replace(STEP.environment, sources={}))
    assert "4  (source not found)" in "\n".join(rows(bare))


def test_a_line_in_two_functions_stands_under_the_one_that_takes_longer():
    ops = (STEP.ops[0], replace(STEP.ops[1], where=replace(HEAD, function="<lambda>")), *STEP.ops[2:])
    text = [row.strip() for row in rows(replace(STEP, ops=ops))]
    assert "<lambda>" in text  # all three launches take 300 us, and its own is the first


def test_a_step_without_launches_has_no_lines():
    step = with_launches()
    step = replace(step, accounting=replace(step.accounting, ops_without_cost=(), ops_without_cost_count=0))
    assert rows(step)[0] == "  none"
