"""A Comparison as the terminal shows it."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from steps_by_hand import NOTHING, STEP, with_launches
from steps_edited import step_of
from undertorch.reports.terminal.comparison import show_comparison
from undertorch.steps.budgets import judge, parse_budgets
from undertorch.steps.compare import compare


def drawn(before, after, width=80, budgets=""):
    comparison = compare(before, after)
    page = StringIO()
    judged = [judge(budget, comparison) for budget in parse_budgets(budgets)] if budgets else []
    show_comparison(comparison, judged, Console(file=page, width=width))
    return page.getvalue()


def row_of(text, name):
    """The first row that begins with a name, its blanks squeezed."""
    return next(" ".join(row.split()) for row in text.splitlines() if row.strip().startswith(name))


def test_the_whole_step_before_and_after():
    """Known bytes of STEP, in MB: 400 + 90 + 300 + 450 + 90 + 90 + 1 + 1750 + 30."""
    text = drawn(STEP, replace(STEP, step_us=1600.0))
    assert row_of(text, "step") == "step 2.00 ms 1.60 ms −400 µs −20.0 %"
    assert row_of(text, "busy") == "busy 1.89 ms 1.89 ms 0"
    assert row_of(text, "a second") == "a second 16,000 20,000 +4,000 +25.0 %"
    assert row_of(text, "least bytes") == "least bytes >3.20 GB >3.20 GB 0"
    assert row_of(text, "peak memory") == "peak memory 30.4 GB 30.4 GB 0"


def test_an_edited_line_shows_both_texts():
    before = step_of(train="def f(x):\n    x = F.dropout(x, 0.1, self.training)  # 300 µs\n")
    after = step_of(train="def f(x):\n    x = F.dropout(x, 0.0, self.training)  # 100 µs\n")
    text = drawn(before, after)
    assert "- x = F.dropout(x, 0.1, self.training)" in text
    assert "+ x = F.dropout(x, 0.0, self.training)" in text
    assert row_of(text, "edited") == "edited 300 µs 100 µs −200 µs −66.7 % −200 B 0"


def test_a_line_that_moved_shows_both_numbers_and_one_that_came_or_went_its_own():
    before = step_of(train="def f(x):\n    a = g(x)  # 300 µs\n    return b(a)  # 10 µs\n")
    after = step_of(train="import z\ndef f(x):\n    a = g(x)  # 100 µs\n    torch.cuda.synchronize(a)  # 50 µs\n")
    text = drawn(before, after)
    assert "train.py:2 → 3 f" in text
    assert "train.py:4 f" in text
    assert row_of(text, "new") == "new 0 µs 50 µs +50 µs +50 B +1"
    assert row_of(text, "gone") == "gone 10 µs 0 µs −10 µs −100 % −10 B −1"


def test_lines_that_hardly_changed_are_one_row_with_their_sum():
    rows = "".join(f"    x{n} = g(x)  # {{}} µs\n" for n in range(3))
    before = step_of(train="def f(x):\n" + rows.format(10_000, 10_000, 10_000))
    after = step_of(train="def f(x):\n" + rows.format(10_001, 10_002, 5_000))
    text = drawn(before, after)
    assert "2 lines that changed by less than 30 µs: +3 µs in all" in text


def test_what_rounding_makes_of_equal_sums_is_no_change():
    """0.1 + 0.2 is not 0.3 in floating point."""
    first, *rest = STEP.launches
    before = with_launches(replace(first, time_us=0.1 + 0.2), *rest)
    after = with_launches(replace(first, time_us=0.3), *rest)
    text = drawn(before, after)
    assert row_of(text, "busy").endswith(" 0")
    assert "Step unchanged, least bytes unchanged" in text


def test_phases_that_did_not_change_are_counted():
    """An update of 500 µs, and not 400, covers the last two launches, 10 µs each: update and other change, of six."""
    *others, last = [one for one in STEP.launches if one.start_us <= 1480]
    text = drawn(STEP, with_launches(*others, replace(last, time_us=500), *STEP.launches[len(others) + 1 :]))
    assert row_of(text, "update") == "update 400 µs 500 µs +100 µs +25.0 % 0 0"
    assert row_of(text, "other") == "other 20 µs 0 µs −20 µs −100 % 0 0"
    assert row_of(text, "4 unchanged")
    assert row_of(drawn(STEP, STEP), "6 unchanged")


def test_other_versions_are_said():
    newer = {**STEP.environment.versions, "torch": "2.14.0"}
    after = replace(STEP, environment=replace(STEP.environment, versions=newer))
    assert "Other versions: torch 2.13.0+cpu → 2.14.0." in drawn(STEP, after)


def test_ops_that_every_sum_leaves_out_are_said():
    known = replace(STEP, accounting=replace(STEP.accounting, ops_without_cost=(), ops_without_cost_count=0))
    assert "1 op whose kernels are not known" in " ".join(drawn(STEP, STEP).split())
    said = " ".join(drawn(known, STEP).split())
    assert "NOT the same are the ops whose kernels are not known" in said
    assert "0 ops before, 1 op after" in said


def test_budgets_have_a_row_each():
    text = drawn(STEP, replace(STEP, step_us=2100.0), budgets="step+5%,step+4%,bytes+1kB")
    rows = [" ".join(row.split()) for row in text.splitlines() if "+" in row and row.startswith("  step+")]
    assert rows == ["step+5% 2.00 ms 2.10 ms +100 µs +5.0 % holds", "step+4% 2.00 ms 2.10 ms +100 µs +5.0 % overrun"]


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("after", [replace(STEP, step_us=1.0), NOTHING], ids=["faster", "nothing"])
def test_no_row_is_wider_than_the_screen_or_ends_in_blanks(width, after):
    rows = drawn(STEP, after, width, "step+5%,launches+1,memory+1GB").splitlines()
    assert max(map(len, rows)) <= width
    assert [row for row in rows if row != row.rstrip()] == []


def test_idle_time_by_cause_and_by_the_line_that_causes_it():
    """The wait for the printed value, 100 us of 2000, is gone."""
    text = drawn(STEP, replace(STEP, idle=STEP.idle[:1], step_us=1900.0))
    assert row_of(text, "idle") == "idle 110 µs 10 µs −100 µs −90.9 %"
    assert row_of(text, "sync") == "sync 100 µs 0 µs −100 µs −100 %"
    assert row_of(text, "launch ") == "launch 10 µs 10 µs 0"
    part = text[text.index("Idle  by the line") : text.index("Phases")]
    assert "train.py:13 <module>" in part
    assert "1 more line: 0 in all" in part
    assert all(len(row) <= 80 for row in text.splitlines())


def test_where_idle_time_hardly_changes_no_line_of_it_is_shown():
    assert "Idle  by the line" not in drawn(STEP, STEP)
