"""Moves, comparisons, selections and address conversions."""

from undertorch.simt.codegen.lanes import CHUNK, Lanes, emits, llvm
from undertorch.simt.errors import Unsupported
from undertorch.simt.ptx.instructions import Address, Group, Instruction, Operand, Pair, Register, Sink, Symbol
from undertorch.simt.ptx.types import Type

INTEGER_COMPARISONS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
FLOAT_COMPARISONS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip


@emits("mov")
def mov(w: Lanes, i: Instruction) -> None:
    """A copy; with braces it packs or unpacks, the lowest first."""
    source, result = i.sources[0], i.results[0]
    t = "i1" if i.type.kind == "predicate" else f"i{i.type.bits}"
    if isinstance(source, Group):
        width = i.type.bits // len(source.items)
        value = w.constant(t, 0)
        for number, item in enumerate(source.items):
            piece = w.cast("zext", w.source(item, f"i{width}"), f"i{width}", t)
            if number:
                piece = w.bin("shl", t, piece, w.constant(t, number * width))
            value = w.bin("or", t, value, piece) if number else piece
        w.define(result, value, t)
        return
    value = w.source(source, t)
    if not isinstance(result, Group):
        w.define(result, value, t)
        return
    width = i.type.bits // len(result.items)
    for number, item in enumerate(result.items):
        if isinstance(item, Sink):
            continue
        piece = w.bin("lshr", t, value, w.constant(t, number * width)) if number else value
        w.define(item, w.cast("trunc", piece, t, f"i{width}"), f"i{width}")


def flushed(w: Lanes, value: str) -> str:
    """A float32 with subnormals made zeros of their sign."""
    bits = w.cast("bitcast", value, "float", "i32")
    exponent = w.bin("and", "i32", bits, w.constant("i32", 0x7F800000))
    sign = w.bin("and", "i32", bits, w.constant("i32", 0x80000000))
    small = w.icmp("eq", "i32", exponent, w.constant("i32", 0))
    return w.cast("bitcast", w.select(small, "i32", sign, bits), "i32", "float")


def compared(w: Lanes, i: Instruction, type: Type, a: Operand, b: Operand) -> str:
    """A comparison of one type; halves are compared as float32, which holds them exactly."""
    word = i.options["compare"]
    if not type.floating:
        t = f"i{type.bits}"
        word = INTEGER_COMPARISONS.get(word, word)
        if word not in {"eq", "ne"}:
            word = ("s" if type.signed and i.options["compare"] == word else "u") + word
        return w.icmp(word, t, w.source(a, t), w.source(b, t))
    t = llvm(type)
    x, y = w.source(a, t), w.source(b, t)
    if type.bits == 16:
        x, y, t = widened(w, x, type), widened(w, y, type), "float"
    if "ftz" in i.options and type.kind == "float" and t == "float":
        flush = flushed if type.bits == 32 else flushed_half
        x, y = flush(w, x), flush(w, y)
    return w.fcmp(FLOAT_COMPARISONS[word], t, x, y)


def flushed_half(w: Lanes, value: str) -> str:
    """A float16 (as float32) with float16's subnormals made zeros of their sign."""
    least = w.constant("float", 0x38800000)  # 2^-14
    small = w.fcmp("olt", "float", w.intrinsic("fabs", "float", value), least)
    return w.select(small, "float", w.intrinsic("copysign", "float", w.constant("float", 0), value), value)


def halves_compared(w: Lanes, i: Instruction, type: Type) -> list[str]:
    """Both comparisons of packed halves, the lower first."""
    columns = [halves(w, s, type) for s in i.sources[:2]]
    if "ftz" in i.options and type.kind == "float":
        columns = [(flushed_half(w, low), flushed_half(w, high)) for low, high in columns]
    word = FLOAT_COMPARISONS[i.options["compare"]]
    return [w.fcmp(word, "float", x, y) for x, y in zip(*columns, strict=True)]


def widened(w: Lanes, value: str, type: Type) -> str:
    """A half as float32, exactly. bfloat16 is float32's upper half."""
    if type.kind == "float":
        return w.op(f"fpext <{CHUNK} x half> {value} to <{CHUNK} x float>")
    bits = w.cast("zext", w.cast("bitcast", value, "bfloat", "i16"), "i16", "i32")
    return w.cast("bitcast", w.bin("shl", "i32", bits, w.constant("i32", 16)), "i32", "float")


def combined(w: Lanes, i: Instruction, value: str, other: Operand | None) -> str:
    """With a further predicate, by and, or, xor."""
    if other is None or "boolean" not in i.options:
        return value
    return w.bin(i.options["boolean"], "i1", value, w.source(other, "i1"))


@emits("setp")
def setp(w: Lanes, i: Instruction) -> None:
    """One predicate, or `p|q`, where q is the comparison's opposite (of packed halves: the upper half's)."""
    other = i.sources[2] if len(i.sources) == 3 else None
    if i.type.lanes == 2:
        _setp2(w, i, other)
        return
    value = compared(w, i, i.type, *i.sources[:2])
    result = i.results[0]
    if isinstance(result, Pair):
        opposite = w.bin("xor", "i1", value, "splat (i1 true)")
        first, second = combined(w, i, value, other), combined(w, i, opposite, other)
        w.define(result.first, first, "i1")
        w.define(result.second, second, "i1")
    else:
        w.define(result, combined(w, i, value, other), "i1")


def halves(w: Lanes, operand: Operand, type: Type) -> tuple[str, str]:
    """The two halves of a packed register, as float32: low, high."""
    whole = w.source(operand, "i32")
    low = w.cast("trunc", whole, "i32", "i16")
    high = w.cast("trunc", w.bin("lshr", "i32", whole, w.constant("i32", 16)), "i32", "i16")
    one = "half" if type.kind == "float" else "bfloat"
    return widened(w, w.cast("bitcast", low, "i16", one), type), widened(w, w.cast("bitcast", high, "i16", one), type)


def _setp2(w: Lanes, i: Instruction, other: Operand | None) -> None:
    values = [combined(w, i, v, other) for v in halves_compared(w, i, i.type)]
    result = i.results[0]
    if not isinstance(result, Pair):
        raise Unsupported(f"{i.text}: two results are needed")
    w.define(result.first, values[0], "i1")
    w.define(result.second, values[1], "i1")


TRUE = {"u32": -1, "s32": -1, "u16": -1, "f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
"""What set writes for true."""


@emits("set")
def set_(w: Lanes, i: Instruction) -> None:
    other = i.sources[2] if len(i.sources) == 3 else None
    value = combined(w, i, compared(w, i, i.types[1], *i.sources[:2]), other)
    t = f"i{i.types[0].bits}"
    w.define(i.results[0], w.select(value, t, w.constant(t, TRUE[i.types[0].name]), w.constant(t, 0)), t)


@emits("set2")
def set2(w: Lanes, i: Instruction) -> None:
    other = i.sources[2] if len(i.sources) == 3 else None
    one, out = TRUE[i.types[0].name.removesuffix("x2")], w.constant("i32", 0)
    for number, compared_ in enumerate(halves_compared(w, i, i.types[1])):
        value = combined(w, i, compared_, other)
        out = w.bin(
            "or", "i32", out, w.select(value, "i32", w.constant("i32", one << 16 * number), w.constant("i32", 0))
        )
    w.define(i.results[0], out, "i32")


@emits("createpolicy")
def createpolicy(w: Lanes, i: Instruction) -> None:
    """A cache policy is opaque, and says nothing of values: 0."""
    w.define(i.results[0], w.constant("i64", 0), "i64")


@emits("selp")
def selp(w: Lanes, i: Instruction) -> None:
    t = f"i{i.type.bits}"
    a, b, p = i.sources
    w.define(i.results[0], w.select(w.source(p, "i1"), t, w.source(a, t), w.source(b, t)), t)


@emits("slct")
def slct(w: Lanes, i: Instruction) -> None:
    """a where c is not negative (-0 counts as not negative, NaN as negative)."""
    t = f"i{i.types[0].bits}"
    a, b = (w.source(s, t) for s in i.sources[:2])
    if i.types[1].name == "f32":
        c = w.source(i.sources[2], "float")
        yes = w.fcmp("oge", "float", flushed(w, c) if "ftz" in i.options else c, w.constant("float", 0))
    else:
        yes = w.icmp("sge", "i32", w.source(i.sources[2], "i32"), w.constant("i32", 0))
    w.define(i.results[0], w.select(yes, t, a, b), t)


# -- addresses: global, const and param addresses are the host's; shared and local ones are offsets


def window(w: Lanes, space: str) -> str | None:
    """What a space's addresses start at, as <8 x i64>; None where they are the host's already."""
    if space.startswith("shared"):
        return w.specials(w, "shared base")
    if space == "local":
        return w.specials(w, "local base")
    return None


@emits("cvta")
def cvta(w: Lanes, i: Instruction) -> None:
    """An address of one space as a generic one."""
    value, base = w.source(i.sources[0], f"i{i.type.bits}"), window(w, i.options["space"])
    if base is not None:
        value = w.bin("add", "i64", w.cast("zext", value, f"i{i.type.bits}", "i64"), base)
    w.define(i.results[0], value, "i64" if base is not None else f"i{i.type.bits}")


@emits("cvtato")
def cvtato(w: Lanes, i: Instruction) -> None:
    """A generic address as one of a space."""
    value, base = w.source(i.sources[0], f"i{i.type.bits}"), window(w, i.options["space"])
    if base is not None:
        value = w.bin("sub", "i64", value, base)
    w.define(i.results[0], value, "i64" if base is not None else f"i{i.type.bits}")


@emits("isspacep")
def isspacep(w: Lanes, i: Instruction) -> None:
    value = w.source(i.sources[0], "i64")

    def inside(space: str) -> str:
        base = window(w, space)
        assert base is not None
        return w.icmp("ult", "i64", w.bin("sub", "i64", value, base), w.specials(w, f"{space} bytes"))

    space = i.options["space"].split("::")[0]
    if space == "global":
        either = w.bin("or", "i1", inside("shared"), inside("local"))
        w.define(i.results[0], w.bin("xor", "i1", either, "splat (i1 true)"), "i1")
    else:
        w.define(i.results[0], inside(space), "i1")


@emits("ld")
def ld_param(w: Lanes, i: Instruction) -> None:
    """A kernel parameter: the same for all threads."""
    address = i.sources[0]
    assert isinstance(address, Address)
    assert isinstance(address.base, Symbol)
    t = f"i{i.type.bits}"
    start = w.specials(w, f"param {address.base.name}")
    results = i.results[0].items if isinstance(i.results[0], Group) else (i.results[0],)
    for number, result in enumerate(results):
        at = w.op(f"getelementptr i8, ptr {start}, i64 {address.offset + number * i.type.bytes}")
        value = w.splat(t, w.op(f"load {t}, ptr {at}, align 1"))
        width = result.type.bits if isinstance(result, Register) else i.type.bits
        if width > i.type.bits:
            value, wide = w.cast("sext" if i.type.signed else "zext", value, t, f"i{width}"), f"i{width}"
            w.define(result, value, wide)
        else:
            w.define(result, value, t)
