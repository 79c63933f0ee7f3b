"""What a model of bytes that knows only the two before says of the same held-out text: the figure to be below.

Order 2, with Witten and Bell's interpolation of the lower orders (1991): the chance of a byte after a context is
(count + types · chance after the shorter context) / (total + types), `types` being how many different bytes were seen
after it. Of the ways to smooth counts this needs no setting and is among the best at this order.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from undertorch.train.corpus import Corpus, Document

Array = npt.NDArray[Any]

AT_ONCE = 2**24
"""Bytes that are counted at a time."""


def order_2_bits(corpus: Corpus) -> float | None:
    """Bits a byte of the held-out text, after counting the training text. Each document begins with two line ends.

    None where nothing is held out.
    """
    counts = np.zeros(2**24, dtype=np.int64)
    for codes in _codes(corpus.training):
        counts += np.bincount(codes, minlength=2**24)
    second = counts.reshape(2**16, 256)
    first = second.reshape(256, 256, 256).sum(0)
    none = first.sum(0)
    bits, size = 0.0, 0
    for codes in _codes(corpus.validation):
        byte, before = codes & 0xFF, codes >> 8
        chance = (none[byte] + 1.0) / (none.sum() + 256.0)
        chance = _interpolated(first, before & 0xFF, byte, chance)
        chance = _interpolated(second, before, byte, chance)
        bits, size = bits - float(np.log2(chance).sum()), size + len(codes)
    return bits / size if size else None


def _codes(documents: Sequence[Document]) -> Iterator[Array]:
    """Of each byte, the two before it and itself as one number; some documents at a time."""
    pending: list[Array] = []
    for number, document in enumerate(documents, 1):
        text = np.frombuffer(b"\n\n" + document.text, dtype=np.uint8).astype(np.int64)
        pending.append(text[:-2] << 16 | text[1:-1] << 8 | text[2:])
        if number == len(documents) or sum(map(len, pending)) > AT_ONCE:
            yield np.concatenate(pending)
            pending = []


def _interpolated(counts: Array, context: Array, byte: Array, lower: Array) -> Array:
    total, types = counts.sum(1), (counts > 0).sum(1)
    seen = total[context] > 0  # after a context that never was, the shorter one decides
    result = lower.copy()
    at, of = context[seen], byte[seen]
    result[seen] = (counts[at, of] + types[at] * lower[seen]) / (total[at] + types[at])
    return result
