"""Lines of one profiled step, times of another in which the profiler followed the GPU alone. Traces written by hand."""

import gzip
import json
import statistics
from dataclasses import replace

import pytest

from measured_golden import laid_out
from steps.measure.by_hand import Written, kept, mark
from undertorch.records import IdleCause
from undertorch.records.totals import busy_us
from undertorch.steps.measure import exchange
from undertorch.steps.measure.plan import plan
from undertorch.steps.measure.reading import read_ranks
from undertorch.steps.measure.spawn import run_measured
from undertorch.steps.ranks import join_ranks

SIDE = 20
"""A second stream."""


def whole(rank: int = 0) -> Written:
    """A step as the whole profiler sees it: a product at line 31, a copy on another stream at 32, a sum at 33. The CPU
    takes 100 µs a call, and the GPU waits for each."""
    written = Written()
    written.step(10, 0, 400)
    calls = (("aten::mm", "gemm", 7), ("aten::copy_", "copy", SIDE), ("aten::sum", "reduce", 7))
    for place, (call, kernel, stream) in enumerate(calls):
        begin = 100 * place
        written.call(f"undertorch#{place}", begin, begin + 90)
        written.call(call, begin + 1, begin + 80)
        written.launch(begin + 50, (kernel, begin + 60, begin + 70))
        written.events[-1]["args"]["stream"] = stream
    return written


def gpu_only(ends: float, names: tuple[str, ...] = ("gemm", "copy", "reduce"), first: int = 0) -> Written:
    """Four steps, of which the first lost what came before `first`: the copy runs before the product, which is launched
    30 µs before it begins; the sum is launched late, and takes until `ends` µs of the step."""
    written = Written()
    for step in range(4):
        begin = 1000.0 * step
        kernels = ((names[1], 5, 15, SIDE, 1), (names[0], 40, 60, 7, 10), (names[2], 80, ends, 7, 75))
        for place, (name, start, end, stream, launched) in enumerate(kernels):
            if step or place >= first:
                written.launch(begin + launched, (name, begin + start, begin + end))
                written.events[-1]["args"]["stream"] = stream
    return written


def rank(folder, number: int, alone: Written | None, **more):
    """What a rank leaves."""
    folder.mkdir()
    measured = kept(
        folder,
        whole(),
        [mark(31), mark(32), mark(33)],
        rank=number,
        world_size=2,
        **{"steps": (10,), "timed_us": (100.0,), "gpu_only": (13, 14, 15, 16)} | more,
    )
    if alone is not None:
        content = {"traceEvents": alone.events, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
        (folder / exchange.GPU_ONLY).write_bytes(gzip.compress(json.dumps(content).encode()))
    return folder, measured


def of(step) -> list[tuple[str, int, float, float]]:
    """Of each launch: kernel, line, start and time."""
    lines = {op.id: op.where.line for op in step.ops}
    return [(one.kernel.name, lines[one.ops[0]], one.start_us, one.time_us) for one in step.launches]


def test_launches_have_the_lines_of_one_step_and_the_times_of_the_other(tmp_path):
    """On each stream what is first in one is first in the other, though the copy came second there and is first here.
    A step begins where the one before it ended: 900 µs before its own 100."""
    (ranked,), _ = read_ranks([rank(tmp_path / "0", 0, gpu_only(100))])
    assert ranked.gpu_only
    assert of(ranked.step) == [("copy", 32, 905, 10), ("gemm", 31, 940, 20), ("reduce", 33, 980, 20)]
    assert ranked.step.step_us == 1000
    assert ranked.step.environment.step == 15  # of three that are alike the middle one
    assert ranked.clock_us == 1100


def test_why_the_gpu_waited_is_told_by_the_other_step_and_where_by_the_first(tmp_path):
    """The product was launched while the copy ran, so that the GPU took its time; copy and sum were launched late."""
    (ranked,), _ = read_ranks([rank(tmp_path / "0", 0, gpu_only(100))])
    assert [(one.cause, one.where.line, one.time_us) for one in ranked.step.idle] == [
        (IdleCause.LAUNCH, 32, 905),
        (IdleCause.GAP, 31, 25),
        (IdleCause.LAUNCH, 33, 20),
    ]


def test_what_the_first_step_lost_is_not_missed(tmp_path):
    (ranked,), _ = read_ranks([rank(tmp_path / "0", 0, gpu_only(100, first=2))])
    assert ranked.gpu_only
    assert len(ranked.step.launches) == 3


@pytest.mark.parametrize(
    ("alone", "more", "why"),
    [
        (gpu_only(100, ("gemm", "copy", "norm")), {}, "launches other kernels from step to step"),
        (None, {"gpu_only": (), "ended_early": True}, "ended before it made 4 steps more"),
        (None, {"gpu_only": ()}, "one step was asked for"),
    ],
    ids=["other kernels", "ended", "asked for"],
)
def test_without_such_a_step_the_times_are_those_under_the_whole_profiler(tmp_path, alone, more, why):
    """On all ranks, since times of two steps say nothing of who waits for whom; and it says why."""
    parts = [rank(tmp_path / "0", 0, gpu_only(100)), rank(tmp_path / "1", 1, alone, **more)]
    ranked, _ = read_ranks(parts)
    assert [one.gpu_only for one in ranked] == [False, False]
    assert of(ranked[0].step) == [("gemm", 31, 0, 10), ("copy", 32, 100, 10), ("reduce", 33, 200, 10)]
    assert any(why in one.what for one in ranked[0].step.accounting.assumed)


def test_all_ranks_show_the_step_that_is_of_median_length_on_the_first(tmp_path):
    """Steps of 1000, 1010 and 1020 µs: the second, whatever the other rank's lengths are."""
    longer = gpu_only(100)
    for event in longer.events:
        step = int(event["ts"] // 1000)
        event["ts"] += (0, 0, 10, 30)[step]
    parts = [rank(tmp_path / "0", 0, longer), rank(tmp_path / "1", 1, gpu_only(100))]
    ranked, _ = read_ranks(parts)
    assert [one.step.environment.step for one in ranked] == [15, 15]
    assert [one.step.step_us for one in ranked] == [1010, 1000]


def test_the_report_says_which_steps_its_times_are_of(tmp_path):
    from undertorch.reports.terminal.ranks import unprofiled

    parts = [rank(tmp_path / str(number), number, gpu_only(100)) for number in range(2)]
    report = join_ranks(read_ranks(parts)[0])
    assert [one.step_us for one in report.ranks] == [1000, 1000]
    (said,) = unprofiled(report)
    assert "followed the GPU alone" in said
    (whole_said,) = unprofiled(replace(report, ranks=tuple(replace(one, gpu_only=False) for one in report.ranks)))
    assert "The profiler slows the CPUs" in whole_said


@pytest.fixture(scope="module")
def lstm(tmp_path_factory):
    """What an H200 left of an LSTM's steps (tests/golden/measured/gpu_only.json.gz), whose layers run side by side."""
    folder = tmp_path_factory.mktemp("lstm")
    measured = laid_out("gpu_only", folder)
    ranked = [read_ranks([(folder, one)])[0][0] for one in (measured, replace(measured, gpu_only=()))]
    assert [one.gpu_only for one in ranked] == [True, False]
    return [one.step for one in ranked], statistics.median(measured.timed_us)


def test_on_an_h200_every_launch_has_the_line_that_it_had(lstm):
    """Kernels that take 20 µs and more take as long in both steps, in the median: the GPU is the same. (Those that run
    beside others do not.)"""
    (alone, whole), _ = lstm
    assert len(alone.launches) == len(whole.launches) == 497
    by_stream = [sorted(one.launches, key=lambda launch: (launch.stream, launch.start_us)) for one in (alone, whole)]
    lines = [{op.id: op.where for op in one.ops} for one in (alone, whole)]
    for here, there in zip(*by_stream, strict=True):
        assert here.kernel.name == there.kernel.name
        assert lines[0][here.ops[0]] == lines[1][there.ops[0]] is not None
    ratios = [a.time_us / b.time_us for a, b in zip(*by_stream, strict=True) if min(a.time_us, b.time_us) > 20]
    assert len(ratios) > 100
    assert statistics.median(ratios) == pytest.approx(1, abs=0.02)


def test_on_an_h200_the_step_is_nearer_to_an_unprofiled_one(lstm):
    """8.5 ms unprofiled, 11.5 with the profiler on the GPU alone, 17.6 under the whole profiler. Launches of a stream
    do not overlap, and idle times with busy ones are the step."""
    (alone, whole), unprofiled = lstm
    assert unprofiled < alone.step_us < 1.5 * unprofiled < whole.step_us
    ends: dict[int, float] = {}
    for launch in alone.launches:
        assert launch.start_us >= ends.get(launch.stream, 0.0) - 1
        ends[launch.stream] = launch.start_us + launch.time_us
    assert busy_us(alone.launches) + sum(one.time_us for one in alone.idle) == pytest.approx(alone.step_us, abs=1)
    assert {one.cause for one in alone.idle} >= {IdleCause.LAUNCH, IdleCause.GAP}
    assert all(one.where is not None for one in alone.idle if one.cause in (IdleCause.LAUNCH, IdleCause.GAP))


SCRIPT = """
import sys
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("steps", "followed"), [("30", (13, 14, 15, 16)), pytest.param("15", (), marks=pytest.mark.slow)]
)
def test_a_rank_makes_four_steps_more(steps, followed, tmp_path, monkeypatch):
    """The first is the one in which the profiler settles. A script that ends before the last leaves what it made
    until then (here on the CPU, where the second profiler follows that)."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "measured"
    folder.mkdir()
    measured = run_measured(script, [steps], folder, without_gpu=True)
    assert measured.steps == (10, 11, 12)
    assert measured.gpu_only == followed
    assert measured.ended_early is not bool(followed)
    assert measured.steps_made == (16 if followed else 15)
    assert (folder / exchange.GPU_ONLY).exists() is bool(followed)


def test_one_process_alone_makes_none_and_neither_does_one_that_is_asked_for_a_step():
    assert plan(None).end == plan(None).last == 12
    assert plan(5, ranks=True).end == 5
