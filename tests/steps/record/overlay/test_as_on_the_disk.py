"""A watched script gets the answers that the disk gives: the same changes, made on the disk and watched, are compared.

The disk is the oracle: a second copy of the folder, changed for real by the same sequence of calls.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")
STEPS = 150


def furnish(folder):
    """A folder with files, folders and links, also to what is not there."""
    for inside in ("a/b/c", "b/a", "c"):
        (folder / inside).mkdir(parents=True)
    for name in ("one.txt", "a/one.txt", "a/b/two.txt", "b/a/one.txt"):
        (folder / name).write_text(f"the text of {name}")
    (folder / "a/b/link").symlink_to("../one.txt")
    (folder / "c/link").symlink_to("../a/b")
    (folder / "link").symlink_to("nowhere")


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_answer_as_they_do_on_the_disk(seed, tmp_path, watched, tree):
    # One folder deeper each, since the changes reach the folder above too.
    real, seen = tmp_path / "real" / "here", tmp_path / "seen" / "here"
    furnish(real)
    shutil.copytree(real, seen, symlinks=True)
    before = tree(seen.parent)
    on_disk = subprocess.run(
        [sys.executable, str(FUZZ), str(seed), str(STEPS)], cwd=real, capture_output=True, text=True, check=True
    )
    code = f"import runpy; sys.argv = ['fuzz', '{seed}', '{STEPS}']; runpy.run_path({str(FUZZ)!r}, run_name='__main__')"
    ran = watched(code, seen)
    assert ran.status == 0, ran.err
    assert ran.out.splitlines() == on_disk.stdout.splitlines()
    assert tree(seen.parent) == before
