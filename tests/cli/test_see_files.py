"""`--page` and `--perfetto`: files beside the report, looked at before the script runs.

The function that runs the script is replaced by one that answers a Step written by hand.
"""

import json
from dataclasses import replace

import pytest

from paged import tree
from steps_by_hand import STEP
from undertorch.cli.main import run
from undertorch.steps import see as steps


@pytest.fixture
def asked(monkeypatch):
    """Scripts that were run."""
    scripts = []

    def see(script, *rest, **options):
        scripts.append(script)
        return replace(STEP, gpu=rest[1].name)

    monkeypatch.setattr(steps, "see", see)
    return scripts


def test_a_page_and_a_trace_are_written_beside_the_report(asked, tmp_path, capsys):
    page, trace = tmp_path / "step.html", tmp_path / "trace.json"
    assert run(["see", "--gpu", "H200", "--page", str(page), "--perfetto", str(trace), "train.py"]) == 0
    root = tree(page.read_text(encoding="utf-8"))
    assert "of the GPU's 150 GB" in root.text  # it was given the sheet
    assert "nvjet_forward" in [event["name"] for event in json.loads(trace.read_bytes())["traceEvents"]]
    assert "optimizer.step()" in capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == [page, trace]


def test_json_on_standard_output_goes_with_a_page(asked, tmp_path, capfd):
    page = tmp_path / "step.html"
    assert run(["see", "--gpu", "H200", "--json", "-", "--page", str(page), "train.py"]) == 0
    assert json.loads(capfd.readouterr().out)["busy_us"] == 1890
    assert page.exists()


def test_several_gpus_share_a_page_and_the_trace_is_the_firsts(asked, tmp_path):
    page, trace = tmp_path / "steps.html", tmp_path / "trace.json"
    assert run(["see", "--gpu", "L4,H200", "--page", str(page), "--perfetto", str(trace), "train.py"]) == 0
    buttons = tree(page.read_text(encoding="utf-8")).find("button", class_="choose")
    assert [button.text for button in buttons] == ["L4", "H200"]
    assert json.loads(trace.read_bytes())["otherData"]["gpu"] == "L4"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--page", "{tmp}/nowhere/step.html"], id="a folder that is not there"),
        pytest.param(["--perfetto", "{tmp}"], id="a folder in place of a file"),
        pytest.param(["--page", "-"], id="standard output is for JSON alone"),
        pytest.param(["--page", "{tmp}/same", "--json", "{tmp}/same"], id="one file for two"),
    ],
)
def test_what_cannot_be_written_is_one_sentence_before_the_script_runs(asked, tmp_path, capsys, options):
    assert run(["see", "--gpu", "H200", *(option.format(tmp=tmp_path) for option in options), "train.py"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("undertorch: ")
    assert err.count("\n") == 1
    assert asked == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--json", "--page", "--perfetto"])
@pytest.mark.parametrize("read", ["train.py", "my_gpu.toml", "data.bin"])
@pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
def test_what_is_read_is_not_written_over(asked, tmp_path, capsys, option, read, link):
    """The script, the GPU's sheet, and a file among the script's arguments; under their names and by links."""
    for name in ("train.py", "my_gpu.toml", "data.bin"):
        (tmp_path / name).write_text("precious")
    written = tmp_path / read
    if link is not None:
        written = tmp_path / "link"
        getattr(written, link)(tmp_path / read)
    gpu = tmp_path / "my_gpu.toml"
    arguments = [option, str(written), "--gpu", str(gpu), str(tmp_path / "train.py"), str(tmp_path / "data.bin")]
    assert run(["see", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        err == f"undertorch: {written} would be overwritten, and it is read; give what is written a name of its own.\n"
    )
    assert (tmp_path / read).read_text() == "precious"
    assert asked == []


def test_one_file_by_two_names_is_asked_for_twice(asked, tmp_path, capsys):
    page, other = tmp_path / "page", tmp_path / "other"
    page.write_text("")
    other.symlink_to(page)
    assert run(["see", "--gpu", "H200", "--page", str(page), "--json", str(other), "train.py"]) == 2
    assert "is asked for twice" in capsys.readouterr().err
    assert asked == []


def test_a_link_that_leads_back_to_itself_is_refused(asked, tmp_path, capsys):
    link, back = tmp_path / "link", tmp_path / "back"
    link.symlink_to(back)
    back.symlink_to(link)
    assert run(["see", "--gpu", "H200", "--json", str(link), "train.py"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert asked == []


def test_names_and_arguments_that_are_no_utf8_are_refused(asked, capsys):
    """Python keeps such bytes of a command line as lone surrogates (PEP 383), which JSON has not."""
    for arguments in (["tr\udcffain.py"], ["train.py", "\udcff"], ["tr\udcffain.json"]):
        assert run(["see", "--gpu", "H200", *arguments]) == 2
        assert "has bytes that are no utf-8" in capsys.readouterr().err
    assert asked == []


def test_an_argument_longer_than_a_path_is_no_file(asked, tmp_path):
    assert run(["see", "--gpu", "H200", "--json", str(tmp_path / "step.json"), "train.py", "x" * 10_000]) == 0


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (",", "--gpu ',': no GPU is named; write --gpu H200, or --gpu H200,L4."),
        ("", "--gpu '': no GPU is named; write --gpu H200, or --gpu H200,L4."),
        ("H200,", "--gpu 'H200,': a comma stands without a name beside it; write --gpu H200, or --gpu H200,L4."),
        ("H200,,L4", "--gpu 'H200,,L4': a comma stands without a name beside it; write --gpu H200, or --gpu H200,L4."),
    ],
)
@pytest.mark.parametrize("target", ["train.py", "trace.json"])
def test_commas_without_names_are_refused(asked, tmp_path, capsys, gpu, said, target):
    (tmp_path / target).write_text("{}")
    assert run(["see", "--gpu", gpu, str(tmp_path / target)]) == 2
    assert capsys.readouterr().err == f"undertorch: {said}\n"
    assert asked == []


def test_a_gpu_that_is_named_twice_is_seen_once(asked, capsys):
    assert run(["see", "--gpu", "H200,h200, NVIDIA H200", "train.py"]) == 0
    assert len(asked) == 1
    assert capsys.readouterr().out.count("Accounting") == 1


@pytest.mark.parametrize("inside", [None, "train.py", "notes.txt"])
def test_a_folder_without_traces_is_said_to_be_one(asked, tmp_path, capsys, inside):
    if inside is not None:
        (tmp_path / inside).write_text("")
    such = f", such as {tmp_path / 'train.py'}" if inside == "train.py" else ""
    assert run(["see", "--gpu", "H200", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert (
        err
        == f"undertorch: {tmp_path} is a folder, and no traces are in it; name the script that is to be seen{such}.\n"
    )
    assert asked == []


def test_a_folder_that_is_a_module_runs(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trains").mkdir()
    (tmp_path / "trains" / "__main__.py").write_text("")
    assert run(["see", "--gpu", "H200", "trains"]) == 0
    assert len(asked) == 1
