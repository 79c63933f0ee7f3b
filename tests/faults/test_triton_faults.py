"""Planted faults of Triton's kernels: each file says in its first line what is wrong, and marks the lines `# <-`."""

import importlib.util
import re
from pathlib import Path

import pytest

from undertorch.checks.launches import Launches
from undertorch.checks.programs import watching
from undertorch.gpus import find
from undertorch.records import Checked, FindingKind, Severity
from undertorch.simt import Fault

FOLDER = Path(__file__).parent / "triton"
KERNELS = sorted(FOLDER.glob("*.py"))


def checked(path: Path, mended: bool) -> Checked:
    """The one kernel that the file launches."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    launches = Launches()
    try:
        with watching(find("A100-80GB"), launches):
            spec.loader.exec_module(module)
            module.launched(mended)
    except Fault:
        pass  # is a finding
    (one,) = launches.checked()
    return one


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_the_fault_is_found_at_its_lines(path):
    lines = path.read_text(encoding="utf-8").split("\n")
    fault = re.fullmatch(r"# fault: (\S+)   .*", lines[0])
    assert fault, f"{path.name} does not say in its first line what is wrong: # fault: KIND"
    found = [f for f in checked(path, mended=False).findings if f.severity is Severity.ERROR]
    if fault[1] == "none":
        assert found == []
        return
    assert {f.kind for f in found} == {FindingKind(fault[1])}
    places = {(place.file, place.line) for f in found for place in (f.place, f.other) if place is not None}
    assert places == {(str(path), n) for n, line in enumerate(lines, 1) if "# <-" in line}


def test_past_the_end_triton_is_told_of_its_masks():
    (found,) = checked(FOLDER / "past_the_end.py", mended=False).at_least(Severity.ERROR)
    assert "mask=" in found.remedy
    assert "if (" not in found.remedy


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_the_mended_kernel_has_no_error(path):
    assert checked(path, mended=True).at_least(Severity.ERROR) == ()
