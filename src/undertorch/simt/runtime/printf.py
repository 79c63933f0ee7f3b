"""printf and assert of device code, formatted on the host (CUDA C++ Programming Guide, "Formatted Output")."""

import re
import struct
from typing import Protocol

from undertorch.simt.runtime import formats

SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")

LENGTHS = {"hh": 1, "h": 2, "l": 8, "ll": 8, "j": 8, "z": 8, "t": 8}
"""Bytes of an integer; without a length 4."""
WIDEST = 1 << 20
"""The most characters that a width may ask for: a GPU's buffer has as many for all threads (CUDA C++ Programming Guide,
"Formatted Output", cudaLimitPrintfFifoSize)."""


class Memory(Protocol):
    """What can be read of a launch's memory."""

    def bytes(self, address: int, count: int) -> bytes:
        """Some bytes."""

    def text(self, address: int) -> str:
        """A string."""


def formatted(memory: Memory, format_address: int, arguments: int) -> str:
    """What one thread prints. Arguments lie one behind the other, each at a multiple of its size."""
    at = arguments

    def next_value(size: int, kind: str) -> int | float:
        nonlocal at
        at = -(-at // size) * size
        data = memory.bytes(at, size).ljust(size, b"\0")
        at += size
        return struct.unpack("<d", data)[0] if kind == "f" else int.from_bytes(data, "little", signed=kind == "i")

    def one(found: re.Match[str]) -> str:
        flags, width, precision, length, letter = found.groups()
        if letter == "%":
            return "%"
        wide = next_value(4, "i") if width == "*" else int(width or 0)
        exact = None if precision is None else next_value(4, "i") if precision == "*" else int(precision or 0)
        assert isinstance(wide, int)
        assert exact is None or isinstance(exact, int)
        if wide < 0:  # of an argument: to the left
            flags, wide = flags + "-", -wide
        if exact is not None and exact < 0:  # as if there were none
            exact = None
        if max(wide, exact or 0) > WIDEST:
            wide, exact = 0, None  # no buffer of a GPU would hold it
        if letter in "diouxX":
            kind = "d" if letter in "di" else letter
            size = LENGTHS.get(length, 4)
            number = next_value(max(size, 4), "u")
            assert isinstance(number, int)
            number &= (1 << 8 * size) - 1
            if kind == "d" and number >> 8 * size - 1:
                number -= 1 << 8 * size
            return formats.integer(number, kind, flags, wide, exact)
        if letter in "eEfFgGaA":
            return formats.floating(float(next_value(8, "f")), letter, flags, wide, exact)
        head = f"%{'-' if '-' in flags else ''}{wide or ''}" + (f".{exact}" if exact is not None else "")
        if letter == "c":
            return (head.split(".", maxsplit=1)[0] + "c") % chr(int(next_value(4, "u")) & 0xFF)
        if letter == "s":
            address = int(next_value(8, "u"))
            known = address == 0 or memory.bytes(address, 1)
            return (head + "s") % (memory.text(address) if known else "(invalid pointer)")
        return formats.padded("", "", f"{int(next_value(8, 'u')):#x}", flags, wide, zeros=False)

    return SPECIFIER.sub(one, memory.text(format_address))


def parsed_arguments(form: str) -> int:
    """What printf answers on a GPU: the number of arguments that the format asks for, which C does not."""
    return sum(1 + (found[1] == "*") + (found[2] == "*") for found in SPECIFIER.findall(form) if found[4] != "%")


def assertion(memory: Memory, arguments: list[int]) -> str:
    """`__assertfail(message, file, line, function, character size)`, as a sentence's end."""
    message, file, line, function = arguments[:4]
    return (
        f"failed the assertion `{memory.text(message)}` in {memory.text(function)} "
        f"({memory.text(file)}:{line & 0xFFFFFFFF})"
    )
