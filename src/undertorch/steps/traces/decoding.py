"""From a piece of text to what stands in it, mended where it can be, otherwise refused in a sentence."""

import re
from typing import TypeVar

import msgspec

from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.mending import mended, readable
from undertorch.steps.traces.pieces import GZIP, Piece

TRUNCATED = "truncated"
"""Is in msgspec's message about data that ends too early."""

AT = re.compile(r" \(byte (\d+)\)$")
"""Ends msgspec's message about data that is no JSON."""

Content = TypeVar("Content")


def decoded(piece: Piece, decoder: msgspec.json.Decoder[Content], name: str) -> tuple[Content, bytes, int]:
    """What stands in the piece, its text, and how many places of that were mended. Raises BadTrace, which names the
    file.
    """
    text, repaired = readable(piece.json)
    try:
        try:
            return decoder.decode(text), text, repaired
        except msgspec.DecodeError as error:
            if isinstance(error, msgspec.ValidationError) or TRUNCATED in str(error):
                raise
            text, more = mended(text)
            return decoder.decode(text), text, repaired + more
    except msgspec.ValidationError as error:
        raise BadTrace(
            f"{name} is JSON, but no trace of torch.profiler, or a damaged one: {_what(error, piece)}."
        ) from error
    except RecursionError as error:
        raise BadTrace(f"{name} is JSON that nests deeper than any trace of torch.profiler.") from error
    except msgspec.DecodeError as error:
        raise BadTrace(f"{name} is no trace that can be read: {_why(error, piece)}.") from error


def _what(error: msgspec.ValidationError, piece: Piece) -> str:
    """What is not as it ought to be. The decoder counts events from where the piece begins."""
    what = str(error)
    return what if not piece.place.offset else f"{what}, counted from byte {piece.place.offset:,} on"


def _why(error: msgspec.DecodeError, piece: Piece) -> str:
    """In the words of the decoder, with the place in the whole file."""
    if not piece.json.strip():
        return "it is empty"
    if piece.json.startswith(GZIP):
        return "it was compressed twice; unpack it once"
    if TRUNCATED in str(error):
        return "it ends in the middle"
    at = AT.search(str(error))
    if at is None:
        return str(error)
    where = max(0, piece.place.offset - len(piece.place.before) + int(at[1]))
    return f"{str(error)[: at.start()]} (near byte {where:,})"
