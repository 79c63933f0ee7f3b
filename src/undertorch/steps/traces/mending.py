"""Damaged JSON made readable: what profilers and what copied their files have been seen to write wrongly."""

import re

TOKEN = re.compile(
    rb"""
    (?P<text>"(?:[^"\\]|\\.|"(?!\s*[,:}\]]))*")               # a quote ends it where what follows fits
    |(?P<word>(?<=[:\[,\s])-?(?:nan|inf|infinity)(?=[,\]}\s]))   # numbers that JSON has not
    |(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f])                   # between values
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
IN_TEXT = re.compile(
    rb"(?P<right>\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))|(?P<escape>\\)|(?P<control>[\x00-\x1f])|(?P<quote>\")"
)

IN_PLACE = {"escape": rb"\\", "control": b" ", "quote": rb"\""}

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def readable(data: bytes) -> tuple[bytes, int]:
    """The text with bytes that are no UTF-8 replaced, and how many they were. (The decoder does not look at those in
    parts that it passes over.)"""
    if data.isascii():
        return data, 0
    text = data.decode("utf-8", errors="replace")
    found = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
    return (text.encode(), found) if found else (data, 0)


def mended(data: bytes) -> tuple[bytes, int]:
    r"""The text with its faults mended, and how many they were. What is beyond this is for the decoder to refuse.

    Control bytes and raw newlines become spaces, wrong escapes (`\c`) get a second backslash, quotes within a text
    (what follows them does not follow a text) a first one, `NaN` and `Infinity` become null, and bytes that are no
    UTF-8 the replacement character.
    """
    count = 0

    def mend_text(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match.lastgroup == "right":
            return match.group()
        count += 1
        return IN_PLACE[match.lastgroup or ""]

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match.lastgroup == "text":
            return b'"' + IN_TEXT.sub(mend_text, match.group()[1:-1]) + b'"'
        count += 1
        return b"null" if match.lastgroup == "word" else b" "

    text, count = readable(data)
    return TOKEN.sub(mend, text), count
