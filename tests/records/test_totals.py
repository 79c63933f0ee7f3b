"""Busy time is the union of the launches' times, each device for itself; phases and lines share all of it out."""

import ast
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps_by_hand import OPS, STEP, kernel, launch, with_launches
from undertorch.records import Kind, Phase
from undertorch.records.totals import busy_us, lines, phases_us, shares_us, source_line, source_rows


def run(start, time, stream=7, device=0, phase=Phase.FORWARD, ops=(0,)):
    return launch(kernel("k"), ops, phase, start, time, stream=stream, device=device)


def test_time_that_two_streams_share_counts_at_the_launch_that_began_first():
    """A 0–10, B 5–20 on another stream: B's own part is 10–20; C 6–8 lies within both; D 30–31 after a gap."""
    launches = [run(0, 10), run(5, 15, stream=13), run(6, 2), run(30, 1)]
    assert shares_us(launches) == [10, 10, 0, 1]
    assert busy_us(launches) == 21


def collective(start, time, device=0):
    return launch(kernel("nccl", Kind.COLLECTIVE), (0,), Phase.COMMUNICATE, start, time, stream=20, device=device)


def test_a_collective_has_the_time_in_which_nothing_else_runs():
    """It lasts 0–100, and 20–50 and 70–120 compute: 40 are its own, though it began first; of another, 90–130, 10."""
    launches = [collective(0, 100), run(20, 30), run(70, 50), collective(90, 40)]
    assert shares_us(launches) == [40, 30, 50, 10]
    assert busy_us(launches) == 130


def test_compute_on_another_device_takes_nothing_from_a_collective():
    assert shares_us([collective(0, 10), run(2, 5, device=1)]) == [10, 5]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20), st.booleans(), st.integers(0, 1)), max_size=12))
def test_shares_are_what_a_count_of_every_microsecond_gives(spans):
    """Whole microseconds on two devices: each that anything covers is one launch's, a collective's only where no other
    kernel runs; among those the first to begin."""
    launches = [(collective if comm else run)(start, time, device=device) for start, time, comm, device in spans]
    counted = [0] * len(launches)
    for device in (0, 1):
        for moment in range(60):
            there = [
                (comm, start, place)
                for place, (start, time, comm, on) in enumerate(spans)
                if on == device and start <= moment < start + time
            ]
            if there:
                counted[min(there)[2]] += 1
    found = shares_us(launches)
    assert sum(found) == sum(counted)
    for comm in (False, True):
        mine = [place for place, one in enumerate(spans) if one[2] is comm]
        assert sum(found[place] for place in mine) == sum(counted[place] for place in mine)


def test_the_order_given_does_not_matter_to_the_shares():
    assert shares_us([run(5, 15, stream=13), run(0, 10)]) == [10, 10]


def test_two_devices_do_not_hide_each_other():
    launches = [run(0, 10), run(0, 10, device=1), run(5, 10, device=1)]
    assert shares_us(launches) == [10, 10, 5]
    assert busy_us(launches) == 25


def test_no_launches_are_busy_for_no_time():
    assert shares_us([]) == []
    assert busy_us([]) == 0
    assert phases_us([]) == {}
    assert lines(with_launches()) == ()


def test_phases_of_the_step_by_hand_sum_to_its_busy_time():
    assert busy_us(STEP.launches) == 1890
    assert phases_us(STEP.launches) == {
        Phase.FORWARD: 400,
        Phase.LOSS: 100,
        Phase.BACKWARD: 950,
        Phase.CLIP: 20,
        Phase.UPDATE: 400,
        Phase.OTHER: 20,
    }


def test_lines_of_the_step_by_hand_are_ordered_by_time_and_what_has_none_is_last():
    found = [(line.file, line.line, line.time_us, line.launches) for line in lines(STEP)]
    assert found == [
        ("model.py", 4, 900, 3),
        ("train.py", 12, 400, 1),
        ("model.py", 3, 300, 2),
        ("train.py", 9, 250, 2),
        ("train.py", 11, 20, 1),
        (None, 0, 20, 2),
    ]


def test_what_has_no_line_is_last_however_long_it_takes():
    found = lines(with_launches(run(0, 10), run(10, 1000, ops=())))
    assert [(line.file, line.line, line.time_us) for line in found] == [("model.py", 3, 10), (None, 0, 1000)]


def test_lines_that_tie_stand_as_in_the_source():
    """Four launches a line, from the last line to the first and back, of a third of a microsecond each: their sums
    differ in the last bits."""
    one = OPS[0]
    ops = [replace(one, id=n, where=replace(one.where, line=n + 1)) for n in range(8)]
    order = [*range(8)][::-1] * 2 + [*range(8)] * 2
    launches = [run(n * 100.7, 100 / 3, ops=(number,)) for n, number in enumerate(order)]
    assert [line.line for line in lines(replace(with_launches(*launches), ops=tuple(ops)))] == [*range(1, 9)]


def test_a_line_sums_the_bytes_that_are_known_and_names_its_source():
    norm = next(line for line in lines(STEP) if line.line == 3)
    assert norm.source == "h = self.norm(x)"
    assert norm.min_bytes == 400_000_000  # of its two launches one is unknown
    assert norm.flops == 700_000_000


def test_a_line_of_which_nothing_is_known_has_none_and_not_zero():
    unknown = replace(kernel("k"), min_bytes_read=None, min_bytes_written=None, flops=None)
    (line,) = lines(with_launches(replace(run(0, 1), kernel=unknown)))
    assert line.min_bytes is None
    assert line.flops is None


@pytest.mark.parametrize(("line", "text"), [(1, "def f():"), (2, "return 1"), (3, None), (0, None), (-1, None)])
def test_source_lines_count_from_one(line, text):
    assert source_line({"a.py": "def f():\n    return 1\n"}, "a.py", line) == text
    assert source_line({"a.py": "def f():\n    return 1\n"}, "b.py", line) is None


def test_a_form_feed_ends_no_line():
    """Python's own count: the tokenizer ends lines at \\n, \\r\\n and \\r alone."""
    text = "a = 1\n\x0c\nb = '\u2028'\r\nc = 3\rd = 4\n"
    counted = {node.targets[0].id: node.lineno for node in ast.parse(text).body}
    assert {name: source_line({"a.py": text}, "a.py", line)[0] for name, line in counted.items()} == dict(
        zip("abcd", "abcd", strict=True)
    )


def test_rows_end_where_python_ends_a_line():
    """A form feed, a vertical tab and U+2028 end a line for str.splitlines, and for Python's own parser none."""
    assert source_rows("a\fb\r\nc\rd\ve\u2028f\n\ng") == ["a\fb", "c", "d\ve\u2028f", "", "g"]
    assert source_rows("") == []
    assert source_rows("\n") == [""]
    assert source_rows("a\n") == ["a"]


launches_on_ticks = st.lists(
    st.builds(
        run,
        start=st.integers(0, 40),
        time=st.integers(0, 15),
        stream=st.sampled_from([7, 13]),
        device=st.sampled_from([0, 1]),
        phase=st.sampled_from(Phase),
        ops=st.one_of(st.just(()), st.tuples(st.integers(0, len(OPS) - 1))),
    ),
    max_size=12,
)


@given(launches_on_ticks)
def test_busy_time_is_the_number_of_ticks_in_which_a_device_runs_anything(launches):
    ticks = {(one.device, tick) for one in launches for tick in range(int(one.start_us), int(one.end_us))}
    assert busy_us(launches) == len(ticks)


@given(launches_on_ticks)
def test_phases_and_lines_sum_to_the_busy_time(launches):
    step = with_launches(*launches)
    assert sum(phases_us(launches).values()) == busy_us(launches)
    assert sum(line.time_us for line in lines(step)) == busy_us(launches)
    assert sum(line.launches for line in lines(step)) == len(launches)
