"""float16 and bfloat16, one or two in a register (PTX ISA, "Half Precision Floating Point Instructions").

A half is computed in float32, which holds it exactly. Sums and products rounded to 24 bits and then to 11 are rounded
as if once (24 ≥ 2·11 + 2, Figueroa 1995); a fused multiply-add is not, so its sum is rounded to odd in between.
"""

from undertorch.simt.codegen.approximations import APPROXIMATIONS
from undertorch.simt.codegen.floats import WORDS, extreme, odd_fused, saturated, wide, without_brink
from undertorch.simt.codegen.lanes import CHUNK, Lanes, emits
from undertorch.simt.codegen.moves import flushed_half, halves, widened
from undertorch.simt.codegen.rounding import double_to_odd_float, float_to_half
from undertorch.simt.ptx.instructions import Instruction, Operand


def kind_of(i: Instruction) -> str:
    """LLVM's name of one half."""
    return "half" if i.type.kind == "float" else "bfloat"


def parts(w: Lanes, i: Instruction, operand: Operand) -> list[str]:
    """A half, or both of a pair, as float32."""
    if i.type.lanes == 2:
        return list(halves(w, operand, i.type))
    return [widened(w, w.source(operand, kind_of(i)), i.type)]


def put_halves(w: Lanes, i: Instruction, values: list[str]) -> None:
    """Halves as bits, one or two of them, the lower first."""
    bits = [w.cast("bitcast", v, kind_of(i), "i16") for v in values]
    if len(bits) == 1:
        w.define(i.results[0], bits[0], "i16")
        return
    low, high = (w.cast("zext", b, "i16", "i32") for b in bits)
    w.define(i.results[0], w.bin("or", "i32", low, w.bin("shl", "i32", high, w.constant("i32", 16))), "i32")


def fused(w: Lanes, a: str, b: str, c: str) -> str:
    """a·b + c of halves, as a float32 rounded to odd."""
    return double_to_odd_float(w, odd_fused(w, *wide(w, [a, b, c])))


@emits("harith")
def harith(w: Lanes, i: Instruction) -> None:
    """add, sub, mul, fma, with .sat and .relu."""
    op, flush = i.options["op"], "ftz" in i.options
    columns = [parts(w, i, s) for s in i.sources]
    out = []
    for values in zip(*columns, strict=True):
        given = [flushed_half(w, v) for v in values] if flush else list(values)
        value = fused(w, *given) if op == "fma" else w.bin(WORDS[op], "float", *given)
        exact = value  # a product of two halves is exact in float32, and a sum rounded to odd as good
        if "sat" in i.options:
            value = saturated(w, value, "float")
        half = float_to_half(w, value, kind_of(i))
        if flush:
            flat = flushed_half(w, widened(w, half, i.type))
            if op in {"mul", "fma"}:
                flat = without_brink(w, "float", flat, exact, "f16", "rn")
            half = float_to_half(w, flat, kind_of(i))
        if "relu" in i.options:
            half = _relu(w, half, kind_of(i))
        out.append(half)
    put_halves(w, i, out)


def _relu(w: Lanes, half: str, kind: str) -> str:
    """Negative numbers become 0; NaN stays."""
    bits = w.cast("bitcast", half, kind, "i16")
    negative = w.icmp("slt", "i16", bits, w.constant("i16", 0))
    return w.cast("bitcast", w.select(negative, "i16", w.constant("i16", 0), bits), "i16", kind)


@emits("hsign")
def hsign(w: Lanes, i: Instruction) -> None:
    """abs and neg; a NaN becomes the canonical one (an H200's answer)."""
    t = f"i{i.type.bits}"
    a = w.source(i.sources[0], t)
    if "ftz" in i.options:
        a = _flushed_bits(w, i, a)
    signs = 0x80008000 if i.type.lanes == 2 else 0x8000
    if i.options["op"] == "abs":
        value = w.bin("and", t, a, w.constant(t, ~signs))
    else:
        value = w.bin("xor", t, a, w.constant(t, signs))
    infinity = 0x7C00 if i.type.kind == "float" else 0x7F80
    for place in range(i.type.lanes):
        size = w.bin("and", t, value, w.constant(t, 0x7FFF << 16 * place))
        nan = w.bin(
            "or", t, w.bin("and", t, value, w.constant(t, ~(0xFFFF << 16 * place))), w.constant(t, 0x7FFF << 16 * place)
        )
        value = w.select(w.icmp("ugt", t, size, w.constant(t, infinity << 16 * place)), t, nan, value)
    w.define(i.results[0], value, t)


def _flushed_bits(w: Lanes, i: Instruction, whole: str) -> str:
    """float16's bits, one or two in a register, with subnormals made zeros of their sign."""
    t = f"i{i.type.bits}"
    for place in range(i.type.lanes):
        exponent = w.bin("and", t, whole, w.constant(t, 0x7C00 << 16 * place))
        cut = w.bin("and", t, whole, w.constant(t, ~(0x7FFF << 16 * place)))
        whole = w.select(w.icmp("eq", t, exponent, w.constant(t, 0)), t, cut, whole)
    return whole


@emits("hminmax")
def hminmax(w: Lanes, i: Instruction) -> None:
    columns = [parts(w, i, s) for s in i.sources]
    out = []
    for values in zip(*columns, strict=True):
        given = [flushed_half(w, v) for v in values] if "ftz" in i.options else list(values)
        out.append(float_to_half(w, extreme(w, i, "float", given), kind_of(i)))
    put_halves(w, i, out)


@emits("happrox")
def happrox(w: Lanes, i: Instruction) -> None:
    out = []
    for value in parts(w, i, i.sources[0]):
        exact = APPROXIMATIONS[i.options["op"]](w, *wide(w, [value]))
        single = w.op(f"fptrunc <{CHUNK} x double> {exact} to <{CHUNK} x float>")
        out.append(float_to_half(w, single, kind_of(i)))
    put_halves(w, i, out)
