"""Names in the table of several traces."""

import pytest

from undertorch.reports.terminal.text import told_apart


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["/runs/a/rank0.pt.trace.json.gz", "/runs/a/rank1.pt.trace.json.gz"], ["rank0", "rank1"]),
        (["/runs/a/trace.json", "/runs/b/trace.json"], ["a/trace", "b/trace"]),
        (["trace.json", "trace.json.gz"], ["trace.json", "trace.json.gz"]),
        (["/runs/a.json", "b.json"], ["/runs/a.json", "b.json"]),
        (["train.py", "train.py"], ["train.py", "train.py"]),
        (["trace.json"], ["trace.json"]),
    ],
)
def test_files_are_named_by_what_tells_them_apart(files, names):
    assert told_apart(files) == names
