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
