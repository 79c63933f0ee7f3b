"""Sessions in docs/ run as they stand. Figures may be other ones: models of times get better later."""

import contextlib
import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "python.md"


class Figureless(doctest.OutputChecker):
    """Compares without figures, and without the names of kernels, which have many."""

    def check_output(self, want, got, optionflags):
        return self.without(want) == self.without(got)

    @staticmethod
    def without(text):
        text = re.sub(r"\b\w+_\w*\d\w*(<.*>)?", "kernel", text)
        return re.sub(r"[-+]?\d[\d.,]*", "0", text).split()


@pytest.fixture(scope="module")
def after():
    """The names that the page's sessions leave behind, once all of them came out as they stand there."""
    sessions = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    test = doctest.DocTestParser().get_doctest(sessions, {}, PAGE.name, str(PAGE), 0)
    said = []
    with contextlib.chdir(ROOT):
        result = doctest.DocTestRunner(checker=Figureless()).run(test, out=said.append, clear_globs=False)
    assert result.attempted > 20
    assert result.failed == 0, "".join(said)
    return test.globs


def test_the_sessions_come_out_as_they_stand_there(after):
    assert after["step"].gpu == "H200"


def test_the_reports_are_written_as_it_is_told(after, tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {"step": after["step"]}
    with contextlib.chdir(tmp_path):
        exec(compile(block, PAGE.name, "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"step.html", "step.perfetto.json", "step.json"}
    assert names["step"] == after["step"]
