"""The trace: what Chrome's trace-event format asks for, so that ui.perfetto.dev draws it without losing a slice.

The rules of Perfetto for JSON are held here: slices of a track nest, times are not negative, every track has a name.
What Perfetto itself makes of the file stands in tests/browser/test_perfetto.py.
"""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps_by_hand import NOTHING, STEP, kernel, launch, with_launches
from undertorch.records import Origin, Phase
from undertorch.reports.perfetto import trace, write_perfetto

OVERLAPPING = with_launches(
    launch(kernel("first"), (0,), Phase.FORWARD, 0, 10),
    launch(kernel("second"), (1,), Phase.FORWARD, 9, 10),  # a microsecond early, as Hopper's profiles have it
    launch(kernel("third"), (2,), Phase.LOSS, 19, 10),
    launch(kernel("elsewhere"), (3,), Phase.BACKWARD, 5, 30, stream=20),
    launch(kernel("other gpu"), (4,), Phase.BACKWARD, 0, 40, device=1),
)
STEPS = [
    pytest.param(STEP, id="by hand"),
    pytest.param(NOTHING, id="nothing ran"),
    pytest.param(OVERLAPPING, id="streams and GPUs"),
]


def read(step):
    """As a reader of the file has it: through JSON."""
    return json.loads(json.dumps(trace(step), default=str))


def slices(step):
    return [event for event in read(step)["traceEvents"] if event["ph"] == "X"]


def tracks(step):
    """Each track's slices by its name, with its process."""
    events = read(step)["traceEvents"]
    names = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event.get("name") == "thread_name"
    }
    found = defaultdict(list)
    for event in slices(step):
        found[event["pid"], names[event["pid"], event["tid"]]].append(event)
    return found


@pytest.mark.parametrize("step", STEPS)
def test_slices_of_a_track_do_not_overlap(step):
    """In whole nanoseconds, which is what Perfetto counts in."""
    for own in tracks(step).values():
        spans = sorted(
            (round(event["ts"] * 1000), round(event["ts"] * 1000) + round(event["dur"] * 1000)) for event in own
        )
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


@given(st.lists(st.tuples(st.floats(-100, 1e5), st.floats(0, 1000)), max_size=40))
def test_whatever_the_times_each_launch_is_drawn_once_and_nothing_overlaps(times):
    launches = sorted(
        (launch(kernel("k"), (), Phase.FORWARD, start, time) for start, time in times), key=lambda one: one.start_us
    )
    step = replace(STEP, launches=tuple(launches), idle=())
    test_slices_of_a_track_do_not_overlap(step)
    assert sum(event["name"] == "k" for event in slices(step)) == len(times)
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in slices(step))


@pytest.mark.parametrize("step", STEPS)
def test_the_format_is_kept(step):
    found = read(step)
    assert found["displayTimeUnit"] in ("ms", "ns")
    processes = {event["pid"] for event in found["traceEvents"] if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]) for event in found["traceEvents"] if event["name"] == "thread_name"}
    assert len({tid for _, tid in threads}) == len(threads)
    for event in found["traceEvents"]:
        assert event["ph"] in ("X", "C", "M")
        assert event["pid"] in processes
        assert isinstance(event["name"], str)
        assert isinstance(event["args"], dict)
        assert None not in event["args"].values()
        if event["ph"] == "X":
            assert (event["pid"], event["tid"]) in threads
            assert event["pid"] != event["tid"]
        if event["ph"] == "C":
            assert isinstance(event["args"]["bytes"], int)


def test_the_tracks_of_the_step_by_hand():
    found = {
        name: [(event["name"], event["ts"], event["dur"]) for event in own] for (_, name), own in tracks(STEP).items()
    }
    assert found["phases"][0] == ("forward", 0, 400)
    assert ("model.py:4  return self.head(h)", 100, 300) in found["lines"]
    assert ("no source line known", 1880, 20) in found["lines"]
    assert found["stream 7"][1] == ("nvjet_forward", 100, 300)
    assert found["idle"] == [("idle: launch", 1450, 10), ("idle: sync", 1900, 100)]
    assert list(found) == ["phases", "lines", "stream 7", "idle"]


def test_a_launch_carries_its_figures_with_their_origins():
    (event,) = [event for event in slices(STEP) if event["name"] == "nvjet_forward"]
    args = event["args"]
    assert args["grid"] == [132, 1, 1]
    assert args["grid and block are"] == "predicted"
    assert args["occupancy"] == 0.1875
    assert args["occupancy is limited by"] == "shared"
    assert args["FLOPs"] == 60_000_000_000
    assert args["bytes and FLOPs are"] == "computed"
    assert args["line"] == "model.py:4"
    assert args["op"] == "aten::addmm"
    assert args["time is"] == "predicted"
    (unknown,) = [event for event in slices(STEP) if event["name"] == "somebodys_kernel"]
    assert {"FLOPs", "least bytes read", "bound", "line", "op"}.isdisjoint(unknown["args"])


def test_overlapping_launches_of_a_stream_stand_beside_it():
    first, *_ = {pid for pid, _ in tracks(OVERLAPPING)}
    names = {name: [event["name"] for event in own] for (pid, name), own in tracks(OVERLAPPING).items() if pid == first}
    assert names["stream 7"] == ["first", "third"]
    assert names["stream 7 (overlapping, 1)"] == ["second"]
    assert names["stream 20"] == ["elsewhere"]


def test_memory_counts_from_the_start():
    """1.5 GB when the step begins; the samples are of the ops that start at 100 and 500 µs."""
    counters = [event for event in read(STEP)["traceEvents"] if event["ph"] == "C"]
    assert [(event["ts"], event["args"]["bytes"]) for event in counters] == [
        (0, 1_500_000_000),
        (100, 20_000_000_000),
        (500, 30_400_000_000),
    ]
    assert {event["name"] for event in counters} == {"memory alive (computed)"}


def test_each_gpu_is_a_process_that_says_where_its_times_come_from():
    names = [event["args"]["name"] for event in read(OVERLAPPING)["traceEvents"] if event["name"] == "process_name"]
    assert names == ["GPU 0: H200, times predicted", "GPU 1: H200, times predicted"]
    measured = replace(STEP, time_origin=Origin.MEASURED)
    assert read(measured)["otherData"]["times"] == "measured"


def test_a_launch_before_the_step_moves_the_trace_and_not_the_launch():
    early = with_launches(
        launch(kernel("early"), (0,), Phase.FORWARD, -5, 10), launch(kernel("k"), (1,), Phase.LOSS, 5, 1)
    )
    assert [event["ts"] for event in tracks(early)[1000, "stream 7"]] == [0, 10]


def test_names_that_are_no_unicode_are_written(tmp_path):
    name = b"k\xff".decode("utf-8", "surrogateescape")
    path = tmp_path / "trace.json"
    write_perfetto(path, with_launches(launch(kernel(name), (0,), Phase.FORWARD, 0, 1)))
    assert "k?" in [event["name"] for event in json.loads(path.read_bytes())["traceEvents"]]
    assert list(tmp_path.iterdir()) == [path]
