"""Integer and logic instructions (PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions")."""

from undertorch.simt.codegen.lanes import CHUNK, Lanes, emits
from undertorch.simt.ptx.instructions import Immediate, Instruction, Operand
from undertorch.simt.ptx.types import Type


def operands(w: Lanes, i: Instruction, type: Type) -> list[str]:
    """All sources as integers of one type's width."""
    return [w.source(s, f"i{type.bits}") for s in i.sources]


def put(w: Lanes, i: Instruction, value: str, bits: int) -> None:
    """The result, an integer."""
    w.define(i.results[0], value, f"i{bits}")


def extended(w: Lanes, value: str, type: Type, bits: int) -> str:
    """An integer of `type`, widened by its sign or by zeros."""
    return w.cast("sext" if type.signed else "zext", value, f"i{type.bits}", f"i{bits}")


def _saturated(w: Lanes, name: str, a: str, b: str) -> str:
    return w.intrinsic(f"s{name}.sat", "i32", a, b)


@emits("add")
def add(w: Lanes, i: Instruction) -> None:
    a, b = operands(w, i, i.type)
    t = f"i{i.type.bits}"
    put(w, i, _saturated(w, "add", a, b) if "sat" in i.options else w.bin("add", t, a, b), i.type.bits)


@emits("add2")
def add2(w: Lanes, i: Instruction) -> None:
    """Two 16-bit sums: carries out of the lower half are cut."""
    a, b = operands(w, i, i.type)
    low = w.bin("and", "i32", w.bin("add", "i32", a, b), w.constant("i32", 0xFFFF))
    upper = w.constant("i32", 0xFFFF0000)
    high = w.bin("add", "i32", w.bin("and", "i32", a, upper), w.bin("and", "i32", b, upper))
    put(w, i, w.bin("or", "i32", low, high), 32)


@emits("sub")
def sub(w: Lanes, i: Instruction) -> None:
    a, b = operands(w, i, i.type)
    t = f"i{i.type.bits}"
    put(w, i, _saturated(w, "sub", a, b) if "sat" in i.options else w.bin("sub", t, a, b), i.type.bits)


def product(w: Lanes, type: Type, half: str, a: str, b: str) -> tuple[str, int]:
    """A product and its width."""
    if half == "lo":
        return w.bin("mul", f"i{type.bits}", a, b), type.bits
    wide = 2 * type.bits
    whole = w.bin("mul", f"i{wide}", extended(w, a, type, wide), extended(w, b, type, wide))
    if half == "wide":
        return whole, wide
    upper = w.bin("lshr", f"i{wide}", whole, w.constant(f"i{wide}", type.bits))
    return w.cast("trunc", upper, f"i{wide}", f"i{type.bits}"), type.bits


@emits("mul")
def mul(w: Lanes, i: Instruction) -> None:
    a, b = operands(w, i, i.type)
    put(w, i, *product(w, i.type, i.options["half"], a, b))


@emits("mad")
def mad(w: Lanes, i: Instruction) -> None:
    a, b = (w.source(s, f"i{i.type.bits}") for s in i.sources[:2])
    value, bits = product(w, i.type, i.options["half"], a, b)
    put(w, i, w.bin("add", f"i{bits}", value, w.source(i.sources[2], f"i{bits}")), bits)


@emits("madsat")
def madsat(w: Lanes, i: Instruction) -> None:
    a, b, c = operands(w, i, i.type)
    value, _ = product(w, i.type, "hi", a, b)
    put(w, i, _saturated(w, "add", value, c), 32)


@emits("mul24")
def mul24(w: Lanes, i: Instruction) -> None:
    """Of the low 24 bits: the product's low 32 of 48, or its bits 16 to 47."""
    shift = w.constant("i32", 8)
    word = "ashr" if i.type.signed else "lshr"
    cut = [w.bin(word, "i32", w.bin("shl", "i32", w.source(s, "i32"), shift), shift) for s in i.sources[:2]]
    wide = w.bin("mul", "i64", *(extended(w, c, i.type, 64) for c in cut))
    if i.options["half"] == "hi":
        wide = w.bin("lshr", "i64", wide, w.constant("i64", 16))
    value = w.cast("trunc", wide, "i64", "i32")
    if len(i.sources) == 3:
        value = w.bin("add", "i32", value, w.source(i.sources[2], "i32"))
    put(w, i, value, 32)


@emits("sad")
def sad(w: Lanes, i: Instruction) -> None:
    a, b, c = operands(w, i, i.type)
    t = f"i{i.type.bits}"
    less = w.icmp("slt" if i.type.signed else "ult", t, a, b)
    difference = w.select(less, t, w.bin("sub", t, b, a), w.bin("sub", t, a, b))
    put(w, i, w.bin("add", t, c, difference), i.type.bits)


TWO_TO_52 = 0x4330000000000000
"""As float64: added to a whole number below it, that number stands in the lowest bits."""


def quotient(w: Lanes, type: Type, a: str, b: str) -> str:
    """a / b towards zero; b is not 0 and nothing overflows.

    CPUs divide no vectors of integers. Up to 32 bits float64 does it exactly: where a / b is no whole number it lies at
    least 1 / b from the next one, and the error of a float64 quotient below 2³² / b is less than 2⁻²⁰ / b.
    """
    t, bits = f"i{type.bits}", type.bits
    if bits == 64:
        return w.bin("sdiv" if type.signed else "udiv", t, a, b)
    fits = type.signed or bits < 32
    double, word = f"<{CHUNK} x double>", "sitofp" if fits else "uitofp"
    x, y = (w.op(f"{word} <{CHUNK} x i32> {extended(w, v, type, 32)} to {double}") for v in (a, b))
    value = w.bin("fdiv", "double", x, y)
    if fits:
        whole = w.op(f"fptosi {double} {value} to <{CHUNK} x i32>")
    else:
        value = w.bin("fadd", "double", w.intrinsic("floor", "double", value), w.constant("double", TWO_TO_52))
        whole = w.cast("trunc", w.cast("bitcast", value, "double", "i64"), "i64", "i32")
    return w.cast("trunc", whole, "i32", t)


def _divided(w: Lanes, i: Instruction, *, remainder: bool) -> None:
    """By zero both the quotient and the remainder are all ones, as an H200 gives them; PTX leaves it open.

    The least signed number by -1 overflows: it gives itself, remainder 0.
    """
    a, b = operands(w, i, i.type)
    t, bits = f"i{i.type.bits}", i.type.bits
    zero = w.icmp("eq", t, b, w.constant(t, 0))
    safe = w.select(zero, t, w.constant(t, 1), b)
    if i.type.signed:
        minus = w.bin(
            "and", "i1", w.icmp("eq", t, b, w.constant(t, -1)), w.icmp("eq", t, a, w.constant(t, 1 << (bits - 1)))
        )
        safe = w.select(minus, t, w.constant(t, 1), safe)
    value = quotient(w, i.type, a, safe)
    if remainder:
        value = w.bin("sub", t, a, w.bin("mul", t, value, safe))
    put(w, i, w.select(zero, t, w.constant(t, -1), value), bits)


@emits("div")
def div(w: Lanes, i: Instruction) -> None:
    _divided(w, i, remainder=False)


@emits("rem")
def rem(w: Lanes, i: Instruction) -> None:
    _divided(w, i, remainder=True)


@emits("abs")
def abs_(w: Lanes, i: Instruction) -> None:
    (a,) = operands(w, i, i.type)
    put(w, i, w.intrinsic("abs", f"i{i.type.bits}", a, extra=", i1 false"), i.type.bits)


@emits("neg")
def neg(w: Lanes, i: Instruction) -> None:
    (a,) = operands(w, i, i.type)
    t = f"i{i.type.bits}"
    put(w, i, w.bin("sub", t, w.constant(t, 0), a), i.type.bits)


def _extreme(w: Lanes, i: Instruction, which: str) -> None:
    a, b = operands(w, i, i.type)
    put(w, i, w.intrinsic(("s" if i.type.signed else "u") + which, f"i{i.type.bits}", a, b), i.type.bits)


@emits("min")
def min_(w: Lanes, i: Instruction) -> None:
    _extreme(w, i, "min")


@emits("max")
def max_(w: Lanes, i: Instruction) -> None:
    _extreme(w, i, "max")


def _counted(w: Lanes, i: Instruction, value: str) -> None:
    put(w, i, w.cast("trunc", value, f"i{i.type.bits}", "i32"), 32)


@emits("popc")
def popc(w: Lanes, i: Instruction) -> None:
    (a,) = operands(w, i, i.type)
    _counted(w, i, w.intrinsic("ctpop", f"i{i.type.bits}", a))


@emits("clz")
def clz(w: Lanes, i: Instruction) -> None:
    (a,) = operands(w, i, i.type)
    _counted(w, i, w.intrinsic("ctlz", f"i{i.type.bits}", a, extra=", i1 false"))


@emits("bfind")
def bfind(w: Lanes, i: Instruction) -> None:
    """The place of the highest 1 (of a negative number: of the highest 0); all ones where there is none."""
    (a,) = operands(w, i, i.type)
    t, bits = f"i{i.type.bits}", i.type.bits
    if i.type.signed:
        a = w.bin("xor", t, a, w.bin("ashr", t, a, w.constant(t, bits - 1)))
    zeros = w.intrinsic("ctlz", t, a, extra=", i1 false")
    place = zeros if "shiftamt" in i.options else w.bin("sub", t, w.constant(t, bits - 1), zeros)
    _counted(w, i, w.select(w.icmp("eq", t, a, w.constant(t, 0)), t, w.constant(t, -1), place))


@emits("brev")
def brev(w: Lanes, i: Instruction) -> None:
    (a,) = operands(w, i, i.type)
    put(w, i, w.intrinsic("bitreverse", f"i{i.type.bits}", a), i.type.bits)


def _place(w: Lanes, i: Instruction, operand: Operand) -> str:
    """A start or a length, of the width of the field's word. Of 32-bit words its low 8 bits count (PTX ISA, bfe); of
    64-bit ones, which an H200 does in several instructions, all of it does: beyond 255 it is clamped."""
    t, value = f"i{i.type.bits}", w.source(operand, "i32")
    if i.type.bits == 64:
        value = w.intrinsic("umin", "i32", value, w.constant("i32", 0xFF))
    return w.cast("zext", w.bin("and", "i32", value, w.constant("i32", 0xFF)), "i32", t)


def shifted(w: Lanes, word: str, type: str, value: str, amount: str) -> str:
    """A shift whose amount (of the same type) may pass the width: PTX clamps it."""
    bits = int(type[1:])
    last = w.constant(type, bits - 1)
    inside = w.icmp("ule", type, amount, last)
    safe = w.select(inside, type, amount, last)
    moved = w.bin(word, type, value, safe)
    return moved if word == "ashr" else w.select(inside, type, moved, w.constant(type, 0))


@emits("bfe")
def bfe(w: Lanes, i: Instruction) -> None:
    """A field of `length` bits from `start`; beyond the word's end it is filled with the sign of the last bit read."""
    t, bits = f"i{i.type.bits}", i.type.bits
    a = w.source(i.sources[0], t)
    start, length = (_place(w, i, s) for s in i.sources[1:])
    width = w.constant(t, bits)
    moved = shifted(w, "lshr", t, a, start)
    kept = w.bin("sub", t, w.constant(t, 0), w.constant(t, 1))
    ones = w.bin("xor", t, shifted(w, "shl", t, kept, length), kept)
    value = w.bin("and", t, moved, ones)
    if i.type.signed:
        end = w.bin("sub", t, w.bin("add", t, start, length), w.constant(t, 1))
        end = w.intrinsic("umin", t, end, w.constant(t, bits - 1))
        empty = w.icmp("eq", t, length, w.constant(t, 0))
        sign = w.bin("and", t, shifted(w, "lshr", t, a, end), w.constant(t, 1))
        minus = w.bin("sub", t, w.constant(t, 0), sign)
        # Bits of the result from where the field (or the word) ended are the sign's.
        have = w.intrinsic("umin", t, length, w.intrinsic("usub.sat", t, width, start))
        above = shifted(w, "shl", t, kept, have)
        value = w.bin("or", t, w.bin("and", t, value, w.bin("xor", t, above, kept)), w.bin("and", t, minus, above))
        value = w.select(empty, t, w.constant(t, 0), value)
    put(w, i, value, bits)


@emits("bfi")
def bfi(w: Lanes, i: Instruction) -> None:
    """The low `length` bits of a into b from `start`."""
    t, bits = f"i{i.type.bits}", i.type.bits
    a, b = (w.source(s, t) for s in i.sources[:2])
    start, length = (_place(w, i, s) for s in i.sources[2:])
    ones = w.constant(t, -1)
    field = w.bin("xor", t, shifted(w, "shl", t, ones, length), ones)
    mask = shifted(w, "shl", t, field, start)
    value = w.bin("and", t, shifted(w, "shl", t, a, start), mask)
    put(w, i, w.bin("or", t, value, w.bin("and", t, b, w.bin("xor", t, mask, ones))), bits)


@emits("bmsk")
def bmsk(w: Lanes, i: Instruction) -> None:
    a, b = operands(w, i, i.type)
    ones = w.constant("i32", -1)
    if i.options["mode"] == "wrap":
        a, b = (w.bin("and", "i32", x, w.constant("i32", 31)) for x in (a, b))
    field = w.bin("xor", "i32", shifted(w, "shl", "i32", ones, b), ones)
    put(w, i, shifted(w, "shl", "i32", field, a), 32)


@emits("szext")
def szext(w: Lanes, i: Instruction) -> None:
    """Extends the low n bits; n 0 gives 0, n from 32 on the number itself."""
    a, n = operands(w, i, i.type)
    if i.options["mode"] == "wrap":
        n = w.bin("and", "i32", n, w.constant("i32", 31))
    left = w.intrinsic("usub.sat", "i32", w.constant("i32", 32), n)
    moved = shifted(w, "shl", "i32", a, left)
    put(w, i, shifted(w, "ashr" if i.type.signed else "lshr", "i32", moved, left), 32)


def _dot(w: Lanes, i: Instruction, pairs: list[tuple[int, int]], widths: tuple[int, int]) -> None:
    a, b, value = (w.source(s, "i32") for s in i.sources)

    def piece(of: str, type: Type, bits: int, at: int) -> str:
        up = w.bin("shl", "i32", of, w.constant("i32", 32 - bits - at))
        return w.bin("ashr" if type.signed else "lshr", "i32", up, w.constant("i32", 32 - bits))

    for x, y in pairs:
        term = w.bin("mul", "i32", piece(a, i.types[0], widths[0], x), piece(b, i.types[1], widths[1], y))
        value = w.bin("add", "i32", value, term)
    put(w, i, value, 32)


@emits("dp4a")
def dp4a(w: Lanes, i: Instruction) -> None:
    _dot(w, i, [(8 * n, 8 * n) for n in range(4)], (8, 8))


@emits("dp2a")
def dp2a(w: Lanes, i: Instruction) -> None:
    start = 0 if i.options["half"] == "lo" else 16
    _dot(w, i, [(16 * n, start + 8 * n) for n in range(2)], (16, 8))


# -- carries: the flag lives from one instruction to the next of a chain, inside one segment


def _carry_out(w: Lanes, i: Instruction, wide: str, type: str, double: str, *, borrow: bool = False) -> None:
    bits = int(type[1:])
    put(w, i, w.cast("trunc", wide, double, type), bits)
    if "cc" in i.options or ".cc" in i.text.split()[0]:
        upper = w.bin("lshr", double, wide, w.constant(double, bits))
        flag = w.bin("and", double, upper, w.constant(double, 1))
        w.carry = w.cast("trunc", flag, double, "i32")


def _carry_in(w: Lanes, double: str) -> str:
    flag = w.carry or w.constant("i32", 0)
    return w.cast("zext", flag, "i32", double)


@emits("carry")
def carry(w: Lanes, i: Instruction) -> None:
    """add.cc, addc, sub.cc, subc: in twice the width, where the carry (the borrow) is the bit above."""
    t, double = f"i{i.type.bits}", f"i{2 * i.type.bits}"
    a, b = (w.cast("zext", x, t, double) for x in operands(w, i, i.type))
    first = i.options["first"]
    wide = w.bin(first[:3], double, a, b)
    if first.endswith("c"):
        wide = w.bin(first[:3], double, wide, _carry_in(w, double))
    _carry_out(w, i, wide, t, double)


@emits("madcarry")
def madcarry(w: Lanes, i: Instruction) -> None:
    t, double = f"i{i.type.bits}", f"i{2 * i.type.bits}"
    a, b, c = operands(w, i, i.type)
    value, _ = product(w, i.type, i.options["half"], a, b)
    wide = w.bin("add", double, w.cast("zext", value, t, double), w.cast("zext", c, t, double))
    if i.options["first"] == "madc":
        wide = w.bin("add", double, wide, _carry_in(w, double))
    _carry_out(w, i, wide, t, double)


# -- logic and shifts


@emits("logic")
def logic(w: Lanes, i: Instruction) -> None:
    t = "i1" if i.type.kind == "predicate" else f"i{i.type.bits}"
    a, b = (w.source(s, t) for s in i.sources)
    w.define(i.results[0], w.bin(i.options["op"], t, a, b), t)


@emits("not")
def not_(w: Lanes, i: Instruction) -> None:
    t = "i1" if i.type.kind == "predicate" else f"i{i.type.bits}"
    w.define(i.results[0], w.bin("xor", t, w.source(i.sources[0], t), w.constant(t, -1)), t)


@emits("cnot")
def cnot(w: Lanes, i: Instruction) -> None:
    (a,) = operands(w, i, i.type)
    t = f"i{i.type.bits}"
    put(w, i, w.cast("zext", w.icmp("eq", t, a, w.constant(t, 0)), "i1", t), i.type.bits)


@emits("lop3")
def lop3(w: Lanes, i: Instruction) -> None:
    """The function of three bits whose table is the immediate: bit 4a+2b+c of it is the result."""
    table = i.sources[3]
    assert isinstance(table, Immediate)
    values = [w.source(s, "i32") for s in i.sources[:3]]
    ones = w.constant("i32", -1)
    inverse = [w.bin("xor", "i32", v, ones) for v in values]
    out = w.constant("i32", 0)
    for row in range(8):
        if table.bits >> row & 1:
            a, b, c = (values[n] if row >> (2 - n) & 1 else inverse[n] for n in range(3))
            out = w.bin("or", "i32", out, w.bin("and", "i32", w.bin("and", "i32", a, b), c))
    put(w, i, out, 32)


def _shift(w: Lanes, i: Instruction, word: str) -> None:
    t = f"i{i.type.bits}"
    a, amount = w.source(i.sources[0], t), i.sources[1]
    if isinstance(amount, Immediate) and 0 <= amount.bits < i.type.bits:
        put(w, i, w.bin(word, t, a, w.constant(t, amount.bits)), i.type.bits)
        return
    limited = w.intrinsic("umin", "i32", w.source(amount, "i32"), w.constant("i32", 255))
    width = w.cast("zext" if i.type.bits == 64 else "trunc", limited, "i32", t)
    put(w, i, shifted(w, word, t, a, width), i.type.bits)


@emits("shl")
def shl(w: Lanes, i: Instruction) -> None:
    _shift(w, i, "shl")


@emits("shr")
def shr(w: Lanes, i: Instruction) -> None:
    _shift(w, i, "ashr" if i.type.signed else "lshr")


@emits("shf")
def shf(w: Lanes, i: Instruction) -> None:
    """A funnel shift of b:a. Clamped amounts go to 32, which LLVM's funnel shift would wrap."""
    a, b, c = operands(w, i, i.type)
    left = i.options["way"] == "l"
    value = w.intrinsic("fshl" if left else "fshr", "i32", b, a, c)
    if i.options["mode"] == "clamp":
        far = w.icmp("ugt", "i32", c, w.constant("i32", 31))
        value = w.select(far, "i32", a if left else b, value)
    put(w, i, value, 32)


PERMUTED = {
    "f4e": ((3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)),
    "b4e": ((5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)),
    "rc16": ((1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)),
}
"""Bytes of the result from the highest, for each value of the selector's low two bits (PTX ISA, prmt, table)."""


@emits("prmt")
def prmt(w: Lanes, i: Instruction) -> None:
    """Four bytes out of the eight of b:a; a selector's high bit takes the byte's sign instead."""
    a, b, c = operands(w, i, i.type)
    pair = w.bin(
        "or",
        "i64",
        w.cast("zext", a, "i32", "i64"),
        w.bin("shl", "i64", w.cast("zext", b, "i32", "i64"), w.constant("i64", 32)),
    )
    c = w.cast("zext", c, "i32", "i64")
    mode = i.options.get("mode")
    out = w.constant("i64", 0)
    for place in range(4):
        if mode:
            low = w.bin("and", "i64", c, w.constant("i64", 3))
            picked = w.constant("i64", PERMUTED[mode][0][3 - place])
            for value in range(1, 4):
                here = w.icmp("eq", "i64", low, w.constant("i64", value))
                picked = w.select(here, "i64", w.constant("i64", PERMUTED[mode][value][3 - place]), picked)
        else:
            nibble = w.bin("lshr", "i64", c, w.constant("i64", 4 * place))
            picked = w.bin("and", "i64", nibble, w.constant("i64", 7))
        byte = w.bin("lshr", "i64", pair, w.bin("shl", "i64", picked, w.constant("i64", 3)))
        byte = w.bin("and", "i64", byte, w.constant("i64", 0xFF))
        if not mode:
            sign = w.icmp("ne", "i64", w.bin("and", "i64", nibble, w.constant("i64", 8)), w.constant("i64", 0))
            minus = w.icmp("ugt", "i64", byte, w.constant("i64", 0x7F))
            spread = w.select(minus, "i64", w.constant("i64", 0xFF), w.constant("i64", 0))
            byte = w.select(sign, "i64", spread, byte)
        out = w.bin("or", "i64", out, w.bin("shl", "i64", byte, w.constant("i64", 8 * place)))
    put(w, i, w.cast("trunc", out, "i64", "i32"), 32)


def lane_numbers(w: Lanes, start: str) -> str:
    """The numbers of this chunk's lanes; `start` is the first, an i32."""
    numbers = "<" + ", ".join(f"i32 {n}" for n in range(CHUNK)) + ">"
    return w.bin("add", "i32", w.splat("i32", start), numbers)
