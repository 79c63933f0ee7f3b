"""docs/ops.md and `undertorch ops explain` say what the code and the last measurement say."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from undertorch import ops
from undertorch.ops import catalogue

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables():
    """docs/tables.py, which writes what is published."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("tables")
    finally:
        sys.path.remove(str(ROOT / "docs"))


def block(name):
    """What stands on the page between a table's marks."""
    return re.search(rf"<!-- table {name} -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)[1]


def test_the_calls_on_the_page_are_those_of_the_code(tables):
    """`python docs/tables.py` mends it."""
    assert block("ops_calls") == tables.ops_calls()


def test_every_op_is_on_the_page_with_its_call():
    others = {"BadCall", "BadLabel", "check_labels"}
    assert set(re.findall(r"^- `(\w+)\(", block("ops_calls"), re.MULTILINE)) == set(ops.__all__) - others


def test_a_default_on_the_page_is_the_functions_own():
    """By hand: an epsilon each, and a keyword that cannot be given by its place."""
    assert "`rms_norm(x, weight=None, eps=1e-06)`" in PAGE
    assert "`layer_norm(x, weight=None, bias=None, eps=1e-05)`" in PAGE
    assert "`attention(q, k, v, *, causal=False, window=None, softcap=None, scale=None)`" in PAGE


def test_the_figures_that_explain_prints_are_the_last_measurements(tables):
    """The file of the package is written from benchmarks/results/ops.json by `python docs/tables.py`."""
    assert tables.OPS_MEASURED.read_text(encoding="utf-8") == tables.ops_measured()
    result = json.loads((ROOT / "benchmarks" / "results" / "ops.json").read_text(encoding="utf-8"))
    _, rows = catalogue.measured("cross_entropy")
    (row,) = (row for row in rows if row.case == "cross_entropy 32768 × 50304, both")
    (torchs,) = (
        one["us"]
        for one in result["rows"]
        if (one["op"], one.get("rows"), one.get("width"), one.get("pass_"), one.get("who"))
        == ("cross_entropy", 32768, 50304, "both", "torch")
    )
    assert row.microseconds["torch"] == torchs


def test_every_op_that_was_measured_is_found_by_its_name():
    content = json.loads((ROOT / "src" / "undertorch" / "ops" / "measured.json").read_text(encoding="utf-8"))
    assert sum(len(catalogue.measured(op)[1]) for op in catalogue.NAMES) == len(content["rows"])
    assert {row["op"] for row in content["rows"]} <= set(catalogue.NAMES)
