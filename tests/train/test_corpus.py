"""Which text is read, what is refused, and how it is cut."""

import gzip
import io
import sys

import pytest

from undertorch.train.corpus import corpus
from undertorch.train.errors import BadText


def everything(found):
    """All documents of both sides."""
    return [*found.training, *found.validation]


def test_a_single_file_has_both_sides_and_loses_no_byte(tmp_path):
    lines = [f"line {n} of a text, ünïcode too\n" for n in range(4000)]
    path = tmp_path / "a.txt"
    path.write_text("".join(lines))
    found = corpus([str(path)])
    assert found.validation
    assert sorted(line for d in everything(found) for line in d.text.decode().splitlines(True)) == sorted(lines)


def test_a_text_without_line_ends_is_cut_between_characters(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ß" * 50_001)
    documents = everything(corpus([str(path)]))
    assert len(documents) > 5
    assert sum(len(document.text.decode()) for document in documents) == 50_001


def test_a_document_stays_on_its_side_when_others_come(tmp_path):
    for number in range(60):
        (tmp_path / f"{number}.txt").write_text(f"{number} " * 300)
    before = {d.name for d in corpus([str(tmp_path)]).validation}
    (tmp_path / "new.txt").write_text("new " * 100)
    assert {d.name for d in corpus([str(tmp_path)]).validation} - {str(tmp_path / "new.txt")} == before


def test_gzip_globs_and_standard_input_are_read(tmp_path):
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("packed")
    (tmp_path / "b.txt").write_text("globbed")
    found = corpus([str(tmp_path / "a.txt.gz"), str(tmp_path / "*.txt"), "-"], io.BytesIO(b"piped"))
    assert sorted(d.text for d in everything(found)) == [b"globbed", b"packed", b"piped"]


def test_a_file_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("once")
    assert len(everything(corpus([str(tmp_path), str(tmp_path / "a.txt")]))) == 1


def test_what_is_no_text_is_skipped_in_a_folder_and_said(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.bin").write_bytes(b"\0\1\2")
    assert corpus([str(tmp_path)]).skipped == (str(tmp_path / "b.bin"),)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"", "holds no text"),
        ("blank.txt", b" \n \n", "holds no text"),
        ("binary.bin", b"abc\0def", "byte 3 is 0"),
        ("latin.txt", "caf\xe9 noir".encode("latin1"), "byte 3 is 0xe9"),
        ("cut.gz", gzip.compress(b"x" * 1000, mtime=0)[:-12], "no whole gzip file"),
        ("no.gz", b"plain", "no whole gzip file"),
    ],
)
def test_bad_text_is_refused_by_name(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadText, match=said) as error:
        corpus([str(tmp_path / name)])
    assert name in str(error.value)


@pytest.mark.parametrize(("name", "said"), [("nowhere.txt", "there is no file"), ("no*.txt", "no file fits")])
def test_what_is_not_there_is_said(tmp_path, name, said):
    with pytest.raises(BadText, match=said):
        corpus([str(tmp_path / name)])


def test_what_a_folder_holds_that_is_no_whole_file_is_left_out_by_name(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"x" * 1000, mtime=0)[:-12])
    (tmp_path / "whole.txt").write_text("text")
    found = corpus([str(tmp_path)])
    assert [each.text for each in everything(found)] == [b"text"]
    assert found.skipped == (str(tmp_path / "cut.gz"),)


def test_a_standard_input_that_is_closed_is_said(monkeypatch):
    """Python has no sys.stdin in a process that was started with `<&-`."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadText, match="standard input is closed"):
        corpus(["-"])


def test_nothing_named_is_the_standard_library():
    found = corpus([])
    assert any(document.name.startswith("argparse.py") for document in everything(found))
    assert not any("site-packages" in document.name for document in everything(found))


def test_what_earlier_runs_left_in_a_folder_is_not_trained_on(tmp_path):
    run = tmp_path / "runs" / "nano"
    (run / "checkpoints").mkdir(parents=True)
    for path in (run / "run.json", run / "metrics.jsonl", run / "checkpoints" / "a.txt"):
        path.write_text("{}")
    (tmp_path / "mine.txt").write_text("text")
    (tmp_path / "run.json").write_text("a file of mine")
    found = corpus([str(tmp_path)])
    assert sorted(each.text for each in (*found.training, *found.validation)) == [b"a file of mine", b"text"]
