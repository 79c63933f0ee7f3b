"""What is chosen, when it may be measured, and how it is kept."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from undertorch.ops import choose
from undertorch.ops.calls import as_compiled_code
from undertorch.ops.choose import Choice


@pytest.fixture(autouse=True)
def of_its_own(tmp_path, monkeypatch):
    """A cache and a memory that no other test has seen."""
    monkeypatch.setenv("UNDERTORCH_CACHE", str(tmp_path))
    monkeypatch.delenv("UNDERTORCH_OPS", raising=False)
    for memory in ("_CHOSEN", "_USUAL", "_EXPLAINED", "_STORED"):
        monkeypatch.setattr(choose, memory, {})


@pytest.fixture
def measured(monkeypatch):
    """A GPU's clock stands in: times by way, and the calls that were made to measure."""
    times, asked = {"a": 3.0, "b": 2.0, "library": 5.0}, []

    def measure(ways, call, tensors):
        asked.append(list(ways))
        return {way: times[way] for way in ways}

    monkeypatch.setattr(choose, "measure", measure)
    monkeypatch.setattr(choose, "environment", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return times, asked


class OnGpu:
    """What `chosen` looks at of a tensor on a GPU."""

    is_cuda = True
    device = torch.device("cuda", 0)
    dtype = torch.bfloat16


def ask(rows=100, width=64, library=True, ways=("a", "b")):
    return choose.chosen("some_pass", OnGpu, rows, width, ways, lambda way, tensors: None, (), library=library)


def test_the_fastest_way_is_taken(measured):
    assert ask() == "b"


def test_the_library_stays_where_ours_is_not_2_percent_ahead(measured):
    measured[0]["library"] = 2.03
    assert ask() == choose.LIBRARY


def test_a_class_of_calls_is_measured_once(measured):
    for rows in (65, 100, 127):  # up to the next power of two they are one class
        ask(rows=rows)
    assert len(measured[1]) == 1
    ask(rows=300)
    ask(width=65)
    assert len(measured[1]) == 3


def test_another_process_finds_what_was_measured(measured, monkeypatch):
    ask()
    for memory in ("_CHOSEN", "_USUAL", "_STORED"):
        monkeypatch.setattr(choose, memory, {})
    assert ask() == "b"
    assert len(measured[1]) == 1


def test_what_was_measured_elsewhere_does_not_hold_here(measured, monkeypatch):
    ask()
    for memory in ("_CHOSEN", "_USUAL", "_STORED"):
        monkeypatch.setattr(choose, memory, {})
    monkeypatch.setattr(choose, "environment", lambda device: "another GPU")
    ask()
    assert len(measured[1]) == 2


@pytest.mark.parametrize("moment", ["capturing", "deterministic", "compiling", "machine", "own"])
def test_nothing_is_measured_at_the_wrong_moment(measured, monkeypatch, moment):
    """Then the usual way, the first, is taken, and the class is measured later."""
    with monkeypatch.context() as patch:
        if moment == "capturing":
            patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        elif moment == "deterministic":
            patch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
        elif moment == "machine":
            patch.setattr(choose, "on_machine", lambda: True)
        elif moment == "compiling":
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
        else:
            patch.setenv("UNDERTORCH_OPS", "own")
        assert ask() == "a"
        assert measured[1] == []
    if moment != "own":
        assert ask() == "b"


def test_ways_are_listed_for_new_classes_of_calls_only(measured, monkeypatch):
    """Listing them takes longer than a launch. Where nothing may be measured they are listed once, too."""
    listed = []

    def ways():
        listed.append(1)
        return ("a", "b")

    assert [ask(ways=ways) for _ in range(3)] == ["b"] * 3
    assert len(listed) == 1
    monkeypatch.setattr(choose, "on_machine", lambda: True)
    assert [ask(ways=ways, rows=3000) for _ in range(3)] == ["a"] * 3
    assert len(listed) == 2


def test_deterministic_mode_takes_the_usual_way_whatever_was_chosen_before(measured, monkeypatch):
    assert ask() == "b"
    with monkeypatch.context() as patch:
        patch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
        assert ask() == "a"
    assert ask() == "b"


def test_nothing_is_measured_by_compiled_code(measured):
    """What torch.compile made runs after the compilation, where torch.compiler.is_compiling() says no."""
    assert as_compiled_code(ask, ()) == "a"
    assert measured[1] == []
    assert ask() == "b"
    assert as_compiled_code(ask, ()) == "b"


def test_an_empty_mode_is_none(monkeypatch):
    monkeypatch.setenv("UNDERTORCH_OPS", "")
    assert choose.mode() == "auto"


def test_an_unknown_mode_is_refused(monkeypatch):
    monkeypatch.setenv("UNDERTORCH_OPS", "fast")
    with pytest.raises(ValueError, match="UNDERTORCH_OPS is 'fast'; it is one of auto, own, library"):
        choose.mode()


def test_choices_go_from_one_machine_to_another(measured, tmp_path, monkeypatch):
    ask()
    choose.save(tmp_path / "carried.json")
    monkeypatch.setenv("UNDERTORCH_CACHE", str(tmp_path / "elsewhere"))
    for memory in ("_CHOSEN", "_USUAL", "_STORED"):
        monkeypatch.setattr(choose, memory, {})
    choose.load(tmp_path / "carried.json")
    assert ask() == "b"
    assert len(measured[1]) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 2}', '{"schema": 1, "choices": {"here": {"key": {}}}}'])
def test_a_cache_that_is_none_of_ours_is_passed_over_and_refused_when_asked_for(measured, tmp_path, content):
    (tmp_path / "ops.json").write_text(content)
    assert ask() == "b"
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ValueError, match="holds no choices of ops"):
        choose.load(tmp_path / "bad.json")


def test_the_cache_says_what_was_measured_and_why(measured, tmp_path):
    ask()
    kept = json.loads((tmp_path / "ops.json").read_text())["choices"]["a GPU"]["some_pass bfloat16 128x64"]
    assert Choice(**kept).microseconds == {"a": 3.0, "b": 2.0, "library": 5.0}
    assert Choice(**kept).why == "fastest of 3"


class Clock:
    """torch.cuda as far as measuring uses it: graphs that know how long what they hold takes, and the clock."""

    def __init__(self):
        self.now, self.capturing, self.called = 0.0, None, []

    def graph(self):
        clock = self

        class Graph:
            def capture_begin(self, capture_error_mode):
                self.takes, clock.capturing = 0.0, self

            def capture_end(self):
                clock.capturing = None

            def replay(self):
                clock.now += self.takes

        return Graph()

    def event(self, enable_timing):
        clock = self

        class Event:
            def record(self):
                self.at = clock.now

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return end.at - self.at

        return Event()

    def call(self, way, tensors):
        """Takes as many ms as its way says; `none` does not run."""
        if way == "none":
            raise RuntimeError("does not fit")
        self.called.append((way, self.capturing is not None))
        if self.capturing is not None:
            self.capturing.takes += float(way)


@pytest.fixture
def clock(monkeypatch):
    """A GPU with 1,000 bytes of L2."""
    made = Clock()
    stream = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)
    for name, value in {
        "device": lambda device: nullcontext(),
        "stream": lambda stream: nullcontext(),
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "CUDAGraph": made.graph,
        "Event": made.event,
        "get_device_properties": lambda device: SimpleNamespace(L2_cache_size=1000),
        "get_device_name": lambda device: "a GPU",
        "is_current_stream_capturing": lambda: made.capturing is not None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def test_a_way_is_timed_by_a_graph_of_calls_that_exceed_the_cache(clock):
    """100 floats are 400 bytes: 8 sets exceed 3,000. A call outside of the graph compiles; one that fails is out."""
    assert choose.measure(["2", "none", "0.5"], clock.call, (torch.ones(100), None)) == {"2": 2000.0, "0.5": 500.0}
    assert clock.called.count(("2", True)) == 8
    assert clock.called.count(("2", False)) == 1


def test_the_first_call_of_a_user_measures_and_keeps_the_fastest(clock, tmp_path):
    """All of it, but for the GPU: no way in which the clock, the graphs or the environment are asked may fail."""

    class Tensor(torch.Tensor):
        is_cuda = True

    x = torch.ones(100).as_subclass(Tensor)
    choose.environment.cache_clear()
    for _ in range(2):
        assert choose.chosen("some_pass", x, 4, 25, ("2", "0.5"), clock.call, (x,), library=False) == "0.5"
    assert clock.called.count(("2", False)) == 1
    (where,) = json.loads((tmp_path / "ops.json").read_text())["choices"]
    assert where.startswith("a GPU, driver ")
    assert f"torch {torch.__version__}" in where
    choose.environment.cache_clear()
