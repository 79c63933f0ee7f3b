"""Stretches of a step: they cover the busy time once."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from steps_by_hand import NOTHING, STEP, kernel, launch, op
from undertorch.records import Phase
from undertorch.records.totals import busy_us
from undertorch.reports.when import op_starts, segments

PHASES = st.sampled_from([Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE])
LAUNCHES = st.lists(
    st.builds(
        lambda phase, start, time, device: launch(kernel("k"), (), phase, start, time, device=device),
        PHASES,
        st.integers(-50, 500),
        st.integers(0, 100),
        st.integers(0, 1),
    )
)


def by_phase(launches):
    return list(segments(launches, lambda index: launches[index].phase))


@given(LAUNCHES)
def test_segments_of_a_device_follow_one_another_and_hold_every_launch(launches):
    found = by_phase(launches)
    assert sum(one.launches for one in found) == len(launches)
    for device in (0, 1):
        own = [one for one in found if one.device == device]
        assert all(before.end_us <= after.start_us for before, after in pairwise(own))
        assert all(before.key != after.key for before, after in pairwise(own))


@given(LAUNCHES)
def test_segments_reach_at_least_over_the_busy_time(launches):
    """And over no more than that and the gaps within them."""
    found = by_phase(launches)
    covered = sum(one.end_us - one.start_us for one in found)
    assert covered >= busy_us(launches) - 1e-6


def test_the_phases_of_the_step_by_hand():
    assert [(one.key, one.start_us, one.end_us) for one in by_phase(STEP.launches)] == [
        ("forward", 0, 400),
        ("loss", 400, 500),
        ("backward", 500, 1450),
        ("clip", 1460, 1480),
        ("update", 1480, 1880),
        ("other", 1880, 1900),
    ]


def test_an_op_without_a_launch_starts_with_the_one_before_it():
    ops = tuple(op(number, "aten::view", None, Phase.FORWARD) for number in range(4))
    launches = (launch(kernel("k"), (1,), Phase.FORWARD, 30, 5), launch(kernel("k"), (3, 1), Phase.FORWARD, 70, 5))
    assert op_starts(replace(NOTHING, ops=ops, launches=launches)) == {0: 30, 1: 30, 2: 30, 3: 70}
    assert op_starts(replace(NOTHING, ops=ops)) == {}


def test_no_op_starts_before_the_one_before_it():
    """Two streams: the second op's launch overtakes the first's. What is alive after it is not alive earlier."""
    ops = tuple(op(number, "aten::add", None, Phase.FORWARD) for number in range(2))
    launches = (launch(kernel("k"), (1,), Phase.FORWARD, 10, 5), launch(kernel("k"), (0,), Phase.FORWARD, 40, 5))
    assert op_starts(replace(NOTHING, ops=ops, launches=launches)) == {0: 40, 1: 40}
