"""ex2, lg2, sin, cos, tanh to about 1e-10 of their value: their own polynomials, on 8 lanes of float64.

The libraries' functions would be called once a lane. Coefficients are those of the Taylor series; the ranges are
reduced so far that the first term left out is below 1e-11.
"""

import math
from collections.abc import Callable

from undertorch.simt.codegen.lanes import CHUNK, Lanes
from undertorch.simt.codegen.rounding import bits_of

D = "double"


def number(w: Lanes, value: float) -> str:
    """8 times a float64."""
    return w.constant(D, bits_of(D, value))


def polynomial(w: Lanes, x: str, coefficients: list[float]) -> str:
    """By Horner; the constant first."""
    value = number(w, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = w.intrinsic("fma", D, value, x, number(w, coefficient))
    return value


def power_of_two(w: Lanes, x: str) -> str:
    """2^x: the fraction by a series around 0, the whole part into the exponent."""
    limited = w.intrinsic("minnum", D, w.intrinsic("maxnum", D, x, number(w, -1000.0)), number(w, 1000.0))
    whole = w.intrinsic("rint", D, limited)
    fraction = w.bin("fsub", D, limited, whole)
    log2 = math.log(2.0)
    value = polynomial(w, fraction, [log2**n / math.factorial(n) for n in range(12)])
    exponent = w.op(f"fptosi <{CHUNK} x {D}> {whole} to <{CHUNK} x i32>")
    shift = w.bin("shl", "i64", w.cast("sext", exponent, "i32", "i64"), w.constant("i64", 52))
    scaled = w.bin("add", "i64", w.cast("bitcast", value, D, "i64"), shift)
    value = w.cast("bitcast", scaled, "i64", D)
    nan = w.fcmp("uno", D, x, x)
    value = w.select(nan, D, x, value)
    far = w.fcmp("ogt", D, x, number(w, 999.0))
    value = w.select(far, D, number(w, math.inf), value)
    low = w.fcmp("olt", D, x, number(w, -999.0))
    return w.select(low, D, number(w, 0.0), value)


def logarithm(w: Lanes, x: str) -> str:
    """log2 x: the exponent, and the mantissa in [0.7, 1.4) by the series of artanh."""
    bits = w.cast("bitcast", x, D, "i64")
    fraction = w.bin("and", "i64", bits, w.constant("i64", (1 << 52) - 1))
    large = w.icmp("ugt", "i64", fraction, w.constant("i64", bits_of(D, math.sqrt(2.0)) & ((1 << 52) - 1)))
    one_less = w.cast("zext", large, "i1", "i64")
    exponent = w.bin(
        "sub",
        "i64",
        w.bin("and", "i64", w.bin("lshr", "i64", bits, w.constant("i64", 52)), w.constant("i64", 0x7FF)),
        w.constant("i64", 1023),
    )
    exponent = w.bin("add", "i64", exponent, one_less)
    base = w.bin("sub", "i64", w.constant("i64", 1023), one_less)
    mantissa = w.cast(
        "bitcast", w.bin("or", "i64", fraction, w.bin("shl", "i64", base, w.constant("i64", 52))), "i64", D
    )
    one = number(w, 1.0)
    s = w.bin("fdiv", D, w.bin("fsub", D, mantissa, one), w.bin("fadd", D, mantissa, one))
    series = polynomial(w, w.bin("fmul", D, s, s), [2 / math.log(2.0) / (2 * n + 1) for n in range(9)])
    whole = w.cast("trunc", exponent, "i64", "i32")
    whole_d = w.op(f"sitofp <{CHUNK} x i32> {whole} to <{CHUNK} x {D}>")
    value = w.intrinsic("fma", D, s, series, whole_d)
    value = w.select(w.fcmp("oeq", D, x, number(w, 0.0)), D, number(w, -math.inf), value)
    value = w.select(w.fcmp("oeq", D, x, number(w, math.inf)), D, x, value)
    bad = w.bin("or", "i1", w.fcmp("uno", D, x, x), w.fcmp("olt", D, x, number(w, 0.0)))
    return w.select(bad, D, number(w, math.nan), value)


def _quadrant(w: Lanes, x: str) -> tuple[str, str]:
    """x less the nearest multiple of π/2, and which multiple that is (mod 4)."""
    turns = w.intrinsic("rint", D, w.bin("fmul", D, x, number(w, 2 / math.pi)))
    half_pi = math.pi / 2
    rest = w.intrinsic("fma", D, turns, number(w, -half_pi), x)
    rest = w.intrinsic("fma", D, turns, number(w, -6.123233995736766e-17), rest)  # π/2 less its float64
    quarter = w.intrinsic("floor", D, w.bin("fmul", D, turns, number(w, 0.25)))
    place = w.intrinsic("fma", D, quarter, number(w, -4.0), turns)
    return rest, place


def _circular(shift: float) -> Callable[[Lanes, str], str]:
    def circular(w: Lanes, x: str) -> str:
        # Where neighbouring float32 lie turns apart, the ISA states no error: taken as 0. Of infinity it is NaN.
        far = w.fcmp("oge", D, w.intrinsic("fabs", D, x), number(w, 2.0**48))
        x = w.select(far, D, w.bin("fmul", D, x, number(w, 0.0)), x)
        rest, place = _quadrant(w, x)
        square = w.bin("fmul", D, rest, rest)
        sine = w.bin("fmul", D, rest, polynomial(w, square, [(-1) ** n / math.factorial(2 * n + 1) for n in range(8)]))
        cosine = polynomial(w, square, [(-1) ** n / math.factorial(2 * n) for n in range(9)])
        place = w.bin("fadd", D, place, number(w, shift))
        is_one = w.fcmp("oeq", D, place, number(w, 1.0))
        odd = w.bin("or", "i1", is_one, w.fcmp("oeq", D, place, number(w, 3.0)))
        value = w.select(odd, D, cosine, sine)
        later = w.fcmp("oge", D, place, number(w, 2.0))
        later = w.bin("and", "i1", later, w.fcmp("olt", D, place, number(w, 4.0)))
        return w.select(later, D, w.op(f"fneg <{CHUNK} x {D}> {value}"), value)

    return circular


def hyperbolic_tangent(w: Lanes, x: str) -> str:
    """tanh: a series near 0, else from the exponential."""
    square = w.bin("fmul", D, x, x)
    near = w.bin("fmul", D, x, polynomial(w, square, [1, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925]))
    power = power_of_two(w, w.bin("fmul", D, w.intrinsic("fabs", D, x), number(w, 2 / math.log(2.0))))
    one, two = number(w, 1.0), number(w, 2.0)
    far = w.bin("fsub", D, one, w.bin("fdiv", D, two, w.bin("fadd", D, power, one)))
    far = w.intrinsic("copysign", D, far, x)
    small = w.fcmp("olt", D, square, number(w, 0.01))
    return w.select(small, D, near, far)


APPROXIMATIONS: dict[str, Callable[[Lanes, str], str]] = {
    "ex2": power_of_two,
    "lg2": logarithm,
    "sin": _circular(0.0),
    "cos": _circular(1.0),
    "tanh": hyperbolic_tangent,
}
