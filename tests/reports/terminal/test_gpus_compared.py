"""One script on several GPUs, a row each."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from steps_by_hand import NOTHING, STEP
from undertorch import gpus
from undertorch.reports.terminal.gpus_compared import gpus_compared

H200, L4 = gpus.find("H200"), gpus.find("L4")


def rows(seen, failed=()):
    page = StringIO()
    Console(file=page, width=80).print(gpus_compared(seen, failed), highlight=False)
    return page.getvalue().splitlines()


def row_of(name, seen, failed=()):
    return next(" ".join(row.split()) for row in rows(seen, failed) if row.strip().startswith(name))


def test_a_row_says_times_rate_memory_and_bound():
    """32 samples in 2 ms, of which 110 µs idle; a peak of 30.4 of the H200's 150 GB; memory bounds 100 + 100 + 150 +
    200 + 400 of 1890 µs, more than anything else."""
    assert row_of("H200", [(H200, STEP)]) == "H200 ✓ 2.00 ms 1.89 ms 5.5 % 16,000 30.4 GB 120 GB memory"


def test_memory_that_a_gpu_does_not_have_is_what_it_lacks():
    """24.15 GB of an L4, by its driver; 30.4 are asked for."""
    lacks = 30_400_000_000 - L4.memory_bytes
    assert f"{lacks / 1e9:.2f} GB short" in row_of("L4", [(L4, STEP)])


@pytest.mark.parametrize("step", [NOTHING, replace(STEP, memory=NOTHING.memory)])
def test_memory_that_is_not_known_is_neither_enough_nor_too_much(step):
    assert "unknown" in row_of("L4", [(L4, step)])


def test_a_gpu_for_which_the_script_failed_has_a_row():
    assert row_of("L4", [(H200, STEP)], [L4]) == "L4 the script failed"


def test_rows_stand_in_the_order_given_and_none_is_too_wide():
    text = rows([(L4, STEP), (H200, STEP)])
    assert [row.split()[0] for row in text if row.strip().startswith(("L4", "H200"))] == ["L4", "H200"]
    assert max(map(len, text)) <= 80
