"""docs/faults/: a page for each planted fault, showing the kernel as tests/faults/ has it."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def loaded():
    spec = importlib.util.spec_from_file_location("faults_pages", DOCS / "faults.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAULTS = loaded()


@pytest.mark.parametrize("name", FAULTS.faults())
def test_each_fault_has_a_page_that_shows_its_kernel_and_what_is_printed_of_both_versions(name):
    text = (DOCS / "faults" / f"{name}.md").read_text(encoding="utf-8")
    source = FAULTS.faults()[name].read_text()
    assert f"```cuda\n{FAULTS.version(source, mended=False).rstrip()}\n```" in text, "make outputs"
    outputs = re.findall(r"```console\n\$ undertorch check .*\n(.*)", text)
    assert len(outputs) == 2
    assert "nothing found" not in outputs[0]
    assert "nothing found" in outputs[1]


def test_pages_are_of_faults_that_there_are_and_all_stand_in_the_index():
    pages = {path.stem for path in (DOCS / "faults").glob("*.md")} - {"README"}
    assert pages == set(FAULTS.faults())
    index = (DOCS / "faults" / "README.md").read_text(encoding="utf-8")
    assert {name.removesuffix(".md") for name in re.findall(r"\]\((\w+\.md)\)", index)} == pages


def test_a_version_has_neither_the_other_ones_lines_nor_marks():
    """A file that has both, and marks in both."""
    source = "// fault: x\n// launch: --grid 1\na;  // <- here\n#ifdef MENDED\nb;\n#else\nc;\n#endif\nd;\n"
    assert FAULTS.version(source, mended=False) == "a;\nc;\nd;\n"
    assert FAULTS.version(source, mended=True) == "a;\nb;\nd;\n"
