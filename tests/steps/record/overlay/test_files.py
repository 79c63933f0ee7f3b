"""Ways in which Python code changes files: each is read back by the code itself, and nothing of it reaches the disk."""

import pytest

FURNISH = {"kept.txt": "first\n", "folder/one.txt": "one", "folder/two.txt": "two", "folder/deep/three.txt": "three"}


@pytest.fixture
def furnished(tmp_path, unchanged):
    for name, text in FURNISH.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "to_folder").symlink_to("folder")
    (tmp_path / "kept.txt").chmod(0o640)
    return unchanged


WAYS = {
    "a new file": """
        open("new.txt", "w").write("x")
        assert open("new.txt").read() == "x"
    """,
    "an old file, written over": """
        open("kept.txt", "w").write("second")
        assert open("kept.txt").read() == "second"
    """,
    "an old file, added to": """
        with open("kept.txt", "a") as file:
            file.write("second\\n")
        assert open("kept.txt").read() == "first\\nsecond\\n"
    """,
    "an old file, changed in place": """
        with open("kept.txt", "r+b") as file:
            file.seek(1)
            file.write(b"X")
        assert open("kept.txt").read() == "fXrst\\n"
    """,
    "a file that may not be there yet": """
        try:
            open("kept.txt", "x")
        except FileExistsError:
            pass
        else:
            raise AssertionError
        open("new.txt", "x").write("x")
    """,
    "descriptors": """
        import os
        file = os.open("new.txt", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(file, b"abc")
        os.lseek(file, 0, os.SEEK_SET)
        assert os.read(file, 3) == b"abc" and os.fstat(file).st_size == 3
        with os.fdopen(os.dup(file), "r+") as again:
            again.seek(0, 2)
            again.write("d")
        os.ftruncate(file, 2)
        os.close(file)
        assert open("new.txt").read() == "ab" and os.stat("new.txt").st_mode & 0o777 == 0o600
    """,
    "pathlib": """
        from pathlib import Path
        Path("a/b").mkdir(parents=True)
        Path("a/b/c.txt").write_text("c")
        Path("a/b/c.txt").rename("a/d.txt")
        Path("a/b").rmdir()
        Path("a/touched").touch()
        assert sorted(path.name for path in Path("a").iterdir()) == ["d.txt", "touched"]
        assert [str(path) for path in Path().rglob("d.*")] == ["a/d.txt"]
        Path("kept.txt").unlink()
        assert not Path("kept.txt").exists()
    """,
    "the old file's mode and times": """
        import os
        os.chmod("kept.txt", 0o600)
        os.utime("kept.txt", (10, 20))
        found = os.stat("kept.txt")
        assert (found.st_mode & 0o777, found.st_atime, found.st_mtime) == (0o600, 10, 20)
        assert open("kept.txt").read() == "first\\n"
    """,
    "the old file's mode and times, by a descriptor opened to read": """
        import os
        with open("kept.txt") as file:
            os.fchmod(file.fileno(), 0o600)
            os.utime(file.fileno(), (10, 20))
        assert os.stat("kept.txt").st_mode & 0o777 == 0o600 and os.stat("kept.txt").st_mtime == 20
    """,
    "a checkpoint moved onto the old one": """
        import os
        open("kept.txt.tmp", "w").write("newer")
        os.replace("kept.txt.tmp", "kept.txt")
        assert open("kept.txt").read() == "newer" and not os.path.exists("kept.txt.tmp")
    """,
    "listings of a folder of old and new files": """
        import glob, os
        open("folder/new.txt", "w").write("")
        os.remove("folder/one.txt")
        assert sorted(os.listdir("folder")) == ["deep", "new.txt", "two.txt"]
        assert sorted(entry.name for entry in os.scandir("folder") if entry.is_file()) == ["new.txt", "two.txt"]
        assert sorted(glob.glob("folder/*.txt")) == ["folder/new.txt", "folder/two.txt"]
        assert {name for _, _, names in os.walk("folder") for name in names} == {"new.txt", "two.txt", "three.txt"}
        names = os.listdir(os.open("folder", os.O_RDONLY))
        assert sorted(names) == ["deep", "new.txt", "two.txt"]
    """,
    "the same file through a link": """
        open("to_folder/one.txt", "w").write("changed")
        assert open("folder/one.txt").read() == "changed"
        import os
        os.symlink("new_target", "link")
        open("link", "w").write("through")
        assert open("new_target").read() == "through" and os.readlink("link") == "new_target"
        os.link("kept.txt", "hard")
        open("hard", "a").write("more")
        assert open("kept.txt").read() == "first\\nmore"
    """,
    "shutil": """
        import os, shutil
        shutil.copy("kept.txt", "copied.txt")
        shutil.copy2("folder/one.txt", "folder/four.txt")
        shutil.copytree("folder", "tree")
        assert open("tree/deep/three.txt").read() == "three" and open("tree/four.txt").read() == "one"
        shutil.rmtree("folder")
        assert not os.path.exists("folder") and not os.path.exists("to_folder/one.txt")
        shutil.move("tree", "folder")
        assert sorted(os.listdir("folder")) == ["deep", "four.txt", "one.txt", "two.txt"]
        shutil.rmtree("folder")
        os.mkdir("folder")
        assert os.listdir("folder") == []
        assert shutil.disk_usage("folder").total > 0
    """,
    "a folder renamed with what was in it": """
        import os
        os.rename("folder", "renamed")
        assert open("renamed/deep/three.txt").read() == "three" and not os.path.exists("folder/one.txt")
        os.makedirs("folder/deep")
        assert os.listdir("folder/deep") == []
    """,
    "temporary files": """
        import os, tempfile
        with tempfile.TemporaryDirectory(dir=".") as folder:
            open(os.path.join(folder, "x"), "w").write("x")
        assert not os.path.exists(folder)
        with tempfile.NamedTemporaryFile("w+", dir=".", delete=False) as file:
            file.write("x")
        assert open(file.name).read() == "x"
        with tempfile.TemporaryFile(dir=".") as file:
            file.write(b"abc")
            file.seek(0)
            assert file.read() == b"abc"
        assert os.path.exists(tempfile.mkdtemp())
    """,
    "the current folder": """
        import os
        os.makedirs("runs/today")
        here = os.getcwd()
        os.chdir("runs/today")
        assert os.getcwd() == os.path.join(here, "runs/today") == os.path.realpath(".")
        open("x", "w").write("x")
        open("../../kept.txt", "a").write("y")
        assert os.listdir() == ["x"] and open(os.path.join(here, "kept.txt")).read() == "first\\ny"
        os.chdir("../../folder")
        assert sorted(os.listdir()) == ["deep", "one.txt", "two.txt"]
        os.fchdir(os.open(os.path.join(here, "runs"), os.O_RDONLY))
        assert os.getcwd() == os.path.join(here, "runs")
    """,
    "mapped memory": """
        import mmap
        with open("kept.txt", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0:5] = b"FIRST"
        assert open("kept.txt").read() == "FIRST\\n"
    """,
    "json, csv and pickle": """
        import csv, json, pickle
        json.dump({"a": 1}, open("a.json", "w"))
        assert json.load(open("a.json")) == {"a": 1}
        with open("a.csv", "w", newline="") as file:
            csv.writer(file).writerow([1, 2])
        assert list(csv.reader(open("a.csv"))) == [["1", "2"]]
        pickle.dump([1], open("a.pickle", "wb"))
        assert pickle.load(open("a.pickle", "rb")) == [1]
    """,
    "archives": """
        import tarfile, zipfile
        with zipfile.ZipFile("a.zip", "w") as archive:
            archive.write("kept.txt")
        zipfile.ZipFile("a.zip").extractall("from_zip")
        with tarfile.open("a.tar.gz", "w:gz") as archive:
            archive.add("folder")
        tarfile.open("a.tar.gz").extractall("from_tar", filter="data")
        assert open("from_zip/kept.txt").read() == "first\\n"
        assert open("from_tar/folder/deep/three.txt").read() == "three"
    """,
    "logging": """
        import logging
        logging.basicConfig(filename="train.log", level=logging.INFO)
        logging.info("step 1")
        assert "step 1" in open("train.log").read()
    """,
    "attributes": """
        import os
        try:
            os.setxattr("kept.txt", "user.note", b"x")
        except OSError:
            pass  # not every file system keeps any
        else:
            assert os.getxattr("kept.txt", "user.note") == b"x" and os.listxattr("kept.txt") == ["user.note"]
    """,
    "a module that was written, and one changed": """
        import sys
        sys.path.insert(0, "")
        open("written.py", "w").write("value = 5")
        import written
        assert written.value == 5
    """,
    "what goes through": """
        import os
        open("/dev/null", "w").write("x")
        open(os.devnull, "wb").write(b"x")
        reading, writing = os.pipe()
        os.fdopen(writing, "w").write("x")
        assert os.read(reading, 1) == b"x"
        open("/dev/stdout", "w").write("shown")
        open(f"/proc/self/fd/{sys.stdout.fileno()}", "w").write(" too")
        os.mkfifo("pipe")
        import threading
        threading.Thread(target=lambda: open("pipe", "w").write("piped")).start()
        assert open("pipe").read() == "piped"
    """,
    "a thread of many": """
        import os, threading
        def work(number):
            for turn in range(20):
                open(f"{number}.tmp", "w").write(str(turn))
                os.replace(f"{number}.tmp", f"folder/{number}")
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert sorted(os.listdir("folder"))[:8] == [str(number) for number in range(8)]
        assert all(open(f"folder/{number}").read() == "19" for number in range(8))
    """,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_is_read_back_and_stays_off_the_disk(way, furnished):
    furnished(WAYS[way])


def test_standard_output_is_written_by_its_other_names_too(furnished):
    assert furnished(WAYS["what goes through"]).out == "shown too"


def test_an_open_file_keeps_the_old_contents_when_the_new_ones_replace_it(furnished):
    """As on a disk: who has the file open reads what it opened."""
    furnished("""
        import os
        old = open("kept.txt")
        open("new", "w").write("newer")
        os.replace("new", "kept.txt")
        assert old.read() == "first\\n" and open("kept.txt").read() == "newer"
    """)


def test_a_read_only_file_stays_so(furnished, tmp_path):
    (tmp_path / "kept.txt").chmod(0o444)
    furnished("""
        import os
        assert os.stat("kept.txt").st_mode & 0o777 == 0o444
        os.chmod("kept.txt", 0o600)
        open("kept.txt", "a").write("x")
    """)


def test_a_setting_of_the_system_is_not_changed(furnished):
    """Dropping the page cache before a measurement is what benchmark scripts do as root."""
    furnished("""
        try:
            open("/proc/sys/vm/drop_caches", "w")
        except PermissionError:
            pass
        else:
            raise AssertionError
        assert told() == [("NOT_OPENED", "/proc/sys/vm/drop_caches")]
    """)


def test_the_folder_of_the_run_is_not_the_scripts_to_change(furnished):
    furnished("""
        import os
        folder = os.environ["UNDERTORCH_RUN"]
        for change, name in ((open, "x"), (os.mkdir, "x"), (os.remove, "state")):
            try:
                change(f"{folder}/{name}", *("w" for _ in range(change is open)))
            except PermissionError:
                continue
            raise AssertionError
    """)


def test_each_change_is_told(furnished, tmp_path):
    ran = furnished("""
        import os
        os.mkdir("made")
        open("kept.txt", "a").write("x")
        os.rename("folder/one.txt", "made/one.txt")
        os.remove("folder/two.txt")
        os.symlink("x", "link")
        os.chmod("kept.txt", 0o600)
        open("kept.txt").read()
        print(told())
    """)
    assert ran.out.strip() == repr(
        [
            ("MADE_FOLDER", f"{tmp_path}/made"),
            ("WROTE", f"{tmp_path}/kept.txt"),
            ("RENAMED", f"{tmp_path}/made/one.txt"),
            ("REMOVED", f"{tmp_path}/folder/two.txt"),
            ("LINKED", f"{tmp_path}/link"),
            ("CHANGED", f"{tmp_path}/kept.txt"),
        ]
    )
