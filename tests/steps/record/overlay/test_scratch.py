"""The folder of a run goes with the run, however that ends."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from undertorch.steps.record import ScriptFailed
from undertorch.steps.record.overlay.scratch import Scratch, _remove, bytes_in

SCRIPT = Path(__file__).with_name("scripts") / "saves.py"
NO_SERVER = "9"
"""The port that discards what it gets; it is refused before anybody asks whether it is served."""
RECORDS = f"""
from pathlib import Path
from undertorch import gpus
from undertorch.steps.record import record
record(Path("train.py"), ({NO_SERVER!r}, "waits"), gpus.find("H200"))
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where runs make their folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.fixture
def waiting(tmp_path, temporary, tree):
    """undertorch at work on a script that has saved and now waits; and what the script's folder held before."""
    place = tmp_path / "place"
    (place / "out").mkdir(parents=True)
    shutil.copy(SCRIPT, place / "train.py")
    (place / "out" / "metrics.jsonl").write_text('{"step": 99, "loss": 3.0}\n')
    for number in (98, 99):
        (place / "out" / f"checkpoint-{number}.pt").write_bytes(b"old")
    before = tree(place)
    parent = subprocess.Popen([sys.executable, "-c", RECORDS], stderr=subprocess.PIPE, cwd=place)
    lines = []
    while b"waiting" not in (lines[-1] if lines else b""):
        lines.append(parent.stderr.readline())
        assert parent.poll() is None, b"".join(lines)
    (child,) = children(parent.pid)
    yield parent, child, place, before
    parent.kill()
    parent.wait()


def children(process):
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def ends(process):
    """Whether a process ends within ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_while_the_script_runs_its_files_are_in_the_runs_folder(waiting, temporary):
    (folder,) = temporary.glob("undertorch-*")
    assert list(folder.rglob("checkpoint-100.pt"))


def test_ctrl_c_removes_the_folder(waiting, temporary, tree):
    parent, child, place, before = waiting
    parent.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in parent.stderr.read()
    assert ends(child)
    assert list(temporary.iterdir()) == []
    assert tree(place) == before


def test_a_killed_script_leaves_no_folder(waiting, temporary, tree):
    parent, child, place, before = waiting
    os.kill(child, signal.SIGKILL)
    assert b"was killed by signal 9" in parent.stderr.read()
    assert list(temporary.iterdir()) == []
    assert tree(place) == before


def test_when_undertorch_is_killed_the_script_ends_and_the_next_run_removes_the_folder(waiting, temporary, tree):
    parent, child, place, before = waiting
    parent.kill()
    parent.wait()
    assert ends(child)
    assert len(list(temporary.glob("undertorch-*"))) == 1
    assert tree(place) == before
    with Scratch() as scratch:
        assert list(temporary.iterdir()) == [scratch.folder]
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_run_that_goes_on_is_left_alone(temporary):
    with Scratch() as first, Scratch() as second:
        assert set(temporary.iterdir()) == {first.folder, second.folder}


def test_a_folder_without_rights_is_removed_too(temporary):
    with Scratch() as scratch:
        (scratch.folder / "copy" / "closed" / "inside").mkdir(parents=True)
        (scratch.folder / "copy" / "closed" / "file").write_text("x")
        (scratch.folder / "copy" / "closed").chmod(0)
    assert list(temporary.iterdir()) == []


def test_a_folder_that_somebody_else_removes_meanwhile_is_removed_without_a_word(tmp_path, monkeypatch):
    """What the script left behind may go on removing until it is killed: here each folder right after it was listed."""
    folder = tmp_path / "undertorch-gone"
    (folder / "copy" / "inside").mkdir(parents=True)
    walk = os.walk

    def vanishing(top):
        for inside, folders, files in walk(top):
            for name in folders:
                shutil.rmtree(Path(inside, name))
            yield inside, folders, files

    monkeypatch.setattr(os, "walk", vanishing)
    _remove(folder)
    assert not folder.exists()


def test_a_script_that_writes_too_much_is_ended(tmp_path, temporary, tree):
    """50 MB are granted, and it writes until it is stopped."""
    code = """
from undertorch.steps.record.overlay.events import Library
library = Library()
library.begin(1 << 30, lambda: None)
with open("endless", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
        file.flush()
"""
    place = tmp_path / "place"
    place.mkdir()
    before = tree(place)
    with Scratch(most_bytes=50_000_000) as scratch:
        child = subprocess.Popen([sys.executable, "-P", "-c", code], cwd=place, env=scratch.environment(os.environ))
        with pytest.raises(ScriptFailed, match=r"train.py wrote .* GB .* 0.1 GB at most"):
            scratch.wait(child, "train.py")
        assert child.poll() is not None
    assert tree(place) == before
    assert list(temporary.iterdir()) == []


def test_what_files_take_on_the_disk_is_counted(tmp_path):
    """A file with a hole takes less than its length."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "full").write_bytes(b"x" * 100_000)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(10_000_000)
    assert 100_000 <= bytes_in(tmp_path) < 200_000
