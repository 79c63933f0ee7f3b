"""Ranks together, on steps written down by hand whose truth is worked out beside them. Times are microseconds."""

import random
from dataclasses import replace

import pytest

from steps.ranks.by_hand import Comm, rank
from undertorch.steps.ranks import join_ranks, why_not_one_run
from undertorch.steps.ranks.intervals import Union


def two(skew: float = 0.0):
    """An all-reduce that takes 20 once both have come.

    Rank 0 computes 0–100 and comes at 100; rank 1 computes 0–130 and comes at 130: rank 0 waits 30. Both end at 150.
    From 140 to 180 rank 1 computes on, so that of its 20 it has 10 exposed; rank 0 has all its 50 exposed.
    """
    zero = rank(0, [(0, 100)], [Comm(start=100, time=50, line=7, bytes=4096)], clock=1000.0)
    one = rank(1, [(0, 130), (140, 40)], [Comm(start=130, time=20, line=7, bytes=4096)], clock=1000.0 + skew)
    return [zero, one]


def test_who_waits_for_whom_in_one_all_reduce():
    report = join_ranks(two())
    zero, one = report.ranks
    assert (zero.waited_us, zero.waited_for_us) == (30, 0)
    assert (one.waited_us, one.waited_for_us) == (0, 30)
    (wait,) = report.waits
    assert (wait.rank, wait.for_rank, wait.time_us, wait.collectives) == (0, 1, 30, 1)
    (collective,) = report.collectives
    assert (collective.last, collective.spread_us, collective.bytes) == (1, 30, 4096)


def test_communication_and_what_of_it_compute_hides():
    zero, one = join_ranks(two()).ranks
    assert (zero.step_us, zero.busy_us, zero.compute_us) == (150, 150, 100)
    assert (zero.communication_us, zero.exposed_us, zero.exposed_waiting_us) == (50, 50, 30)
    assert (one.step_us, one.busy_us, one.compute_us) == (180, 180, 170)
    assert (one.communication_us, one.exposed_us, one.exposed_waiting_us) == (20, 10, 0)


def test_a_line_has_the_mean_of_its_exposed_time_over_the_ranks():
    """(50 + 10) / 2, of (50 + 20) / 2; rank 0 waits 30 of its 50, rank 1 nothing: (30 + 0) / 2."""
    (line,) = join_ranks(two()).lines
    assert (line.where.line, line.operation, line.launches) == (7, "all_reduce", 2)
    assert (line.exposed_us, line.waiting_us, line.time_us) == (30, 15, 35)


def test_of_a_line_whose_ranks_are_not_matched_waiting_is_not_known():
    (line,) = join_ranks([rank(0, [], [Comm(start=0, time=40, line=7)])]).lines
    assert (line.exposed_us, line.waiting_us) == (40, None)


def test_a_rank_has_the_median_of_its_unprofiled_steps_beside_its_profiled_one():
    zero, one = two()
    report = join_ranks([replace(zero, unprofiled_us=(90.0, 120.0, 100.0)), one])
    assert [(figures.step_us, figures.unprofiled_us) for figures in report.ranks] == [(150, 100), (180, None)]


@pytest.mark.parametrize("skew", [0.0, 12_345.0, -7e9, 0.25])
def test_clocks_that_differ_change_nothing(skew):
    """Rank 1's clock leads by the skew."""
    report, plain = join_ranks(two(skew)), join_ranks(two())
    assert report.ranks[1].clock_us == pytest.approx(skew)
    assert report.ranks[1].waited_for_us == pytest.approx(30)
    for shown, known in zip(report.collectives[0].on, plain.collectives[0].on, strict=True):
        assert shown.start_us == pytest.approx(known.start_us)
    assert report.ranks[0].clock_us == 0


def test_the_clock_is_the_median_of_the_ends_and_its_error_their_distance_from_it():
    """Ends differ by 1000, 1002 and 1001: 1001, from which they lie 1, 1 and 0: in the median 1."""
    zero = rank(0, [], [Comm(start=10, time=10), Comm(start=30, time=10), Comm(start=50, time=10)])
    one = rank(1, [], [Comm(start=10, time=10), Comm(start=30, time=12), Comm(start=50, time=11)], clock=1000)
    figures = join_ranks([zero, one]).ranks[1]
    assert (figures.clock_us, figures.clock_error_us) == (1001, 1)


def test_ranks_come_in_any_order():
    assert join_ranks(two()[::-1]) == join_ranks(two())


def test_a_wait_that_compute_hides_is_not_exposed():
    """Rank 0 waits from 0 to 60, and computes from 10 to 40 on another stream: 30 of the 60 are exposed."""
    zero = rank(0, [(10, 30)], [Comm(start=0, time=70)])
    one = rank(1, [(0, 60)], [Comm(start=60, time=10)])
    figures = join_ranks([zero, one]).ranks[0]
    assert (figures.waited_us, figures.exposed_waiting_us) == (60, 30)
    assert figures.exposed_us == 40


def test_of_collectives_that_overlap_time_counts_once_at_the_first():
    """0–40 and 20–60, of two groups, compute 50–55: together 60, exposed 55; of the first 40, of the second 15."""
    zero = rank(0, [(50, 5)], [Comm(start=0, time=40), Comm(start=20, time=40, group="1")])
    report = join_ranks([zero])
    assert (report.ranks[0].communication_us, report.ranks[0].exposed_us) == (60, 55)
    assert [one.on[0].exposed_us for one in report.collectives] == [40, 15]


def test_numbers_match_what_order_would_not():
    """Rank 1's step has one collective more before: the numbers tell which is which."""
    zero = rank(0, [], [Comm(start=0, time=50, sequence=8), Comm(start=60, time=30, sequence=9)])
    one = rank(
        1,
        [],
        [
            Comm(start=0, time=5, sequence=7),
            Comm(start=30, time=20, sequence=8),
            Comm(start=80, time=10, sequence=9),
        ],
    )
    report = join_ranks([zero, one])
    found = {each.sequence: [on.rank for on in each.on] for each in report.collectives}
    assert found == {7: [1], 8: [0, 1], 9: [0, 1]}
    assert report.ranks[0].waited_us == 30 + 20
    assert report.unmatched == {"all_reduce": 1}


def test_without_numbers_ranks_that_do_not_do_the_same_are_not_matched_and_that_is_said():
    zero = rank(0, [], [Comm(start=0, time=50), Comm(start=60, time=30)])
    one = rank(1, [], [Comm(start=0, time=5)])
    report = join_ranks([zero, one])
    assert report.waits == ()
    assert report.ranks[0].waited_us is None
    assert report.unmatched == {"all_reduce": 3}
    assert any("differ in this step" in note for note in report.notes)
    assert any("could not be aligned" in note for note in report.notes)


def test_a_broadcast_tells_nothing_of_clocks_and_waits():
    """Its root may have ended before the others begin."""
    zero = rank(0, [], [Comm(start=0, time=5, operation="broadcast")])
    one = rank(1, [], [Comm(start=100, time=5, operation="broadcast")])
    report = join_ranks([zero, one])
    (collective,) = report.collectives
    assert len(collective.on) == 2
    assert (collective.last, collective.spread_us) == (None, None)
    assert [figures.waited_us for figures in report.ranks] == [None, None]


def test_single_messages_are_not_matched():
    zero = rank(0, [], [Comm(start=0, time=5, operation="send")])
    one = rank(1, [], [Comm(start=0, time=5, operation="recv")])
    assert join_ranks([zero, one]).unmatched == {"send": 1, "recv": 1}


def test_two_groups_are_aligned_by_way_of_the_rank_that_is_in_both():
    """Ranks 0 and 1 reduce in group a, 1 and 2 in group b. Rank 1's clock leads by 100, rank 2's by 350."""
    zero = rank(0, [], [Comm(start=0, time=20, group="a", ranks=(0, 1))])
    one = rank(
        1,
        [],
        [Comm(start=10, time=10, group="a", ranks=(0, 1)), Comm(start=30, time=40, group="b", ranks=(1, 2))],
        clock=100,
    )
    two_ = rank(2, [], [Comm(start=60, time=10, group="b", ranks=(1, 2))], clock=350)
    report = join_ranks([zero, one, two_])
    assert [figures.clock_us for figures in report.ranks] == [0, 100, 350]
    assert [figures.waited_us for figures in report.ranks] == [10, 30, 0]
    assert {(wait.rank, wait.for_rank): wait.time_us for wait in report.waits} == {(1, 2): 30, (0, 1): 10}


def test_a_straggler_among_four():
    """Rank 2 comes 40 late to each of three all-reduces, which take 10 once all are there; the others wait 40 each."""
    ranks = []
    for number in range(4):
        late = 40 if number == 2 else 0
        begins = [100 * place + late for place in range(3)]
        comms = [Comm(start=start, time=50 - late) for start in begins]
        ranks.append(rank(number, [], comms, clock=1e6 * number))
    report = join_ranks(ranks)
    assert [figures.waited_us for figures in report.ranks] == [120, 120, 0, 120]
    assert [figures.waited_for_us for figures in report.ranks] == [0, 0, 360, 0]
    assert all(each.last == 2 for each in report.collectives)
    assert {wait.for_rank for wait in report.waits} == {2}


def test_ranks_that_are_not_here_are_named_and_said():
    zero = rank(0, [], [Comm(start=0, time=20, ranks=(0, 1, 2, 3))], world_size=4)
    two_ = rank(2, [], [Comm(start=10, time=10, ranks=(0, 1, 2, 3))], world_size=4)
    report = join_ranks([zero, two_])
    assert report.missing == (1, 3)
    assert any("some ranks are not here" in note for note in report.notes)


def test_a_group_of_one_rank_needs_no_other():
    zero = rank(0, [], [Comm(start=0, time=5, group="alone", ranks=(0,)), Comm(start=10, time=5)])
    one = rank(1, [], [Comm(start=10, time=5)])
    assert join_ranks([zero, one]).unmatched == {}


def test_a_kernel_that_nothing_tells_of_counts_as_communication_all_the_same():
    zero = rank(0, [(0, 10)], [Comm(start=5, time=20)])
    unknown = replace(zero, collectives=())
    report = join_ranks([unknown])
    assert (report.ranks[0].communication_us, report.ranks[0].exposed_us) == (20, 15)
    assert report.collectives[0].operation == "ncclDevKernel"


def test_steps_of_different_numbers_are_said_to_be():
    zero, one = two()[0], rank(1, [], [Comm(start=0, time=5)], step=6)
    assert any("different numbers (5, 6)" in note for note in join_ranks([zero, one]).notes)


def test_collectives_that_cannot_be_the_same_are_said_to_be_odd():
    """Of three the third ends on rank 0 at 25 before rank 1 begins it at 100, by the clock of the other two: rank 0
    can have waited no more than the 5 that it lasts."""
    zero = rank(0, [], [Comm(start=s, time=5) for s in (0, 10, 20)])
    one = rank(1, [], [Comm(start=0, time=5), Comm(start=10, time=5), Comm(start=100, time=5)])
    report = join_ranks([zero, one])
    assert any("aligned clock: 1. It" in note for note in report.notes)
    assert report.ranks[0].waited_us == 5


@pytest.mark.parametrize("ranks", [[], [0, 0], [1, 0, 1]])
def test_no_ranks_or_one_twice_is_refused(ranks):
    with pytest.raises(ValueError, match="ranks"):
        join_ranks([rank(number, [(0, 1)], []) for number in ranks])


def test_a_collective_that_names_no_launch_is_refused():
    zero = two()[0]
    wrong = replace(zero, collectives=(replace(zero.collectives[0], launch=9),))
    with pytest.raises(ValueError, match="rank 0"):
        join_ranks([wrong])


def test_sums_hold_on_random_ranks():
    """Exposed is the union of all less that of compute; what is waited is what others are waited for; parts are no more
    than their whole."""
    choice = random.Random(11)
    for _ in range(50):
        count = choice.randint(1, 5)
        arrivals = [[choice.uniform(0, 40) for _ in range(count)] for _ in range(6)]
        ranks = []
        for number in range(count):
            comms, at = [], 0.0
            for some in arrivals:
                ends = at + max(some) + 10
                comms.append(Comm(start=at + some[number], time=ends - at - some[number]))
                at = ends
            compute = [(choice.uniform(0, at), choice.uniform(0, 30)) for _ in range(8)]
            ranks.append(rank(number, compute, comms, clock=choice.uniform(-1e6, 1e6)))
        report = join_ranks(ranks)
        for figures in report.ranks:
            assert figures.exposed_us == pytest.approx(figures.busy_us - figures.compute_us)
            assert figures.exposed_us <= figures.communication_us + 1e-6
        for place, figures in enumerate(report.ranks if count > 1 else ()):
            assert figures.waited_us == pytest.approx(sum(max(some) - some[place] for some in arrivals), abs=1e-3)
            assert 0 <= figures.exposed_waiting_us <= figures.waited_us + 1e-6
        if count > 1:
            assert sum(f.waited_us for f in report.ranks) == pytest.approx(sum(f.waited_for_us for f in report.ranks))


def test_a_union_of_intervals():
    union = Union([(5, 10), (0, 3), (9, 12), (20, 20)])
    assert union.length == 3 + 7
    assert union.covers(2, 6) == 1 + 1
    assert union.covers(3, 5) == 0
    assert union.covers(-10, 100) == 10
    assert Union([]).covers(0, 1) == 0


def test_with_lost_collectives_order_alone_matches_nothing():
    """Which of rank 1's was lost is not known, so that places may pair different ones."""
    zero, one = two()
    report = join_ranks([zero, replace(one, lost_collectives=1)])
    assert report.waits == ()
    assert report.ranks[1].waited_us is None
    assert all(len(each.on) == 1 for each in report.collectives)
    assert any("lost collectives of rank 1" in note for note in report.notes)


def test_with_lost_collectives_numbers_match_all_the_same():
    zero = rank(0, [], [Comm(start=0, time=50, sequence=3), Comm(start=100, time=50, sequence=4)])
    one = rank(1, [], [Comm(start=130, time=20, sequence=4)])
    report = join_ranks([zero, replace(one, lost_collectives=1)])
    (wait,) = report.waits
    assert (wait.rank, wait.for_rank, wait.time_us) == (0, 1, 30)


def test_another_operation_of_the_same_number_is_not_the_same():
    zero = rank(0, [], [Comm(start=0, time=50, sequence=3), Comm(start=100, time=50, sequence=4)])
    one = rank(
        1, [], [Comm(start=0, time=50, sequence=3, operation="all_gather"), Comm(start=130, time=20, sequence=4)]
    )
    report = join_ranks([zero, one])
    assert sorted((each.sequence, each.operation, len(each.on)) for each in report.collectives) == [
        (3, "all_gather", 1),
        (3, "all_reduce", 1),
        (4, "all_reduce", 2),
    ]
    assert report.unmatched == {"all_reduce": 1, "all_gather": 1}


@pytest.mark.parametrize("first", [[0], [1], [0, 1], []])
def test_a_step_that_is_the_first_of_some_ranks_alone_is_said_to_be(first):
    steps = [replace(one, steady=one.rank not in first) for one in two()]
    said = [note for note in join_ranks(steps).notes if "the first in the trace" in note]
    assert len(said) == (len(first) == 1)
    assert all(f"rank {first[0]}," in note for note in said)


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([(0, 2, "H200"), (1, 4, "H200")], "the runs are of 2 and 4 ranks"),
        ([(0, None, "H200"), (1, 4, "H200")], "the runs are of 4 and a number that is not said ranks"),
        ([(0, 2, "H200"), (2, 2, "H200")], "says that it is of rank 2 of 2, which there is not"),
        ([(0, 2, "H200"), (-1, 2, "H200")], "says that it is of rank -1 of 2, which there is not"),
        ([(0, 2, "H200"), (0, 2, "H200")], "2 are of rank 0"),
        ([(0, 2, "H200"), (1, 2, "A100")], "they are of different GPUs (A100, H200)"),
        ([(0, 2, "H200"), (1, 2, "H200")], None),
        ([(3, None, "H200"), (1, None, "H200")], None),
    ],
)
def test_why_traces_are_not_of_one_run(ranks, why):
    steps = []
    for number, size, gpu in ranks:
        made = rank(number, [(0, 10)], [], world_size=size)
        steps.append(replace(made, step=replace(made.step, gpu=gpu)))
    said = why_not_one_run(steps)
    assert (said is None) == (why is None)
    assert said is None or said.endswith(f"{why}.")


def test_waits_for_which_an_unprofiled_step_has_no_room_are_told_as_the_profilers():
    """Rank 0 computes 100 µs, waits 30 and reduces 20: in a step of 125 µs it waits for at most 5, in one of 150 for
    all 30."""
    zero, one = two()
    (said,) = join_ranks([replace(zero, unprofiled_us=(125.0,)), replace(one, unprofiled_us=(180.0,))]).notes
    assert "rank 0" in said
    assert "come of the profiler" in said
    assert not join_ranks([replace(zero, unprofiled_us=(150.0,)), one]).notes


def test_of_traces_alone_nobody_knows_how_much_of_the_waiting_the_profiler_made():
    """A fifth of the step of rank 0 is waiting. Where it is a hundredth, nothing is said."""
    (said,) = join_ranks(two()).notes
    assert "not known" in said
    short = [
        rank(number, [(0, computes)], [Comm(start=computes, time=1000 - computes)])
        for number, computes in enumerate((970, 980))
    ]
    assert not join_ranks(short).notes


def test_what_the_profiler_adds_is_told_of_the_rank_with_most_of_it():
    """Rank 1 of three comes last; rank 0 waits 30 µs, rank 2 waits 60, and there is room for nothing of it."""
    late = rank(1, [(0, 130)], [Comm(start=130, time=20)])
    zero = rank(0, [(0, 100)], [Comm(start=100, time=50)])
    two_ = rank(2, [(0, 70)], [Comm(start=70, time=80)])
    steps = [replace(step, unprofiled_us=(90.0,)) for step in (zero, late, two_)]
    (said,) = [note for note in join_ranks(steps).notes if "profiler" in note]
    assert "Of the 0.06 ms in which rank 2" in said
    assert said.endswith("It is the same with 1 more.")


def test_modules_that_share_a_line_are_one_line():
    """Twelve blocks are called in one loop; without a line they are told apart by their names."""
    steps = [
        rank(number, [], [Comm(start=10 * place, time=5, operation="all_gather", line=63) for place in range(3)])
        for number in (0, 1)
    ]
    for known in (True, False):
        named = [
            replace(
                each,
                step=replace(
                    each.step,
                    ops=tuple(
                        replace(op, module=f"blocks.{place}", where=op.where if known else None)
                        for place, op in enumerate(each.step.ops)
                    ),
                ),
            )
            for each in steps
        ]
        lines = join_ranks(named).lines
        assert [line.launches for line in lines] == ([6] if known else [2, 2, 2])
