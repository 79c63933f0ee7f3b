"""Native code that opens files by itself: libraries below Python, and programs that the script starts."""

import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest


def test_libcs_own_files(unchanged, tmp_path):
    """What native code calls, called as native code calls it."""
    (tmp_path / "kept.txt").write_text("first\n")
    unchanged("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fopen.restype = ctypes.c_void_p
        libc.fclose.argtypes = [ctypes.c_void_p]
        libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        for name, mode in ((b"kept.txt", b"a"), (b"new.txt", b"w"), (b"kept.txt", b"r+")):
            file = libc.fopen(name, mode)
            libc.fputs(b"native", file)
            libc.fclose(file)
        assert open("kept.txt").read() == "nativenative" and open("new.txt").read() == "native"
        template = ctypes.create_string_buffer(b"folder-XXXXXX")
        libc.mkdtemp.restype = ctypes.c_char_p
        assert os.path.isdir(libc.mkdtemp(template))
        assert libc.rename(b"new.txt", b"newer.txt") == 0 and libc.unlink(b"kept.txt") == 0
        assert "newer.txt" in os.listdir() and "kept.txt" not in os.listdir()
        assert libc.mkstemp(ctypes.create_string_buffer(b"file-XXXXXX")) > 2
        entries = ctypes.POINTER(ctypes.c_void_p)()
        assert libc.scandir(b".", ctypes.byref(entries), None, None) == len(os.listdir()) + 2
    """)


def test_sqlite(unchanged, tmp_path):
    with closing(sqlite3.connect(tmp_path / "old.db")) as database:
        database.execute("create table runs (loss real)")
        database.commit()
    unchanged("""
        import sqlite3
        for name in ("old.db", "new.db"):
            database = sqlite3.connect(name)
            database.execute("create table if not exists runs (loss real)")
            database.execute("insert into runs values (0.5)")
            database.commit()
            database.close()
            assert sqlite3.connect(name).execute("select loss from runs").fetchall() == [(0.5,)]
    """)


def test_numpys_files_and_mapped_arrays(unchanged, tmp_path):
    numpy = pytest.importorskip("numpy")
    numpy.arange(10).tofile(tmp_path / "tokens.bin")
    unchanged("""
        import numpy
        numpy.save("a.npy", numpy.arange(3))
        assert numpy.load("a.npy", mmap_mode="r").tolist() == [0, 1, 2]
        made = numpy.memmap("made.bin", dtype="int32", mode="w+", shape=(4,))
        made[:] = 7
        made.flush()
        assert numpy.fromfile("made.bin", dtype="int32").tolist() == [7] * 4
        tokens = numpy.memmap("tokens.bin", dtype="int64")  # by default for reading and writing
        tokens[0] = 99
        tokens.flush()
        assert numpy.fromfile("tokens.bin", dtype="int64")[0] == 99
    """)


def test_a_library_that_the_script_compiles_is_loaded(unchanged, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }")
    unchanged(f"""
        import ctypes, os, subprocess
        from undertorch.steps.record.overlay import linking
        linking.follow(library)
        subprocess.run([{compiler!r}, "-shared", "-fPIC", "-o", "answer.so", "answer.c"], check=True)
        assert ctypes.CDLL(os.path.abspath("answer.so")).answer() == 42
    """)


def test_a_program_of_its_own_libc_is_refused_by_the_kernel(unchanged, tmp_path):
    """It never meets the library. Without Landlock (Linux 5.19) it is not run at all, which changes nothing either."""
    compiler = shutil.which("cc")
    source = """
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/socket.h>
        #include <unistd.h>
        int main(void) {
            printf("%d %d ", access("kept.txt", R_OK), open("kept.txt", O_WRONLY));
            printf("%d %d", open("new.txt", O_WRONLY | O_CREAT, 0644), socket(AF_INET, SOCK_STREAM, 0));
            return 0;
        }
    """
    built = compiler and subprocess.run(
        [compiler, "-static", "-x", "c", "-", "-o", tmp_path / "program"], input=source, text=True, check=False
    )
    if not built or built.returncode:
        pytest.skip("there is no C compiler that links statically")
    (tmp_path / "kept.txt").write_text("first")
    ran = unchanged("""
        import subprocess
        try:
            print(subprocess.run(["./program"], capture_output=True, text=True, check=True).stdout)
        except PermissionError:
            print("not run")
        print(told())
    """)
    how, told = ran.out.splitlines()
    assert (how, told) in {
        ("0 -1 -1 -1", "[('RAN_CONFINED', './program')]"),
        ("not run", "[('NOT_RUN', './program')]"),
    }
