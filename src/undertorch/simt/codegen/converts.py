"""cvt in all its forms (PTX ISA, "Data Movement and Conversion Instructions: cvt")."""

from undertorch.simt.codegen.approximations import number
from undertorch.simt.codegen.floats import saturated, without_brink
from undertorch.simt.codegen.integers import extended, put
from undertorch.simt.codegen.lanes import CHUNK, VECTOR, Lanes, emits, llvm
from undertorch.simt.codegen.moves import flushed, widened
from undertorch.simt.codegen.rounding import (
    canonical,
    double_to_odd_float,
    float_to_half,
    narrowed,
    stepped,
    two_sum_error,
)
from undertorch.simt.ptx.instructions import Instruction
from undertorch.simt.ptx.types import Type

WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
DIRECTED = {"rz", "rm", "rp"}


@emits("cvt")
def cvt(w: Lanes, i: Instruction) -> None:
    """One number as another type."""
    to, source = i.types
    if source.floating and to.floating:
        _float_to_float(w, i, to, source)
    elif source.floating:
        _float_to_integer(w, i, to, source)
    elif to.floating:
        _integer_to_float(w, i, to, source)
    else:
        _integer_to_integer(w, i, to, source)


def bounds(type: Type) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    return (-(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1) if type.signed else (0, (1 << type.bits) - 1)


def _write_integer(w: Lanes, i: Instruction, value: str, to: Type) -> None:
    """A signed result is extended by its sign into a wider register."""
    result = i.results[0]
    width = getattr(getattr(result, "type", None), "bits", to.bits)
    if width > to.bits:
        w.define(result, extended(w, value, to, width), f"i{width}")
    else:
        w.define(result, value, f"i{to.bits}")


def _integer_to_integer(w: Lanes, i: Instruction, to: Type, source: Type) -> None:
    value = w.source(i.sources[0], f"i{source.bits}")
    if "sat" in i.options:
        wide = 128 if 64 in {to.bits, source.bits} else 64
        t = f"i{wide}"
        value = extended(w, value, source, wide)
        low, high = bounds(to)
        value = w.intrinsic("smin", t, w.intrinsic("smax", t, value, w.constant(t, low)), w.constant(t, high))
        value = w.cast("trunc", value, t, f"i{to.bits}")
    elif to.bits > source.bits:
        value = extended(w, value, source, to.bits)
    elif to.bits < source.bits:
        value = w.cast("trunc", value, f"i{source.bits}", f"i{to.bits}")
    _write_integer(w, i, value, to)


def as_double(w: Lanes, value: str, source: Type) -> str:
    """Any float as float64, exactly."""
    if source.bits == 64:
        return value
    if source.bits == 16:
        value = widened(w, value, source)
    return w.op(f"fpext <{CHUNK} x float> {value} to <{CHUNK} x double>")


def _float_to_integer(w: Lanes, i: Instruction, to: Type, source: Type) -> None:
    """Always saturates. NaN gives 0, but where a side has 64 bits the least number, its sign's bit alone: so an H200
    does; the PTX ISA says 0."""
    value = w.source(i.sources[0], llvm(source))
    if "ftz" in i.options and source.name == "f32":
        value = flushed(w, value)
    value = as_double(w, value, source)
    value = w.intrinsic(WHOLE[i.options.get("rounding", "rzi")], "double", value)
    low, high = bounds(to)
    t = f"i{to.bits}"
    wide = f"i{max(32, to.bits)}"
    too_low = w.fcmp("olt", "double", value, number(w, float(low)))
    too_high = w.fcmp("oge", "double", value, number(w, float(high + 1)))
    nan = w.fcmp("uno", "double", value, value)
    bad = w.bin("or", "i1", nan, w.bin("or", "i1", too_low, too_high))
    safe = w.select(bad, "double", number(w, 0.0), value)
    word = "fptosi" if to.signed or to.bits < 32 else "fptoui"
    whole = w.op(f"{word} <{CHUNK} x double> {safe} to <{CHUNK} x {wide}>")
    whole = w.cast("trunc", whole, wide, t)
    whole = w.select(too_high, t, w.constant(t, high), whole)
    if 64 in {to.bits, source.bits}:
        whole = w.select(nan, t, w.constant(t, 1 << (to.bits - 1)), whole)
    _write_integer(w, i, w.select(too_low, t, w.constant(t, low), whole), to)


def _integer_to_float(w: Lanes, i: Instruction, to: Type, source: Type) -> None:
    value = w.source(i.sources[0], f"i{source.bits}")
    mode = i.options.get("rounding", "rn")
    sign = "sitofp" if source.signed else "uitofp"
    if mode == "rn" and to.bits >= 32:
        t = llvm(to)
        out = w.op(f"{sign} <{CHUNK} x i{source.bits}> {value} to <{CHUNK} x {t}>")
    else:
        near, error = _sum_of_halves(w, value, source)
        if to.bits == 64:
            out = stepped(w, "double", near, error, mode)
        elif to.bits == 32:
            out = narrowed(w, near, mode, error)
        else:
            single = double_to_odd_float(w, _odd(w, near, error))
            out = float_to_half(w, single, llvm(to), mode)
    if "sat" in i.options:
        out = _saturated_any(w, out, to)
    w.define(i.results[0], out, llvm(to))


def _odd(w: Lanes, value: str, error: str) -> str:
    from undertorch.simt.codegen.rounding import to_odd

    return to_odd(w, "double", value, error)


def _sum_of_halves(w: Lanes, value: str, source: Type) -> tuple[str, str]:
    """An integer as float64 and what that leaves out: its upper and lower 32 bits are exact."""
    if source.bits <= 32:
        wide = extended(w, value, source, 64)
        sign = "sitofp"
        return w.op(f"{sign} <{CHUNK} x i64> {wide} to <{CHUNK} x double>"), w.constant("double", 0)
    upper = w.bin("ashr" if source.signed else "lshr", "i64", value, w.constant("i64", 32))
    lower = w.bin("and", "i64", value, w.constant("i64", 0xFFFFFFFF))
    high = w.op(f"sitofp <{CHUNK} x i64> {upper} to <{CHUNK} x double>")
    high = w.bin("fmul", "double", high, number(w, 4294967296.0))
    low = w.op(f"sitofp <{CHUNK} x i64> {lower} to <{CHUNK} x double>")
    total = w.bin("fadd", "double", high, low)
    return total, two_sum_error(w, "double", high, low, total)


def _float_to_float(w: Lanes, i: Instruction, to: Type, source: Type) -> None:
    value, t = w.source(i.sources[0], llvm(source)), llvm(to)
    mode = i.options.get("rounding", "rn")
    # On the way to float16 an H200 flushes nothing.
    if "ftz" in i.options and source.name == "f32" and to.name != "f16":
        value = canonical(w, flushed(w, value), "float")
    if mode in WHOLE and source.bits == to.bits:
        value = _whole(w, value, source, mode)
    elif source.bits != to.bits or source.kind != to.kind:
        value = _resized(w, value, to, source, mode)
    if "sat" in i.options:
        value = _saturated_any(w, value, to)
    if "satfinite" in i.options:
        value = _finite(w, value, t)
    if "relu" in i.options:
        value = _relu(w, value, t, to.bits)
    if "ftz" in i.options and to.name == "f32":
        value = flushed(w, value)
        if source.name == "f64":
            value = without_brink(w, "double", value, w.source(i.sources[0], "double"), "f32", mode)
    w.define(i.results[0], _nan_of(w, i, value, to, source), t)


def _nan_of(w: Lanes, i: Instruction, value: str, to: Type, source: Type) -> str:
    """The NaN that an H200 gives: float32 keeps what it can of a payload from float32, bfloat16 (but for .ftz) and
    float64, halves keep what they can of a float64's, and the rest are canonical. The PTX ISA fixes none of it."""
    ftz, whole = "ftz" in i.options, i.options.get("rounding") in WHOLE
    if to.name == "f32" and not whole and (source.name == "f64" or (source.name != "f16" and not ftz)):
        return value
    t = llvm(to)
    if source.name == "f64" and to.bits == 16:
        bits = w.source(i.sources[0], "i64")
        sign = w.bin("and", "i64", w.bin("lshr", "i64", bits, w.constant("i64", 48)), w.constant("i64", 0x8000))
        fraction, quiet = (10, 0x7E00) if to.name == "f16" else (7, 0x7FC0)
        top = w.bin("lshr", "i64", bits, w.constant("i64", 52 - fraction))
        top = w.bin("and", "i64", top, w.constant("i64", (1 << fraction) - 1))
        top = w.bin("or", "i64", w.bin("or", "i64", top, sign), w.constant("i64", quiet))
        nan = w.cast("bitcast", w.cast("trunc", top, "i64", "i16"), "i16", t)
        return w.select(w.fcmp("uno", t, value, value), t, nan, value)
    return canonical(w, value, t)


def _whole(w: Lanes, value: str, type: Type, mode: str) -> str:
    if type.bits == 16:
        single = w.intrinsic(WHOLE[mode], "float", widened(w, value, type))
        return float_to_half(w, single, llvm(type))
    return w.intrinsic(WHOLE[mode], llvm(type), value)


def _saturated_any(w: Lanes, value: str, type: Type) -> str:
    if type.bits == 16:
        return float_to_half(w, saturated(w, widened(w, value, type), "float"), llvm(type))
    return saturated(w, value, llvm(type))


FINITE = {"half": (0x7C00, 0x7BFF), "bfloat": (0x7F80, 0x7F7F)}
"""Infinity and the greatest finite number."""


def _finite(w: Lanes, value: str, t: str) -> str:
    """.satfinite: an infinity becomes the greatest finite number of its sign."""
    infinity, greatest = FINITE[t]
    bits = f"i{VECTOR[t]}"
    whole = w.cast("bitcast", value, t, bits)
    top = 1 << (VECTOR[t] - 1)
    size = w.bin("and", bits, whole, w.constant(bits, top - 1))
    limited = w.bin("or", bits, w.bin("and", bits, whole, w.constant(bits, top)), w.constant(bits, greatest))
    there = w.icmp("eq", bits, size, w.constant(bits, infinity))
    return w.cast("bitcast", w.select(there, bits, limited, whole), bits, t)


def _finite_tf32(w: Lanes, bits: str) -> str:
    """.satfinite of tf32: an H200 gives the number below, of infinity the greatest finite one, and of a NaN too."""
    exponent = w.constant("i32", 0x7F800000)
    ends = w.icmp("eq", "i32", w.bin("and", "i32", bits, exponent), exponent)
    return w.select(ends, "i32", w.bin("sub", "i32", bits, w.constant("i32", 0x2000)), bits)


def _relu(w: Lanes, value: str, t: str, bits: int) -> str:
    whole = w.cast("bitcast", value, t, f"i{bits}")
    nan = w.fcmp("uno", t, value, value) if t in {"float", "double", "half"} else w.constant("i1", 0)
    negative = w.icmp("slt", f"i{bits}", whole, w.constant(f"i{bits}", 0))
    drop = w.bin("and", "i1", negative, w.bin("xor", "i1", nan, "splat (i1 true)"))
    return w.cast("bitcast", w.select(drop, f"i{bits}", w.constant(f"i{bits}", 0), whole), f"i{bits}", t)


def _resized(w: Lanes, value: str, to: Type, source: Type, mode: str) -> str:
    """Another width or another kind of half."""
    if to.bits == 64:
        return as_double(w, value, source)
    if source.bits == 64:
        if to.bits == 32:
            if mode in DIRECTED:
                return narrowed(w, value, mode)
            return w.op(f"fptrunc <{CHUNK} x double> {value} to <{CHUNK} x float>")
        single = double_to_odd_float(w, value)
        return float_to_half(w, single, llvm(to), mode if mode in DIRECTED else "rn")
    single = widened(w, value, source) if source.bits == 16 else value
    if to.bits == 32:
        return single
    return float_to_half(w, single, llvm(to), mode if mode in DIRECTED else "rn")


@emits("cvt2")
def cvt2(w: Lanes, i: Instruction) -> None:
    """Two float32 into a pair: a above, b below."""
    to = i.types[0]
    kind = "half" if to.kind == "float" else "bfloat"
    out = []
    for source in reversed(i.sources):
        value = float_to_half(w, w.source(source, "float"), kind, i.options["rounding"])
        if "satfinite" in i.options:
            value = _finite(w, value, kind)
        if "relu" in i.options:
            value = _relu(w, value, kind, 16)
        out.append(w.cast("bitcast", value, kind, "i16"))
    low, high = (w.cast("zext", v, "i16", "i32") for v in out)
    put(w, i, w.bin("or", "i32", low, w.bin("shl", "i32", high, w.constant("i32", 16))), 32)


@emits("cvttf32")
def cvttf32(w: Lanes, i: Instruction) -> None:
    """float32 with 10 bits of fraction left: rna rounds halves away from zero, rn to even."""
    value = w.source(i.sources[0], "float")
    bits = w.cast("bitcast", value, "float", "i32")
    if i.options["rounding"] == "rna":
        added = w.bin("add", "i32", bits, w.constant("i32", 0x1000))
    elif i.options["rounding"] == "rn":
        odd = w.bin("and", "i32", w.bin("lshr", "i32", bits, w.constant("i32", 13)), w.constant("i32", 1))
        added = w.bin("add", "i32", bits, w.bin("add", "i32", odd, w.constant("i32", 0x0FFF)))
    else:
        added = bits
    cut = w.bin("and", "i32", added, w.constant("i32", 0xFFFFE000))
    kept = w.bin("and", "i32", bits, w.constant("i32", 0xFFFFE000))
    nan = kept if i.options["rounding"] == "rna" else w.constant("i32", 0x7FFFE000)  # an H200's answers
    out = w.select(w.fcmp("uno", "float", value, value), "i32", nan, cut)
    if "satfinite" in i.options:
        out = _finite_tf32(w, out)
    if "relu" in i.options:
        out = _relu(w, out, "i32", 32)
    put(w, i, out, 32)


def _packed(w: Lanes, i: Instruction, to: Type) -> list[str]:
    low, high = bounds(to)
    out = []
    for source in i.sources[:2]:
        value = w.source(source, "i32")
        value = w.intrinsic("smax", "i32", value, w.constant("i32", low))
        value = w.intrinsic("smin", "i32", value, w.constant("i32", high))
        out.append(w.bin("and", "i32", value, w.constant("i32", (1 << to.bits) - 1)))
    return out


@emits("cvtpack")
def cvtpack(w: Lanes, i: Instruction) -> None:
    """Two s32, saturated to 16 bits: a above, b below."""
    a, b = _packed(w, i, i.types[0])
    put(w, i, w.bin("or", "i32", w.bin("shl", "i32", a, w.constant("i32", 16)), b), 32)


@emits("cvtpack8")
def cvtpack8(w: Lanes, i: Instruction) -> None:
    """Two s32, saturated to 8 bits, below the lower half of c."""
    a, b = _packed(w, i, i.types[0])
    pair = w.bin("or", "i32", w.bin("shl", "i32", a, w.constant("i32", 8)), b)
    above = w.bin("shl", "i32", w.source(i.sources[2], "i32"), w.constant("i32", 16))
    put(w, i, w.bin("or", "i32", above, pair), 32)
