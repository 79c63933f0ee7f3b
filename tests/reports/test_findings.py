"""Findings on a terminal, as GitHub's annotations, as SARIF, as JSON, as a page, in a notebook."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from checked_by_hand import SOURCE, bank_conflict, checked, divergence, finding, uncoalesced
from undertorch.records import FindingKind, Severity, Suppressed
from undertorch.records.checked_files import to_json
from undertorch.reports.findings_cell import cell
from undertorch.reports.findings_page import findings_page
from undertorch.reports.github import annotations
from undertorch.reports.sarif import RULES, to_sarif
from undertorch.reports.terminal.findings import show_all

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def shown(*kernels, width=100):
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    show_all(kernels, console)
    return console.export_text()


def test_two_near_lines_stand_in_one_excerpt_with_what_is_between_and_a_caret_under_each():
    text = shown(checked(finding(line=3, other=6)))
    rows = text.splitlines()
    first = next(n for n, row in enumerate(rows) if row.startswith("     3 │"))
    assert rows[first + 1] == "       │     ^"
    assert [row[:8].strip() for row in rows[first + 2 : first + 5]] == ["4 │", "5 │", "6 │"]
    assert rows[first + 5] == "       │     ^"


def test_two_places_in_one_line_are_one_line_with_two_carets():
    from dataclasses import replace

    one = finding(line=6)
    text = shown(checked(replace(one, other=replace(one.place, column=26))))
    assert text.count("x[threadIdx.x * 3]") == 1
    assert "       │     ^                    ^" in text


def test_a_kernel_with_findings_stands_before_clean_ones_of_a_line_each_and_a_sum_is_last():
    text = shown(checked(kernel="clean", launches=40, watched=6), checked(finding(), kernel="racing"))
    assert text.index("racing [8] × [32, 4]: 1 error") < text.index("clean [8] × [32, 4]: nothing found")
    assert "6 of 40 launches" in text
    assert text.rstrip().endswith("2 kernels in 41 launches, 7 of them looked at (the others equal these): 1 error.")


def test_the_code_that_ran_is_named_beside_the_gpu_whose_limits_held():
    assert "sm_80 code as on H200" in shown(checked())


def test_what_could_not_be_looked_at_is_not_said_to_be_clean():
    text = shown(checked(watched=0, launches=3, missed="too many instructions."))
    assert "not checked" in text
    assert "nothing found" not in text
    assert "too many instructions." in text


def test_an_accepted_finding_is_named_with_its_reason():
    text = shown(checked(suppressed=(Suppressed(finding=finding(), reason="all write 1"),)))
    assert "accepted  race-shared at src/k.cu:3: all write 1" in text


def test_annotations_escape_as_github_asks():
    """actions/toolkit, core/command.ts: % first, then line ends; in fields colons and commas as well."""
    hard = finding(message="100 % wrong:\nso", line=3)
    (row,) = annotations([checked(hard, kernel="k<a,b>::c")])
    assert row.startswith(
        "::error file=src/k.cu,line=3,col=5,title=race-shared in k<a%2Cb>%3A%3Ac::100 %25 wrong:%0Aso"
    )
    assert "\n" not in row
    (note,) = annotations([checked(finding(severity=Severity.NOTE))])
    assert note.startswith("::notice ")


def test_sarif_holds_what_code_scanning_needs():
    """SARIF 2.1.0: 3.13 (sarifLog), 3.27 (result), 3.35 (suppression); paths relative with a uriBaseId (3.4)."""
    accepted = Suppressed(finding=finding(FindingKind.RACE_GLOBAL), reason="all write 1")
    log = json.loads(to_sarif([checked(finding(line=3, other=6), bank_conflict(), suppressed=(accepted,))]))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    race, slow, kept = run["results"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert (race["level"], slow["level"]) == ("error", "warning")
    location = race["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "src/k.cu", "uriBaseId": "%SRCROOT%"}
    assert location["region"] == {"startLine": 3, "startColumn": 5}
    assert race["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 6
    assert kept["suppressions"] == [{"kind": "external", "status": "accepted", "justification": "all write 1"}]


def test_every_kind_has_its_rule():
    assert RULES.keys() == set(FindingKind)


@pytest.mark.skipif("SARIF_SCHEMA" not in os.environ, reason="SARIF_SCHEMA names OASIS's sarif-schema-2.1.0.json")
def test_sarif_keeps_the_official_schema():
    schema = json.loads(Path(os.environ["SARIF_SCHEMA"]).read_text())
    accepted = Suppressed(finding=finding(), reason="all write 1")
    for kernels in (
        [],
        [checked(finding(other=6), bank_conflict(), uncoalesced(), divergence(), suppressed=(accepted,))],
    ):
        jsonschema.validate(json.loads(to_sarif(kernels)), schema, jsonschema.Draft7Validator)


def test_json_keeps_its_schema():
    schema = json.loads((SCHEMAS / "check-1.schema.json").read_text())
    accepted = Suppressed(finding=finding(), reason="all write 1")
    for kernels in ([], [checked(finding(other=6), bank_conflict(), divergence(), suppressed=(accepted,)), checked()]):
        jsonschema.validate(json.loads(to_json(kernels)), schema)


class Reader(HTMLParser):
    """What a page refers to, and its rectangles by class."""

    def __init__(self, text):
        super().__init__()
        self.links, self.rects, self.open, self.tags = [], [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.tags.add(tag)
        self.links += [named[name] for name in ("src", "href") if named.get(name)]
        if tag == "rect":
            self.rects.append(named)
        if tag not in {"meta", "link", "rect", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "rect":
            assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_nobody():
    text = findings_page([checked(finding(), bank_conflict(), uncoalesced(), divergence())]).decode()
    reader = Reader(text)
    assert reader.open == []
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert "script" not in reader.tags


def test_a_picture_of_32_lanes_at_one_bank_has_32_busy_cells_in_one_column():
    reader = Reader(findings_page([checked(bank_conflict())]).decode())
    busy = [rect for rect in reader.rects if rect["class"] in {"on", "late"}]
    assert len(busy) == 32
    assert len({rect["x"] for rect in busy}) == 1
    assert len(reader.rects) == 32 * 32


def test_a_picture_of_lanes_12_bytes_apart_has_12_sectors_and_32_words():
    reader = Reader(findings_page([checked(uncoalesced())]).decode())
    assert sum(rect["class"] == "fetched" for rect in reader.rects) == 12
    used = [float(rect["width"]) for rect in reader.rects if rect["class"] == "on"]
    assert sum(used) / 5 == 32 * 4  # five units a byte


def test_a_picture_of_every_second_lane_says_16_of_32():
    text = findings_page([checked(divergence())]).decode()
    assert "16.0 of 32" in text
    assert sum(rect["class"] == "on" for rect in Reader(text).rects) == 16


def test_a_page_shows_source_and_kernels_as_text():
    hostile = "<script>alert(1)</script>"
    one = checked(finding(message=hostile), kernel=hostile)
    text = findings_page([one]).decode()
    assert hostile not in text
    assert text.count("&lt;script&gt;") == 2
    assert re.search(r'named"><span class="no">3</span>.*tile\[threadIdx', text)


def test_a_notebooks_cell_escapes_what_it_shows():
    text = cell([checked(finding(message="a < b"), kernel="k<int>")])
    assert "a &lt; b" in text
    assert "k&lt;int&gt;" in text
    assert "tile[threadIdx.x * 32]" in text
    assert "nothing was checked" in cell([])


def test_the_source_by_hand_has_the_lines_that_are_named():
    assert SOURCE.splitlines()[2].strip().startswith("tile[")
