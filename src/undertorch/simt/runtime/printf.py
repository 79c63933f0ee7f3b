"""printf and assert of device code, formatted on the host (CUDA C++ Programming Guide, "Formatted Output")."""

import re
import struct
from typing import Protocol

SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")

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
        width = str(next_value(4, "i")) if width == "*" else width
        precision = str(next_value(4, "i")) if precision == "*" else precision
        if any(number.lstrip("-").isdigit() and abs(int(number)) > WIDEST for number in (width, precision or "")):
            width, precision = "", None  # no buffer of a GPU would hold it
        head = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        long = length in {"l", "ll", "j", "z", "t"}
        if letter in "di":
            return (head + "d") % next_value(8 if long else 4, "i")
        if letter in "ouxX":
            return (head + letter.replace("u", "d")) % next_value(8 if long else 4, "u")
        if letter in "eEfFgG":
            return (head + letter) % next_value(8, "f")
        if letter in "aA":
            return float(next_value(8, "f")).hex()
        if letter == "c":
            return (head + "c") % chr(int(next_value(4, "u")) & 0xFF)
        if letter == "s":
            address = int(next_value(8, "u"))
            known = address == 0 or memory.bytes(address, 1)
            return (head + "s") % (memory.text(address) if known else "(invalid pointer)")
        return f"{int(next_value(8, 'u')):#x}"

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
