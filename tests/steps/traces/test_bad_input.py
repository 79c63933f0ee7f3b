"""What is no trace, or none that a step can be read from, is one sentence; what is damaged and can be mended is."""

import gzip
import json

import pytest

from steps.traces.by_hand import Script, path
from undertorch.cli.main import run
from undertorch.records.files import read_steps
from undertorch.steps.traces import BadTrace, is_trace, see_trace


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


@pytest.mark.parametrize("text", ["", "no json", "import torch", "\x00\x01"])
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


def test_a_negative_duration_counts_as_damage(tmp_path):
    script = small()
    script.events[0]["dur"] = -1
    step, _ = see_trace(script.write(tmp_path))
    assert step.accounting.repaired == 1


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


def test_a_second_trace_is_one_too_many(tmp_path, capsys):
    file = small().write(tmp_path)
    assert run(["see", str(file), str(file)]) == 2
    assert "one argument too many" in capsys.readouterr().err
