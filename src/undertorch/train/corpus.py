"""The text: files, folders, globs, gzip, standard input; cut into documents, each for training or for validation.

A document's side is decided by a hash of its content, so that it stays where it is when others come or go, and the same
text is never on both sides.
"""

import gzip
import sys
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from undertorch.train.errors import BadText

HELD_OUT = 0.04
"""Share of the documents that is kept for validation."""

PIECES = 200
LEAST_PIECE = 2048
"""A file longer than a PIECES-th of all text (and than LEAST_PIECE bytes) is cut at line ends into several documents:
a single file, too, then has both sides."""

SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "lib2to3", ".git"}
"""Of the standard library: what is installed beside it, and tests, whose text is tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A piece of text of one file."""

    name: str
    """The file, and where several are cut from it, the byte that this one begins at."""
    text: bytes
    """UTF-8."""

    @property
    def held_out(self) -> bool:
        """Whether it is for validation."""
        return place(self.text) < HELD_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All documents, in the order of their names."""

    source: str
    """What it is, in words."""
    training: tuple[Document, ...]
    validation: tuple[Document, ...]
    skipped: tuple[str, ...]
    """Files of folders and globs that are no UTF-8 text, or cannot be read."""

    @property
    def content(self) -> str:
        """A hash of all of it."""
        total = blake2b(digest_size=16)
        for side in (self.training, self.validation):
            for document in side:
                total.update(len(document.text).to_bytes(8, "little") + document.text)
            total.update(b"|")
        return total.hexdigest()


def place(text: bytes) -> float:
    """A number from 0 to 1 that only the content decides."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / 2**64


def corpus(named: Sequence[str], stdin: BinaryIO | None = None) -> Corpus:
    """The text of files, folders, globs and `-`; of nothing, the standard library's source. Raises BadText."""
    skipped: list[str] = []
    if named:
        files = list(_read(named, stdin, skipped))
        source = ", ".join(named)
    else:
        files = list(_library())
        source = f"the source of Python's standard library ({sysconfig.get_path('stdlib')})"
    total = sum(len(text) for _, text in files)
    if not any(text.strip() for _, text in files):
        raise BadText(f"{source} holds no text{_skipped(skipped)}; name a file of text.")
    documents = [document for name, text in files for document in _cut(name, text, max(total // PIECES, LEAST_PIECE))]
    held = [document for document in documents if document.held_out]
    if not held and len(documents) > 1:
        held = [min(documents, key=lambda document: place(document.text))]
    chosen = {id(document) for document in held}
    return Corpus(
        source=source,
        training=tuple(document for document in documents if id(document) not in chosen),
        validation=tuple(held),
        skipped=tuple(skipped),
    )


def _skipped(names: Sequence[str]) -> str:
    return f" ({len(names)} files are no UTF-8 text)" if names else ""


def _library() -> Iterator[tuple[str, bytes]]:
    folder = Path(sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        if not SKIPPED_FOLDERS & set(inside.parts[:-1]):
            text = _text(path.read_bytes())
            if text is not None:
                yield str(inside), text


def _read(named: Sequence[str], stdin: BinaryIO | None, skipped: list[str]) -> Iterator[tuple[str, bytes]]:
    """Each file once, by name. What a folder or a glob brings along may be no text, and is skipped by name."""
    seen: set[Path] = set()
    for name in named:
        if name == "-":
            given = stdin or getattr(sys.stdin, "buffer", None)  # None where the process was given none (`<&-`)
            if given is None:
                raise BadText("standard input is closed; name files in place of -.")
            yield "standard input", _must_be_text("standard input", given.read())
            continue
        if not name:
            raise BadText("a text is named '', which is no name; name files, folders, patterns such as 'books/*.txt'.")
        path = Path(name)
        if path.is_dir():
            every = [p for p in path.rglob("*") if p.is_file() and not _hidden(p, path)]
            # What a run of ours has left below it, metrics and pages, is no text to learn from.
            runs = {p.parent for p in every if p.name == "run.json" and (p.parent / "metrics.jsonl").is_file()}
            found, asked = sorted(p for p in every if not runs.intersection(p.parents)), False
            if not found:
                raise BadText(f"the folder {name} holds no files; name one with text.")
        elif not path.exists() and has_magic(name):
            found, asked = sorted(p for p in map(Path, glob(name, recursive=True)) if p.is_file()), False  # noqa: PTH207 - patterns may be absolute
            if not found:
                raise BadText(f"no file fits {name}; look at the pattern.")
        else:
            found, asked = [path], True
        for each in found:
            if each.resolve() in seen:
                continue
            seen.add(each.resolve())
            if asked:
                yield str(each), _must_be_text(str(each), _bytes(each))
                continue
            try:
                text = _text(_bytes(each))
            except BadText:  # half a .gz among thousands, or one that may not be read
                text = None
            if text is None:
                skipped.append(str(each))
            else:
                yield str(each), text


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)


def _bytes(path: Path) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except FileNotFoundError as error:
        raise BadText(f"there is no file {path}; name files, folders, patterns such as 'books/*.txt', or -.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadText(f"{path} is no whole gzip file ({error}); make it again, or leave it out.") from error
    except OSError as error:
        raise BadText(f"{path} cannot be read: {error.strerror or error}.") from error


def _text(content: bytes) -> bytes | None:
    """UTF-8 without what binary files have; None for others."""
    if b"\0" in content:
        return None
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return content


def _must_be_text(name: str, content: bytes) -> bytes:
    text = _text(content)
    if text is not None:
        return text
    if b"\0" in content:
        raise BadText(f"{name} is no text: byte {content.index(0):,} is 0, as in binary files; name a file of text.")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadText(
            f"{name} is not UTF-8: byte {error.start:,} is 0x{content[error.start]:02x}; convert it, as by "
            f"`iconv -f latin1 -t utf-8`."
        ) from error
    raise AssertionError(name)


def _cut(name: str, text: bytes, most: int) -> Iterator[Document]:
    """Documents of at most `most` bytes, or a line more; no bytes get lost."""
    if len(text) <= most:
        if text.strip():
            yield Document(name=name, text=text)
        return
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", min(begin + most, len(text)) - 1) + 1
        if end == 0 or end > begin + 2 * most:  # no line end near by: between two characters
            end = min(begin + most, len(text))
            while end < len(text) and text[end] & 0xC0 == 0x80:
                end += 1
        yield Document(name=f"{name} from byte {begin:,}", text=text[begin:end])
        begin = end
