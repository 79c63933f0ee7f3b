"""A file is read in pieces, whatever their size, and never held whole."""

import gzip
import json
from collections import Counter

import pytest

from steps.traces.by_hand import Script, path
from undertorch.steps.traces import pieces as module
from undertorch.steps.traces import see_trace
from undertorch.steps.traces.pieces import again, pieces


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 4096)


def many(events: int) -> Script:
    script = Script()
    for place in range(events):
        script.call(f"aten::call{place}", 100 * place, 10)
        script.kernel(f'kernel {place} "}},{{" [x] ', 100 * place + 5, 100 * place + 20, 8)
    return script


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("alone", [False, True])
def test_each_event_is_in_one_piece_and_each_piece_is_json(tmp_path, small_blocks, indent, alone):
    """Names hold what stands between two events; in JSON their quotes are escaped."""
    script = many(300)
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(script.events if alone else {**script.content(), "after": {"a": [1]}}, indent=indent))
    found = [json.loads(piece.json) for piece in pieces(file)]
    assert len(found) > 10
    assert [event for one in found for event in one["traceEvents"]] == script.events
    if not alone:
        assert found[0]["deviceProperties"] == [{"id": 0, "name": "NVIDIA H200"}]
        assert found[-1]["after"] == {"a": [1]}


def test_a_piece_is_no_longer_than_two_blocks(tmp_path, small_blocks):
    """An event of these is some 300 bytes."""
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(many(300).content()))
    assert max(piece.place.length for piece in pieces(file)) <= 2 * 4096


def test_offsets_are_where_the_pieces_stand(tmp_path, small_blocks):
    file = tmp_path / "trace.json"
    text = json.dumps(many(100).content()).encode()
    file.write_bytes(text)
    for piece in pieces(file):
        place = piece.place
        own = text[place.offset : place.offset + place.length]
        assert piece.json == place.before + own + place.after


@pytest.mark.parametrize("packed", [False, True])
def test_pieces_that_are_wanted_are_read_again(tmp_path, small_blocks, packed):
    file = tmp_path / "trace.json"
    text = json.dumps(many(100).content()).encode()
    file.write_bytes(gzip.compress(text) if packed else text)
    found = list(pieces(file))
    for choice in (range(0, len(found), 3), [], [len(found) - 1]):
        wanted = [place in choice for place in range(len(found))]
        assert list(again(file, [one.place for one in found], wanted)) == [found[place] for place in choice]


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"traceEvents": []}', '{"a": [{"ph": 1}, {"ph": 2}]}'])
def test_what_has_no_two_events_is_one_piece(tmp_path, small_blocks, content):
    file = tmp_path / "trace.json"
    file.write_text(content)
    (piece,) = pieces(file)
    assert (piece.place.offset, piece.place.length) == (0, len(content))


def test_events_whose_keys_stand_in_another_order_are_one_piece(tmp_path, small_blocks):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(many(300).content(), sort_keys=True))
    (piece,) = pieces(file)
    assert len(json.loads(piece.json)["traceEvents"]) == 900


@pytest.mark.parametrize("name", ["v100_resnet_train", "h200_gpt2_train", "mi300_resnet_checkpoint_train"])
def test_the_step_is_the_same_whatever_the_pieces(name, monkeypatch):
    whole, _ = see_trace(path(name))
    monkeypatch.setattr(module, "BLOCK", 100_000)
    in_pieces, _ = see_trace(path(name))
    assert in_pieces == whole


def test_a_step_read_alone_has_what_it_has_in_the_whole_trace(tmp_path):
    """Of the V100's three steps, each one's kernels by plain JSON: those launched within its range."""
    found = json.loads(gzip.decompress(path("v100_resnet_train").read_bytes()))["traceEvents"]
    launched = {e["args"]["correlation"]: e["ts"] for e in found if e.get("cat") == "cuda_runtime"}
    for step in (e for e in found if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")):
        number = int(step["name"].partition("#")[2])
        mine = Counter(
            (e["ts"], e["dur"])
            for e in found
            if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
            and step["ts"] <= launched[e["args"]["correlation"]] <= step["ts"] + step["dur"]
        )
        if mine:
            shown, _ = see_trace(path("v100_resnet_train"), step=number)
            assert len(shown.launches) == mine.total()
            assert sum(one.time_us for one in shown.launches) == pytest.approx(
                sum(lasts for _, lasts in mine.elements())
            )


def test_damage_in_one_piece_is_mended_there(tmp_path, small_blocks):
    file = tmp_path / "trace.json"
    text = json.dumps(many(300).content()).encode()
    file.write_bytes(text.replace(b"aten::call7", b"aten::\x02call7", 1).replace(b"aten::call250", b"aten::\\call", 1))
    step, _ = see_trace(file)
    assert step.accounting.repaired == 2
    assert len(step.launches) == 300


def steps_of(script: Script, count: int) -> Script:
    """The same events, as many to each of some steps."""
    for step in range(count):
        script.range(f"ProfilerStep#{step}", 10_000 * step - 1, 9_990)
    return script


def test_allocations_that_stand_in_pieces_of_their_own_are_read(tmp_path, small_blocks):
    """At the end of the file, 300 of them: 100 in each of three steps, the most of the second's 2,099 bytes."""
    script = steps_of(many(300), 3)
    for place in range(300):
        alive = {"Device Type": 1, "Total Allocated": 1000 * (place // 100) + place % 100 + 1000}
        instant = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 100 * place + 6, "args": alive}
        script.events.append(instant)
    step, _ = see_trace(script.write(tmp_path), step=1)
    assert len(step.launches) == 100
    assert step.memory.peak_bytes == 2099


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_what_is_alive_when_the_step_begins_is_told_by_time_and_not_by_the_order_in_the_file(order, tmp_path):
    script = many(3)
    for place in order:
        alive = {"Device Type": 1, "Total Allocated": 1000 + place}
        script.events.append(
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 100 * place + 6, "args": alive}
        )
    step, _ = see_trace(script.write(tmp_path))
    assert (step.memory.start_bytes, step.memory.peak_bytes) == (1000, 1002)


def test_damage_is_told_wherever_in_the_file_it_is(tmp_path, small_blocks):
    """A kernel of the last step, where the second is shown."""
    script = steps_of(many(300), 3)
    (kernel,) = [event for event in script.events if event["name"].startswith("kernel 290 ")]
    kernel["dur"] = -1
    step, _ = see_trace(script.write(tmp_path), step=1)
    assert any("1 kernel, of kernel 290" in one.what for one in step.accounting.assumed)


def test_damage_beyond_mending_is_told_with_its_place_in_the_file(tmp_path, small_blocks):
    file = tmp_path / "trace.json"
    text = json.dumps(many(300).content()).encode()
    at = text.index(b'"aten::call250"')
    file.write_bytes(text[:at] + b"@" + text[at:])
    with pytest.raises(module.BadTrace, match=rf"\(near byte {at:,}\)\.$"):
        see_trace(file)
