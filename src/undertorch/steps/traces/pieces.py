"""A file's text in pieces that are JSON each, a few megabytes long, so that it never has to be in memory whole.

The list of events is cut between two events. An event begins `{"ph"`, behind the `},` of the one before: in JSON these
characters cannot stand so within a text, where the quote would be escaped. A file whose events begin otherwise is one
piece.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from undertorch.steps.traces.errors import BadTrace

GZIP = b"\x1f\x8b"

BLOCK = 4 << 20
"""Bytes of text that are read at once: a piece is about as long. A chosen step is read anew from the pieces that it
lies in, and the smaller these are, the less is read with it."""

BEGIN = re.compile(rb'\A\s*\[|"traceEvents"\s*:\s*\[')
"""Where the list of events begins: in the object that Kineto writes, or as all there is."""

FIRST = b'"ph"'
"""The first key of an event."""

BETWEEN = re.compile(rb"\}\s*,(\s*\{\s*)\Z")
"""What stands before it from the second event on."""

MOST_BETWEEN = 200
"""Bytes of blanks between two events, at most."""

OPEN, CLOSE = b'{"traceEvents":[', b"]}"
"""Make a file of a piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a piece stands, and what makes it JSON by itself: a file with some of the events."""

    offset: int
    """Bytes of unpacked text before it."""
    length: int
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a file."""

    place: Place
    json: bytes
    """Its text, with what stands before and after it."""


def pieces(path: Path) -> Iterator[Piece]:
    """The file, in order. What stands before the first event and behind the last is with those of the first and the
    last piece. Raises BadTrace where it cannot be read or unpacked."""
    blocks = _blocks(path)
    text = _until_begin(blocks)
    begin = BEGIN.search(text)
    if begin is None:
        yield _piece(0, text, b"", b"")
        return
    alone = begin.group().lstrip().startswith(b"[")
    first, offset = True, 0
    for block in blocks:
        cut = _last_cut(text, begin.end() if first else 0)
        if cut is None:  # another order of keys, or no events of Kineto's at all
            text = b"".join((text, block, *blocks))
            break
        end, start = cut
        yield _piece(offset, memoryview(text)[:end], _before(first, alone), CLOSE)
        offset, text, first = offset + start, b"".join((memoryview(text)[start:], block)), False
    yield _piece(offset, text, _before(first, alone), b"}" if alone else b"")


def again(path: Path, places: Sequence[Place], wanted: Sequence[bool]) -> Iterator[Piece]:
    """Of a file that was read before, the pieces that are wanted. What is not packed is read just there."""
    if not any(wanted):
        return
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
            for place, is_wanted in zip(places, wanted, strict=True):
                if is_wanted and not packed:
                    file.seek(place.offset)
                    yield _piece(place.offset, file.read(place.length), place.before, place.after)
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}.") from error
    if packed:
        after_last = len(wanted) - wanted[::-1].index(True)
        for piece, is_wanted in zip(pieces(path), wanted[:after_last], strict=False):
            if is_wanted:
                yield piece


def _piece(offset: int, text: bytes | memoryview, before: bytes, after: bytes) -> Piece:
    place = Place(offset=offset, length=len(text), before=before, after=after)
    return Piece(place=place, json=b"".join((before, text, after)))


def _before(first: bool, alone: bool) -> bytes:
    if first:
        return b'{"traceEvents":' if alone else b""
    return OPEN


def _until_begin(blocks: Iterator[bytes]) -> bytes:
    """The text up to the block in which the events begin; all of it where they do not."""
    text = b""
    for block in blocks:
        text += block
        if BEGIN.search(text):
            break
    return text


def _last_cut(text: bytes, begin: int) -> tuple[int, int] | None:
    """The end of the last event that another one follows, and the start of that other; None where there are not two."""
    at = len(text)
    while (at := text.rfind(FIRST, begin, at)) >= 0:
        before = text[max(begin, at - MOST_BETWEEN) : at]
        between = BETWEEN.search(before)
        if between is not None:
            return at - len(before) + between.start() + 1, at - len(between[1].lstrip())
    return None


def _ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same, each made in another thread while the one before is worked on: zlib lets others run meanwhile."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _blocks(path: Path) -> Iterator[bytes]:
    """Unpacked. Raises BadTrace."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            if not packed:
                while block := file.read(BLOCK):
                    yield block
                return
            with gzip.open(file) as unpacked:
                yield from _ahead(iter(lambda: unpacked.read(BLOCK), b""))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadTrace(f"{path} is damaged: its compressed data is cut off or wrong; copy it anew.") from error
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}.") from error
