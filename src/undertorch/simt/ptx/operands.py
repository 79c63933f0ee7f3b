"""Operands of an instruction, and the names that they may use."""

import struct
from dataclasses import dataclass, field, replace

from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.instructions import (
    Address,
    Group,
    Immediate,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
)
from undertorch.simt.ptx.lexer import Token
from undertorch.simt.ptx.opcodes import Match
from undertorch.simt.ptx.special import SPECIAL
from undertorch.simt.ptx.stream import Stream
from undertorch.simt.ptx.types import Type

BRANCHES = {"bra"}


def integer(token: Token) -> int:
    """The value of an integer token."""
    if token.kind != "int":
        raise PtxError(f"PTX line {token.line}: {token.text!r} stands where a number has to be.")
    return (
        int(token.text.rstrip("U"), 0)
        if not token.text.startswith("0") or not token.text.rstrip("U").isdigit()
        else int(token.text.rstrip("U"), 8)
    )


@dataclass(slots=True)
class Scope:
    """The names that one pair of braces declares. Ranges are `%r<10>`: (count, type) by prefix."""

    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[int, Type]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    suffix: str = ""


@dataclass(slots=True)
class OperandReader:
    """Reads operands; an inner scope's names hide the outer's, so each gets a name that is unique in the function."""

    scopes: list[Scope] = field(default_factory=list)
    opened: int = 0

    def open(self) -> None:
        """Enters a scope."""
        self.scopes.append(Scope(suffix=f"#{self.opened}" if self.opened else ""))
        self.opened += 1

    def close(self) -> None:
        """Leaves it."""
        self.scopes.pop()

    def declare_register(self, name: str, type: Type) -> None:
        """`.reg .b32 name;`."""
        scope = self.scopes[-1]
        scope.registers[name] = Register(name + scope.suffix, type)

    def declare_registers(self, prefix: str, count: int, type: Type) -> None:
        """`.reg .b32 prefix<count>;`: prefix0, prefix1, …"""
        self.scopes[-1].ranges[prefix] = (count, type)

    def declare_variable(self, variable: Variable) -> Variable:
        """Of this scope; returns it under its unique name."""
        scope = self.scopes[-1]
        scope.variables[variable.name] = variable.name + scope.suffix
        return replace(variable, name=variable.name + scope.suffix)

    def declare_label(self, name: str) -> None:
        """Of this scope."""
        scope = self.scopes[-1]
        scope.labels[name] = name + scope.suffix

    def label(self, name: str) -> Label:
        """The label that a name means here."""
        for scope in reversed(self.scopes):
            if name in scope.labels:
                return Label(scope.labels[name])
        raise PtxError(f"There is no label {name}.")

    def register(self, token: Token) -> Register:
        """The register that a token names. Raises PtxError where none was declared."""
        found = self._find(token.text)
        if found is None:
            raise PtxError(f"PTX line {token.line}: the register {token.text} was not declared.")
        return found

    def _find(self, name: str) -> Register | None:
        stem = name.rstrip("0123456789")
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return scope.registers[name]
            if stem in scope.ranges and stem != name:
                count, type = scope.ranges[stem]
                if int(name[len(stem) :]) < count:
                    return scope.registers.setdefault(name, Register(name + scope.suffix, type))
        return None

    def read(self, stream: Stream, found: Match, line: int) -> tuple[Operand, ...]:
        """The operands up to the semicolon, their number held against the form. Raises PtxError where it is wrong."""
        out: list[Operand] = []
        while not stream.skip(";"):
            if out:
                stream.expect(",")
            out.append(self._operand(stream, branch=found.form.name in BRANCHES))
        form = found.form
        if not form.least_operands <= len(out) <= form.most_operands:
            raise PtxError(
                f"PTX line {line}: {form.pattern} takes the operands {form.operands!r}, not {len(out)} of them."
            )
        return tuple(out)

    def call(self, stream: Stream, line: int) -> tuple[Operand, ...]:
        """`(results), function, (arguments)`: a Group, a Symbol, a Group; a Register where it is a pointer."""
        results, arguments = Group(()), Group(())
        if stream.peek().text == "(":
            results = self._list(stream)
            stream.expect(",")
        token = stream.next()
        pointer = self._find(token.text)
        if stream.skip(",") and stream.peek().text == "(":
            arguments = self._list(stream)
            stream.skip(",")
        if pointer is not None:
            stream.next()  # the name of a prototype, or of a list of targets
        if not stream.skip(";"):
            raise PtxError(f"PTX line {line}: a call ends behind its arguments, or with a prototype's name.")
        return (results, pointer or Symbol(token.text), arguments)

    def _list(self, stream: Stream) -> Group:
        stream.expect("(")
        items: list[Operand] = []
        while not stream.skip(")"):
            items.append(self._operand(stream))
            stream.skip(",")
        return Group(tuple(items))

    def _operand(self, stream: Stream, *, branch: bool = False) -> Operand:
        token = stream.peek()
        if token.text == "[":
            return self._address(stream)
        if token.text == "{":
            stream.next()
            items: list[Operand] = []
            while not stream.skip("}"):
                items.append(self._operand(stream))
                stream.skip(",")
            return Group(tuple(items))
        if stream.skip("!"):
            return Negated(self.register(stream.next()))
        first = self._label(stream) if branch else self._simple(stream)
        if stream.skip("|"):
            return Pair(first, self._simple(stream))
        return first

    def _label(self, stream: Stream) -> Label:
        token = stream.next()
        try:
            return self.label(token.text)
        except PtxError as error:
            raise PtxError(f"PTX line {token.line}: {error}") from None

    def _simple(self, stream: Stream) -> Operand:
        negative = stream.skip("-")
        token = stream.next()
        if token.kind == "int":
            return Immediate(-integer(token) if negative else integer(token))
        if token.kind == "float":
            return _float(token.text, negative)
        if token.text == "_":
            return Sink()
        found = self._find(token.text)
        if found is not None:
            return found
        if token.text.startswith("%"):
            if token.text[1:] in SPECIAL:
                return Special(token.text[1:])
            raise Unsupported(
                f"PTX line {token.line}: {token.text} is neither a declared register nor one that the machine keeps."
            )
        if token.text == "WARP_SZ":
            return Immediate(32)
        if token.kind != "word":
            raise PtxError(f"PTX line {token.line}: {token.text!r} stands where an operand has to be.")
        return Symbol(self._variable(token.text), self._plus(stream))

    def _variable(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.variables:
                return scope.variables[name]
        return name

    def _plus(self, stream: Stream) -> int:
        sign = 1 if stream.skip("+") else -1 if stream.skip("-") else 0
        if not sign:
            return 0
        if stream.skip("-"):
            sign = -sign
        return sign * integer(stream.next())

    def _address(self, stream: Stream) -> Address:
        stream.expect("[")
        base = self._simple(stream)
        offset = self._plus(stream)
        stream.expect("]")
        if isinstance(base, Immediate):
            return Address(None, base.bits + offset)
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset)
        if isinstance(base, Register):
            return Address(base, offset)
        raise PtxError(f"PTX line {stream.peek().line}: an address needs a register, a name or a number.")


def _float(text: str, negative: bool) -> Immediate:
    if text[1] in "fF":
        bits = int(text[2:], 16)
        return Immediate(bits ^ (0x80000000 if negative else 0), "f32")
    if text[1] in "dD":
        return Immediate(int(text[2:], 16) ^ (1 << 63 if negative else 0), "f64")
    value = float(text)
    return Immediate(struct.unpack("<Q", struct.pack("<d", -value if negative else value))[0], "f64")
