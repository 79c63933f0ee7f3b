"""8-bit floats, two in a register of 16 bits: e4m3 and e5m2 (OCP 8-bit Floating Point Specification, "OFP8").

e5m2 is float16's upper half. e4m3 has float16's layout moved by 7 bits, with exponents that count from 8 lower; it has
no infinities, and all ones are NaN.
"""

from undertorch.simt.codegen.lanes import CHUNK, Lanes, emits
from undertorch.simt.codegen.moves import halves
from undertorch.simt.codegen.rounding import bits_of
from undertorch.simt.ptx.instructions import Instruction

FRACTION = {"e4m3x2": 3, "e5m2x2": 2}
LEAST = {"e4m3x2": -6, "e5m2x2": -14}
"""Exponent of the least normal number."""
MOST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
NAN = 0x7F
"""Of both."""


def narrowed(w: Lanes, value: str, kind: str, *, relu: bool) -> str:
    """A float32 as 8 bits (in an i32): to nearest even, what is too large as the largest number."""
    bits = w.cast("bitcast", value, "float", "i32")
    most = w.constant("float", bits_of("float", MOST[kind]))
    size = w.intrinsic("minnum", "float", w.intrinsic("fabs", "float", value), most)
    field = w.bin("and", "i32", w.cast("bitcast", size, "float", "i32"), w.constant("i32", 0x7F800000))
    field = w.intrinsic("umax", "i32", field, w.constant("i32", 127 + LEAST[kind] << 23))
    place = w.bin("sub", "i32", field, w.constant("i32", FRACTION[kind] << 23))
    unit = w.cast("bitcast", place, "i32", "float")
    back = w.cast("bitcast", w.bin("sub", "i32", w.constant("i32", 254 << 23), place), "i32", "float")
    steps = w.intrinsic("roundeven", "float", w.bin("fmul", "float", size, back))
    rounded = w.bin("fmul", "float", steps, unit)
    moved = 8
    if kind == "e4m3x2":
        rounded, moved = w.bin("fmul", "float", rounded, w.constant("float", bits_of("float", 2.0**-8))), 7
    half = w.op(f"fptrunc <{CHUNK} x float> {rounded} to <{CHUNK} x half>")
    whole = w.cast("zext", w.cast("bitcast", half, "half", "i16"), "i16", "i32")
    whole = w.bin("lshr", "i32", whole, w.constant("i32", moved))
    negative = w.icmp("slt", "i32", bits, w.constant("i32", 0))
    if relu:
        whole = w.select(negative, "i32", w.constant("i32", 0), whole)
    else:
        whole = w.bin("or", "i32", whole, w.select(negative, "i32", w.constant("i32", 0x80), w.constant("i32", 0)))
    return w.select(w.fcmp("uno", "float", value, value), "i32", w.constant("i32", NAN), whole)


@emits("cvtto8")
def cvtto8(w: Lanes, i: Instruction) -> None:
    """Two float32, a above and b below, or a pair of float16, into a pair of 8-bit floats."""
    if len(i.sources) == 2:
        high, low = (w.source(source, "float") for source in i.sources)
    else:
        low, high = halves(w, i.sources[0], i.type)
    below, above = (narrowed(w, value, i.types[0].name, relu="relu" in i.options) for value in (low, high))
    both = w.bin("or", "i32", below, w.bin("shl", "i32", above, w.constant("i32", 8)))
    w.define(i.results[0], w.cast("trunc", both, "i32", "i16"), "i16")


@emits("cvtfrom8")
def cvtfrom8(w: Lanes, i: Instruction) -> None:
    """A pair of 8-bit floats as float16, exactly."""
    whole = w.cast("zext", w.source(i.sources[0], "i16"), "i16", "i32")
    out = []
    for place in (0, 8):
        byte = w.bin("and", "i32", w.bin("lshr", "i32", whole, w.constant("i32", place)), w.constant("i32", 0xFF))
        out.append(_half_of(w, byte, i.type.name, relu="relu" in i.options))
    w.define(i.results[0], w.bin("or", "i32", out[0], w.bin("shl", "i32", out[1], w.constant("i32", 16))), "i32")


def _half_of(w: Lanes, byte: str, kind: str, *, relu: bool) -> str:
    """8 bits (in an i32) as float16's bits; NaN as the GPU's arithmetic has it."""
    size = w.bin("and", "i32", byte, w.constant("i32", 0x7F))
    if kind == "e4m3x2":
        moved = w.cast("trunc", w.bin("shl", "i32", size, w.constant("i32", 7)), "i32", "i16")
        wide = w.op(f"fpext <{CHUNK} x half> {w.cast('bitcast', moved, 'i16', 'half')} to <{CHUNK} x float>")
        value = w.bin("fmul", "float", wide, w.constant("float", bits_of("float", 256.0)))
        half = w.op(f"fptrunc <{CHUNK} x float> {value} to <{CHUNK} x half>")
        bits = w.cast("zext", w.cast("bitcast", half, "half", "i16"), "i16", "i32")
        none = w.icmp("eq", "i32", size, w.constant("i32", 0x7F))
    else:
        bits = w.bin("shl", "i32", size, w.constant("i32", 8))
        none = w.icmp("ugt", "i32", size, w.constant("i32", 0x7C))
    negative = w.icmp("ugt", "i32", byte, w.constant("i32", 0x7F))
    if relu:
        bits = w.select(negative, "i32", w.constant("i32", 0), bits)
    else:
        bits = w.bin("or", "i32", bits, w.select(negative, "i32", w.constant("i32", 0x8000), w.constant("i32", 0)))
    return w.select(none, "i32", w.constant("i32", 0x7FFF), bits)
