"""Floating point by definition: exact rational arithmetic, then one rounding (IEEE 754-2019, 4.3)."""

from fractions import Fraction
from math import isqrt

FORMATS = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}
"""Bits of the significand, greatest exponent."""
WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
"""The GPU's canonical NaN; float64's is not fixed by the PTX ISA."""
INFINITY, NOT_A_NUMBER = "inf", "nan"


def decode(bits, format):
    """(sign, value): the value a Fraction, INFINITY or NOT_A_NUMBER."""
    precision, most = FORMATS[format]
    fraction_bits = precision - 1
    sign = bits >> (WIDTH[format] - 1)
    exponent = bits >> fraction_bits & (2 * most + 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    if exponent == 2 * most + 1:
        return sign, NOT_A_NUMBER if fraction else INFINITY
    if exponent == 0:
        return sign, Fraction(fraction) * Fraction(2) ** (1 - most - fraction_bits)
    return sign, Fraction(fraction | 1 << fraction_bits) * Fraction(2) ** (exponent - most - fraction_bits)


def encode(sign, value, format, mode="rn", sticky=False):
    """Bits of a magnitude, rounded. `sticky`: the exact value is a little greater than `value`."""
    precision, most = FORMATS[format]
    top = sign << (WIDTH[format] - 1)
    infinity = (2 * most + 1) << (precision - 1)
    if value == NOT_A_NUMBER:
        return NAN.get(format)
    if value == INFINITY:
        return top | infinity
    if value == 0 and not sticky:
        return top
    exponent = 1 - most
    if value:
        exponent = max(exponent, value.numerator.bit_length() - value.denominator.bit_length() - 1)
        while value >= Fraction(2) ** (exponent + 1):
            exponent += 1
    unit = Fraction(2) ** (exponent - precision + 1)
    whole, rest = divmod(value / unit, 1)
    up = rounds_up(int(whole), Fraction(rest), sticky, sign, mode)
    whole = int(whole) + up
    bits = whole + ((exponent + most - 1) << (precision - 1))
    return top | min(bits, infinity) if not overflow_stays(sign, mode) or bits < infinity else top | infinity - 1


def encode_normal(sign, value, format, mode="rn", sticky=False):
    """As `encode`, with .ftz: rounded as if exponents had no end, a result below the least normal number is zero (so an
    H200 does; the PTX ISA says "flushes subnormal results", which leaves open when one is subnormal)."""
    if value not in (INFINITY, NOT_A_NUMBER, 0):
        _, most = FORMATS[format]
        lifted = encode(sign, value * 2**most, format, mode, sticky)  # out of the subnormals' reach
        if value < 1 and decode(lifted, format)[1] < 2:
            return sign << (WIDTH[format] - 1)
    return encode(sign, value, format, mode, sticky)


def rounds_up(whole, rest, sticky, sign, mode):
    if rest == 0 and not sticky:
        return 0
    if mode == "rz":
        return 0
    if mode in {"rm", "rp"}:
        return int((mode == "rm") == bool(sign))
    half = Fraction(1, 2)
    if mode == "rna":
        return int(rest >= half)
    return int(rest > half or (rest == half and (sticky or whole & 1)))


def overflow_stays(sign, mode):
    """Whether an overflow gives the greatest number instead of infinity."""
    return mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and bool(sign))


def total(terms, mode):
    """The sum of signed exact terms as (sign, magnitude); an exact zero has the sign that IEEE 754 gives it (6.3)."""
    if any(v == NOT_A_NUMBER for _, v in terms):
        return 0, NOT_A_NUMBER
    infinite = {s for s, v in terms if v == INFINITY}
    if infinite:
        return (0, NOT_A_NUMBER) if len(infinite) > 1 else (infinite.pop(), INFINITY)
    value = sum((-v if s else v) for s, v in terms)
    if value == 0:
        signs = {s for s, _ in terms}
        nothing = all(v == 0 for _, v in terms)
        return (signs.pop() if nothing and len(signs) == 1 else int(mode == "rm")), Fraction(0)
    return int(value < 0), abs(value)


def product(a, b):
    sign = a[0] ^ b[0]
    values = {a[1], b[1]} if NOT_A_NUMBER not in (a[1], b[1]) else {NOT_A_NUMBER}
    if NOT_A_NUMBER in values or (INFINITY in values and Fraction(0) in values):
        return 0, NOT_A_NUMBER
    return (sign, INFINITY) if INFINITY in values else (sign, a[1] * b[1])


def quotient(a, b):
    sign = a[0] ^ b[0]
    if NOT_A_NUMBER in (a[1], b[1]) or (a[1] == b[1] and a[1] in (INFINITY, Fraction(0))):
        return 0, NOT_A_NUMBER
    if a[1] == INFINITY or b[1] == 0:
        return sign, INFINITY
    return (sign, Fraction(0)) if b[1] == INFINITY else (sign, a[1] / b[1])


def root(a, format, mode):
    """Bits of a square root: enough bits of it, and whether more follow."""
    sign, value = a
    if value == 0 and value != NOT_A_NUMBER:
        return encode(sign, Fraction(0), format)
    if value == NOT_A_NUMBER or sign:
        return NAN.get(format)
    if value == INFINITY:
        return encode(0, INFINITY, format)
    scale = 2**1200  # a power of 4, so that its root is exact
    whole = value * scale * 4**64
    integer = isqrt(whole.numerator // whole.denominator)
    exact = Fraction(integer) ** 2 == whole
    return encode(0, Fraction(integer, 2**600 * 2**64), format, mode, sticky=not exact)


def flushed(bits, format="f32"):
    """A subnormal as zero of its sign."""
    precision, most = FORMATS[format]
    return bits if bits >> (precision - 1) & (2 * most + 1) else bits & 1 << (WIDTH[format] - 1)
