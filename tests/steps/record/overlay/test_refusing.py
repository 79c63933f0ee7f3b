"""Where the library cannot be loaded, what would change or send something is refused with a sentence."""

import os
import subprocess
import sys
import textwrap

import pytest

BEGINNING = """
import sys
from pathlib import Path
from undertorch.steps.record.overlay.refusing import Refusing
from undertorch.steps.record.places import Places
told = Refusing.begin(sys.argv[1], Places([], lambda code: None, Path.cwd())).assumptions
def refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError as error:
        return "while a script is seen nothing is changed or sent" in str(error)
    return False
"""


@pytest.fixture
def refusing(tmp_path, tree):
    """Runs code that is refused what it asks for; the folder has to hold what it held."""

    def run(code):
        place, scratch = tmp_path / "place", tmp_path / "scratch"
        place.mkdir()
        scratch.mkdir()
        (place / "kept.txt").write_text("first")
        (place / "code.py").write_text(BEGINNING + textwrap.dedent(code))
        before = tree(place)
        done = subprocess.run(
            [sys.executable, "-B", "code.py", str(scratch)], cwd=place, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert tree(place) == before
        return done.stdout

    return run


def test_changes_are_refused_and_reading_is_not(refusing):
    refusing("""
        import os, shutil
        assert open("kept.txt").read() == "first"
        assert refused(open, "kept.txt", "w") and refused(open, "new.txt", "w") and refused(open, "kept.txt", "r+")
        assert refused(os.mkdir, "made") and refused(os.remove, "kept.txt") and refused(os.rename, "kept.txt", "x")
        assert refused(os.chmod, "kept.txt", 0) and refused(shutil.copy, "kept.txt", "x") and refused(Path("x").touch)
        assert refused(os.symlink, "a", "b") and refused(os.link, "kept.txt", "b")
        assert refused(os.truncate, "kept.txt", 0)
    """)


def test_temporary_files_devices_and_pipes_go_through(refusing):
    refusing("""
        import os, tempfile
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("x")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "x").write_text("x")
        open(os.devnull, "w").write("x")
        os.fdopen(os.pipe()[1], "w").write("x")
    """)


def test_nothing_is_sent_and_no_program_is_run(refusing):
    refusing("""
        import os, signal, socket, subprocess
        assert refused(socket.create_connection, ("127.0.0.1", 9)) and refused(socket.getaddrinfo, "example.org", 80)
        assert refused(socket.socket(type=socket.SOCK_DGRAM).sendto, b"x", ("127.0.0.1", 9))
        assert refused(subprocess.run, ["true"]) and refused(os.system, "true")
        assert refused(os.kill, os.getppid(), signal.SIGTERM)
    """)


def test_each_refusal_is_told_with_its_line(refusing):
    shown = refusing("""
        for _ in range(2):
            refused(open, "new.txt", "w")
        (one,) = told()
        print(one.where.function, one.count, one.what)
    """)
    assert shown.startswith("refused 2 undertorch refused to write new.txt: ")


def test_without_the_library_a_script_is_refused_instead(tmp_path):
    """What `begin` does where nothing was loaded before libc, as on another system."""
    scratch, place = tmp_path / "scratch", tmp_path / "place"
    scratch.mkdir()
    place.mkdir()
    code = f"""
from pathlib import Path
from undertorch.steps.record.overlay.begin import begin
from undertorch.steps.record.places import Places
told = begin({str(scratch)!r}, 1 << 30, Places([], lambda code: None, Path.cwd()))
try:
    open("new.txt", "w")
except PermissionError:
    print("refused")
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "UNDERTORCH_RUN")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "refused\n", done.stderr
    assert list(place.iterdir()) == []
