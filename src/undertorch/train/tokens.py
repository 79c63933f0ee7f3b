"""Text as tokens: a byte-level BPE trained on it, and the tokens in memory-mapped shards, cached by content.

A shard is a header of 64 bytes and then the tokens, little-endian, of 2 or 4 bytes each. The header has a checksum of
them, which is verified when the shard is opened. Every document begins with the end-of-text token, so that a model is
told where one begins and a sample has something to begin with.
"""

import json
import os
import shutil
import struct
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from undertorch.train.bytes_model import order_2_bits
from undertorch.train.corpus import Corpus, Document
from undertorch.train.errors import BadText, TrainError

END_OF_TEXT = "<|endoftext|>"
MAGIC, VERSION = b"undertok", 1
HEADER = struct.Struct("<8sIIQ16s24x")
"""Magic, version, bytes a token, tokens, checksum; 64 bytes, so that tokens are aligned."""

SHARD_TOKENS = 2**27
"""Tokens of a shard at most: 256 MB of 2 bytes."""
LEARNED_FROM = 8 * 2**20
"""Bytes of text that the BPE is trained on: its few thousand merges are settled long before."""
AT_ONCE = 512
"""Documents that are encoded together, on all cores."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """One side of a text, as one long row of tokens."""

    shards: tuple[Array, ...]
    begins: tuple[int, ...]
    """Of each shard, the place of its first token; and the end."""
    documents: tuple[tuple[int, str], ...]
    """Place of each document's first token, and its name."""
    text_bytes: int

    def __len__(self) -> int:
        return self.begins[-1]

    def window(self, begin: int, length: int) -> Array:
        """Tokens from a place on, across shards, as int64."""
        pieces, shard = [], bisect_right(self.begins, begin) - 1
        while length > 0:
            inside = begin - self.begins[shard]
            piece = self.shards[shard][inside : inside + length]
            pieces.append(piece.astype(np.int64))
            begin, length, shard = begin + len(piece), length - len(piece), shard + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def document(self, place: int) -> str:
        """The name of the document that a token belongs to."""
        number = bisect_right([begin for begin, _ in self.documents], place) - 1
        return self.documents[max(number, 0)][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text, ready to be trained on."""

    folder: Path
    training: Tokens
    validation: Tokens
    tokenizer: Any
    """Of the tokenizers package."""
    source: str
    """What the text is, in words."""
    order_2_bits: float | None
    """Bits a byte of the held-out text by a model that knows two bytes (bytes_model.py)."""

    @property
    def end_of_text(self) -> int:
        """The token that each document begins with."""
        return int(self.tokenizer.token_to_id(END_OF_TEXT))


def cache_folder() -> Path:
    """UNDERTORCH_CACHE, else XDG_CACHE_HOME or ~/.cache, then undertorch/."""
    folder = os.environ.get("UNDERTORCH_CACHE")
    if folder is not None:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertorch"


def tokenized(
    corpus: Corpus, vocabulary: int, given: str | None = None, progress: Callable[[str], None] | None = None
) -> Text:
    """The text as tokens: from the cache, or made and put there, whole or not at all. Raises BadText, TrainError.

    `given`: a tokenizer.json to use instead of one that is trained on the text.
    """
    import tokenizers

    kind = f"{vocabulary}" if given is None else blake2b(_given(given), digest_size=16).hexdigest()
    key = blake2b(f"{VERSION} {corpus.content} {kind} {tokenizers.__version__}".encode(), digest_size=12).hexdigest()
    folder = cache_folder() / "text" / key
    if not folder.is_dir():
        _make(folder, corpus, vocabulary, given, progress or (lambda stage: None))
    try:
        return opened(folder)
    except TrainError as error:
        shutil.rmtree(folder)  # of the cache: made again, and only if that is of no use either the user is told
        _make(folder, corpus, vocabulary, given, progress or (lambda stage: None))
        try:
            return opened(folder)
        except TrainError:
            raise error from None


def opened(folder: Path) -> Text:
    """A text from its folder. Raises TrainError where a shard is damaged."""
    from tokenizers import Tokenizer

    try:
        about = json.loads((folder / "text.json").read_text("utf-8"))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return Text(
            folder=folder,
            tokenizer=tokenizer,
            source=about["source"],
            order_2_bits=about["order_2_bits"],
            training=_side(folder, "training", about["training"]),
            validation=_side(folder, "validation", about["validation"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainError(f"{folder} holds no whole text ({error!r}); remove it, and it is made again.") from error


def _side(folder: Path, name: str, about: dict[str, Any]) -> Tokens:
    shards = [read_shard(path) for path in sorted(folder.glob(f"{name}-*.tokens"))]
    return Tokens(
        shards=tuple(shards),
        begins=(0, *np.cumsum([len(shard) for shard in shards]).tolist()),
        documents=tuple((begin, document) for begin, document in about["documents"]),
        text_bytes=about["bytes"],
    )


def _given(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadText(f"the tokenizer {name} cannot be read: {error.strerror}; name a tokenizer.json.") from error


def _make(folder: Path, corpus: Corpus, vocabulary: int, given: str | None, progress: Callable[[str], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as made:
        aside = Path(made)
        progress("training a tokenizer on the text" if given is None else f"reading {given}")
        tokenizer = _learned(corpus.training, vocabulary) if given is None else _read_tokenizer(given)
        if given is not None:
            _check_bytes(given, tokenizer, corpus.training[0].text.decode("utf-8"))
        tokenizer.save(str(aside / "tokenizer.json"))
        about: dict[str, Any] = {"source": corpus.source, "order_2_bits": order_2_bits(corpus)}
        size = 2 if tokenizer.get_vocab_size() <= 2**16 else 4
        progress("cutting the text into tokens")
        for side, documents in (("training", corpus.training), ("validation", corpus.validation)):
            about[side] = _write_side(aside, side, documents, tokenizer, size)
        (aside / "text.json").write_text(json.dumps(about), "utf-8")
        for path in aside.iterdir():
            _to_disk(path)
        if not folder.is_dir():  # another process may have been as quick
            aside.rename(folder)
            aside.mkdir()  # for TemporaryDirectory to remove


def _learned(documents: Sequence[Document], vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(documents), trainer)
    return tokenizer


def _sample(documents: Sequence[Document]) -> Iterator[str]:
    """Documents spread evenly over the text, LEARNED_FROM bytes of them."""
    total = sum(len(document.text) for document in documents)
    every = max(total / LEARNED_FROM, 1.0)
    seen = taken = 0
    for document in documents:
        seen += len(document.text)
        if taken * every <= seen:
            taken += len(document.text)
            yield document.text.decode("utf-8")


def _read_tokenizer(name: str) -> Any:
    from tokenizers import Tokenizer

    try:
        tokenizer: Any = Tokenizer.from_file(name)
    except Exception as error:  # the package raises bare Exceptions
        raise BadText(f"{name} is no tokenizer ({error}); name a tokenizer.json of Hugging Face's.") from error
    if tokenizer.token_to_id(END_OF_TEXT) is None:
        raise BadText(f"the tokenizer {name} has no token {END_OF_TEXT}, which separates texts here; add it.")
    return tokenizer


def _check_bytes(name: str, tokenizer: Any, text: str) -> None:
    """Raises BadText where a token is not spelled in a character a byte, by which bits a byte are counted."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if sum(len(tokenizer.id_to_token(number)) for number in ids) != len(text.encode()):
        raise BadText(f"the tokenizer {name} is not a byte-level one (as GPT-2's and Llama 3's are); name another.")


def _write_side(folder: Path, side: str, documents: Sequence[Document], tokenizer: Any, size: int) -> dict[str, Any]:
    end, begins, place, pending, shard = tokenizer.token_to_id(END_OF_TEXT), [], 0, [], 0
    for first in range(0, len(documents), AT_ONCE):
        some = documents[first : first + AT_ONCE]
        encoded = tokenizer.encode_batch([document.text.decode("utf-8") for document in some], add_special_tokens=False)
        for document, one in zip(some, encoded, strict=True):
            begins.append((place, document.name))
            pending.append(np.array([end, *one.ids], dtype=f"<u{size}"))
            place += len(pending[-1])
        while sum(map(len, pending)) >= SHARD_TOKENS:
            whole = np.concatenate(pending)
            write_shard(folder / f"{side}-{shard:05}.tokens", whole[:SHARD_TOKENS])
            pending, shard = [whole[SHARD_TOKENS:]], shard + 1
    left = np.concatenate(pending) if pending else np.array([], dtype=f"<u{size}")
    write_shard(folder / f"{side}-{shard:05}.tokens", left)
    return {"documents": begins, "bytes": sum(len(document.text) for document in documents)}


def write_shard(path: Path, tokens: Array) -> None:
    """Header and tokens, of 2 or 4 bytes as the array has them."""
    checksum = blake2b(tokens.data, digest_size=16).digest()
    header = HEADER.pack(MAGIC, VERSION, tokens.dtype.itemsize, len(tokens), checksum)
    path.write_bytes(header + tokens.tobytes())


def read_shard(path: Path) -> Array:
    """The tokens, mapped into memory. Raises TrainError where the file is not what was written."""
    try:
        with path.open("rb") as file:
            magic, version, size, count, checksum = HEADER.unpack(file.read(HEADER.size))
    except (OSError, struct.error) as error:
        raise TrainError(f"{path} is no shard of tokens ({error}).") from error
    if magic != MAGIC or version != VERSION or size not in (2, 4):
        raise TrainError(f"{path} is no shard of tokens of this version.")
    if path.stat().st_size != HEADER.size + size * count:
        raise TrainError(
            f"{path} is damaged: it has {path.stat().st_size:,} bytes, not {HEADER.size + size * count:,}."
        )
    if count == 0:
        return np.array([], dtype=f"<u{size}")
    tokens = np.memmap(path, dtype=f"<u{size}", mode="r", offset=HEADER.size, shape=(count,))
    if blake2b(np.ascontiguousarray(tokens).data, digest_size=16).digest() != checksum:
        raise TrainError(f"{path} is damaged: its checksum is another.")
    return tokens


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
