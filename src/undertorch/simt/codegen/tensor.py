"""mma as LLVM IR: fragments of registers become dense matrices, which runtime/native/products.py multiplies.

Where an element lies stands in ptx/fragments.py alone: what is written here looks for elements that lie behind each
other in registers and are neighbours in the matrix, and moves those at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from undertorch.simt.numerics import LEAST, TensorNumerics
from undertorch.simt.ptx.fragments import EDGE, MATRICES, Fragment, Product, places, shape
from undertorch.simt.runtime.layout import AND_BITS, FUSED, INTEGER, SATURATED, SUMS, XOR_BITS

Constants = tuple[tuple[str, object], ...]
DENSE = {"f64": "double", "s32": "i32", "s8": "i32", "u8": "i32", "s4": "i32", "u4": "i32", "b1": "i32"}
"""What an element is in a dense matrix: float, if nothing else."""
NAN = {"f32": "i32 2147483647", "f16": "i16 32767"}
"""The one that tensor cores give (arXiv 2511.10909)."""


def mma_constants(product: Product, how: int, numerics: TensorNumerics | None, masked: bool) -> Constants:
    """What one translation of mma is told apart by."""
    given: list[tuple[str, object]] = [
        ("SHAPE", f"m{product.m}n{product.n}k{product.k}"),
        *((name.upper(), getattr(product, name)) for name in "dabc"),
        ("WMMA", int(product.wmma)),
        ("HOW", how),
        ("MASKED", int(masked)),
    ]
    if numerics is not None and product.a in LEAST:
        one = numerics.fused_sum(product.a, product.k, wmma=product.wmma)
        given[-2] = ("HOW", SUMS)
        given += [("TERMS", one.terms), ("FRACTION", one.fraction_bits), ("KEPT", one.kept_bits)]
        factor = numerics.multiplied_as(product.a)
        given += [("LEAST", LEAST[factor]), ("ADDED_LAST", int(factor != product.a))]
    return tuple(given)


def how_of(kind: str, *, saturates: bool, operation: str) -> int:
    """How products of a type are added; `operation` of bits: xor or and."""
    if kind == "b1":
        return AND_BITS if operation == "and" else XOR_BITS
    if kind in {"s8", "u8", "s4", "u4"}:
        return SATURATED if saturates else INTEGER
    return FUSED


def product_of(constants: dict[str, object]) -> Product:
    """The instruction that constants tell of."""
    m, n, k = shape(str(constants["SHAPE"]))
    d, a, b, c = (str(constants[name]) for name in "DABC")
    return Product(m=m, n=n, k=k, d=d, a=a, b=b, c=c, wmma=bool(constants["WMMA"]))


def product_constants(constants: dict[str, object]) -> dict[str, object]:
    """For runtime/native/products.py."""
    product = product_of(constants)
    names = ("HOW", "TERMS", "FRACTION", "KEPT", "LEAST", "ADDED_LAST")
    known: dict[str, object] = {"LEAST": 0, "ADDED_LAST": 0} | {
        key: constants[key] for key in names if key in constants
    }
    added_as = "f16" if product.d == "f16" else "f32"  # a float16 C becomes float32 before it is added to one
    kind = {"double": "f64", "i32": "i32", "float": "f32"}[dense(product.a)]
    return {
        **known,
        **{"M": product.m, "N": product.n, "K": product.depth, "T": kind},
        **{"HALF": int(product.d == "f16"), "HALF_SUM": int(product.d == product.c == "f16")},
        **{"LEAST_C": LEAST[added_as]},
    }


def dense(kind: str) -> str:
    """LLVM's type of a dense element."""
    return DENSE.get(kind, "float")


def mma_text(symbol: str, multiply: str, constants: dict[str, object]) -> str:
    """The function `symbol`, of pointers to D's, A's, B's and C's slots and the mask; it calls `multiply`."""
    product = product_of(constants)
    writer = FragmentWriter(masked=bool(constants["MASKED"]))
    names: list[str] = []
    slots: dict[str, list[str]] = {}
    for role in MATRICES:
        slots[role] = [f"%{role}{n}" for n in range(product.fragment(role).registers)]
        names += slots[role]
    d, a, b, c = (product.fragment(role) for role in MATRICES)
    for name, fragment, kind in (("A", a, product.a), ("B", b, product.b), ("C", c, product.c)):
        writer.line(f"%{name} = alloca [{fragment.rows * fragment.columns} x {dense(kind)}], align 64")
    writer.unpack_lines(a, product.a, slots["a"], "%A", along="row")
    writer.unpack_lines(b, product.b, slots["b"], "%B", along="column")
    writer.unpack_accumulator(c, product.c, slots["c"], "%C")
    writer.line(f"call void @{multiply}(ptr %A, ptr %B, ptr %C)")
    writer.pack_accumulator(d, product.d, slots["d"], "%C")
    parameters = ", ".join(f"ptr {name}" for name in names)
    head = f"define void @{symbol}({parameters}, i32 %mask) {{\nentry:"
    return "\n".join([*sorted(writer.declared), head, *writer.out, "  ret void", "}"])


@dataclass(slots=True, kw_only=True)
class FragmentWriter:
    """Writes moves between slots and dense matrices."""

    masked: bool
    out: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)
    count: int = 0

    def line(self, text: str) -> None:
        """One line."""
        self.out.append("  " + text)

    def op(self, text: str) -> str:
        """One line that gives a value."""
        self.count += 1
        self.line(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def at(self, base: str, bits: int) -> str:
        """A place so many bits behind another."""
        return self.op(f"getelementptr i8, ptr {base}, i64 {bits // 8}")

    # -- A and B

    def unpack_lines(
        self, fragment: Fragment, kind: str, slots: list[str], matrix: str, along: Literal["row", "column"]
    ) -> None:
        """A, whose rows' neighbours lie together, or B, whose columns' do; both row by row in the dense matrix."""
        size = 64 if kind == "f64" else 32
        for register, start, row, column, length in _runs(fragment, along):
            source = self.at(slots[register], start * fragment.element)
            raw = self.op(f"load <{length} x i{fragment.element}>, ptr {source}, align 1")
            value = self.widened(raw, kind, length)
            if along == "row":
                target = self.at(matrix, size * (row * fragment.columns + column))
                self.line(f"store <{length} x {dense(kind)}> {value}, ptr {target}, align 4")
                continue
            for n in range(length):
                one = self.op(f"extractelement <{length} x {dense(kind)}> {value}, i32 {n}")
                target = self.at(matrix, size * ((row + n) * fragment.columns + column))
                self.line(f"store {dense(kind)} {one}, ptr {target}, align 4")

    def widened(self, raw: str, kind: str, n: int) -> str:
        """Elements as they are in a dense matrix."""
        match kind:
            case "f16":
                return self.op(
                    f"fpext <{n} x half> {self.op(f'bitcast <{n} x i16> {raw} to <{n} x half>')} to <{n} x float>"
                )
            case "bf16":
                wide = self.op(f"zext <{n} x i16> {raw} to <{n} x i32>")
                return self._float(self.op(f"shl <{n} x i32> {wide}, splat (i32 16)"), n)
            case "tf32":  # what lies behind its 10 bits of fraction is not looked at
                return self._float(self.op(f"and <{n} x i32> {raw}, splat (i32 -8192)"), n)
            case "e5m2":
                wide = self.op(f"zext <{n} x i8> {raw} to <{n} x i16>")
                return self.widened(self.op(f"shl <{n} x i16> {wide}, splat (i16 8)"), "f16", n)
            case "e4m3":
                return self._from_e4m3(raw, n)
            case "s8" | "s4":
                return self.op(f"sext <{n} x i{8 if kind == 's8' else 4}> {raw} to <{n} x i32>")
            case "u8" | "u4":
                return self.op(f"zext <{n} x i{8 if kind == 'u8' else 4}> {raw} to <{n} x i32>")
            case "f64":
                return self.op(f"bitcast <{n} x i64> {raw} to <{n} x double>")
            case "f32":
                return self._float(raw, n)
        return raw

    def _float(self, bits: str, n: int) -> str:
        return self.op(f"bitcast <{n} x i32> {bits} to <{n} x float>")

    def _from_e4m3(self, raw: str, n: int) -> str:
        """As a float16 of the same bits, whose exponent counts from 8 lower; 0x7f is NaN (OFP8)."""
        wide = self.op(f"zext <{n} x i8> {raw} to <{n} x i16>")
        size = self.op(f"and <{n} x i16> {wide}, splat (i16 127)")
        sign = self.op(f"shl <{n} x i16> {self.op(f'and <{n} x i16> {wide}, splat (i16 128)')}, splat (i16 8)")
        bits = self.op(f"or <{n} x i16> {self.op(f'shl <{n} x i16> {size}, splat (i16 7)')}, {sign}")
        value = self.op(f"fmul <{n} x float> {self.widened(bits, 'f16', n)}, splat (float 256.0)")
        none = self.op(f"icmp eq <{n} x i16> {size}, splat (i16 127)")
        nan = f"splat (float {0x7FF8 << 48:#x})"
        return self.op(f"select <{n} x i1> {none}, <{n} x float> {nan}, <{n} x float> {value}")

    # -- C and D

    def unpack_accumulator(self, fragment: Fragment, kind: str, slots: list[str], matrix: str) -> None:
        """Rows of 8 elements, from one register or from two, whose elements take turns."""
        size, bits = (64 if kind == "f64" else 32), fragment.element
        for registers, lane, row, column in _eights(fragment):
            parts = []
            for register in registers:
                source = self.at(slots[register], lane * fragment.register)
                parts.append(self.op(f"load <{8 // len(registers)} x i{bits}>, ptr {source}, align 1"))
            raw = parts[0]
            if len(parts) == 2:
                order = ", ".join(f"i32 {n + at}" for n in range(4) for at in (0, 4))
                raw = self.op(f"shufflevector <4 x i{bits}> {parts[0]}, <4 x i{bits}> {parts[1]}, <8 x i32> <{order}>")
            value = self.widened(raw, kind, 8)
            target = self.at(matrix, size * (row * fragment.columns + column))
            self.line(f"store <8 x {dense(kind)}> {value}, ptr {target}, align 4")

    def pack_accumulator(self, fragment: Fragment, kind: str, slots: list[str], matrix: str) -> None:
        """The same the other way round."""
        size, element, bits = (64 if kind == "f64" else 32), dense(kind), fragment.element
        for registers, lane, row, column in _eights(fragment):
            source = self.at(matrix, size * (row * fragment.columns + column))
            value = self.op(f"load <8 x {element}>, ptr {source}, align 4")
            raw = self._narrowed(value, kind)
            for number, register in enumerate(registers):
                target = self.at(slots[register], lane * fragment.register)
                part = raw
                if len(registers) == 2:
                    order = ", ".join(f"i32 {2 * n + number}" for n in range(4))
                    part = self.op(f"shufflevector <8 x i{bits}> {raw}, <8 x i{bits}> poison, <4 x i32> <{order}>")
                else:
                    part = self.op(f"bitcast <8 x i{bits}> {raw} to <4 x i{fragment.register}>")
                self._store(part, fragment.register, target, lane)

    def _narrowed(self, value: str, kind: str) -> str:
        """Eight elements as bits of their type; NaN as the hardware has it."""
        if kind == "s32":
            return value
        if kind == "f64":
            return self.op(f"bitcast <8 x double> {value} to <8 x i64>")
        none = self.op(f"fcmp uno <8 x float> {value}, {value}")
        if kind == "f16":
            value = self.op(f"fptrunc <8 x float> {value} to <8 x half>")
            bits, size = self.op(f"bitcast <8 x half> {value} to <8 x i16>"), 16
        else:
            bits, size = self.op(f"bitcast <8 x float> {value} to <8 x i32>"), 32
        return self.op(f"select <8 x i1> {none}, <8 x i{size}> splat ({NAN[kind]}), <8 x i{size}> {bits}")

    def _store(self, value: str, bits: int, target: str, lane: int) -> None:
        """Four lanes of a register, those of the mask."""
        if self.masked:
            moved = self.op(f"trunc i32 {self.op(f'lshr i32 %mask, {lane}')} to i4")
            active = self.op(f"bitcast i4 {moved} to <4 x i1>")
            old = self.op(f"load <4 x i{bits}>, ptr {target}, align 1")
            value = self.op(f"select <4 x i1> {active}, <4 x i{bits}> {value}, <4 x i{bits}> {old}")
        self.line(f"store <4 x i{bits}> {value}, ptr {target}, align 1")


def _runs(fragment: Fragment, along: Literal["row", "column"]) -> Iterator[tuple[int, int, int, int, int]]:
    """Neighbours in a row (or column) that lie behind each other: register, place, row, column, how many."""
    found = places(fragment)
    lines, length = (fragment.rows, fragment.columns) if along == "row" else (fragment.columns, fragment.rows)
    for line in range(lines):
        first = 0
        while first < length:
            spot = [(line, n) if along == "row" else (n, line) for n in range(first, length)]
            register, start = found[spot[0]]
            count = 1
            while count < len(spot) and found[spot[count]] == (register, start + count):
                count += 1
            yield register, start, *spot[0], count
            first += count


def _eights(fragment: Fragment) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """Each 8 elements of a row: the registers that hold them in turn, their first lane, row and first column."""
    found = places(fragment)
    for row in range(fragment.rows):
        for column in range(0, fragment.columns, EDGE):
            register, start = found[row, column]
            other, _ = found[row, column + 1]
            registers = (register,) if other == register else (register, other)
            yield registers, start // fragment.packed, row, column
