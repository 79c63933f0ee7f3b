"""A Step survives the file; what is no Step is refused in one sentence; a file is written whole or not at all."""

import json
import os
import resource
import stat
import subprocess
import sys
import threading
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from steps_by_hand import NOTHING, STEP
from undertorch.records import Launch, Op, Step
from undertorch.records.files import SCHEMA, BadFile, from_json, read_steps, schema, to_json, write_steps, write_whole

LARGEST = 2**63 - 1
ROOT = Path(__file__).parents[2]
VALIDATOR = Draft202012Validator(schema())

st.register_type_strategy(float, st.floats(-1e12, 1e12, allow_nan=False))
st.register_type_strategy(int, st.integers(-LARGEST, LARGEST))


def records(kind, **given_fields):
    """Any record of that class; fields with a default are drawn too."""
    hints = get_type_hints(kind)
    drawn = {field.name: given_fields.get(field.name, st.from_type(hints[field.name])) for field in fields(kind)}
    assert is_dataclass(kind)
    return st.builds(kind, **drawn)


@st.composite
def any_steps(draw):
    """Any Step whose launches name Ops that it has."""
    ops = draw(st.lists(records(Op), max_size=3).map(lambda found: [replace(o, id=i) for i, o in enumerate(found)]))
    ids = st.lists(st.sampled_from(range(len(ops))), max_size=3).map(tuple) if ops else st.just(())
    launches = draw(st.lists(records(Launch, ops=ids), max_size=3))
    return draw(records(Step, ops=st.just(tuple(ops)), launches=st.just(tuple(launches))))


generous = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@generous
@given(st.lists(any_steps(), min_size=1, max_size=2))
def test_steps_come_back_from_a_file_as_they_were(steps):
    assert from_json(to_json(steps), "steps.json") == tuple(steps)


@generous
@given(st.lists(any_steps(), min_size=1, max_size=2))
def test_every_file_follows_the_schema(steps):
    VALIDATOR.validate(json.loads(to_json(steps)))


def test_one_step_is_an_object_and_several_are_a_list():
    assert json.loads(to_json([STEP]))["gpu"] == "H200"
    assert [entry["gpu"] for entry in json.loads(to_json([STEP, replace(STEP, gpu="A100")]))] == ["H200", "A100"]


def test_unknown_is_null_in_the_file():
    entry = json.loads(to_json([NOTHING]))
    assert entry["step_us"] is None
    assert entry["samples"] is None
    assert entry["memory"]["peak_bytes"] is None
    memset = json.loads(to_json([STEP]))["launches"][9]
    assert memset["grid"] is None
    assert memset["occupancy"] is None
    assert memset["file"] is None


def test_a_launch_stands_with_its_kernel_and_the_place_of_its_first_op():
    entry = json.loads(to_json([STEP]))["launches"][4]
    assert entry["kernel"] == "nvjet_backward"
    assert (entry["file"], entry["line"], entry["function"]) == ("model.py", 4, "forward")
    assert entry["grid"] == [132, 1, 1]
    assert entry["flops"] == 60_000_000_000


def test_names_outside_ascii_survive(tmp_path):
    step = replace(STEP, environment=replace(STEP.environment, script="训练/Übung 😀.py"))
    write_steps(tmp_path / "s.json", [step])
    assert read_steps(tmp_path / "s.json") == (step,)


@pytest.mark.parametrize("field", ["gpu", "launches", "accounting"])
def test_the_schema_refuses_a_step_that_lacks_a_field(field):
    entry = json.loads(to_json([STEP]))
    del entry[field]
    assert not VALIDATOR.is_valid(entry)


def test_the_schema_refuses_a_time_that_is_text():
    entry = json.loads(to_json([STEP]))
    entry["launches"][0]["time_us"] = "100"
    assert not VALIDATOR.is_valid(entry)


def changed(**fields_):
    return json.dumps(json.loads(to_json([STEP])) | fields_).encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(to_json([STEP])[:-20], "not a step", id="truncated"),
        pytest.param(b"", "not a step", id="empty"),
        pytest.param(b"\xff\xfe\x00", "not a step", id="binary"),
        pytest.param(b"3", "not a step", id="a number"),
        pytest.param(b'{"traceEvents": []}', "not a step", id="somebody else's JSON"),
        pytest.param(changed(gpu=3), "gpu", id="a field of another type"),
        pytest.param(changed(schema=2), "schema 2", id="a later schema"),
        pytest.param(b'{"schema": 2, "steps": []}', "schema 2", id="a later schema with other fields"),
        pytest.param(b'[{"schema": 7}]', "schema 7", id="a list of a later schema"),
    ],
)
def test_what_is_no_step_is_refused_in_one_sentence_that_names_the_file(data, says):
    with pytest.raises(BadFile) as refused:
        from_json(data, "some.json")
    sentence = str(refused.value)
    assert sentence.startswith("some.json ")
    assert says in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_a_file_that_cannot_be_encoded_leaves_the_old_one(tmp_path):
    """JSON is UTF-8, which has no lone surrogates: this step is refused before anything is written."""
    path = tmp_path / "s.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_steps(path, [replace(STEP, gpu="\udcff")])
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]
    assert path.read_text() == "old"


def test_a_file_that_cannot_be_replaced_leaves_no_other_behind(tmp_path):
    path = tmp_path / "s.json"
    path.mkdir()
    with pytest.raises(OSError, match=r"s\.json"):
        write_steps(path, [STEP])
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_no_half(tmp_path):
    """The disk is full after 100 bytes: the process may write no larger file."""
    path = tmp_path / "s.json"
    path.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write_steps(path, [STEP])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]
    assert path.read_text() == "old"


def test_a_pipe_stays_a_pipe_and_gets_the_file(tmp_path):
    """So do devices: a rename onto /dev/null, as root, would take it away from the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"all of it")
    reader.join(10)
    assert read == [b"all of it"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_stays_a_link_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    leads = tmp_path / "there" / "step.json"
    leads.write_bytes(b"old")
    leads.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(leads)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert leads.read_bytes() == b"new"
    assert stat.S_IMODE(leads.stat().st_mode) == 0o640


def test_standard_output_by_its_path_is_written_to_and_not_replaced(tmp_path):
    """/dev/stdout leads to the file that a shell opened; what stands there already stays."""
    shown = tmp_path / "shown"
    code = """if True:
        from pathlib import Path
        from undertorch.records.files import write_whole
        write_whole(Path("/dev/stdout"), b"two")
    """
    with shown.open("wb") as output:
        output.write(b"one ")
        output.flush()
        subprocess.run([sys.executable, "-c", code], stdout=output, check=True)
    assert shown.read_bytes() == b"one two"


def test_the_published_schema_is_the_one_that_the_records_make():
    """`make schema` writes it."""
    published = json.loads((ROOT / f"docs/schemas/see-{SCHEMA}.schema.json").read_text(encoding="utf-8"))
    made = json.loads(json.dumps(schema()))
    assert {name: published[name] for name in made} == made
    Draft202012Validator.check_schema(published)


def test_a_file_that_was_written_follows_the_published_schema(tmp_path):
    published = json.loads((ROOT / f"docs/schemas/see-{SCHEMA}.schema.json").read_text(encoding="utf-8"))
    write_steps(tmp_path / "one.json", [STEP])
    write_steps(tmp_path / "two.json", [STEP, NOTHING])
    for name in ("one.json", "two.json"):
        Draft202012Validator(published).validate(json.loads((tmp_path / name).read_text(encoding="utf-8")))
