"""The contract of `undertorch compare`: exit statuses, sentences, the file that it writes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from steps_by_hand import STEP
from undertorch.cli.main import run
from undertorch.records import Origin, Step
from undertorch.records.comparison_files import SCHEMA, schema
from undertorch.records.files import write_steps
from undertorch.steps.budgets import parse_budgets

SLOWER = replace(STEP, step_us=2200.0, memory=replace(STEP.memory, peak_bytes=31_000_000_000))
ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "schemas" / f"compare-{SCHEMA}.schema.json"


@pytest.fixture
def files(tmp_path):
    """Writes Steps before and after, and answers the paths."""

    def written(before: Step | list[Step], after: Step | list[Step]) -> list[str]:
        paths = [tmp_path / "before.json", tmp_path / "after.json"]
        for path, steps in zip(paths, (before, after), strict=True):
            write_steps(path, steps if isinstance(steps, list) else [steps])
        return [str(path) for path in paths]

    return written


def sentences(text: str) -> list[str]:
    """What undertorch said, each ending as a sentence does."""
    rows = text.splitlines()
    assert all(row.startswith("undertorch: ") and row.endswith(".") for row in rows)
    return [row.removeprefix("undertorch: ") for row in rows]


def test_without_budgets_a_slower_step_is_shown_and_fine(files, capsys):
    assert run(["compare", *files(STEP, SLOWER)]) == 0
    out, err = capsys.readouterr()
    assert "+200 µs" in out
    assert "+10.0 %" in out
    assert err == ""


def test_budgets_that_hold_are_fine(files, capsys):
    assert run(["compare", "--fail-on", "step+10%,memory+600MB,bytes+0%", *files(STEP, SLOWER)]) == 0
    assert capsys.readouterr().err == ""


def test_each_overrun_is_a_sentence_and_the_status_is_1(files, capsys):
    assert run(["compare", *files(STEP, SLOWER), "--fail-on", "step+5%,bytes+5%,memory+1%"]) == 1
    step, memory = sentences(capsys.readouterr().err)
    assert "step went from 2.00 ms to 2.20 ms, +200 µs (+10.0 %): over the budget step+5%" in step
    assert "memory went from 30.4 GB to 31.0 GB, +600 MB (+2.0 %): over the budget memory+1%" in memory


def test_a_figure_that_is_not_known_fails_its_budget_with_a_sentence(files, capsys):
    unknown = replace(STEP, memory=replace(STEP.memory, peak_bytes=None))
    assert run(["compare", *files(STEP, unknown), "--fail-on", "memory+5%,step+5%"]) == 1
    (said,) = sentences(capsys.readouterr().err)
    assert "memory+5% cannot be judged: it is not known after" in said


@pytest.mark.parametrize("budgets", ["speed+5%", "step+5", "step", ""])
def test_a_budget_that_makes_no_sense_is_bad_input(files, capsys, budgets):
    assert run(["compare", *files(STEP, STEP), "--fail-on", budgets]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(sentences(err)) == 1


def test_predicted_beside_measured_is_refused(files, capsys):
    measured = replace(STEP, time_origin=Origin.MEASURED)
    assert run(["compare", *files(STEP, measured)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (said,) = sentences(err)
    assert "--mixed" in said


def test_mixed_says_so_on_every_table(files, capsys):
    measured = replace(STEP, time_origin=Origin.MEASURED)
    assert run(["compare", "--mixed", "--fail-on", "step+5%", *files(STEP, measured)]) == 0
    out = capsys.readouterr().out
    tables = [row for row in out.splitlines() if row.split("  ")[0] in TABLES]
    assert len(tables) == len(TABLES)
    assert all("times before predicted, after measured" in row for row in tables)


TABLES = ("Step", "Lines", "Phases", "Kernels by kind", "Budgets")


def test_different_gpus_are_said_plainly(files, capsys):
    assert run(["compare", *files(STEP, replace(STEP, gpu="L4"))]) == 0
    assert "Two different GPUs: H200 before, L4 after." in capsys.readouterr().out


def test_files_of_several_gpus_are_compared_gpu_by_gpu(files, capsys):
    other = replace(STEP, gpu="L4")
    paths = files([STEP, other], [replace(SLOWER, gpu="L4"), STEP])
    assert run(["compare", *paths, "--fail-on", "step+5%"]) == 1
    (said,) = sentences(capsys.readouterr().err)
    assert said.startswith("L4: step went from")


def test_a_gpu_that_one_file_lacks_is_named_and_fails_a_budget(files, capsys):
    paths = files([STEP, replace(STEP, gpu="L4")], [STEP])
    assert run(["compare", *paths]) == 0
    assert sentences(capsys.readouterr().err) == ["L4: the file after has no step of it, so it is not compared."]
    assert run(["compare", *paths, "--fail-on", "step+5%"]) == 1
    assert any("step+5% cannot be judged" in said for said in sentences(capsys.readouterr().err))


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b'{"schema": 9}', b"[1, 2]"], ids=["none", "empty", "half", "later", "other"]
)
def test_a_file_that_is_no_step_is_named_in_a_sentence(files, capsys, tmp_path, content):
    good, _ = files(STEP, STEP)
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_bytes(content)
    for paths in ([str(bad), good], [good, str(bad)]):
        assert run(["compare", *paths]) == 2
        (said,) = sentences(capsys.readouterr().err)
        assert str(bad) in said


def test_the_json_holds_what_was_found_and_follows_the_schema(files, tmp_path):
    path = tmp_path / "found.json"
    paths = files([STEP, replace(STEP, gpu="L4")], [SLOWER])
    assert run(["compare", *paths, "--fail-on", "step+5%,bytes+5%", "--json", str(path)]) == 1
    found = json.loads(path.read_bytes())
    Draft202012Validator(schema()).validate(found)
    (comparison,) = found["comparisons"]
    assert comparison["step_us"] == {
        "before": 2000,
        "after": 2200,
        "difference": 200,
        "before_missing": 0,
        "after_missing": 0,
    }
    assert found["only_before"] == ["L4"]
    assert [(one["gpu"], one["budget"]["text"], one["verdict"]) for one in found["budgets"]] == [
        ("H200", "step+5%", "overrun"),
        ("H200", "bytes+5%", "holds"),
        ("L4", "step+5%", "unknown"),
        ("L4", "bytes+5%", "unknown"),
    ]
    assert sum(line["time_us"]["difference"] for line in comparison["lines"]) == comparison["busy_us"]["difference"]


def test_json_to_standard_output_is_json_and_nothing_else(files, capfd):
    assert run(["compare", *files(STEP, SLOWER), "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == 1


def test_a_place_that_cannot_be_written_is_said_first(files, capsys, tmp_path):
    assert run(["compare", *files(STEP, STEP), "--json", str(tmp_path / "no" / "where.json")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(sentences(err)) == 1


def test_the_workflow_of_the_page_is_the_example_and_its_budgets_are_budgets():
    example = (ROOT / "examples" / "compare-in-ci.yml").read_text(encoding="utf-8")
    assert f"```yaml\n{example}```" in (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    (budgets,) = re.findall(r"--fail-on (\S+)", example)
    assert [budget.metric for budget in parse_budgets(budgets)] == ["step", "bytes", "memory"]


def test_the_published_schema_is_the_one_that_the_records_make():
    """`make schema` writes it."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    for key in ("$schema", "title", "description"):
        published.pop(key)
    assert published == json.loads(json.dumps(schema()))


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_compared_is_not_written_over(files, tmp_path, capsys, which):
    paths = files(STEP, SLOWER)
    before = Path(paths[which]).read_bytes()
    link = tmp_path / "link.json"
    link.symlink_to(paths[which])
    for written in (paths[which], str(link)):
        assert run(["compare", "--json", written, *paths]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        (said,) = sentences(err)
        assert said == f"{written} would be overwritten, and it is read; give what is written a name of its own."
        assert Path(paths[which]).read_bytes() == before


def test_json_that_nests_deeper_than_python_reads_is_no_step(tmp_path, capsys):
    deep = tmp_path / "deep.json"
    deep.write_text('{"a":' * 5000 + "1" + "}" * 5000)
    assert run(["compare", str(deep), str(deep)]) == 2
    (said,) = sentences(capsys.readouterr().err)
    assert "is not a step" in said
