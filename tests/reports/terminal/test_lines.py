"""Source lines: every microsecond of the busy time stands in one of them, in file order."""

import re
from dataclasses import replace

import pytest

from drawn import drawn, part
from steps_by_hand import HEAD, LAUNCHES, PRINT, STEP, kernel, launch, op, with_launches
from undertorch.records import Idle, IdleCause, Phase, Where

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
    assert numbers == ["9", "11", "12", "13", "3", "4"]
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


def test_no_phase_of_a_line_is_cut_however_many_it_has():
    some = [Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.RECOMPUTE, Phase.ACCUMULATE, Phase.UPDATE]
    each = [replace(LAUNCHES[0], start_us=100.0 * n, time_us=100, phase=phase) for n, phase in enumerate(some)]
    text = " ".join(" ".join(rows(with_launches(*each))).split())
    for phase in some:
        assert f"{phase} 100 µs (1×)" in text


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
    return replace(with_launches(*runs), ops=tuple(ops), idle=())


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


def test_where_a_source_was_not_found_its_function_is_named_or_else_that_it_was_not_found():
    bare = replace(STEP, environment=replace(STEP.environment, sources={}))
    assert f"4  in {HEAD.function}" in "\n".join(rows(bare))
    ops = tuple(op if op.where is None else replace(op, where=replace(op.where, function="")) for op in STEP.ops)
    assert "4  (source not found)" in "\n".join(rows(replace(bare, ops=ops)))


def test_a_line_in_two_functions_stands_under_the_one_that_takes_longer():
    ops = (STEP.ops[0], replace(STEP.ops[1], where=replace(HEAD, function="<lambda>")), *STEP.ops[2:])
    text = [row.strip() for row in rows(replace(STEP, ops=ops))]
    assert "<lambda>" in text  # all three launches take 300 us, and its own is the first


def test_a_step_without_launches_has_no_lines():
    step = replace(with_launches(), idle=())
    step = replace(step, accounting=replace(step.accounting, ops_without_cost=(), ops_without_cost_count=0))
    assert rows(step)[0] == "  none"


def waited(idle_us):
    """The print waits 10 us and causes `idle_us` of idle time; nothing else causes more than 0.5 % of the step."""
    step = with_launches(*LAUNCHES[:9], launch(kernel("to_host"), (11,), Phase.OTHER, 1880, 10))
    idle = (Idle(start_us=1890, time_us=idle_us, cause=IdleCause.SYNC, where=PRINT),)
    ops = (*STEP.ops, op(11, "aten::_local_scalar_dense", PRINT, Phase.OTHER))
    return replace(step, ops=ops, idle=idle, step_us=1890 + idle_us)


def of_script(step):
    found = rows(step)
    return found[: next(number for number, row in enumerate(found) if row == "model.py")]


def test_a_line_that_launches_nothing_and_makes_the_gpu_wait_is_there():
    found = [row.strip() for row in rows(STEP)]
    assert found[found.index("13  print(loss.item())") + 1] == "+100 µs idle"


def test_idle_time_stands_at_the_line_that_causes_it():
    (row,) = [row for row in rows(waited(100)) if "idle" in row]
    assert row.strip() == "+100 µs idle · other 10 µs (1×)"


@pytest.mark.parametrize(("idle_us", "numbers"), [(900, ["9", "11", "12", "13"]), (1000, ["13", "12", "9", "11"])])
def test_where_the_gpu_is_idle_for_more_than_a_third_lines_stand_by_time_and_idle(idle_us, numbers):
    """900 of 2790 us are less than a third, 1000 of 2890 are more. Time and idle by line: 1010, 400, 250, 20."""
    step = waited(idle_us)
    assert [row.split()[0] for row in of_script(step) if re.match(r" +\d+  \S", row)] == numbers
    assert ("most time + idle first" in drawn(step)) is (idle_us == 1000)
    assert all(len(row) <= 80 for row in rows(step))
