"""A training script that saves, logs, sends and starts programs: its folder is afterwards what it was before."""

import http.server
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.steps.record import ScriptFailed, record

SCRIPT = Path(__file__).with_name("scripts") / "saves.py"


@pytest.fixture
def server():
    """A server on the loopback: its port, and the requests it got."""
    asked = []

    class Log(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Log) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served.server_address[1], asked
        served.shutdown()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that an earlier run of the script has left, and where the script is started."""
    shutil.copy(SCRIPT, tmp_path / "train.py")
    out = tmp_path / "out"
    out.mkdir()
    (out / "checkpoint-98.pt").write_bytes(b"the oldest")
    (out / "checkpoint-99.pt").write_bytes(b"the last")
    (out / "metrics.jsonl").write_text('{"step": 99, "loss": 3.0}\n')
    (out / "config.json").write_text("{}")
    (out / "train.log").write_text("step 99\n")
    (out / "train.log").chmod(0o640)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def line_of(text):
    (number,) = (number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)
    return number


def test_a_script_that_saves_and_sends_leaves_everything_as_it_was_and_each_thing_is_listed_once_with_its_line(
    place, server, tree, capfd
):
    port, asked = server
    before = tree(place)
    recording = record(Path("train.py"), (str(port),), gpus.find("H200"), step=3)
    assert tree(place) == before
    assert asked == []
    shown = capfd.readouterr().err
    assert not any(f"{block} ran" in shown for block in ("finally", "atexit", "__del__"))
    assert recording.environment.step == 3
    said = {(one.where.file, one.where.line): one.what for one in recording.assumptions if one.where is not None}
    copy = "in a throw-away copy of the disk."
    assert said["train.py", line_of("# checkpoints")] == f"2 renamed, {copy}"
    assert said["train.py", line_of("# the oldest")] == f"2 removed, {copy}"
    assert said["train.py", line_of('"metrics.jsonl", "a"')] == f"1 file written, {copy}"
    assert f"was not connected to 127.0.0.1:{port} (2×)" in said["train.py", line_of("# the network")]
    assert "sh -c echo 100 > out/tag; rm -f out/config.json" in said["train.py", line_of("# a program")]
    assert any(one.where is None and "programs that the script started changed 2 files" in one.what
               for one in recording.assumptions)  # fmt: skip


def test_a_script_that_raises_leaves_everything_as_it_was(place, server, tree):
    """Its `finally:` runs, as Python has it, and saves once more."""
    port, asked = server
    before = tree(place)
    with pytest.raises(ScriptFailed, match="raised ValueError"):
        record(Path("train.py"), (str(port), "raises"), gpus.find("H200"), step=3)
    assert tree(place) == before
    assert asked == []


def test_a_script_that_fails_for_want_of_a_network_is_said_to(tmp_path, monkeypatch):
    """Its report, which would list the refusal, never comes."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import urllib.request\nurllib.request.urlopen('http://data.example/tokens.bin')\n")
    with pytest.raises(ScriptFailed, match=r"raised URLError; .* It did not look up data.example: .* nothing is sent"):
        record(Path("train.py"), (), gpus.find("H200"))


def test_the_same_script_changes_everything_when_it_is_not_watched(place, server, tree):
    """So that the tests above can fail: the loop runs here without undertorch, on the CPU."""
    port, asked = server
    before = tree(place)
    code = (place / "train.py").read_text().replace(".cuda()", "").replace(', device="cuda"', "")
    done = subprocess.run([sys.executable, "-c", code, str(port)], capture_output=True, text=True, check=False)
    assert "the server was reached" in done.stderr
    assert tree(place) != before
    assert asked
