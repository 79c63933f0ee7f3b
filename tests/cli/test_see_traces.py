"""`undertorch see` of traces: one, several in a table, and what is no trace."""

import gzip
import json
import shutil

import pytest

from drawn import one_row, part
from steps.traces.by_hand import Script, path
from undertorch.cli.main import run
from undertorch.records.files import read_steps

WIDE = "500"
"""Columns in which the longest path of a test's folder is not cut."""


def lasting(folder, name: str, us: float, gpu: str = "NVIDIA H200"):
    """A trace of one call that launches one kernel, from a function of model.py."""
    script = Script(gpu=gpu)
    script.range("model.py(5): forward", 0, 30, "python_function")
    script.call("aten::add", 1, 10)
    script.kernel("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()", 5, 20, us)
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(script.content()))
    return file


def steps_of(folder, numbers):
    """A trace with such steps of profiler.step()."""
    script = Script()
    for place, number in enumerate(numbers):
        script.range(f"ProfilerStep#{number}", 100 * place, 90)
        script.call("aten::add", 100 * place + 1, 10)
        script.kernel("kernel", 100 * place + 2, 100 * place + 20, 10 + number)
    return script.write(folder)


def refused(capsys, *arguments) -> str:
    """The one sentence that a wrong use is answered with."""
    assert run(["see", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("undertorch: ")
    return err


def test_several_traces_have_a_row_each_and_the_first_is_shown_in_full(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", WIDE)
    one, other = lasting(tmp_path, "rank0/trace.json", 30), lasting(tmp_path, "rank1/trace.json", 20)
    assert run(["see", str(one), str(other)]) == 0
    out, err = capsys.readouterr()
    rows = [row.split() for row in out.splitlines() if row.startswith("  rank")]
    assert rows == [
        ["rank0/trace", "30", "µs", "30", "µs", "0.0", "%", "–", "100", "%", "model.py:5"],
        ["rank1/trace", "20", "µs", "20", "µs", "0.0", "%", "–", "100", "%", "model.py:5"],
    ]
    assert out.count("times measured\n─") == 1
    assert one_row(out.splitlines()[-3:]).endswith(
        f"This was {one}, line by line; give another trace alone to see it so."
    )
    assert err == ""


def test_traces_of_different_gpus_name_them(tmp_path, capsys):
    traces = lasting(tmp_path, "a.json", 30), lasting(tmp_path, "b.json", 20, gpu="NVIDIA L4")
    assert run(["see", *map(str, traces)]) == 0
    out = capsys.readouterr().out
    assert "a · H200" in out
    assert "b · L4" in out


def test_their_json_is_a_list_and_that_of_one_is_not(tmp_path, capsys):
    traces = [str(lasting(tmp_path, name, 20)) for name in ("a.json", "b.json")]
    written = tmp_path / "steps.out"
    assert run(["see", "--json", str(written), *traces]) == 0
    assert [step.environment.script for step in read_steps(written)] == traces
    assert isinstance(json.loads(written.read_bytes()), list)
    assert run(["see", "--json", str(written), traces[0]]) == 0
    assert isinstance(json.loads(written.read_bytes()), dict)
    capsys.readouterr()
    assert run(["see", "--json", "-", *traces]) == 0


def test_page_perfetto_and_json_of_several_are_written_together(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the page cuts the longest paths
    traces = [lasting(tmp_path, name, 20).name for name in ("a.json", "b.json")]
    files = [tmp_path / name for name in ("page.html", "perfetto.out", "steps.out")]
    options = [word for pair in zip(("--page", "--perfetto", "--json"), files, strict=True) for word in map(str, pair)]
    assert run(["see", *options, *traces]) == 0
    page, perfetto, steps = (file.read_text() for file in files)
    assert all(f">{name}" in page or name in page for name in traces)
    assert json.loads(perfetto)["traceEvents"]
    assert len(json.loads(steps)) == 2
    capsys.readouterr()


def test_one_that_cannot_be_read_is_named_and_the_others_are_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", WIDE)
    good, bad = lasting(tmp_path, "good.json", 20), tmp_path / "bad.json"
    bad.write_text("{")
    assert run(["see", str(bad), str(good)]) == 2
    out, err = capsys.readouterr()
    assert good.name in one_row(out.splitlines())
    assert err == f"undertorch: {bad} is no trace that can be read: it ends in the middle.\n"


def test_the_step_that_is_asked_for_is_shown(tmp_path, capsys):
    trace = steps_of(tmp_path, [5, 6, 7, 9])
    assert run(["see", "--step", "9", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "step 9 · H200" in one_row(out.splitlines())
    assert "The trace holds 4 steps with work on the GPU, 5 to 9; this is one of them." in one_row(part(out, "Notes"))
    assert "its steps are: 5, 6, 7, 9." in refused(capsys, "--step", "8", trace)


def test_a_profiler_counts_its_steps_from_0_and_a_script_from_1(tmp_path, capsys):
    assert run(["see", "--step", "0", str(steps_of(tmp_path, [0, 1]))]) == 0
    capsys.readouterr()
    assert "counted from 1" in refused(capsys, "--step", "0", "train.py")


def test_what_is_no_trace_among_traces_is_refused(tmp_path, capsys):
    trace, script = lasting(tmp_path, "a.json", 20), tmp_path / "train.py"
    script.write_text("import torch")
    assert f"{script} is none." in refused(capsys, trace, script)
    assert "put undertorch's options before the traces." in refused(capsys, trace, "--page", "page.html")
    assert "given twice" in refused(capsys, trace, trace)
    assert "nosuch.json.gz is no file" in refused(capsys, tmp_path / "nosuch.json.gz", script)
    assert "--assume is for scripts" in refused(capsys, "--assume", "3=1", trace)
    assert "--host-speed is for scripts" in refused(capsys, "--host-speed", "2", trace)
    assert "L5" in refused(capsys, "--gpu", "L5", trace)


@pytest.mark.parametrize("address", ["https://example.org/trace.json.gz", "s3://runs/trace.json", "http://x/train.py"])
def test_an_address_is_refused(address, capsys):
    assert "is an address, and nothing is fetched; download it, and name the file." in refused(capsys, address)


def test_a_folder_is_the_traces_in_it(tmp_path, capsys):
    """As tensorboard_trace_handler writes them."""
    trace = lasting(tmp_path, "logs/host_1.pt.trace.json", 20)
    assert run(["see", str(trace)]) == 0
    alone = capsys.readouterr().out
    assert run(["see", str(trace.parent)]) == 0
    assert capsys.readouterr().out == alone


def test_a_trace_in_a_folder_is_not_overwritten(tmp_path, capsys):
    trace = lasting(tmp_path, "logs/host_1.pt.trace.json", 20)
    before = trace.read_bytes()
    assert run(["see", "--json", str(trace), str(trace.parent)]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_what_the_terminal_does_not_name_the_json_and_the_page_keep(tmp_path, capsys):
    """64 kernels of the V100's trace have no bytes: by plain JSON, all that are no copies or memsets."""
    trace = tmp_path / "trace.json.gz"
    shutil.copy(path("v100_resnet_train"), trace)
    found = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in found)
    page, written = tmp_path / "page.html", tmp_path / "step.out"
    assert run(["see", "--page", str(page), "--json", str(written), str(trace)]) == 0
    said = part(capsys.readouterr().out, "Accounting")
    assert len(said) < 12
    (step,) = read_steps(written)
    unknown = {launch.kernel.name for launch in step.launches if launch.kernel.min_bytes is None}
    assert f"and {len(unknown) - 3} more kernels" in one_row(said)
    text = page.read_text().replace("<wbr>", "").replace("&lt;", "<").replace("&gt;", ">")
    assert [name for name in unknown if name not in text] == []


def test_a_measured_step_is_not_told_what_concerns_predictions(tmp_path, capsys):
    """The V100's sheet is unverified, which is a word about predicted times."""
    page = tmp_path / "page.html"
    assert run(["see", "--page", str(page), str(path("v100_resnet_train"))]) == 0
    out = capsys.readouterr().out
    for word in ("unverified", "predicted", "Every op's kernels"):
        assert word not in out
    assert "unverified" not in page.read_text()
    said = one_row(part(out, "Accounting"))
    assert "times measured; bounds computed 349, none 870; bytes and FLOPs measured 349, none 870" in said
    assert "registers measured 870, none 349; occupancy computed 870, none 349." in said
    notes = one_row(part(out, "Notes"))
    for option in ("record_shapes=True", "with_stack=True", "profile_memory=True"):
        assert option in notes


def test_traces_take_one_gpu_however_often_it_is_named(tmp_path, capsys):
    trace = lasting(tmp_path, "a.json", 30, gpu="NVIDIA L4")
    assert run(["see", "--gpu", "L4,l4", str(trace)]) == 0
    assert "step 1 · L4 · times measured" in one_row(capsys.readouterr().out.splitlines())
    assert "a trace is of one GPU, and L4, H200 are several" in refused(capsys, "--gpu", "L4,H200", trace)


def test_a_trace_is_not_held_against_another_gpu_but_against_a_sheet_of_ones_own(tmp_path, capsys):
    trace, nameless = lasting(tmp_path, "a.json", 30), lasting(tmp_path, "b.json", 30, gpu="NVIDIA Next")
    assert "a.json was recorded on H200, and --gpu says L4; leave it out." in refused(capsys, "--gpu", "L4", trace)
    assert run(["see", "--gpu", "L4", str(nameless)]) == 0
    sheet = tmp_path / "own.toml"
    sheet.write_text('like = "H200"\nname = "H200-own"\n')
    assert run(["see", "--gpu", str(sheet), str(trace)]) == 0
    assert "H200-own · times measured" in capsys.readouterr().out


def test_a_trace_is_not_written_over(tmp_path, capsys):
    first, second = lasting(tmp_path, "a.json", 30), lasting(tmp_path, "b.json", 30)
    for option in ("--json", "--page", "--perfetto"):
        before = second.read_bytes()
        assert "would be overwritten" in refused(capsys, option, second, first, second)
        assert second.read_bytes() == before


def test_traces_of_no_one_run_stand_side_by_side_and_that_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", WIDE)
    paths = [lasting(tmp_path, f"{name}_rank0.json", 30) for name in ("before", "after")]
    assert run(["see", *map(str, paths)]) == 0
    out = capsys.readouterr().out
    assert out.count("The traces are not joined as ranks of one run: 2 are of rank 0.") == 1
    assert "Who waits" not in out


def test_of_ranks_a_step_is_shown_that_is_the_first_in_no_trace(tmp_path, capsysbinary):
    """Of rank 0 step 3 is the median of 2, 3 and 4 (12, 13 and 14 µs); rank 1 was recorded from it on."""
    for number, numbers in enumerate(([1, 2, 3, 4], [3, 4])):
        steps_of(tmp_path, numbers).rename(tmp_path / f"rank{number}.json")
    assert run(["see", "--json", "-", str(tmp_path)]) == 0
    assert [one["environment"]["step"] for one in json.loads(capsysbinary.readouterr().out)] == [4, 4]
