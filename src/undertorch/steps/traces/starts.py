"""Starts that are exact to the nanosecond, from whatever moment a trace counts.

Kineto writes them with three decimals and counts from a moment of the last three months, which the file names
(`baseTimeNanoseconds`); older ones count from 1970, and of such a number a float keeps a quarter of a microsecond.
Their first digits, the same of all, are written as 1 before anything is decoded, which takes less time than decimals.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from undertorch.steps.traces.damage import middle
from undertorch.steps.traces.decoding import decoded
from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.pieces import Piece

EXACT_US = 2.0**43
"""Up to here, 102 days, neighbouring floats lie a nanosecond apart or less."""

ROUND_US = 10**11
"""28 hours: starts that differ in these digits alone are exact to the nanosecond with a 1 in front of them."""

START = b'"ts":'


class _Timed(Protocol):
    ts: float | None


class _Events(Protocol):
    @property
    def events(self) -> Sequence[_Timed] | None: ...


Content = TypeVar("Content", bound=_Events)
"""A file, or a piece of one."""


class _Moment(msgspec.Struct, kw_only=True, gc=False):
    ts: Decimal | None = None


class _Moments(msgspec.Struct, kw_only=True, gc=False):
    events: list[_Moment] | None = msgspec.field(name="traceEvents", default=None)


DECODER = msgspec.json.Decoder(_Moments, strict=False)


def origin(events: Sequence[_Timed]) -> int | None:
    """What is to be taken off the starts of a file that holds these events, in microseconds: 0 where floats are exact
    as they stand. None where no event has a start."""
    starts = np.array([event.ts for event in events if event.ts is not None], float)
    if not len(starts):
        return None
    half = middle(starts)
    return (int(half // ROUND_US) - 1) * ROUND_US if abs(half) >= EXACT_US else 0


def counted_from(
    origin_us: int, piece: Piece, decoder: msgspec.json.Decoder[Content], name: str
) -> tuple[Content, int]:
    """What stands in a piece, with starts that count from the origin, and how many places of it were mended. Raises
    BadTrace.
    """
    if origin_us > 0:
        with suppress(BadTrace):  # whose places are those of the text as it was
            file, _, repaired = decoded(replace(piece, json=_shortened(origin_us, piece.json)), decoder, name)
            starts = [event.ts for event in file.events or () if event.ts is not None]
            if not starts or (min(starts) >= ROUND_US and max(starts) < 2 * ROUND_US):
                return file, repaired
    file, text, repaired = decoded(piece, decoder, name)
    count_from(origin_us, file.events or (), text)
    return file, repaired


def _shortened(origin_us: int, text: bytes) -> bytes:
    """With starts of the origin's first digits as they are after it. Others are out of its round then."""
    before = START + b" " if START + b" " in text else START
    return text.replace(b"%s%d" % (before, origin_us // ROUND_US + 1), before + b"1")


def count_from(origin_us: int, events: Sequence[_Timed], text: bytes) -> None:
    """Takes the origin off the starts of events that were decoded from `text`, by decimals."""
    if not origin_us:
        return
    moments = DECODER.decode(text).events or ()
    for event, moment in zip(events, moments, strict=True):
        event.ts = None if moment.ts is None else float(moment.ts - origin_us)
