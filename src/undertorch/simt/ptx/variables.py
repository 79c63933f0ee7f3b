"""Declarations of memory: `.global .align 4 .b8 name[16] = {1, 2};`."""

import struct

from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.instructions import Variable
from undertorch.simt.ptx.operands import integer
from undertorch.simt.ptx.stream import Stream
from undertorch.simt.ptx.types import TYPES, Type

ATTRIBUTES = {".ptr", ".global", ".const", ".shared", ".local", ".volatile"}


def read_variable(stream: Stream, space: str, *, extern: bool = False, ends: bool = True) -> list[Variable]:
    """The variables of one declaration; `ends`: with a semicolon (a parameter ends with `,` or `)`)."""
    align, lanes, type = 0, 1, None
    while stream.peek().kind == "directive":
        word = stream.next().text
        if word == ".align":
            align = integer(stream.next())
        elif word in {".v2", ".v4"}:
            lanes = int(word[2])
        elif word[1:] in TYPES:
            type = TYPES[word[1:]]
        elif word not in ATTRIBUTES:
            raise Unsupported(f"PTX line {stream.peek().line}: a variable {word} is not supported.")
    if type is None:
        raise PtxError(f"PTX line {stream.peek().line}: a variable without a type.")
    found = [_named(stream, space, align, lanes, type, extern)]
    while ends and not stream.skip(";"):
        stream.expect(",")
        found.append(_named(stream, space, align, lanes, type, extern))
    return found


def _named(stream: Stream, space: str, align: int, lanes: int, type: Type, extern: bool) -> Variable:
    name = stream.next().text
    if stream.skip("<"):
        raise Unsupported(f"PTX line {stream.peek().line}: {name}<…> outside .reg is not supported.")
    count, array = lanes, False
    while stream.skip("["):
        array = True
        if stream.peek().text != "]":
            count *= integer(stream.next())
        else:
            count = 0
        stream.expect("]")
    values: list[bytes] = []
    pointers: list[tuple[int, str, int]] = []
    if stream.skip("="):
        _initial(stream, type, values, pointers)
    initial = b"".join(values)
    return Variable(
        name=name,
        space=space,
        size=max(type.bytes * count, len(initial) if array else 0),
        align=align or type.bytes * lanes,
        initial=initial,
        pointers=tuple(pointers),
        extern=extern,
        type=type,
    )


def _initial(stream: Stream, type: Type, values: list[bytes], pointers: list[tuple[int, str, int]]) -> None:
    if stream.skip("{"):
        while not stream.skip("}"):
            _initial(stream, type, values, pointers)
            stream.skip(",")
        return
    negative = stream.skip("-")
    token = stream.next()
    if token.kind == "int":
        value = integer(token) * (-1 if negative else 1)
        values.append((value & ((1 << type.bits) - 1)).to_bytes(type.bytes, "little"))
    elif token.kind == "float":
        if not type.floating or type.bits not in {16, 32, 64}:
            raise PtxError(f"PTX line {token.line}: {token.text} is no initial value of .{type.name}.")
        values.append(_float(token.text, type, negative))
    else:
        name = token.text
        if name == "generic":
            stream.expect("(")
            name = stream.next().text
            stream.expect(")")
        plus = integer(stream.next()) if stream.skip("+") else 0
        if type.bytes != 8:
            raise PtxError(f"PTX line {token.line}: {name}, an address, does not fit into .{type.name}.")
        pointers.append((sum(len(v) for v in values), name, plus))
        values.append(bytes(type.bytes))


def _float(text: str, type: Type, negative: bool) -> bytes:
    if text[1] in "fF":
        value = struct.unpack(">f", bytes.fromhex(text[2:]))[0]
    elif text[1] in "dD":
        value = struct.unpack(">d", bytes.fromhex(text[2:]))[0]
    else:
        value = float(text)
    return struct.pack({16: "<e", 32: "<f", 64: "<d"}[type.bits], -value if negative else value)
