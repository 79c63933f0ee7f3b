"""What a compiled kernel asks of the hardware, read out of its cubin.

A cubin is an ELF file. Its section `.nv.info` holds, for each function, attributes of four bytes of head (format,
number, length of the value) and a value; `cuobjdump --dump-resource-usage` prints the same.
"""

import struct
from collections.abc import Iterator

SECTION_HEADERS_AT, SECTION_HEADER_BYTES = 0x28, 64
"""Offset of e_shoff in a 64-bit ELF header, and the size of a section header (ELF-64 Object File Format)."""

VALUE_FOLLOWS = 4
"""Format of an attribute whose head's last two bytes are the length of a value that follows (EIFMT_SVAL)."""

REGISTER_COUNT = 0x2F
"""EIATTR_REGCOUNT: a symbol's number and the registers that a thread of it takes. As `cuobjdump -elf` names it."""


class NoCubin(ValueError):
    """The bytes are no cubin, or one that tells no registers."""


def registers(cubin: bytes) -> int:
    """Registers per thread of a cubin with one kernel. Raises NoCubin."""
    if cubin[:4] != b"\x7fELF":
        raise NoCubin("The bytes are no ELF file.")
    counts = [count for section in _sections(cubin, ".nv.info") for count in _register_counts(section)]
    if not counts:
        raise NoCubin("The cubin has no register count in .nv.info.")
    return max(counts)


def _sections(elf: bytes, name: str) -> Iterator[bytes]:
    """The contents of the sections of that name."""
    (table,) = struct.unpack_from("<Q", elf, SECTION_HEADERS_AT)
    count, names_at = struct.unpack_from("<HH", elf, 0x3C)  # e_shnum, e_shstrndx
    headers = [struct.unpack_from("<IIQQQQ", elf, table + index * SECTION_HEADER_BYTES) for index in range(count)]
    names = headers[names_at][4]
    for header in headers:
        begin = names + header[0]
        if elf[begin : elf.index(b"\0", begin)].decode() == name:
            yield elf[header[4] : header[4] + header[5]]


def _register_counts(info: bytes) -> Iterator[int]:
    at = 0
    while at + 4 <= len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != VALUE_FOLLOWS:
            continue  # the head holds the value itself
        if attribute == REGISTER_COUNT:
            yield struct.unpack_from("<II", info, at)[1]
        at += length
