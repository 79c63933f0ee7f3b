"""Roundings that LLVM does not do by itself.

Its constrained rounding modes round to nearest whatever they are told, so directed roundings are made from the rounded
result r and the sign of its error: exact = r + e. Where r lies on the wrong side of the exact value, the neighbour is
taken, which is the next integer in the bits (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008,
for round to odd; Knuth's two-sum and the fused remainder for the errors).
"""

import struct

from undertorch.simt.codegen.lanes import CHUNK, VECTOR, Lanes

CANONICAL = {"float": 0x7FFFFFFF, "half": 0x7FFF, "bfloat": 0x7FFF}
"""The NaN that the GPU's arithmetic gives (PTX ISA, "Floating Point Instructions")."""


def canonical(w: Lanes, value: str, type: str) -> str:
    """Any NaN as the canonical one. float64 keeps its payload."""
    if type not in CANONICAL:
        return value
    return w.select(w.fcmp("uno", type, value, value), type, w.constant(type, CANONICAL[type]), value)


def bits_of(type: str, value: float) -> int:
    """The bits of a number as `float` or `double`."""
    return int.from_bytes(struct.pack("<f" if type == "float" else "<d", value), "little")


PRECISION = {"f32": 24, "f16": 11}
LEAST = {"f32": -126, "f16": -14}
"""The exponent of the least normal number."""


def on_the_brink(w: Lanes, type: str, exact: str, kind: str, mode: str) -> str:
    """Whether .ftz takes a result for subnormal, though it rounds to the least normal number.

    An H200 rounds as if exponents had no end and flushes what then lies below. `exact` (of `type`) may be rounded to
    odd; `kind` is the result's.
    """
    directed = mode in {"rm", "rp"}  # away from zero where it matters: the neighbour below stays where it is
    below = 2.0 ** -(PRECISION[kind] + (0 if directed else 1))
    limit = w.constant(type, bits_of(type, 2.0 ** LEAST[kind] * (1 - below)))
    return w.fcmp("ole" if directed else "olt", type, w.intrinsic("fabs", type, exact), limit)


def two_sum_error(w: Lanes, type: str, a: str, b: str, s: str) -> str:
    """The error of s = a + b, exactly (Knuth)."""
    bb = w.bin("fsub", type, s, a)
    aa = w.bin("fsub", type, s, bb)
    return w.bin("fadd", type, w.bin("fsub", type, a, aa), w.bin("fsub", type, b, bb))


def stepped(w: Lanes, type: str, value: str, error: str, mode: str, error_type: str = "double") -> str:
    """`value`, rounded to nearest, as one rounded by `mode` (rz, rm, rp): `error` has the sign of exact - value."""
    bits = VECTOR[type]
    t = f"i{bits}"
    whole = w.cast("bitcast", value, type, t)
    zero = w.constant(error_type, 0)
    above, below = w.fcmp("ogt", error_type, error, zero), w.fcmp("olt", error_type, error, zero)
    negative = w.icmp("slt", t, whole, w.constant(t, 0))
    ones, one = w.constant(t, -1), w.constant(t, 1)
    if mode == "rz":  # towards zero: magnitude too large
        wrong = w.select(negative, "i1", above, below)
        step = ones
    elif mode == "rm":  # down: value above exact
        wrong, step = below, w.select(negative, t, one, ones)
    else:
        wrong, step = above, w.select(negative, t, ones, one)
    moved = w.bin("add", t, whole, step)
    # From zero the next number down is the least subnormal with the other sign.
    empty = w.icmp("eq", t, w.bin("shl", t, whole, one), w.constant(t, 0))
    least = w.constant(t, 1 | (1 << (bits - 1) if mode == "rm" else 0))
    moved = w.select(empty, t, least if mode != "rz" else whole, moved)
    return w.cast("bitcast", w.select(wrong, t, moved, whole), t, type)


def narrowed(w: Lanes, value: str, mode: str, error: str | None = None) -> str:
    """float64 (plus an error of the sign of `error`) as float32 by a directed mode."""
    near = w.op(f"fptrunc <{CHUNK} x double> {value} to <{CHUNK} x float>")
    back = w.op(f"fpext <{CHUNK} x float> {near} to <{CHUNK} x double>")
    difference = w.bin("fsub", "double", value, back)
    if error is not None:
        none = w.fcmp("oeq", "double", difference, w.constant("double", 0))
        difference = w.select(none, "double", error, difference)
    return stepped(w, "float", near, difference, mode)


def to_odd(w: Lanes, type: str, value: str, error: str) -> str:
    """`value` rounded to odd: the neighbour towards the exact value where that is not representable, if value is even.

    A number rounded to odd with two bits to spare rounds again as the exact one would.
    """
    bits = VECTOR[type]
    t = f"i{bits}"
    towards_zero = stepped(w, type, value, error, "rz", type)
    whole = w.cast("bitcast", towards_zero, type, t)
    inexact = w.fcmp("one", type, error, w.constant(type, 0))
    return w.cast("bitcast", w.bin("or", t, whole, w.cast("zext", inexact, "i1", t)), t, type)


def double_to_odd_float(w: Lanes, value: str) -> str:
    """float64 as float32, rounded to odd."""
    near = w.op(f"fptrunc <{CHUNK} x double> {value} to <{CHUNK} x float>")
    back = w.op(f"fpext <{CHUNK} x float> {near} to <{CHUNK} x double>")
    difference = w.bin("fsub", "double", value, back)
    down = stepped(w, "float", near, difference, "rz")
    inexact = w.fcmp("one", "double", difference, w.constant("double", 0))
    whole = w.bin("or", "i32", w.cast("bitcast", down, "float", "i32"), w.cast("zext", inexact, "i1", "i32"))
    return w.cast("bitcast", whole, "i32", "float")


def float_to_half(w: Lanes, value: str, kind: str, mode: str = "rn") -> str:
    """float32 as half or bfloat, NaN canonical."""
    if kind == "bfloat":
        return _to_bfloat(w, value, mode)
    near = w.op(f"fptrunc <{CHUNK} x float> {value} to <{CHUNK} x half>")
    if mode != "rn":
        back = w.op(f"fpext <{CHUNK} x half> {near} to <{CHUNK} x float>")
        near = stepped(w, "half", near, w.bin("fsub", "float", value, back), mode, "float")
    nan = w.fcmp("uno", "float", value, value)
    return w.select(nan, "half", w.constant("half", 0x7FFF), near)


def _to_bfloat(w: Lanes, value: str, mode: str) -> str:
    """bfloat16 is float32's upper half: rounding is an integer addition below it."""
    bits = w.cast("bitcast", value, "float", "i32")
    sixteen = w.constant("i32", 16)
    if mode == "rn":
        odd = w.bin("and", "i32", w.bin("lshr", "i32", bits, sixteen), w.constant("i32", 1))
        bits = w.bin("add", "i32", bits, w.bin("add", "i32", odd, w.constant("i32", 0x7FFF)))
    elif mode in {"rm", "rp"}:
        negative = w.icmp("slt", "i32", bits, w.constant("i32", 0))
        away = w.constant("i32", 0xFFFF)
        none = w.constant("i32", 0)
        add = w.select(negative, "i32", *((none, away) if mode == "rp" else (away, none)))
        bits = w.bin("add", "i32", bits, add)
    upper = w.cast("trunc", w.bin("lshr", "i32", bits, sixteen), "i32", "i16")
    nan = w.fcmp("uno", "float", value, value)
    return w.cast("bitcast", w.select(nan, "i16", w.constant("i16", 0x7FFF), upper), "i16", "bfloat")
