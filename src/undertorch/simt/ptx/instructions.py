"""One instruction record for any instruction set. PTX is the front end that fills it in; codegen reads nothing else."""

from dataclasses import dataclass, field
from typing import Literal

from undertorch.simt.ptx.types import Type

Space = Literal["generic", "global", "shared", "local", "const", "param"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A source position, with the calls it was inlined through, the innermost first."""

    file: str
    line: int
    column: int
    inlined_at: "Place | None" = None
    function: str | None = None
    """The function whose body this is, where it was inlined."""


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register of one thread."""

    name: str
    type: Type
    """As declared: its width counts, and whether it is a predicate."""


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an integer's value, or the bits of a float (`kind` tells which)."""

    bits: int
    kind: Literal["int", "f32", "f64"] = "int"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Special:
    """A register that the hardware keeps, such as `tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`."""

    base: "Register | Symbol | None"
    offset: int


@dataclass(frozen=True, slots=True)
class Group:
    """Several operands in braces."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two results."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p`."""

    register: Register


@dataclass(frozen=True, slots=True)
class Label:
    """A place in the code."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that nobody wants."""


Operand = Register | Immediate | Symbol | Special | Address | Group | Pair | Negated | Label | Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction of a thread."""

    name: str
    """What it does: `add`, `ld`, `shfl.sync`. Codegen has one function for each."""
    types: tuple[Type, ...] = ()
    """Of the results first, where they differ from the sources'."""
    options: dict[str, str] = field(default_factory=dict)
    """The rest of its opcode by meaning: `rounding`, `ftz`, `sat`, `space`, `order`, `scope`, `vector`, `mode`, …"""
    results: tuple[Operand, ...] = ()
    sources: tuple[Operand, ...] = ()
    guard: Register | None = None
    """It acts only in threads where this predicate is true (false, where `guard_negated`)."""
    guard_negated: bool = False
    cost: str = "alu"
    """Its cost class: which unit of an SM would issue it."""
    converge: bool = False
    """Threads of a mask have to meet here."""
    counted: bool = True
    """False for all but one of those that stand for one instruction of the text."""
    text: str = ""
    """As it was written."""
    text_line: int = 0
    """Line of the text (of the PTX), from 1."""
    place: Place | None = None

    @property
    def type(self) -> Type:
        """The type it computes in."""
        return self.types[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Memory with a name."""

    name: str
    space: str
    size: int
    """Bytes; 0 for `extern` arrays without a size (dynamic shared memory)."""
    align: int
    initial: bytes = b""
    pointers: tuple[tuple[int, str, int], ...] = ()
    """Where the initial value holds the address of another variable: (offset, its name, plus bytes)."""
    address_bytes: tuple[tuple[int, str, int, int], ...] = ()
    """Where it holds one byte of an address: (offset, the variable's name, plus bytes, shift)."""
    extern: bool = False
    type: Type | None = None
    """Of one element."""
    text_line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A kernel, or a function that kernels call."""

    name: str
    kernel: bool
    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...] = ()
    variables: tuple[Variable, ...] = ()
    """Its own shared, local and parameter-passing memory."""
    body: tuple[Instruction | Label, ...] = ()
    unsupported: tuple[str, ...] = ()
    """What of it the machine does not do, a sentence each: it cannot be run then."""
    max_threads: int | None = None
    """As `.maxntid` or `.reqntid` limit the block."""
    required_block: tuple[int, int, int] | None = None
    """As `.reqntid` asks for."""
    text_line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A file of PTX."""

    version: tuple[int, int]
    target: str
    files: dict[int, str]
    variables: tuple[Variable, ...]
    functions: dict[str, Function]

    @property
    def pointed_to(self) -> tuple[str, ...]:
        """Names of functions, of this file or not, whose address it takes."""
        known = {v.name for v in self.variables}
        held = [name for v in self.variables for _, name, *_ in v.pointers]
        held += [name for v in self.variables for _, name, _, _ in v.address_bytes]
        found = {name for name in held if name not in known}
        for function in self.functions.values():
            instructions = [i for i in function.body if isinstance(i, Instruction) and i.name != "call"]
            operands = [o for i in instructions for o in i.sources]
            found |= {o.name for o in operands if isinstance(o, Symbol) and o.name in self.functions}
        return tuple(sorted(found))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of its kernels."""
        return tuple(f.name for f in self.functions.values() if f.kernel)
