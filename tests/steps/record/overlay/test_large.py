"""Files too large to copy, and how much a script may write."""

import os

import pytest

LARGE = (1 << 30) + 4096
"""More than is copied (shim/layer.c); on the disk it takes no room, being empty."""


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "tokens.bin"
    with path.open("wb") as file:
        file.write(b"the first bytes")
        file.truncate(LARGE)
    return path


def same(path):
    """Hashing a gigabyte takes long: its head and tail, length and times stand for it."""
    with path.open("rb") as file:
        head = file.read(64)
        file.seek(-64, os.SEEK_END)
        return head, file.read(), path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_blocks


def test_a_large_file_mapped_for_writing_is_changed_in_memory_alone(watched, large):
    """`numpy.memmap` opens for reading and writing unless it is told otherwise."""
    before = same(large)
    ran = watched(
        """
        import mmap
        with open("tokens.bin", "r+b") as file:
            assert file.read(9) == b"the first"
            mapped = mmap.mmap(file.fileno(), 0)
            mapped[0:3] = b"THE"
            assert mapped[0:9] == b"THE first"
        print(told())
        """,
        large.parent,
    )
    assert ran.status == 0, ran.err
    assert ran.out.strip() == repr([("TOO_LARGE", str(large))])
    assert same(large) == before


def test_a_large_file_added_to_grows_where_it_ends(watched, large):
    before = same(large)
    ran = watched(
        """
        import os
        with open("tokens.bin", "ab") as file:
            file.write(b"more")
        assert os.path.getsize("tokens.bin") == int(sys.argv[1]) + 4
        with open("tokens.bin", "rb") as file:
            file.seek(-4, 2)
            assert file.read() == b"more"
        """,
        large.parent,
        str(LARGE),
    )
    assert ran.status == 0, ran.err
    assert same(large) == before


def test_a_large_file_can_be_moved_and_written_anew(watched, large):
    before = same(large)
    ran = watched(
        """
        import os
        os.rename("tokens.bin", "moved.bin")
        assert os.path.getsize("moved.bin") == int(sys.argv[1]) and not os.path.exists("tokens.bin")
        open("tokens.bin", "w").write("small")
        assert os.listdir() and open("tokens.bin").read() == "small"
        """,
        large.parent,
        str(LARGE),
    )
    assert ran.status == 0, ran.err
    assert same(large) == before


def test_files_are_copied_as_long_as_there_is_room(watched, tmp_path):
    """100 bytes of room, files of 60: the second is too large."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"x" * 60)
    ran = watched(
        """
        for name in ("one", "two"):
            open(name, "ab").write(b"y")
        print([kind for kind, _ in told()])
        """,
        tmp_path,
        room=100,
    )
    assert ran.status == 0, ran.err
    assert ran.out.strip() == "['WROTE', 'TOO_LARGE', 'WROTE']"
