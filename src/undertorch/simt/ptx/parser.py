"""PTX text into a Module. What the machine cannot run is reported here, before anything runs."""

import re
from dataclasses import dataclass, field

from undertorch.compilers.file_names import unescaped
from undertorch.simt.errors import PtxError, Unsupported, on_line
from undertorch.simt.ptx.checks import checked
from undertorch.simt.ptx.constants import integer
from undertorch.simt.ptx.instructions import Function, Instruction, Label, Module, Place, Variable
from undertorch.simt.ptx.lexer import Token, tokens
from undertorch.simt.ptx.opcodes import match
from undertorch.simt.ptx.operands import OperandReader
from undertorch.simt.ptx.stream import Stream
from undertorch.simt.ptx.types import TYPES
from undertorch.simt.ptx.variables import read_variable

LINKING = {".visible", ".extern", ".weak", ".common"}
SPACES = {".global", ".const", ".shared", ".local", ".param"}
NEWEST = (9, 99)
"""No version of PTX is above it yet (PTX ISA, "Release Notes": 9.0 came with CUDA 13.0)."""
CONSTANTS = 64 << 10
"""Bytes (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""
PARAMETERS, MORE_PARAMETERS = 4 << 10, 32764
"""Bytes of a kernel's parameters, and from PTX 8.1 and sm_70 on (PTX ISA, "Kernel Function Parameters")."""
LEAST_TARGET = 20
"""Older ones have no .address_size 64 (PTX ISA, "PTX Module Directives: .address_size")."""
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
        integer(items[at + 1]): unescaped(items[at + 2].text[1:-1])
        for at, token in enumerate(items[:-2])
        if token.text == ".file"
    }


@dataclass(slots=True)
class _ModuleReader:
    stream: Stream
    version: tuple[int, int] = (0, 0)
    target: str = ""
    files: dict[int, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    """Functions whose code may be elsewhere."""

    def read(self) -> Module:
        while not self.stream.done:
            self._directive(self.stream.next())
        self._check_names()
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

    def _check_names(self) -> None:
        """Raises PtxError where two things have one name, an initial value one of nothing, or constants no room."""
        names: set[str] = set()
        for variable in self.variables:
            if variable.name in names or variable.name in self.functions:
                raise PtxError(f"PTX line {variable.text_line}: {variable.name} is declared twice.")
            names.add(variable.name)
        kernels = {function.name for function in self.functions.values() if function.kernel}
        names |= (self.functions.keys() | self.declared) - kernels
        for variable in self.variables:
            for _, name, *_ in (*variable.pointers, *variable.address_bytes):
                if name not in names:
                    raise PtxError(
                        f"PTX line {variable.text_line}: {variable.name} starts as the address of {name}, which is no "
                        "variable and no function of this file."
                    )
        constants = sum(variable.size for variable in self.variables if variable.space == "const")
        if constants > CONSTANTS:
            raise PtxError(f"The file has {constants} bytes of constant memory; at most {CONSTANTS} are allowed.")

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
            if architecture(self.target) < LEAST_TARGET:
                raise PtxError(f"PTX line {target.line}: {self.target} has no 64-bit addresses; sm_{LEAST_TARGET} has.")
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
        limit, required = None, None
        while stream.peek().text not in {"{", ";"}:
            directive = stream.next().text
            if directive in {".maxntid", ".reqntid"}:
                sizes = [integer(stream.next())]
                while stream.skip(","):
                    sizes.append(integer(stream.next()))
                x, y, z = (*sizes, 1, 1)[:3]
                limit, required = x * y * z, (x, y, z) if directive == ".reqntid" else required
            elif directive == ".pragma":
                stream.next()
        if stream.skip(";"):
            self.declared.add(name)
            return
        if name in self.functions:
            raise PtxError(f"PTX line {line}: the function {name} is defined twice.")
        self._check_parameters(parameters, kernel=kernel, line=line)
        body = BodyReader(stream, self.files, self.version, self.target)
        body.operands.elements |= {v.name: v.type.bytes for v in self.variables if v.type is not None}
        body.parameters |= {v.name: v.size for v in (*parameters, *returns)}
        body.inputs = frozenset(v.name for v in parameters)
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
            required_block=required,
            text_line=line,
        )

    def _check_parameters(self, parameters: tuple[Variable, ...], *, kernel: bool, line: int) -> None:
        names = [parameter.name for parameter in parameters]
        for name in names:
            if names.count(name) > 1:
                raise PtxError(f"PTX line {line}: the parameter {name} is declared twice.")
        more = self.version >= (8, 1) and architecture(self.target) >= 70
        most, given = MORE_PARAMETERS if more else PARAMETERS, sum(parameter.size for parameter in parameters)
        if kernel and given > most:
            raise PtxError(f"PTX line {line}: a kernel takes {given} bytes of parameters; at most {most} are allowed.")

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
    outside: Place | None = None
    """The last position that was not inlined."""
    seen: dict[tuple[str, int, int], dict[Place, Place]] = field(default_factory=dict)
    """Positions with their chains, by themselves and by where their chains start."""
    operands: OperandReader = field(default_factory=OperandReader)
    parameters: dict[str, int] = field(default_factory=dict)
    """Bytes of what lies in `.param`, by unique name."""
    inputs: frozenset[str] = frozenset()
    """Parameters of the function itself."""

    def read(self) -> None:
        """From the opening brace to the closing one."""
        stream = self.stream
        line = stream.peek().line
        stream.expect("{")
        self.operands.open(line)
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
                with on_line(stream.items[at].line):
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
                with on_line(token.line):
                    known = self.operands.declare_variable(variable)
                self.variables.append(known)
                if known.space == "param":
                    self.parameters[known.name] = known.size
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
        line = stream.next().line
        type = TYPES.get(stream.next().text[1:])
        if type is None:
            raise PtxError(f"PTX line {line}: a .reg of no known type.")
        while True:
            name = stream.next().text
            with on_line(line):
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
        self.seen.setdefault((self.place.file, line, column), {})[_outermost(self.place)] = self.place
        if inlined is None:
            self.outside = self.place

    def _seen_at(self, file: str, line: int, column: int) -> Place:
        """The call site; where the line before was inlined through it too, with that call's own chain.

        The compiler writes a chain down once. Later it names the innermost call only, which several chains may end in:
        the one that starts where the code before was is taken, else the last one.
        """
        place = self.place
        while place is not None:
            if (place.file, place.line, place.column) == (file, line, column):
                return place
            place = place.inlined_at
        known = self.seen.get((file, line, column), {})
        if not known:
            return Place(file=file, line=line, column=column)
        last = [*known.values()][-1]
        return last if self.outside is None else known.get(self.outside, last)

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
        instruction = Instruction(
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
        self.out.append(checked(instruction, self.parameters, self.inputs))

    def _unsupported(self, opcode: Token) -> Unsupported:
        where, place = "", self.place
        if place is not None:
            outer = _outermost(place)
            called = f", which {outer.file}:{outer.line} calls" if outer is not place else ""
            where = f" ({place.file}:{place.line}{called})"
        return Unsupported(
            f"PTX line {opcode.line}{where}: the instruction {opcode.text} is not supported by the machine."
        )


def _outermost(place: Place) -> Place:
    """Where its chain of calls starts."""
    while place.inlined_at is not None:
        place = place.inlined_at
    return place


def architecture(target: str) -> int:
    """80 of sm_80."""
    found = re.search(r"\d+", target)
    return int(found.group()) if found else 0
