"""Budgets: what they may say, and that what is not known fails them."""

from dataclasses import replace

import pytest

from steps_by_hand import STEP, with_launches
from undertorch.records import Origin, Step
from undertorch.records.comparisons import Metric, Verdict
from undertorch.steps.budgets import BadBudget, judge, parse_budgets
from undertorch.steps.compare import compare


@pytest.mark.parametrize(
    ("text", "metric", "percent", "amount"),
    [
        ("step+5%", Metric.STEP, 5, None),
        ("busy+2.5%", Metric.BUSY, 2.5, None),
        ("step+300us", Metric.STEP, None, 300),
        ("busy+1.5ms", Metric.BUSY, None, 1500),
        ("step+1 s", Metric.STEP, None, 1e6),
        ("bytes+2GB", Metric.BYTES, None, 2e9),
        ("memory+1GiB", Metric.MEMORY, None, 2**30),
        ("launches+0", Metric.LAUNCHES, None, 0),
    ],
)
def test_a_budget_is_a_figure_and_how_much_it_may_grow(text, metric, percent, amount):
    (budget,) = parse_budgets(text)
    assert (budget.text, budget.metric, budget.percent, budget.amount) == (text, metric, percent, amount)


def test_several_budgets_stand_between_commas():
    assert [budget.text for budget in parse_budgets("step+5%, bytes+5%,memory+5%")] == [
        "step+5%",
        "bytes+5%",
        "memory+5%",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "such as step", id="empty"),
        pytest.param("step+5%,", "''", id="a comma too many"),
        pytest.param("step", "'step'", id="no amount"),
        pytest.param("step-5%", "'step-5%'", id="a minus"),
        pytest.param("step+-5%", "how much it may grow", id="a negative amount"),
        pytest.param("step+nan%", "how much it may grow", id="not a number"),
        pytest.param("flops+5%", "no figure 'flops'", id="an unknown figure"),
        pytest.param("step+5", "step needs a unit; write step+5%", id="a time without a unit"),
        pytest.param("bytes+5ms", "'ms' is no unit of bytes", id="the unit of another figure"),
        pytest.param("launches+5GB", "'GB' is no unit of launches", id="a count with a unit"),
        pytest.param("step+5%%", "how much it may grow", id="two signs"),
    ],
)
def test_what_is_no_budget_is_said_in_a_sentence(text, said):
    with pytest.raises(BadBudget) as error:
        parse_budgets(text)
    assert said in str(error.value)
    assert str(error.value).endswith(".")


def verdict(text: str, before: Step, after: Step) -> Verdict:
    (budget,) = parse_budgets(text)
    return judge(budget, compare(before, after, mixed=True)).verdict


@pytest.mark.parametrize(
    ("text", "after_us", "expected"),
    [
        ("step+5%", 2100, Verdict.HOLDS),
        ("step+5%", 2100.1, Verdict.OVERRUN),
        ("step+100us", 2100, Verdict.HOLDS),
        ("step+99us", 2100, Verdict.OVERRUN),
        ("step+0%", 2000, Verdict.HOLDS),
        ("step+0%", 1500, Verdict.HOLDS),
    ],
)
def test_growth_up_to_the_budget_holds_and_beyond_it_does_not(text, after_us, expected):
    """STEP takes 2000 µs."""
    assert verdict(text, STEP, replace(STEP, step_us=after_us)) is expected


def test_ten_percent_is_no_overrun_of_ten_percent_in_floating_point_either():
    """77.11 − 70.1 is more than 10 % of 70.1 in floats, by 7e-15."""
    assert 77.11 - 70.1 > 0.1 * 70.1
    assert verdict("step+10%", replace(STEP, step_us=70.1), replace(STEP, step_us=77.11)) is Verdict.HOLDS


def test_each_figure_has_its_budget():
    """STEP is 1890 µs busy, in 11 launches, with a peak of 30.4 GB. A matmul of 300 µs and 90 MB is left out."""
    less = with_launches(*(one for one in STEP.launches if one.start_us != 950))
    assert verdict("busy+299us", less, STEP) is Verdict.OVERRUN
    assert verdict("busy+300us", less, STEP) is Verdict.HOLDS
    assert verdict("bytes+89MB", less, STEP) is Verdict.OVERRUN
    assert verdict("bytes+90MB", less, STEP) is Verdict.HOLDS
    assert verdict("launches+0", less, STEP) is Verdict.OVERRUN
    assert verdict("launches+1", less, STEP) is Verdict.HOLDS
    more = replace(STEP, memory=replace(STEP.memory, peak_bytes=30_400_000_000 + 1_000_000))
    assert verdict("memory+999kB", STEP, more) is Verdict.OVERRUN
    assert verdict("memory+1MB", STEP, more) is Verdict.HOLDS


@pytest.mark.parametrize(("before", "after"), [(None, 2000), (2000, None)])
def test_step_means_busy_time_where_a_side_does_not_know_its_wall_time(before, after):
    (budget,) = parse_budgets("step+0%")
    judged = judge(budget, compare(replace(STEP, step_us=before), replace(STEP, step_us=after)))
    assert (judged.verdict, judged.figure) == (Verdict.HOLDS, "busy")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_figure_that_is_unknown_on_one_side_fails_its_budget_and_no_other(swapped):
    unknown = replace(STEP, memory=replace(STEP.memory, peak_bytes=None))
    sides = (unknown, STEP) if swapped else (STEP, unknown)
    assert verdict("memory+5%", *sides) is Verdict.UNKNOWN
    assert verdict("step+5%", *sides) is Verdict.HOLDS


def test_launches_of_unknown_bytes_on_one_side_fail_the_budget_of_bytes_and_no_other():
    known = with_launches(*(one for one in STEP.launches if one.kernel.min_bytes is not None))
    assert verdict("bytes+5%", known, STEP) is Verdict.UNKNOWN
    assert verdict("launches+5", known, STEP) is Verdict.HOLDS


def test_ops_whose_kernels_are_not_known_on_one_side_fail_every_budget_of_what_they_would_launch():
    """An edit that turns a known op into an unknown one would otherwise look faster."""
    known = replace(STEP, accounting=replace(STEP.accounting, ops_without_cost=(), ops_without_cost_count=0))
    for budget in ("step+5%", "busy+5%", "bytes+5%", "launches+5"):
        assert verdict(budget, known, STEP) is Verdict.UNKNOWN
    assert verdict("memory+5%", known, STEP) is Verdict.HOLDS
    assert verdict("step+5%", STEP, STEP) is Verdict.HOLDS


def test_a_launch_that_a_profiler_lost_spoils_sums_and_not_the_clock():
    lossy = replace(STEP, time_origin=Origin.MEASURED, accounting=replace(STEP.accounting, lost_launches=1))
    assert verdict("step+5%", lossy, lossy) is Verdict.HOLDS
    assert verdict("busy+5%", lossy, lossy) is Verdict.UNKNOWN
