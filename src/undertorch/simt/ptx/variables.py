"""Declarations of memory: `.global .align 4 .b8 name[16] = {1, 2};`."""

import math
from dataclasses import dataclass, field

from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.constants import as_type, constant, integer, offset, starts
from undertorch.simt.ptx.instructions import Variable
from undertorch.simt.ptx.stream import Stream
from undertorch.simt.ptx.types import TYPES, Type

ATTRIBUTES = {".ptr", ".global", ".const", ".shared", ".local", ".volatile"}


WIDEST_ALIGNMENT = 1 << 16
"""Bytes; more than anything in CUDA asks for."""


def read_variable(stream: Stream, space: str, *, extern: bool = False, ends: bool = True) -> list[Variable]:
    """The variables of one declaration; `ends`: with a semicolon (a parameter ends with `,` or `)`)."""
    align, lanes, type = 0, 1, None
    while stream.peek().kind == "directive":
        token = stream.next()
        word = token.text
        if word == ".align":
            align = integer(stream.next())
            if align < 1 or align & (align - 1) or align > WIDEST_ALIGNMENT:
                raise PtxError(
                    f"PTX line {token.line}: .align {align}: an alignment is a power of two, up to {WIDEST_ALIGNMENT}."
                )
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
    token = stream.next()
    if token.kind != "word":
        raise PtxError(f"PTX line {token.line}: {token.text!r} stands where a variable's name has to be.")
    if stream.skip("<"):
        raise Unsupported(f"PTX line {stream.peek().line}: {token.text}<…> outside .reg is not supported.")
    sizes: list[int] = []
    while stream.skip("["):
        sizes.append(integer(stream.next()) if stream.peek().text != "]" else 0)
        stream.expect("]")
    array = bool(sizes)
    sizes += [lanes] if lanes > 1 else []
    initial = _Initial(stream, type)
    if stream.skip("="):
        if space not in {"global", "const"}:
            raise PtxError(f"PTX line {token.line}: {token.text} is in .{space} memory, which starts with no value.")
        initial.read(sizes)
    size = max(type.bytes * math.prod(sizes), len(initial.out) if array else 0)
    if not size and not extern:
        raise PtxError(f"PTX line {token.line}: {token.text} has no size.")
    return Variable(
        name=token.text,
        space=space,
        size=size,
        align=align or type.bytes * lanes,
        initial=bytes(initial.out),
        pointers=tuple(initial.pointers),
        address_bytes=tuple(initial.address_bytes),
        extern=extern,
        type=type,
        text_line=token.line,
    )


@dataclass(slots=True)
class _Initial:
    """Reads an initial value."""

    stream: Stream
    type: Type
    out: bytearray = field(default_factory=bytearray)
    pointers: list[tuple[int, str, int]] = field(default_factory=list)
    address_bytes: list[tuple[int, str, int, int]] = field(default_factory=list)

    def read(self, sizes: list[int]) -> None:
        """A value, or braces around those of an array of `sizes`; 0: as many as there are."""
        line = self.stream.peek().line
        if not self.stream.skip("{"):
            if sizes:
                raise PtxError(f"PTX line {line}: the value of an array stands in braces.")
            self._element()
            return
        if not sizes:
            raise PtxError(f"PTX line {line}: braces stand where one value has to be.")
        count = 0
        each = self.type.bytes * math.prod(sizes[1:])
        while not self.stream.skip("}"):
            count += 1
            if sizes[0] and count > sizes[0]:
                raise PtxError(f"PTX line {line}: there are more values than the array has elements, {sizes[0]}.")
            end = len(self.out) + each
            self.read(sizes[1:])
            self.out += bytes(end - len(self.out))
            if not self.stream.skip(",") and self.stream.peek().text != "}":
                self.stream.expect(",")

    def _element(self) -> None:
        stream, type = self.stream, self.type
        token = stream.peek()
        if token.kind == "int" and stream.after(1) == "(":
            self._byte_of_address()
        elif starts(stream):
            value = constant(stream)
            if type.floating and type.bits == 16:
                raise PtxError(f"PTX line {token.line}: a variable of .{type.name} takes no initial value.")
            bits = as_type(value, type, token.line).bits
            self.out += (bits & ((1 << type.bits) - 1)).to_bytes(type.bytes, "little")
        else:
            name, plus = self._address()
            if type.bytes != 8:
                raise PtxError(f"PTX line {token.line}: {name}, an address, does not fit into .{type.name}.")
            self.pointers.append((len(self.out), name, plus))
            self.out += bytes(8)

    def _address(self) -> tuple[str, int]:
        stream = self.stream
        name = stream.next()
        if name.text == "generic":
            stream.expect("(")
            name = stream.next()
            stream.expect(")")
        if name.kind != "word":
            raise PtxError(f"PTX line {name.line}: {name.text!r} stands where a value has to be.")
        return name.text, offset(stream)

    def _byte_of_address(self) -> None:
        """`0xff00(name)`: one byte of an address (PTX ISA, "Initializers")."""
        token = self.stream.next()
        mask = integer(token)
        self.stream.expect("(")
        name, plus = self._address()
        self.stream.expect(")")
        shifts = [shift for shift in range(0, 64, 8) if mask == 0xFF << shift]
        if not shifts or self.type.bytes != 1:
            raise PtxError(f"PTX line {token.line}: {token.text}(…) takes one byte of an address, as 0xff00 does.")
        self.address_bytes.append((len(self.out), name, plus, shifts[0]))
        self.out.append(0)
