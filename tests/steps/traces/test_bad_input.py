"""What is no trace, or none that a step can be read from, is one sentence; what is damaged and can be mended is."""

import gzip
import json
import os

import pytest

from steps.traces.by_hand import Script, path
from undertorch.cli.main import run
from undertorch.records.files import read_steps
from undertorch.steps.traces import BadTrace, is_trace, pieces, see_trace


def small() -> Script:
    """One call that launches one kernel."""
    script = Script()
    script.call("aten::add", 0, 10)
    script.kernel("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()", 5, 20, 8)
    return script


def refused(file) -> str:
    with pytest.raises(BadTrace) as caught:
        see_trace(file)
    sentence = str(caught.value)
    assert sentence.startswith(str(file))
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_a_file_that_is_not_there(tmp_path):
    assert "cannot be read: No such file" in refused(tmp_path / "trace.json")


def test_a_gzip_that_is_cut_off(tmp_path):
    file = tmp_path / "trace.json.gz"
    file.write_bytes(path("mi250_toy_train").read_bytes()[:2000])
    assert "cut off" in refused(file)


def test_a_gzip_with_a_wrong_byte(tmp_path):
    file = tmp_path / "trace.json.gz"
    data = bytearray(path("mi250_toy_train").read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))
    assert "damaged" in refused(file)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_json_that_ends_in_the_middle(tmp_path, share):
    file = tmp_path / "trace.json"
    text = json.dumps(small().content())
    file.write_text(text[: int(len(text) * share)])
    assert "it ends in the middle" in refused(file)


@pytest.mark.parametrize("content", [b"", b" \n", gzip.compress(b"", mtime=0)])
def test_a_file_with_nothing_in_it(tmp_path, content):
    file = tmp_path / "trace.json.gz"
    file.write_bytes(content)
    assert "it is empty" in refused(file)


def test_a_trace_that_was_compressed_twice(tmp_path):
    file = tmp_path / "trace.json.gz"
    file.write_bytes(gzip.compress(gzip.compress(json.dumps(small().content()).encode())))
    assert "compressed twice" in refused(file)


def test_of_an_event_of_another_kind_the_place_is_told(tmp_path, monkeypatch):
    """By the piece that it is in, where the file is read in several: events are counted anew in each."""
    content = long().content()
    content["traceEvents"].append({"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 1})
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(content))
    place = f"$.traceEvents[{len(content['traceEvents']) - 1}].ts"
    assert place in refused(file)
    assert "a damaged one" in refused(file)
    monkeypatch.setattr(pieces, "BLOCK", 1000)
    said = refused(file)
    assert place not in said
    start = int(said.split("counted from byte ")[1].split(" ")[0].replace(",", ""))
    which = int(said.split("traceEvents[")[1].split("]")[0])
    part = json.loads('{"traceEvents": [' + file.read_text()[start:])["traceEvents"]
    assert part[which]["ts"] == "soon"


@pytest.mark.parametrize("text", ["no json", "import torch", "\x00\x01"])
def test_text_that_is_no_json(tmp_path, text):
    file = tmp_path / "trace.json"
    file.write_text(text)
    refused(file)


@pytest.mark.parametrize("content", [{}, {"a": 1}, {"deviceProperties": []}])
def test_json_without_events(tmp_path, content):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(content))
    assert "without traceEvents" in refused(file)


@pytest.mark.parametrize("content", [3, "text", {"traceEvents": 3}, {"traceEvents": [3]}, [[1]]])
def test_json_of_another_kind(tmp_path, content):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(content))
    assert "no trace of torch.profiler" in refused(file)


def test_a_step_that_undertorch_wrote(tmp_path, capsys):
    written = tmp_path / "step.json"
    assert run(["see", "--json", str(written), str(small().write(tmp_path))]) == 0
    capsys.readouterr()
    assert "`undertorch compare` reads those" in refused(written)


@pytest.mark.parametrize("events", [[], small().events[:1], [{"ph": "M", "name": "process_name"}]])
def test_a_trace_of_the_cpu_alone(tmp_path, events):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    assert "nothing that ran on a GPU" in refused(file)


def test_a_trace_of_two_gpus(tmp_path):
    script = small()
    script.kernel("other", 6, 40, 8, device=3)
    assert "2 GPUs (0, 3)" in refused(script.write(tmp_path))


def test_a_kernel_that_does_not_say_its_gpu_ran_on_that_of_the_others(tmp_path):
    script = small()
    script.kernel("other", 6, 40, 8)
    script.events[-1]["args"] = {}
    step, _ = see_trace(script.write(tmp_path))
    assert "other" in [launch.kernel.name for launch in step.launches]


@pytest.mark.parametrize("devices", [None, [], [{"id": 0, "name": None}]])
def test_a_trace_that_names_no_gpu_is_no_damaged_one(tmp_path, devices):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({**small().content(), "deviceProperties": devices}))
    assert "does not name its GPU" in refused(file)


def test_a_trace_of_two_ranks_on_one_gpu(tmp_path):
    script = small()
    script.kernel("other", 6, 40, 8)
    script.events[-2]["pid"] = 200
    assert "2 processes" in refused(script.write(tmp_path))


def test_steps_in_which_the_gpu_did_nothing(tmp_path):
    script = small()
    script.range("ProfilerStep#3", 1000, 100)
    assert "in any of its 1 steps" in refused(script.write(tmp_path))


@pytest.mark.parametrize("name", ["", "Some GPU of next year"])
def test_a_gpu_that_has_no_name_or_no_sheet(tmp_path, name):
    script = small()
    script.gpu = name
    assert "--gpu" in refused(script.write(tmp_path))


def test_with_its_sheet_named_it_is_shown(tmp_path, capsys):
    script = small()
    script.gpu = "Some GPU of next year"
    written = tmp_path / "step.json"
    assert run(["see", "--gpu", "L4", "--json", str(written), str(script.write(tmp_path))]) == 0
    (step,) = read_steps(written)
    assert (step.gpu, step.environment.gpu_name) == ("L4", "Some GPU of next year")


DAMAGES = [
    pytest.param(b"aten::add", b"aten::\x01add", 1, id="a control byte"),
    pytest.param(b"aten::add", b"aten::\nadd", 1, id="a raw newline"),
    pytest.param(b"aten::add", b"C:\\code", 1, id="a wrong escape"),
    pytest.param(b'"ts": 0,', b'"ts": 0, "flops": nan, "x": -Infinity,', 2, id="no numbers"),
    pytest.param(b"aten::add", b"aten::\xffadd", 1, id="no UTF-8"),
]


@pytest.mark.parametrize(("right", "wrong", "places"), DAMAGES)
def test_damaged_text_is_mended_and_counted(tmp_path, right, wrong, places):
    file = tmp_path / "trace.json"
    text = json.dumps(small().content()).encode()
    assert text.count(right) == 1
    file.write_bytes(text.replace(right, wrong))
    step, _ = see_trace(file)
    assert len(step.launches) == 1
    assert step.accounting.repaired == places


def test_whole_numbers_beyond_64_bits_and_numbers_as_text_are_read(tmp_path):
    """As torch before 1.13 wrote them, under other categories."""
    script = small()
    script.events[0]["args"]["External id"] = 2**70
    kernel = script.events[-1]
    kernel["args"] |= {"stream": "7", "correlation": str(kernel["args"]["correlation"]), "registers per thread": "32"}
    kernel["cat"], script.events[0]["cat"], script.events[1]["cat"] = "Kernel", "Operator", "Runtime"
    step, _ = see_trace(script.write(tmp_path))
    (launch,) = step.launches
    assert (launch.stream, launch.kernel.registers) == (7, 32)
    assert [step.ops[op].name for op in launch.ops] == ["aten::add"]


def long() -> Script:
    """Twenty calls, each of which launches one kernel of 8 µs."""
    script = Script()
    for place in range(20):
        script.call(f"aten::call{place}", 100 * place, 10)
        script.kernel(f"kernel{place}", 100 * place + 5, 100 * place + 20, 8)
    return script


IMPOSSIBLE = [
    pytest.param({"dur": -1}, id="a negative duration"),
    pytest.param({"dur": 1e300}, id="a duration beyond all times"),
    pytest.param({"dur": None}, id="no duration"),
    pytest.param({"dur": float("nan")}, id="a duration that is no number"),
    pytest.param({"ts": None}, id="no start"),
    pytest.param({"ts": 1e18}, id="a start far behind the others"),
    pytest.param({"ts": -1e300}, id="a start far before the others"),
]


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
def test_a_kernel_whose_times_cannot_be_is_left_out_counted_and_named(tmp_path, wrong):
    """Nineteen of twenty are left: the step lasts from the start of the second, 120 µs, to the last one's end, 1928."""
    script = long()
    (kernel,) = [event for event in script.events if event["name"] == "kernel0"]
    kernel |= wrong
    step, _ = see_trace(script.write(tmp_path))
    assert [launch.kernel.name for launch in step.launches] == [f"kernel{place}" for place in range(1, 20)]
    assert step.step_us == pytest.approx(1808)
    (said,) = [one.what for one in step.accounting.assumed if "damaged" in one.what]
    assert said.endswith("far from all others): 1 kernel, of kernel0.")
    assert step.accounting.lost_launches == 0


def test_calls_ranges_and_functions_are_left_out_too(tmp_path):
    script = long()
    script.range("a range", -5, -5)
    script.range("model.py(3): forward", 3, 1e300, "python_function")
    script.events[0]["dur"] = -3
    step, _ = see_trace(script.write(tmp_path))
    (said,) = [one.what for one in step.accounting.assumed if "damaged" in one.what]
    assert "1 call, 1 range and 1 Python function, of aten::call0, a range, model.py(3): forward." in said
    assert all(op.where is None for op in step.ops)


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
@pytest.mark.parametrize(
    ("category", "said"),
    [
        ("kernel", "20 of 20 events that ran on the GPU"),
        ("cpu_op", "20 of 40 events of the calls and launches"),
        ("cuda_runtime", "20 of 40 events of the calls and launches"),
        ("user_annotation", "the times of ProfilerStep#1 cannot be"),
    ],
)
def test_where_many_times_cannot_be_the_step_is_refused(tmp_path, wrong, category, said):
    script = long()
    script.range("ProfilerStep#1", -10, 990)
    script.range("ProfilerStep#2", 980, 1100)
    script.range("python", 0, 1, "python_function")
    for event in script.events:
        if event["cat"] == category:
            event.update(wrong)
    assert said in refused(script.write(tmp_path))


def test_kernels_that_all_last_nothing_are_refused(tmp_path):
    script = long()
    for event in script.events:
        if event["cat"] == "kernel":
            event["dur"] = 0
    assert "each of its 20 kernels lasts 0 µs" in refused(script.write(tmp_path))


def test_json_that_nests_deeper_than_python_reads(tmp_path):
    file = tmp_path / "trace.json"
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    file.write_text(f'{{"traceEvents": [{{"ph": "X", "args": {deep}}}]}}')
    assert "nests deeper" in refused(file)


def test_a_list_of_events_alone_is_a_trace(tmp_path):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(small().events))
    assert "does not name its GPU" in refused(file)


def test_a_trace_is_told_from_a_script(tmp_path):
    packed = tmp_path / "no_suffix"
    packed.write_bytes(gzip.compress(b"{}"))
    script = tmp_path / "train.py"
    script.write_text("import torch")
    assert is_trace(packed)
    assert is_trace(tmp_path / "trace.json.gz")
    assert not is_trace(script)
    assert not is_trace(tmp_path / "package.module")
    assert not is_trace(tmp_path)


def test_on_the_command_line_it_is_one_sentence_and_status_2(tmp_path, capsys):
    file = tmp_path / "trace.json.gz"
    file.write_bytes(b"\x1f\x8b")
    assert run(["see", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("undertorch: ")
    assert err.count("\n") == 1


def test_names_move_no_terminal(tmp_path):
    """ESC [2J clears a screen, ESC ]0; sets its title, U+202E turns the direction of writing."""
    script = Script()
    script.range("model.py(5): for\x1b[2Jward", 0, 30, "python_function")
    script.call("aten::\x1b]0;title\x07call", 1, 10)
    script.kernel("ker\x1b[2Jnel\u202e", 5, 20, 8)
    script.kernel("lo\x1b[2Jst", 8, 40, -8)
    script.events += [dict(script.events[-3], name="kernel", ts=100 + place) for place in range(20)]
    step, _ = see_trace(script.write(tmp_path))
    for written in (repr(step), *(one.what for one in step.accounting.assumed)):
        assert "\\x1b" not in written
        assert "\x1b" not in written
    (op,) = step.ops
    assert op.name == "aten::\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}call"


@pytest.mark.parametrize("name", ["trace.json", "pipe"])
def test_a_pipe_is_refused(tmp_path, name):
    pipe = tmp_path / name
    os.mkfifo(pipe)
    assert is_trace(pipe)
    assert refused(pipe).endswith("is a pipe, and a trace is read twice; write it to a file, and name that.")
