"""Operands of an instruction, and the names that they may use."""

from dataclasses import dataclass, field, replace

from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx import constants
from undertorch.simt.ptx.constants import constant
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
DEEPEST = 64
"""Scopes within scopes. NVRTC writes up to three."""
MOST_REGISTERS = 1 << 24
"""Of one declaration; far more than any compiler writes."""


@dataclass(slots=True)
class Scope:
    """The names that one pair of braces declares. Ranges are `%r<10>`: (count, type) by prefix."""

    registers: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, tuple[int, Type]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    """Registers, variables and ranges, to find what is declared twice."""
    suffix: str = ""

    def declare(self, name: str) -> None:
        """Raises PtxError where this scope has that name."""
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        ranged = bool(number) and stem in self.ranges and int(number) < self.ranges[stem][0]
        if name in self.declared or ranged:
            raise PtxError(f"{name} is declared twice.")
        self.declared.add(name)


@dataclass(slots=True)
class OperandReader:
    """Reads operands; an inner scope's names hide the outer's, so each gets a name that is unique in the function."""

    elements: dict[str, int] = field(default_factory=dict)
    """Bytes of an element of the variables that are known, by unique name."""
    scopes: list[Scope] = field(default_factory=list)
    opened: int = 0

    def open(self, line: int) -> None:
        """Enters a scope."""
        if len(self.scopes) == DEEPEST:
            raise PtxError(f"PTX line {line}: scopes nest deeper than {DEEPEST} levels.")
        self.scopes.append(Scope(suffix=f"#{self.opened}" if self.opened else ""))
        self.opened += 1

    def close(self) -> None:
        """Leaves it."""
        self.scopes.pop()

    def declare_register(self, name: str, type: Type) -> None:
        """`.reg .b32 name;`."""
        scope = self.scopes[-1]
        scope.declare(name)
        scope.registers[name] = Register(name + scope.suffix, type)

    def declare_registers(self, prefix: str, count: int, type: Type) -> None:
        """`.reg .b32 prefix<count>;`: prefix0, prefix1, …"""
        self.scopes[-1].declare(f"{prefix}<")
        self.scopes[-1].ranges[prefix] = (min(count, MOST_REGISTERS), type)

    def declare_variable(self, variable: Variable) -> Variable:
        """Of this scope; returns it under its unique name."""
        scope = self.scopes[-1]
        scope.declare(variable.name)
        if variable.type is not None:
            self.elements[variable.name + scope.suffix] = variable.type.bytes
        scope.variables[variable.name] = variable.name + scope.suffix
        return replace(variable, name=variable.name + scope.suffix)

    def declare_label(self, name: str) -> None:
        """Of this scope."""
        scope = self.scopes[-1]
        if name in scope.labels:
            raise PtxError(f"the label {name} stands twice.")
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
                number = name[len(stem) :]
                if int(number) < count and (number == "0" or number[0] != "0"):
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
        for number, (letter, operand) in enumerate(zip(form.operands.split(), out, strict=False)):
            if letter.startswith("[") and isinstance(operand, Symbol):  # `ld.global.u32 d, array[2]`
                out[number] = Address(Symbol(operand.name), operand.offset)
            if letter.startswith("[") != isinstance(out[number], Address):
                what = "an address in brackets" if letter.startswith("[") else "no address in brackets"
                raise PtxError(f"PTX line {line}: {form.pattern} takes the operands {form.operands!r}: {what}.")
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
                if stream.peek().text == "{":
                    raise PtxError(f"PTX line {token.line}: braces stand within braces.")
                items.append(self._operand(stream))
                stream.skip(",")
            return Group(tuple(items))
        if token.text == "!" and not constants.starts(stream):
            stream.next()
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
        if constants.starts(stream):
            return constant(stream)
        token = stream.next()
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
        if token.kind != "word":
            raise PtxError(f"PTX line {token.line}: {token.text!r} stands where an operand has to be.")
        name = self._variable(token.text)
        if stream.peek().text == "[":
            return Symbol(name, self._index(stream, name))
        return Symbol(name, constants.offset(stream))

    def _index(self, stream: Stream, name: str) -> int:
        """`[2]` behind an array's name, in bytes."""
        line = stream.next().line
        inner = self._find(stream.peek().text)
        if inner is not None:
            raise Unsupported(
                f"PTX line {line}: {name}[{inner.name}], an array indexed by a register, is not supported."
            )
        index = constant(stream)
        stream.expect("]")
        if name not in self.elements or index.kind != "int":
            raise PtxError(f"PTX line {line}: {name} is no array that is declared before this line.")
        return index.bits * self.elements[name]

    def _variable(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.variables:
                return scope.variables[name]
        return name

    def _address(self, stream: Stream) -> Address:
        stream.expect("[")
        base = self._simple(stream)
        offset = constants.offset(stream)
        stream.expect("]")
        if isinstance(base, Immediate):
            return Address(None, base.bits + offset)
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset)
        if isinstance(base, Register):
            return Address(base, offset)
        raise PtxError(f"PTX line {stream.peek().line}: an address needs a register, a name or a number.")
