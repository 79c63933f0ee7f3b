"""Random changes of a folder, each with what it answered: run by test_as_on_the_disk.py, on the disk and watched.

python fuzz.py SEED STEPS
"""

import hashlib
import os
import random
import shutil
import stat
import sys
from pathlib import Path

SEED, STEPS = map(int, sys.argv[1:3])
ABOVE = str(Path.cwd().parent)
drawn = random.Random(SEED)
NAMES = ("a", "b", "c", "one.txt", "two.txt", "link")


def path():
    depth = drawn.choice((1, 1, 2, 2, 3))
    parts = [drawn.choice(NAMES) for _ in range(depth)]
    if drawn.random() < 0.1:
        parts.insert(drawn.randrange(len(parts) + 1), drawn.choice(("..", ".")))
    return "/".join(parts)


def write(name):
    mode = drawn.choice(("w", "a", "x", "r+", "w+", "a+"))
    with open(name, mode) as file:
        file.write(str(drawn.randrange(1000)))
        return file.tell()


def read(name):
    return Path(name).read_text()


def listed(name):
    return sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in os.scandir(name))


def asked(name):
    found = os.lstat(name)
    size = None if stat.S_ISDIR(found.st_mode) else found.st_size
    return stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode), size, os.path.exists(name), os.path.isdir(name)


def walked(name):
    return sorted((folder, sorted(folders), sorted(files)) for folder, folders, files in os.walk(name))


def in_folder(name):
    """Work below an open folder."""
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        inside = drawn.choice(NAMES)
        what = drawn.choice(("stat", "unlink", "mkdir", "list", "write"))
        if what == "stat":
            return (
                os.stat(inside, dir_fd=folder).st_size
                if drawn.random() < 0.5
                else os.path.samestat(os.fstat(folder), os.stat(name))
            )
        if what == "unlink":
            return os.unlink(inside, dir_fd=folder)
        if what == "mkdir":
            return os.mkdir(inside, dir_fd=folder)
        if what == "write":
            file = os.open(inside, os.O_WRONLY | os.O_CREAT, dir_fd=folder)
            os.write(file, b"xyz")
            return os.close(file)
        return sorted(os.listdir(folder))
    finally:
        os.close(folder)


def moved_to(name):
    """Into a folder, and a look around from there."""
    here = os.getcwd()
    try:
        os.chdir(name)
        return os.path.relpath(os.getcwd(), here), sorted(os.listdir()), os.path.exists("../one.txt")
    finally:
        os.chdir(here)


ONE = (
    *(write, write, write, read, listed, asked, walked, in_folder, moved_to),
    *(os.mkdir, os.makedirs, os.remove, os.rmdir, shutil.rmtree, os.path.realpath, os.readlink),
    lambda name: os.chmod(name, drawn.choice((0o600, 0o644, 0o755, 0o777))),
    lambda name: os.utime(name, (5, drawn.randrange(10**6))) or os.stat(name).st_mtime,
    lambda name: os.truncate(name, drawn.randrange(20)),
    lambda name: os.access(name, drawn.choice((os.R_OK, os.X_OK, os.F_OK))),
)
TWO = (
    *(os.rename, os.replace, shutil.move, shutil.copy, shutil.copy2, shutil.copytree, os.link),
    lambda target, name: os.symlink(drawn.choice((target, os.path.abspath(target), drawn.choice(NAMES))), name),
)


def step():
    """One change or question; its answer, or the kind of error."""
    call, names = (drawn.choice(ONE), [path()]) if drawn.random() < 0.7 else (drawn.choice(TWO), [path(), path()])
    try:
        answer = call(*names)
    except OSError as error:
        answer = type(error).__name__, error.errno
    except shutil.Error as error:
        answer = type(error).__name__
    except RecursionError:
        answer = "recursion"
    return getattr(call, "__name__", "?"), names, repr(answer).replace(ABOVE, "ABOVE")


def state():
    """Everything there is, in short: a difference shows at the step that made it."""
    found = []
    for folder, folders, files in os.walk(".."):
        for name in (*folders, *files):
            whole = os.path.join(folder, name)
            entry = os.lstat(whole)
            holds = (
                os.readlink(whole)
                if stat.S_ISLNK(entry.st_mode)
                else read(whole)
                if stat.S_ISREG(entry.st_mode)
                else ""
            )
            found.append((whole, entry.st_mode, holds.replace(ABOVE, "ABOVE")))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:16]


for number in range(STEPS):
    print(number, *step(), state())
