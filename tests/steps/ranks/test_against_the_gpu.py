"""Two runs of GPT-2 on four H200s (tests/golden/measured/ranks.json.gz), DDP and FSDP2, as the raw traces have them.

What is held against them is how NCCL works: no rank ends an all-gather, a reduce-scatter or an all-reduce before the
last has begun it, and all end together; so the last to come has the shortest kernel.
"""

import gzip
import json
from pathlib import Path

import pytest

from steps.ranks.by_hand import Comm, rank
from undertorch.records.ranks import RanksReport
from undertorch.steps.ranks import join_ranks
from undertorch.steps.traces.collectives import operation

GOLDEN = Path(__file__).parents[2] / "golden" / "measured" / "ranks.json.gz"
RUNS = {"ddp_gpt_4": {"all_reduce": 13}, "fsdp_gpt_4": {"all_gather": 25, "reduce_scatter": 13}}
"""Thirteen buckets of gradients; of twelve blocks the parameters, gathered in forward and again in backward, and the
root's."""
TOGETHER_US = 100.0
"""The furthest that the ends of one collective lie apart, while their starts do so by up to 30 ms. (Four in five lie
within 25 µs.)"""


@pytest.fixture(scope="module")
def runs() -> dict[str, dict]:
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))["runs"]


def joined(run: dict) -> RanksReport:
    return join_ranks(
        [
            rank(
                number,
                [(start, end - start) for start, end in one["others"]],
                [Comm(start=start, time=time, operation=operation(name)) for name, start, time in one["collectives"]],
                world_size=4,
            )
            for number, one in enumerate(run["ranks"])
        ]
    )


@pytest.mark.parametrize("name", RUNS)
def test_all_ranks_end_a_collective_together(runs, name):
    report = joined(runs[name])
    assert {what: sum(one.operation == what for one in report.collectives) for what in RUNS[name]} == RUNS[name]
    apart = []
    for one in report.collectives:
        assert len(one.on) == 4
        ends = [each.start_us + each.time_us for each in one.on]
        apart.append(max(ends) - min(ends))
    assert sorted(apart)[len(apart) * 4 // 5 - 1] < TOGETHER_US / 4
    assert max(apart) < TOGETHER_US


@pytest.mark.parametrize("name", RUNS)
def test_the_last_to_come_has_the_shortest_kernel(runs, name):
    """But for those that come within what their clocks tell."""
    for one in joined(runs[name]).collectives:
        shortest = min(one.on, key=lambda each: each.time_us)
        (last,) = [each for each in one.on if each.rank == one.last]
        assert last.time_us - shortest.time_us < TOGETHER_US / 4


@pytest.mark.parametrize("name", RUNS)
def test_waiting_and_moving_are_the_sum_of_nccls_kernels(runs, name):
    """Collectives of a rank do not overlap here. All move the same bytes, so what is left of each without its waiting
    is alike, however long it waited: 0 to 162 ms."""
    run, report = runs[name], joined(runs[name])
    sums = [sum(time for _, _, time in one["collectives"]) for one in run["ranks"]]
    assert [one.communication_us for one in report.ranks] == pytest.approx(sums, abs=0.01)
    moving = [one.communication_us - one.waited_us for one in report.ranks]
    assert max(moving) < 1.07 * min(moving)


def test_three_ranks_wait_for_the_one_whose_processor_is_slow(runs):
    """In FSDP2's step rank 2 launched each block 1.5 times as late as the others: of 38 collectives its kernel is the
    shortest in 37, and in these it waits for nobody."""
    collectives = list(zip(*(one["collectives"] for one in runs["fsdp_gpt_4"]["ranks"]), strict=True))
    shortest = [min(range(4), key=lambda rank: one[rank][2]) for one in collectives]
    assert shortest.count(2) == 37
    report = joined(runs["fsdp_gpt_4"])
    assert {(wait.rank, wait.for_rank) for wait in report.waits[:3]} == {(0, 2), (1, 2), (3, 2)}
    assert all(wait.collectives == 37 for wait in report.waits[:3])
    assert report.ranks[2].waited_us < 100
