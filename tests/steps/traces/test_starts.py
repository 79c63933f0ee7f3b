"""Starts keep their nanoseconds, from whatever moment a trace counts."""

import json

import pytest

from steps.traces.by_hand import Script
from undertorch.steps.ranks import join_ranks
from undertorch.steps.traces import pieces, see_rank, see_trace

TODAY_US = 1_796_050_000_123_456
"""Late in 2026, since 1970: neighbouring floats lie 0.25 µs apart there."""

QUARTER_NS = 1_790_857_026_000_000_000
"""A `baseTimeNanoseconds` of that year."""

RELATIVE_US = TODAY_US - QUARTER_NS // 1000


def written(folder, name: str, since_us: int, starts: tuple[str, ...], head: dict | None = None, **args) -> str:
    """A trace of kernels of 1 µs that start so long after a moment. Its starts are put down as text."""
    script = Script()
    for number, start in enumerate(starts):
        script.kernel(f"kernel{number}", number, 100.0 + number, 1.0, **args)
        script.events[-1]["ts"] = f"@{start}"
    for event in script.events:
        if isinstance(event["ts"], str):
            whole, _, decimals = event["ts"][1:].partition(".")
            event["ts"] = f"@{since_us + int(whole)}.{decimals or '000'}@"
        else:
            event["ts"] = f"@{since_us + int(event['ts'])}.000@"
    text = json.dumps({**(head or {}), **script.content()}).replace('"@', "").replace('@"', "")
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("since_us", "head"), [(TODAY_US, {}), (RELATIVE_US, {"baseTimeNanoseconds": QUARTER_NS}), (0, {})]
)
def test_kernels_ten_nanoseconds_apart_are_ten_nanoseconds_apart(tmp_path, since_us, head):
    """The first ends at 101.123 µs; the second begins at 101.133 µs, the third 40.001 µs after it has ended."""
    step, _ = see_trace(written(tmp_path, "trace.json", since_us, ("100.123", "101.133", "142.134"), head))
    first, second, third = step.launches
    assert second.start_us - first.end_us == pytest.approx(0.010, abs=0.0015)
    assert third.start_us - second.end_us == pytest.approx(40.001, abs=0.0015)
    assert step.step_us == pytest.approx(43.011, abs=0.0015)


def test_every_piece_of_a_file_counts_from_the_same_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "BLOCK", 1000)
    starts = tuple(f"{100 + 2 * number}.{number:03d}" for number in range(20))
    step, _ = see_trace(written(tmp_path, "trace.json", TODAY_US, starts))
    assert [launch.start_us for launch in step.launches] == pytest.approx(
        [2.001 * number for number in range(20)], abs=1e-4
    )


@pytest.mark.parametrize("block", [1000, 1 << 22])
def test_digits_that_change_all_at_once_change_nothing(tmp_path, monkeypatch, block):
    """The first kernels start before 1,796,100,000,000,000 µs since 1970, the others after."""
    monkeypatch.setattr(pieces, "BLOCK", block)
    starts = tuple(f"{100 + 2 * number}.{number:03d}" for number in range(20))
    step, _ = see_trace(written(tmp_path, "trace.json", 1_796_100_000_000_000 - 119, starts))
    assert [launch.start_us for launch in step.launches] == pytest.approx(
        [2.001 * number for number in range(20)], abs=1e-4
    )


@pytest.mark.parametrize("wrong", ["17960", "17960.5", "1796005000012345", "-1796050000123456.789", "0", "1.79605e15"])
def test_a_start_that_only_begins_like_the_others_is_damaged(tmp_path, monkeypatch, wrong):
    """Too short by some digits, or on the other side of 1970."""
    monkeypatch.setattr(pieces, "BLOCK", 1000)
    starts = tuple(f"{100 + 2 * number}.{number:03d}" for number in range(20))
    path = written(tmp_path, "trace.json", TODAY_US, starts)
    right = f'"ts": {TODAY_US + 124}.012'
    text = path.read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, f'"ts": {wrong}'))
    step, _ = see_trace(path)
    others = [number for number in range(20) if number != 12]
    assert [launch.start_us for launch in step.launches] == pytest.approx([2.001 * one for one in others], abs=1e-4)
    assert any("1 kernel, of kernel12" in one.what for one in step.accounting.assumed)


@pytest.mark.parametrize("base_ns", [QUARTER_NS, QUARTER_NS - 7_000_000_000_000])
def test_clocks_of_ranks_are_compared_across_what_their_files_count_from(tmp_path, base_ns):
    """One file counts from 1970, the other from a moment that it names. They end at 101.000 and 103.045 µs: rank 1's
    clock is taken to be that much ahead, so that it began at 100.300 µs, for which rank 0 waited.
    """
    described = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": 1}
    zero = written(tmp_path, "rank0.json", TODAY_US, ("100.000",), **described)
    since = TODAY_US - base_ns // 1000
    one = written(tmp_path, "rank1.json", since, ("102.345",), {"baseTimeNanoseconds": base_ns}, **described)
    for path in (zero, one):
        path.write_text(path.read_text().replace('"kernel0"', '"ncclDevKernel_AllReduce"'))
    one.write_text(one.read_text().replace('"dur": 1.0', '"dur": 0.7'))
    ranked = [see_rank(path).ranked for path in (zero, one)]
    report = join_ranks([step for step in ranked if step is not None])
    assert report.ranks[1].clock_us == pytest.approx(2.045, abs=0.0025)
    assert report.ranks[0].waited_us == pytest.approx(0.3, abs=0.0025)
