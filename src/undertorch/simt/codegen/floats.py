"""Instructions on float32 and float64 (PTX ISA, "Floating Point Instructions").

Exact as IEEE 754 asks, in every rounding; `.approx` instructions are done to float64 and rounded, which is closer than
the GPU's own: their bits differ from a GPU's by the error that the PTX ISA allows them there.
"""

from undertorch.simt.codegen.approximations import APPROXIMATIONS
from undertorch.simt.codegen.lanes import CHUNK, Lanes, emits, llvm
from undertorch.simt.codegen.moves import flushed
from undertorch.simt.codegen.rounding import canonical, narrowed, on_the_brink, stepped, to_odd, two_sum_error
from undertorch.simt.ptx.instructions import Instruction

WORDS = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
DIRECTED = {"rz", "rm", "rp"}


def sources(w: Lanes, i: Instruction) -> list[str]:
    """All sources, subnormals flushed where the instruction says so."""
    t = llvm(i.type)
    values = [w.source(s, t) for s in i.sources]
    return [flushed(w, v) for v in values] if "ftz" in i.options and t == "float" else values


def finish(w: Lanes, i: Instruction, value: str, exact: str | None = None) -> None:
    """Flushes, saturates, makes NaN canonical, and writes the result.

    `exact`: what a float32 was rounded from, as float64 (rounded to odd where it does not fit), if that can lie below
    the normal numbers and `value` among them.
    """
    t = llvm(i.type)
    if "ftz" in i.options and t == "float":
        value = flushed(w, value)
        if exact is not None:
            value = without_brink(w, "double", value, exact, "f32", i.options.get("rounding", "rn"))
    if "sat" in i.options:
        value = saturated(w, value, t)
    w.define(i.results[0], canonical(w, value, t), t)


def without_brink(w: Lanes, type: str, value: str, exact: str, kind: str, mode: str) -> str:
    """A float32 or (as float32) a float16 that .ftz makes a zero of its sign where `exact`, of `type`, lay below."""
    there = on_the_brink(w, type, exact, kind, mode)
    return w.select(there, "float", w.intrinsic("copysign", "float", w.constant("float", 0), value), value)


def saturated(w: Lanes, value: str, t: str) -> str:
    """Into [0, 1]; NaN gives 0, and so does -0."""
    zero, one = w.constant(t, 0), w.constant(t, {"float": 0x3F800000, "double": 0x3FF0000000000000}[t])
    value = w.select(w.fcmp("ogt", t, value, zero), t, value, zero)
    return w.select(w.fcmp("ogt", t, value, one), t, one, value)


def wide(w: Lanes, values: list[str]) -> list[str]:
    """float32 as float64."""
    return [w.op(f"fpext <{CHUNK} x float> {v} to <{CHUNK} x double>") for v in values]


def signed_zero(w: Lanes, t: str, value: str, error: str, operands: list[str], mode: str) -> str:
    """A sum that cancels to nothing is -0 when rounding down, unless both terms were +0."""
    if mode != "rm":
        return value
    zero = w.constant(t, 0)
    nothing = w.bin("and", "i1", w.fcmp("oeq", t, value, zero), w.fcmp("oeq", t, error, zero))
    bits = "i32" if t == "float" else "i64"
    signs = w.bin("or", bits, *(w.cast("bitcast", o, t, bits) for o in operands))
    any_minus = w.bin("or", "i1", w.icmp("slt", bits, signs, w.constant(bits, 0)), w.fcmp("one", t, operands[0], zero))
    minus = w.constant(t, 0x80000000 if t == "float" else 1 << 63)
    return w.select(w.bin("and", "i1", nothing, any_minus), t, minus, value)


def directed(w: Lanes, t: str, op: str, values: list[str], mode: str) -> str:
    """add, sub, mul, fma rounded by rz, rm or rp."""
    single = t == "float"
    a, b, *rest = wide(w, values) if single else values
    if op == "sub":
        b, op = w.op(f"fneg <{CHUNK} x double> {b}"), "add"
    if op == "add":
        value = w.bin("fadd", "double", a, b)
        error = two_sum_error(w, "double", a, b, value)
        value = signed_zero(w, "double", value, error, [a, b], mode)
    elif op == "mul":
        value = w.bin("fmul", "double", a, b)
        error = w.constant("double", 0) if single else product_error(w, a, b, value, value)
    else:
        value, error = _fused(w, a, b, rest[0], single=single, mode=mode)
    if single:
        return narrowed(w, value, mode, error)
    return stepped(w, "double", value, overflowed(w, value, error, [a, b, *rest]), mode)


def overflowed(w: Lanes, value: str, error: str, operands: list[str]) -> str:
    """The error of an infinity that finite operands gave: the exact value lies nearer to zero."""
    infinity = w.constant("double", 0x7FF << 52)
    there = w.fcmp("oeq", "double", w.intrinsic("fabs", "double", value), infinity)
    for operand in operands:
        finite = w.fcmp("olt", "double", w.intrinsic("fabs", "double", operand), infinity)
        there = w.bin("and", "i1", there, finite)
    return w.select(there, "double", w.op(f"fneg <{CHUNK} x double> {value}"), error)


def product_error(w: Lanes, a: str, b: str, product: str, exact: str) -> str:
    """The sign of a·b - `exact`, where `exact` is within rounding of `product`.

    Below 2^-900 the difference may be less than any float64, so the smaller factor is scaled by 2^1000 first, and the
    greater by 2^500 where it is small too.
    """
    magnitude = w.intrinsic("fabs", "double", product)
    small = w.fcmp("olt", "double", magnitude, w.constant("double", (1023 - 900) << 52))
    scale = w.select(small, "double", w.constant("double", (1023 + 1000) << 52), w.constant("double", 1023 << 52))
    less = w.fcmp("olt", "double", w.intrinsic("fabs", "double", a), w.intrinsic("fabs", "double", b))
    x, y = w.select(less, "double", a, b), w.select(less, "double", b, a)
    both = w.fcmp("olt", "double", w.intrinsic("fabs", "double", y), w.constant("double", (1023 - 500) << 52))
    again = w.select(both, "double", w.constant("double", (1023 + 500) << 52), w.constant("double", 1023 << 52))
    exact = w.bin("fmul", "double", w.bin("fmul", "double", exact, scale), again)
    minus = w.op(f"fneg <{CHUNK} x double> {exact}")
    return w.intrinsic("fma", "double", w.bin("fmul", "double", x, scale), w.bin("fmul", "double", y, again), minus)


def _fused(w: Lanes, a: str, b: str, c: str, *, single: bool, mode: str) -> tuple[str, str]:
    """a·b + c and an error of the right sign."""
    if single:  # the product of two float32 is exact
        product = w.bin("fmul", "double", a, b)
        value = w.bin("fadd", "double", product, c)
        error = two_sum_error(w, "double", product, c, value)
        return signed_zero(w, "double", value, error, [product, c], mode), error
    # Boldo and Muller, "Exact and approximated error of the FMA", 2011: the error of a fused multiply-add.
    value = w.intrinsic("fma", "double", a, b, c)
    a, b, c, scaled = _out_of_reach_of_underflow(w, a, b, c, value)
    product = w.bin("fmul", "double", a, b)
    low = w.intrinsic("fma", "double", a, b, w.op(f"fneg <{CHUNK} x double> {product}"))
    upper = w.bin("fadd", "double", c, low)
    upper_error = two_sum_error(w, "double", c, low, upper)
    total = w.bin("fadd", "double", product, upper)
    total_error = two_sum_error(w, "double", product, upper, total)
    rest = w.bin("fadd", "double", w.bin("fsub", "double", total, scaled), total_error)
    error = w.bin("fadd", "double", rest, upper_error)
    return signed_zero(w, "double", value, error, [product, c], mode), error


def _out_of_reach_of_underflow(w: Lanes, a: str, b: str, c: str, value: str) -> tuple[str, str, str, str]:
    """The operands of a fused multiply-add, and its result, scaled so that no part of the error underflows.

    Where the product and c are both small, all by 2^1000. Where only the product is, or where it is far below what
    2^1000 lifts (then c is 0 or far above it), its sign alone matters: it is taken as 2^-400.
    """
    less = w.fcmp("olt", "double", w.intrinsic("fabs", "double", a), w.intrinsic("fabs", "double", b))
    x, y = w.select(less, "double", a, b), w.select(less, "double", b, a)
    limit, one, big = (
        w.constant("double", (1023 - 800) << 52),
        w.constant("double", 1023 << 52),
        w.constant("double", 2023 << 52),
    )
    product = w.intrinsic("fabs", "double", w.bin("fmul", "double", a, b))
    small = w.fcmp("olt", "double", product, limit)
    both = w.bin("and", "i1", small, w.fcmp("olt", "double", w.intrinsic("fabs", "double", c), limit))
    scale = w.select(both, "double", big, one)
    x, c, value = (w.bin("fmul", "double", v, scale) for v in (x, c, value))
    lifted = w.intrinsic("fabs", "double", w.bin("fmul", "double", x, y))
    far_below = w.fcmp("olt", "double", lifted, w.constant("double", (1023 - 500) << 52))
    only = w.bin("or", "i1", w.bin("xor", "i1", both, "splat (i1 true)"), far_below)
    only = w.bin("and", "i1", small, only)
    nonzero = w.bin("and", "i1", w.fcmp("one", "double", x, w.constant("double", 0)), only)
    tiny = w.intrinsic("copysign", "double", w.constant("double", (1023 - 400) << 52), x)
    unit = w.intrinsic("copysign", "double", tiny, y)
    return w.select(nonzero, "double", tiny, x), w.select(nonzero, "double", unit, y), c, value


@emits("farith")
def farith(w: Lanes, i: Instruction) -> None:
    t, op, mode = llvm(i.type), i.options["op"], i.options.get("rounding", "rn")
    values = sources(w, i)
    value = directed(w, t, op, values, mode) if mode in DIRECTED else w.bin(WORDS[op], t, *values)
    exact = w.bin("fmul", "double", *wide(w, values)) if op == "mul" and "ftz" in i.options and t == "float" else None
    finish(w, i, value, exact)


@emits("ffma")
def ffma(w: Lanes, i: Instruction) -> None:
    t, mode = llvm(i.type), i.options.get("rounding", "rn")
    values = sources(w, i)
    value = directed(w, t, "fma", values, mode) if mode in DIRECTED else w.intrinsic("fma", t, *values)
    if t == "double":  # of several NaN an H200 gives on the addend
        value = w.select(w.fcmp("uno", t, values[2], values[2]), t, quieted(w, values[2]), value)
    finish(w, i, value, odd_fused(w, *wide(w, values)) if "ftz" in i.options and t == "float" else None)


def odd_fused(w: Lanes, a: str, b: str, c: str) -> str:
    """a·b + c of float32 or float16 in float64, rounded to odd."""
    product = w.bin("fmul", "double", a, b)  # exact: at most 48 bits
    value = w.bin("fadd", "double", product, c)
    return to_odd(w, "double", value, two_sum_error(w, "double", product, c, value))


def quotient(w: Lanes, t: str, a: str, b: str, mode: str) -> str:
    """a / b; its error has the sign of the remainder over b."""
    if mode not in DIRECTED:
        return w.bin("fdiv", t, a, b)
    value = w.bin("fdiv", "double", *(wide(w, [a, b]) if t == "float" else (a, b)))
    x, y = wide(w, [a, b]) if t == "float" else (a, b)
    excess = product_error(w, value, y, x, x)  # of value·y over x
    positive = w.fcmp("ogt", "double", y, w.constant("double", 0))
    error = w.select(positive, "double", w.op(f"fneg <{CHUNK} x double> {excess}"), excess)
    if t == "float":
        return narrowed(w, value, mode, error)
    inverse = w.bin("fdiv", "double", w.constant("double", 1023 << 52), y)  # infinite where y is 0
    nonzero = w.select(w.fcmp("one", "double", y, w.constant("double", 0)), "double", y, inverse)
    return stepped(w, "double", value, overflowed(w, value, error, [x, nonzero]), mode)


@emits("fdiv")
def fdiv(w: Lanes, i: Instruction) -> None:
    a, b = sources(w, i)
    value = quotient(w, llvm(i.type), a, b, i.options["rounding"])
    if i.options["rounding"] == "approx":
        value = _without_large_divisors(w, a, b, value)
    finish(w, i, value, _plain_quotient(w, i, a, b))


def _plain_quotient(w: Lanes, i: Instruction, a: str, b: str) -> str | None:
    """a / b of float32 in float64, for .ftz: two numbers of 24 bits give none so near to one of 25 as to need more."""
    exact = i.options["rounding"] not in {"approx", "full"} and "ftz" in i.options and llvm(i.type) == "float"
    return w.bin("fdiv", "double", *wide(w, [a, b])) if exact else None


def _without_large_divisors(w: Lanes, a: str, b: str, value: str) -> str:
    """div.approx.f32 is a·(1/b): beyond 2^126, 1/b is 0, which gives zeros, and NaN of an infinite a (PTX ISA, div)."""
    size, infinity = w.intrinsic("fabs", "float", b), w.constant("float", 0x7F800000)
    large = w.bin("and", "i1", w.fcmp("ogt", "float", size, w.constant("float", (126 + 127) << 23)),
                  w.fcmp("olt", "float", size, infinity))  # fmt: skip
    zero = w.intrinsic("copysign", "float", w.constant("float", 0), b)
    return w.select(large, "float", w.bin("fmul", "float", a, zero), value)


@emits("frcp")
def frcp(w: Lanes, i: Instruction) -> None:
    t = llvm(i.type)
    one = w.constant(t, 0x3F800000 if t == "float" else 0x3FF0000000000000)
    (a,) = sources(w, i)
    finish(w, i, quotient(w, t, one, a, i.options["rounding"]), _plain_quotient(w, i, one, a))


@emits("fsqrt")
def fsqrt(w: Lanes, i: Instruction) -> None:
    t, mode = llvm(i.type), i.options["rounding"]
    (a,) = sources(w, i)
    if mode not in DIRECTED:
        finish(w, i, w.intrinsic("sqrt", t, a))
        return
    (x,) = wide(w, [a]) if t == "float" else (a,)
    value = w.intrinsic("sqrt", "double", x)
    error = w.op(f"fneg <{CHUNK} x double> {product_error(w, value, value, x, x)}")
    finish(w, i, narrowed(w, value, mode, error) if t == "float" else stepped(w, "double", value, error, mode))


@emits("frsqrt")
def frsqrt(w: Lanes, i: Instruction) -> None:
    t = llvm(i.type)
    (a,) = sources(w, i)
    (x,) = wide(w, [a]) if t == "float" else (a,)
    value = w.bin("fdiv", "double", w.constant("double", 0x3FF0000000000000), w.intrinsic("sqrt", "double", x))
    finish(w, i, w.op(f"fptrunc <{CHUNK} x double> {value} to <{CHUNK} x float>") if t == "float" else value)


def _upper_source(w: Lanes, i: Instruction) -> str:
    """The operand of an approximation to float64: its upper word counts, and subnormals are zeros."""
    bits = w.bin("and", "i64", w.source(i.sources[0], "i64"), w.constant("i64", 0xFFFFFFFF00000000))
    return _without_subnormals(w, w.cast("bitcast", bits, "i64", "double"))


def _without_subnormals(w: Lanes, value: str) -> str:
    """float64 with subnormals made zeros of their sign."""
    small = w.fcmp("olt", "double", w.intrinsic("fabs", "double", value), w.constant("double", 1 << 52))
    return w.select(small, "double", w.intrinsic("copysign", "double", w.constant("double", 0), value), value)


def _upper_word(w: Lanes, i: Instruction, value: str) -> None:
    """The approximations to float64 give 20 bits: the lower word of the result is zero."""
    value = _without_subnormals(w, value)
    whole = w.bin("and", "i64", w.cast("bitcast", value, "double", "i64"), w.constant("i64", 0xFFFFFFFF00000000))
    w.define(i.results[0], w.cast("bitcast", whole, "i64", "double"), "double")


@emits("frcp64approx")
def frcp64approx(w: Lanes, i: Instruction) -> None:
    _upper_word(w, i, w.bin("fdiv", "double", w.constant("double", 0x3FF0000000000000), _upper_source(w, i)))


@emits("frsqrt64approx")
def frsqrt64approx(w: Lanes, i: Instruction) -> None:
    root = w.intrinsic("sqrt", "double", _upper_source(w, i))
    _upper_word(w, i, w.bin("fdiv", "double", w.constant("double", 0x3FF0000000000000), root))


@emits("fapprox")
def fapprox(w: Lanes, i: Instruction) -> None:
    (a,) = sources(w, i)
    value = APPROXIMATIONS[i.options["op"]](w, *wide(w, [a]))
    finish(w, i, w.op(f"fptrunc <{CHUNK} x double> {value} to <{CHUNK} x float>"))


@emits("fsign")
def fsign(w: Lanes, i: Instruction) -> None:
    """abs and neg. NaN: of float32 the canonical one; a float64's stays as it is, its sign too, and becomes quiet (an
    H200's answers: both are additions there)."""
    t = llvm(i.type)
    (a,) = sources(w, i)
    value = w.intrinsic("fabs", t, a) if i.options["op"] == "abs" else w.op(f"fneg <{CHUNK} x {t}> {a}")
    if t == "double":
        value = w.select(w.fcmp("uno", t, a, a), t, quieted(w, a), value)
    w.define(i.results[0], canonical(w, value, t), t)


def quieted(w: Lanes, value: str) -> str:
    """A float64 NaN with its quiet bit."""
    bits = w.bin("or", "i64", w.cast("bitcast", value, "double", "i64"), w.constant("i64", 1 << 51))
    return w.cast("bitcast", bits, "i64", "double")


def extreme(w: Lanes, i: Instruction, t: str, values: list[str]) -> str:
    """min or max: a number wins over a NaN (unless .NaN), and -0 lies below +0."""
    bits = {"float": "i32", "double": "i64"}[t]
    a, b = values
    if "xorsign" in i.options:  # .xorsign stands with .abs alone
        signs = w.bin("xor", bits, *(w.cast("bitcast", v, t, bits) for v in values))
        a, b = (w.intrinsic("fabs", t, v) for v in values)
    least = i.options["op"] == "min"
    first = w.fcmp("olt" if least else "ogt", t, a, b)
    value = w.select(first, t, a, b)
    equal = w.fcmp("oeq", t, a, b)
    both = w.bin("or" if least else "and", bits, w.cast("bitcast", a, t, bits), w.cast("bitcast", b, t, bits))
    value = w.select(equal, t, w.cast("bitcast", both, bits, t), value)
    a_nan, b_nan = w.fcmp("uno", t, a, a), w.fcmp("uno", t, b, b)
    value = w.select(b_nan, t, a, w.select(a_nan, t, b, value))
    if "NaN" in i.options:
        nan = w.constant(t, 0x7FFFFFFF)
        value = w.select(w.bin("or", "i1", a_nan, b_nan), t, nan, value)
    if "xorsign" in i.options:
        sign = w.bin("and", bits, signs, w.constant(bits, 1 << (int(bits[1:]) - 1)))
        value = w.cast("bitcast", w.bin("or", bits, w.cast("bitcast", value, t, bits), sign), bits, t)
    return value


@emits("fminmax")
def fminmax(w: Lanes, i: Instruction) -> None:
    finish(w, i, extreme(w, i, llvm(i.type), sources(w, i)))


@emits("testp")
def testp(w: Lanes, i: Instruction) -> None:
    t = llvm(i.type)
    a, infinity = w.intrinsic("fabs", t, w.source(i.sources[0], t)), 0x7F800000 if t == "float" else 0x7FF << 52
    least = w.constant(t, 0x00800000 if t == "float" else 1 << 52)
    limit, zero = w.constant(t, infinity), w.constant(t, 0)
    subnormal = w.bin("and", "i1", w.fcmp("ogt", t, a, zero), w.fcmp("olt", t, a, least))
    match i.options["op"]:
        case "finite":
            value = w.fcmp("olt", t, a, limit)
        case "infinite":
            value = w.fcmp("oeq", t, a, limit)
        case "number":
            value = w.fcmp("ord", t, a, a)
        case "notanumber":
            value = w.fcmp("uno", t, a, a)
        case "normal":  # zeros are (PTX ISA, testp)
            value = w.bin("and", "i1", w.fcmp("olt", t, a, limit), w.bin("xor", "i1", subnormal, "splat (i1 true)"))
        case _:
            value = subnormal
    w.define(i.results[0], value, "i1")


@emits("copysign")
def copysign(w: Lanes, i: Instruction) -> None:
    """b with the sign of a."""
    t = f"i{i.type.bits}"
    a, b = (w.source(s, t) for s in i.sources)
    sign = w.constant(t, 1 << (i.type.bits - 1))
    rest = w.constant(t, (1 << (i.type.bits - 1)) - 1)
    w.define(i.results[0], w.bin("or", t, w.bin("and", t, a, sign), w.bin("and", t, b, rest)), t)
