"""PTX text into a Module. What the machine cannot run is reported here, before anything runs."""

import re
from dataclasses import dataclass, field

from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.instructions import Function, Instruction, Label, Module, Place, Variable
from undertorch.simt.ptx.lexer import Token, tokens
from undertorch.simt.ptx.opcodes import match
from undertorch.simt.ptx.operands import OperandReader, integer
from undertorch.simt.ptx.stream import Stream
from undertorch.simt.ptx.types import TYPES
from undertorch.simt.ptx.variables import read_variable

LINKING = {".visible", ".extern", ".weak", ".common"}
SPACES = {".global", ".const", ".shared", ".local", ".param"}
NEWEST = (9, 99)
"""No version of PTX is above it yet (PTX ISA, "Release Notes": 9.0 came with CUDA 13.0)."""
TARGET = re.compile(r"sm_\d{2,3}[af]?")


def parse(text: str) -> Module:
    """Reads a file of PTX.

    Raises PtxError where the text is no PTX. What the machine does not do is kept with the function that asks for it,
    naming the instruction, its PTX line and its source line: other kernels of the file can be run.
    """
    items = list(tokens(text))
    return _ModuleReader(Stream(items), files=_files(items)).read()


def _files(items: list[Token]) -> dict[int, str]:
    """`.file` lines stand behind the code that names them."""
    return {
        integer(items[at + 1]): items[at + 2].text[1:-1] for at, token in enumerate(items[:-2]) if token.text == ".file"
    }


@dataclass(slots=True)
class _ModuleReader:
    stream: Stream
    version: tuple[int, int] = (0, 0)
    target: str = ""
    files: dict[int, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)

    def read(self) -> Module:
        while not self.stream.done:
            self._directive(self.stream.next())
        if not self.target:
            raise PtxError("The text is no PTX: it has no .target line.")
        if self.version == (0, 0):
            raise PtxError("The text is no PTX: it has no .version line.")
        return Module(
            version=self.version,
            target=self.target,
            files=self.files,
            variables=tuple(self.variables),
            functions=self.functions,
        )

    def _directive(self, token: Token) -> None:
        stream, name = self.stream, token.text
        if name == ".version":
            number = stream.next()
            major, _, minor = number.text.partition(".")
            if not (major.isdecimal() and minor.isdecimal()):
                raise PtxError(f"PTX line {number.line}: .version takes a number such as 8.0, not {number.text!r}.")
            self.version = (int(major), int(minor))
            if self.version[0] < 1 or self.version > NEWEST:
                raise PtxError(f"PTX line {number.line}: there is no .version {number.text} of PTX.")
        elif name == ".target":
            target = stream.next()
            self.target = target.text
            if not TARGET.fullmatch(self.target):
                raise PtxError(
                    f"PTX line {target.line}: .target takes an architecture such as sm_80, not {self.target!r}."
                )
            while stream.skip(","):
                stream.next()
        elif name == ".address_size":
            if stream.next().text != "64":
                raise Unsupported(f"PTX line {token.line}: only .address_size 64 can be run.")
        elif name == ".file":
            stream.next()
            stream.next()
            while stream.skip(","):
                stream.next()
        elif name == ".section":
            stream.next()
            stream.skip_braces()
        elif name in LINKING or name == ";":
            pass
        elif name == ".pragma":
            stream.until(";")
        elif name in SPACES:
            extern = stream.before(2) == ".extern"
            self.variables += read_variable(stream, name[1:], extern=extern)
        elif name in {".entry", ".func"}:
            self._function(kernel=name == ".entry", line=token.line)
        else:
            raise PtxError(f"PTX line {token.line}: {name} is not understood here.")

    def _function(self, *, kernel: bool, line: int) -> None:
        stream = self.stream
        returns = self._parameters()
        name = stream.next().text
        parameters = self._parameters()
        limit = None
        while stream.peek().text not in {"{", ";"}:
            directive = stream.next().text
            if directive in {".maxntid", ".reqntid"}:
                limit = integer(stream.next())
                while stream.skip(","):
                    limit *= integer(stream.next())
            elif directive == ".pragma":
                stream.next()
        if stream.skip(";"):
            return  # a declaration
        body = BodyReader(stream, self.files, self.version, self.target)
        body.read()
        self.functions[name] = Function(
            name=name,
            kernel=kernel,
            parameters=parameters,
            returns=returns,
            variables=tuple(body.variables),
            body=tuple(body.out),
            unsupported=tuple(body.unsupported),
            max_threads=limit,
            text_line=line,
        )

    def _parameters(self) -> tuple[Variable, ...]:
        stream, found = self.stream, []
        if stream.skip("("):
            while not stream.skip(")"):
                token = stream.next()
                if token.text in {".param", ".reg"}:
                    found += read_variable(stream, "param", ends=False)
        return tuple(found)


@dataclass(slots=True)
class BodyReader:
    """A function's body: nested scopes, each with registers, variables and labels of its own."""

    stream: Stream
    files: dict[int, str]
    version: tuple[int, int]
    target: str
    out: list[Instruction | Label] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    place: Place | None = None
    operands: OperandReader = field(default_factory=OperandReader)

    def read(self) -> None:
        """From the opening brace to the closing one."""
        stream = self.stream
        stream.expect("{")
        self.operands.open()
        self._declare_labels()
        while not stream.skip("}"):
            start = stream.at
            try:
                self._statement()
            except Unsupported as error:
                self.unsupported.append(str(error))
                stream.at = start
                stream.until(";")
        self.operands.close()

    def _declare_labels(self) -> None:
        """Labels may be used before they stand there, so those of this scope are found first."""
        stream, depth, at = self.stream, 0, self.stream.at
        while depth >= 0 and at < len(stream.items):
            text = stream.items[at].text
            depth += {"{": 1, "}": -1}.get(text, 0)
            if depth == 0 and text == ":" and stream.items[at - 1].kind == "word":
                self.operands.declare_label(stream.items[at - 1].text)
            at += 1

    def _statement(self) -> None:
        stream = self.stream
        token = stream.peek()
        if token.text == "{":
            self.read()
        elif token.text == ".reg":
            self._registers()
        elif token.text in SPACES:
            stream.next()
            extern = False
            for variable in read_variable(stream, token.text[1:], extern=extern):
                self.variables.append(self.operands.declare_variable(variable))
        elif token.text == ".loc":
            self._location()
        elif token.text == ".pragma":
            stream.until(";")
        elif token.text == ".branchtargets":
            raise Unsupported(f"PTX line {token.line}: {token.text} (an indirect branch) is not supported.")
        elif token.text in {".callprototype", ".calltargets"}:
            stream.until(";")  # the arguments at the call say as much
        elif token.text == ";":
            stream.next()
        elif token.kind == "word" and stream.after(1) == ":":
            stream.next()
            stream.next()
            if stream.peek().text in {".callprototype", ".branchtargets", ".calltargets"}:
                self._statement()
            self.out.append(self.operands.label(token.text))
        else:
            self._instruction()

    def _registers(self) -> None:
        stream = self.stream
        stream.next()
        type = TYPES.get(stream.next().text[1:])
        if type is None:
            raise PtxError(f"PTX line {stream.peek().line}: a .reg of no known type.")
        while True:
            name = stream.next().text
            if stream.skip("<"):
                count = integer(stream.next())
                stream.expect(">")
                self.operands.declare_registers(name, count, type)
            else:
                self.operands.declare_register(name, type)
            if stream.next().text == ";":
                return

    def _location(self) -> None:
        """`.loc file line column [, function_name label, inlined_at file line column]`."""
        stream = self.stream
        stream.next()
        file, line, column = (integer(stream.next()) for _ in range(3))
        inlined = None
        while stream.skip(","):
            word = stream.next().text
            if word == "inlined_at":
                at_file, at_line, at_column = (integer(stream.next()) for _ in range(3))
                inlined = self._seen_at(self.files.get(at_file, "?"), at_line, at_column)
            else:
                stream.next()
                if stream.skip("+"):
                    stream.next()
        if line == 0:  # the compiler has no line for it
            self.place = None
            return
        self.place = Place(file=self.files.get(file, "?"), line=line, column=column, inlined_at=inlined)

    def _seen_at(self, file: str, line: int, column: int) -> Place:
        """The call site; where the line before was inlined through it too, with that call's own chain."""
        place = self.place
        while place is not None:
            if (place.file, place.line, place.column) == (file, line, column):
                return place
            place = place.inlined_at
        return Place(file=file, line=line, column=column)

    def _instruction(self) -> None:
        stream, guard, negated = self.stream, None, False
        start = stream.at
        if stream.skip("@"):
            negated = stream.skip("!")
            guard = self.operands.register(stream.next())
            if guard.type.kind != "predicate":
                raise PtxError(
                    f"PTX line {stream.peek().line}: {guard.name} guards an instruction and is no predicate."
                )
        opcode = stream.next()
        found = match(opcode.text)
        if found is None:
            raise self._unsupported(opcode)
        if found.form.since > self.version and found.form.since > (7, 0):
            needs = ".".join(str(n) for n in found.form.since)
            raise PtxError(
                f"PTX line {opcode.line}: {opcode.text} needs PTX {needs}; the file says .version "
                f"{self.version[0]}.{self.version[1]}."
            )
        if found.form.name == "call":
            operands, types = self.operands.call(stream, opcode.line), found.types
        else:
            operands, types = self.operands.read(stream, found, opcode.line), found.types
        results = found.form.results
        self.out.append(
            Instruction(
                name=found.form.name,
                types=types,
                options=found.options,
                results=operands[:results],
                sources=operands[results:],
                guard=guard,
                guard_negated=negated,
                cost=found.form.cost,
                converge=found.form.converge,
                text=stream.text(start),
                text_line=opcode.line,
                place=self.place,
            )
        )

    def _unsupported(self, opcode: Token) -> Unsupported:
        where = f" ({self.place.file}:{self.place.line})" if self.place else ""
        return Unsupported(
            f"PTX line {opcode.line}{where}: the instruction {opcode.text} is not supported by the machine."
        )
