"""The values of one segment: 8 lanes of a warp at a time, as LLVM IR text.

A segment is a run of instructions without memory accesses or meetings of lanes. It becomes a loop of four over 8 lanes
(32 lanes at once take LLVM many times longer to compile, and spill). Registers are read from their slots when first
needed, kept as values inside the segment, and stored at its end if they live on.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.instructions import Immediate, Instruction, Negated, Operand, Register, Sink, Special, Symbol
from undertorch.simt.ptx.types import Type
from undertorch.simt.runtime.layout import SLOTS

CHUNK = 8
FLOATS = {16: "half", 32: "float", 64: "double"}
VECTOR = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "i128": 128,
    "half": 16,
    "bfloat": 16,
    "float": 32,
    "double": 64,
}
"""Bits of LLVM's types."""

Emit = Callable[["Lanes", Instruction], None]
EMITTERS: dict[str, Emit] = {}


def emits(name: str) -> Callable[[Emit], Emit]:
    """Registers the function that writes an instruction's IR."""

    def register(function: Emit) -> Emit:
        EMITTERS[name] = function
        return function

    return register


def llvm(type: Type) -> str:
    """The LLVM type of one lane of a PTX type."""
    if type.kind == "predicate":
        return "i1"
    if type.lanes == 1 and type.kind == "float" and type.name != "tf32":
        return FLOATS[type.bits]
    if type.kind == "brain" and type.lanes == 1:
        return "bfloat"
    return f"i{type.bits}"


def register_type(type: Type) -> str:
    """How a register lies in its slot."""
    return "i1" if type.kind == "predicate" else f"i{type.bits}"


@dataclass(slots=True)
class Names:
    """Fresh names, and what has to be declared, of one IR module."""

    count: int = 0
    declared: set[str] = field(default_factory=set)

    def fresh(self) -> str:
        """A name that was not used."""
        self.count += 1
        return f"%v{self.count}"


@dataclass(slots=True)
class Lanes:
    """Writes one segment. `slots`: byte offsets of registers behind the warp's state."""

    names: Names
    slots: Mapping[str, int]
    out: list[str]
    symbols: Callable[["Lanes", Symbol], str]
    specials: Callable[["Lanes", str], str]
    current: dict[str, tuple[str, str]] = field(default_factory=dict)
    defined: dict[str, Register] = field(default_factory=dict)
    mask: str | None = None
    """The active lanes of this chunk as <8 x i1>; None where all are."""
    pointers: dict[int, str] = field(default_factory=dict)
    """The chunk's place in slots of 1, 16, 32 and 64 bits."""
    guard: tuple[Register, bool] | None = None
    carry: str = ""
    """The carry flag of the last .cc instruction, <8 x i32> of 0 and 1."""

    # -- text

    def line(self, text: str) -> None:
        """One line of IR."""
        self.out.append("  " + text)

    def op(self, text: str) -> str:
        """One line that gives a value; returns its name."""
        name = self.names.fresh()
        self.out.append(f"  {name} = {text}")
        return name

    def bin(self, word: str, type: str, a: str, b: str) -> str:
        """`word <8 x type> a, b`."""
        return self.op(f"{word} <{CHUNK} x {type}> {a}, {b}")

    def cast(self, word: str, value: str, source: str, to: str) -> str:
        """`word` (zext, bitcast, …) from one lane type to another; nothing where they are the same."""
        return value if source == to else self.op(f"{word} <{CHUNK} x {source}> {value} to <{CHUNK} x {to}>")

    def select(self, condition: str, type: str, a: str, b: str) -> str:
        """a where the condition holds, else b."""
        return self.op(f"select <{CHUNK} x i1> {condition}, <{CHUNK} x {type}> {a}, <{CHUNK} x {type}> {b}")

    def icmp(self, word: str, type: str, a: str, b: str) -> str:
        """An integer comparison."""
        return self.op(f"icmp {word} <{CHUNK} x {type}> {a}, {b}")

    def fcmp(self, word: str, type: str, a: str, b: str) -> str:
        """A float comparison."""
        return self.op(f"fcmp {word} <{CHUNK} x {type}> {a}, {b}")

    def intrinsic(self, name: str, type: str, *arguments: str, extra: str = "") -> str:
        """`llvm.name` on 8 lanes of one type."""
        short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(type, type)
        full = f"@llvm.{name}.v{CHUNK}{short}"
        v = f"<{CHUNK} x {type}>"
        flag = ", i1" if extra else ""
        self.names.declared.add(f"declare {v} {full}({', '.join([v] * len(arguments))}{flag})")
        return self.op(f"call {v} {full}({', '.join(f'{v} {a}' for a in arguments)}{extra})")

    def splat(self, type: str, scalar: str) -> str:
        """8 times one value."""
        v = f"<{CHUNK} x {type}>"
        one = self.op(f"insertelement {v} poison, {type} {scalar}, i32 0")
        return self.op(f"shufflevector {v} {one}, {v} poison, <{CHUNK} x i32> zeroinitializer")

    @staticmethod
    def constant(type: str, value: int) -> str:
        """8 times a constant, given by its bits."""
        if type == "i1":
            return f"splat (i1 {'true' if value & 1 else 'false'})"
        if type.startswith("i"):
            return f"splat ({type} {value & ((1 << VECTOR[type]) - 1)})"
        return f"splat ({type} {float_text(type, value)})"

    # -- registers

    def pointer(self, register: Register) -> str:
        """Where this chunk of a register's slot lies."""
        bits = register.type.bits
        return self.op(f"getelementptr i8, ptr {self.pointers[bits]}, i32 {SLOTS + self.slots[register.name]}")

    def read_slot(self, register: Register) -> str:
        """This chunk of a register, from memory."""
        type = register_type(register.type)
        at = self.pointer(register)
        if type == "i1":
            byte = self.op(f"load i8, ptr {at}")
            return self.op(f"bitcast i8 {byte} to <{CHUNK} x i1>")
        return self.op(f"load <{CHUNK} x {type}>, ptr {at}, align {CHUNK * register.type.bits // 8}")

    def write_slot(self, register: Register, value: str, type: str) -> None:
        """This chunk of a register, to memory; inactive lanes keep theirs."""
        to = register_type(register.type)
        value = self.cast("bitcast", value, type, to)
        if self.mask is not None:
            value = self.select(self.mask, to, value, self.read_slot(register))
        at = self.pointer(register)
        if to == "i1":
            byte = self.op(f"bitcast <{CHUNK} x i1> {value} to i8")
            self.line(f"store i8 {byte}, ptr {at}")
        else:
            self.line(f"store <{CHUNK} x {to}> {value}, ptr {at}, align {CHUNK * register.type.bits // 8}")

    def source(self, operand: Operand, type: str) -> str:
        """An operand as 8 lanes of `type`; a wider register is cut."""
        match operand:
            case Register(name=name):
                if name not in self.current:
                    self.current[name] = (self.read_slot(operand), register_type(operand.type))
                value, have = self.current[name]
                if have == type:
                    return value
                if VECTOR[have] == VECTOR[type]:
                    return self.cast("bitcast", value, have, type)
                if VECTOR[have] < VECTOR[type]:
                    raise Unsupported(f"{name} is narrower than the instruction that reads it.")
                whole = self.cast("bitcast", value, have, f"i{VECTOR[have]}")
                cut = self.cast("trunc", whole, f"i{VECTOR[have]}", f"i{VECTOR[type]}")
                return self.cast("bitcast", cut, f"i{VECTOR[type]}", type)
            case Negated(register=register):
                return self.bin("xor", "i1", self.source(register, "i1"), "splat (i1 true)")
            case Immediate():
                return self.constant(type, immediate_bits(operand, type))
            case Special(name=name):
                value, have = self.specials(self, name), special_type(name)
                word = "zext" if VECTOR[have] < VECTOR[type] else "trunc"
                return self.cast(word, value, have, type)
            case Symbol():
                return self.cast("trunc", self.symbols(self, operand), "i64", type)
        raise Unsupported(f"{operand} cannot be read here.")

    def define(self, operand: Operand, value: str, type: str) -> None:
        """Gives a register its new value; a wider register is filled with zeros above."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise PtxError("a result goes to a register, and none is given for it.")
        register = operand
        want = register_type(register.type)
        if VECTOR[type] != VECTOR[want]:
            whole = self.cast("bitcast", value, type, f"i{VECTOR[type]}")
            word = "zext" if VECTOR[type] < VECTOR[want] else "trunc"
            value, type = self.cast(word, whole, f"i{VECTOR[type]}", want), want
        if self.guard is not None:
            condition = self.source(self.guard[0], "i1")
            if self.guard[1]:
                condition = self.bin("xor", "i1", condition, "splat (i1 true)")
            value = self.select(condition, type, value, self.source(register, type))
        self.current[register.name] = (value, type)
        self.defined[register.name] = register

    def emit(self, instruction: Instruction) -> None:
        """One instruction."""
        emitter = EMITTERS.get(instruction.name)
        if emitter is None:
            raise Unsupported(f"{instruction.text} has no code.")
        self.guard = (instruction.guard, instruction.guard_negated) if instruction.guard else None
        emitter(self, instruction)
        self.guard = None


def special_type(name: str) -> str:
    """The width of a special register."""
    return "i64" if name in {"clock64", "globaltimer", "gridid"} else "i32"


def immediate_bits(immediate: Immediate, type: str) -> int:
    """A constant's bits as a type."""
    if immediate.kind == "f64" and type == "float":
        value = struct.unpack("<d", immediate.bits.to_bytes(8, "little"))[0]
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    if immediate.kind == "f32" and type == "double":
        value = struct.unpack("<f", immediate.bits.to_bytes(4, "little"))[0]
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if immediate.kind == "int" and type in {"float", "double"}:
        form, whole = ("<f", "<I") if type == "float" else ("<d", "<Q")
        return int(struct.unpack(whole, struct.pack(form, float(immediate.bits)))[0])
    return immediate.bits


def float_text(type: str, bits: int) -> str:
    """A float constant as LLVM writes it, by its bits."""
    if type == "half":
        return f"0xH{bits & 0xFFFF:04X}"
    if type == "bfloat":
        return f"0xR{bits & 0xFFFF:04X}"
    if type == "float":
        bits &= 0xFFFFFFFF
        exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
        if exponent == 0xFF and fraction:
            return f"0x{(bits >> 31 << 63) | 0x7FF << 52 | fraction << 29:016X}"
        bits = int(struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", bits.to_bytes(4, "little"))[0]))[0])
    return f"0x{bits & 0xFFFFFFFFFFFFFFFF:016X}"
