"""What the report is drawn on: its width, its characters, and a reader that leaves before the end."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len

from cli.test_see_traces import WIDE, lasting
from steps_by_hand import STEP
from undertorch.cli.main import run
from undertorch.cli.terminal import terminal
from undertorch.records.files import write_steps


def program(*arguments, **environment) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "undertorch", *map(str, arguments)],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("columns", "width"),
    [
        *(pytest.param(no_number, 80, id=no_number or "empty") for no_number in ("0", "", "wide", "²", "-5")),
        *(pytest.param(few, 40, id=few) for few in ("1", "39", "40")),
        *(pytest.param(str(fine), fine, id=str(fine)) for fine in (41, 133)),
        pytest.param("9" * 5000, 10_000, id="more digits than Python reads"),
    ],
)
def test_a_report_is_as_wide_as_columns_says_within_reason(monkeypatch, columns, width):
    def no_terminal(stream):
        raise OSError

    monkeypatch.setattr(os, "get_terminal_size", no_terminal)
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal().width == width


def test_without_columns_it_is_as_wide_as_the_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda stream: os.terminal_size((97, 20)))
    assert terminal().width == 97
    monkeypatch.setattr(os, "get_terminal_size", lambda stream: os.terminal_size((0, 0)))
    assert terminal().width == 80


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_terminal_without_width_is_shown_the_whole_report(tmp_path, monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["see", str(lasting(tmp_path, "a.json", 30))]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) < 80
    assert max(map(cell_len, rows)) <= 80
    assert "Accounting" in rows


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"PYTHONIOENCODING": "ascii"}, id="ASCII by PYTHONIOENCODING"),
        pytest.param({"PYTHONIOENCODING": "latin-1"}, id="Latin-1"),
        pytest.param({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, id="ASCII by the locale"),
    ],
)
def test_what_the_terminal_cannot_encode_has_look_alikes(tmp_path, environment):
    by_locale = "LC_ALL" in environment  # then names are ASCII too, and that one cannot even be asked for
    script = lasting(tmp_path, "plain.json" if by_locale else "é×日.json", 30)
    done = program("see", script, COLUMNS=WIDE, **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    out = done.stdout.decode("latin-1")
    assert "30 us" in out or "30 µs" in out
    assert by_locale or "??.json" in out
    unnamed = program("see", tmp_path / "é.json", **environment)
    assert unnamed.returncode == 2
    assert (b"are no ascii" if by_locale else b"cannot be read") in unnamed.stderr
    for command in (["gpus"], ["gpus", "H200"], ["doctor"]):
        assert program(*command, **environment).returncode in (0, 1)


def test_columns_stay_where_they_are_in_ascii(tmp_path):
    """One cell for one cell: rows of the ASCII report are as wide as those of the other."""
    script = lasting(tmp_path, "trace.json", 30)
    plain, full = (program("see", script, PYTHONIOENCODING=name).stdout.decode(name) for name in ("ascii", "utf-8"))
    assert plain.isascii()
    assert not full.isascii()
    assert [len(row) for row in plain.splitlines()] == [cell_len(row) for row in full.splitlines()]


def left_early(*arguments) -> int:
    """The program's status where the reader of its output is gone before it writes."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "undertorch", *map(str, arguments)],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
    return done.returncode


@pytest.mark.parametrize("number_of", [1, 2])
def test_files_are_written_whoever_reads_the_report(tmp_path, number_of):
    traces = [lasting(tmp_path, f"{place}.json", 30) for place in range(number_of)]
    page, perfetto, written = (tmp_path / name for name in ("page.html", "perfetto.out", "step.out"))
    assert left_early("see", "--page", page, "--perfetto", perfetto, "--json", written, *traces) == 0
    assert "</html>" in page.read_text()
    assert json.loads(perfetto.read_bytes())["traceEvents"]
    assert json.loads(written.read_bytes())


def test_a_page_is_written_whoever_reads_the_json(tmp_path):
    page = tmp_path / "page.html"
    left_early("see", "--page", page, "--json", "-", lasting(tmp_path, "a.json", 30))
    assert "</html>" in page.read_text()


def test_a_comparison_is_written_whoever_reads_it(tmp_path):
    step, written = tmp_path / "step.json", tmp_path / "compared.json"
    write_steps(step, [STEP])
    assert left_early("compare", "--json", written, step, step) == 0
    assert json.loads(written.read_bytes())


@pytest.mark.parametrize("shown", [(), ("--json", "-")])
def test_a_budget_that_breaks_is_told_whoever_reads_the_report(tmp_path, shown):
    """`undertorch compare --fail-on … | head` in CI under pipefail."""
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    write_steps(before, [STEP])
    write_steps(after, [replace(STEP, step_us=2 * STEP.step_us)])
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        command = (sys.executable, "-m", "undertorch", "compare", "--fail-on", "step+5%", *shown, before, after)
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, check=False)
    assert b"over the budget step+5%" in done.stderr
    assert done.returncode == 1


def test_a_file_that_cannot_be_written_after_all_does_not_take_the_report_away(tmp_path, monkeypatch, capsys):
    from undertorch.reports import page

    def full(*anything):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "write_page", full)
    asked = tmp_path / "page.html"
    assert run(["see", "--page", str(asked), str(lasting(tmp_path, "a.json", 30))]) == 2
    out, err = capsys.readouterr()
    assert "Accounting" in out
    assert err == f"undertorch: {asked} cannot be written: No space left on device.\n"
