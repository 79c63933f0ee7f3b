"""Floating point in exact rationals, rounded once; approximations within the errors that the PTX ISA states."""

import math
import struct
from fractions import Fraction
from functools import lru_cache

from exact_floats import (
    INFINITY,
    NAN,
    NOT_A_NUMBER,
    WIDTH,
    decode,
    encode,
    encode_normal,
    flushed,
    product,
    quotient,
    root,
    total,
)
from simt.conformance.rules import ANY, ONE, rule


@lru_cache(maxsize=200_000)
def number(raw, kind):
    """(sign, magnitude)."""
    return decode(raw, kind)


def is_nan(raw, kind):
    return number(raw, kind)[1] == NOT_A_NUMBER


def a_nan(kind):
    """The canonical NaN; of .f64 (and where `kind` is told to be free) any."""
    return NAN[kind] if kind in NAN else lambda answer: is_nan(answer, kind)


def any_nan(kind):
    return lambda answer: is_nan(answer, kind)


def rounded(signed_value, kind, mode="rn", ftz=False):
    raw = (encode_normal if ftz else encode)(*signed_value, kind, mode)
    return raw if raw is not None else a_nan(kind)


def saturated(raw, kind):
    """To [0, 1]; NaN to +0. What is -0 may stay (the ISA does not say)."""
    if callable(raw) or is_nan(raw, kind):
        return 0
    sign, size = number(raw, kind)
    if size == 0:
        return (lambda answer: answer in {0, raw}) if sign else 0
    return 0 if sign else ONE[kind] if size == INFINITY or size > 1 else raw


def relu(raw, kind):
    """Negative numbers to 0, NaN to the canonical one; the ISA does not speak of -0."""
    if callable(raw) or is_nan(raw, kind):
        return a_nan(kind)
    sign, size = number(raw, kind)
    if sign and size == 0:
        return lambda answer: answer in {0, raw}
    return 0 if sign else raw


def flush(raw, kind):
    return raw if callable(raw) else flushed(raw, kind)


def arithmetic(kind, options, compute):
    """With .ftz (inputs and result), .sat and .relu about it."""
    ftz = "ftz" in options and kind in {"f32", "f16"}

    def run(*raw):
        out = compute(*(flush(r, kind) for r in raw) if ftz else raw)
        out = flush(out, kind) if ftz else out
        if "sat" in options:
            return (saturated(out, kind),)
        return (relu(out, kind) if "relu" in options else out,)

    return run


def negated(raw, kind):
    return raw ^ 1 << (WIDTH[kind] - 1)


def operation(kind, op, mode, ftz):
    """add, sub, mul, fma and mad (which is fma from sm_20 on)."""
    match op:
        case "add":
            return lambda a, b: rounded(total([number(a, kind), number(b, kind)], mode), kind, mode, ftz)
        case "sub":
            return lambda a, b: rounded(total([number(a, kind), number(negated(b, kind), kind)], mode), kind, mode, ftz)
        case "mul":
            return lambda a, b: rounded(product(number(a, kind), number(b, kind)), kind, mode, ftz)
    return lambda a, b, c: rounded(
        total([product(number(a, kind), number(b, kind)), number(c, kind)], mode), kind, mode, ftz
    )


def on_halves(kind, make):
    """A rule for one half, used on both of a pair."""
    if not kind.endswith("x2"):
        return make(kind)
    one = make(kind.removesuffix("x2"))

    def both(*raw):
        (low,), (high,) = one(*(r & 0xFFFF for r in raw)), one(*(r >> 16 for r in raw))
        if callable(low) or callable(high):

            def fits(answer):
                pair = ((low, answer & 0xFFFF), (high, answer >> 16))
                return all(want(got) if callable(want) else want == got for want, got in pair)

            return (fits,)
        return (low | high << 16,)

    return both


@rule("farith", "ffma", "harith")
def _arithmetic(types, options, trial):
    mode = options.get("rounding", "rn")
    ftz = "ftz" in options
    return on_halves(types[-1], lambda kind: arithmetic(kind, options, operation(kind, options["op"], mode, ftz)))


def near(kind, exact, relative=0.0, absolute=0.0, ulps=0.0):
    """Within an error of a finite exact value; beyond the format's ends, or below them, what rounds there will do."""
    precision, most = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}[kind]
    exact = Fraction(exact)
    error = abs(exact) * Fraction(relative) + Fraction(absolute)
    if ulps:
        at = max(1 - most, (abs(exact).numerator.bit_length() - abs(exact).denominator.bit_length()) if exact else 0)
        error += Fraction(ulps) * Fraction(2) ** (at - precision + 1)
    biggest = Fraction(2) ** (most + 1) - Fraction(2) ** (most - precision)
    least, normal = Fraction(2) ** (2 - most - precision), Fraction(2) ** (1 - most)

    def fits(answer):
        sign, size = number(answer, kind)
        if size == NOT_A_NUMBER:
            return False
        if size == INFINITY:
            return abs(exact) + error >= biggest and sign == (exact < 0)
        # Among subnormals an H200 cuts: ex2.approx.f16 of -20.7 is 9 units, not 9.6 rounded.
        return abs((-size if sign else size) - exact) <= error + (least if abs(exact) < normal else 0)

    return fits


def or_flushed(fits, exact, kind):
    """With .ftz a result below the normal numbers is a zero."""
    least = Fraction(2) ** {"f32": -126, "f16": -14, "f64": -1022, "bf16": -126}[kind]
    if abs(exact) >= least * (1 + Fraction(1, 1 << 20)):
        return fits
    zero = (0, 1 << (WIDTH[kind] - 1))
    return (
        (lambda answer: answer in zero)
        if abs(exact) < least * (1 - Fraction(1, 1 << 20))
        else (lambda answer: answer in zero or fits(answer))
    )


def signed_fraction(raw, kind):
    sign, size = number(raw, kind)
    return -size if sign else size


@rule("fdiv", "frcp")
def _division_of_floats(types, options, trial):
    """.approx: 2 ulp for |b| in [2^-126, 2^126], beyond it a zero (or NaN of infinity); .full: 2 ulp; rcp.approx: 1."""
    kind, mode, ftz = types[-1], options["rounding"], "ftz" in options
    inverse = trial.opcode.startswith("rcp")

    def divide(a, b=None):
        x, y = (ONE[kind], a) if inverse else (a, b)
        if ftz:
            x, y = flushed(x, kind), flushed(y, kind)
        exact = quotient(number(x, kind), number(y, kind))
        if mode not in {"approx", "full"}:
            out = rounded(exact, kind, mode, ftz)
            return (flush(out, kind) if ftz else out,)
        divisor = number(y, kind)[1]
        if mode == "approx" and not inverse and divisor not in (INFINITY, NOT_A_NUMBER):
            if 0 < divisor < Fraction(2) ** -126:
                return (ANY,)
            if divisor > Fraction(2) ** 126:
                if number(x, kind)[1] in (INFINITY, NOT_A_NUMBER):
                    return (any_nan(kind),)
                return ((number(x, kind)[0] ^ number(y, kind)[0]) << 31,)
        if exact[1] in (INFINITY, NOT_A_NUMBER, 0):
            out = encode(*exact, kind)
            return (out if exact[1] != NOT_A_NUMBER else any_nan(kind),)
        true = -exact[1] if exact[0] else exact[1]
        fits = near(kind, true, ulps=1 if inverse else 2)
        return (or_flushed(fits, true, kind) if ftz else fits,)

    return divide


@rule("fsqrt")
def _root(types, options, trial):
    """.approx: a relative error of 2^-23."""
    kind, mode, ftz = types[-1], options["rounding"], "ftz" in options

    def take(a):
        a = flushed(a, kind) if ftz else a
        sign, size = number(a, kind)
        if mode != "approx" or sign or size in (INFINITY, NOT_A_NUMBER, 0):
            out = root(number(a, kind), kind, "rn" if mode == "approx" else mode)
            return (out if out is not None and not (mode == "approx" and is_nan(out, kind)) else any_nan(kind),)
        exact = number(root((0, size), "f64", "rn"), "f64")[1]
        return (near(kind, exact, relative=2.0**-23),)

    return take


@rule("frsqrt", "frsqrt64approx")
def _inverse_root(types, options, trial):
    """f32: a relative error of 2^-22.9. f64: 2 ulp; .ftz.f64: of 2^-19, the lower 32 bits zero.

    The ISA says of the last that it looks at 20 bits of the fraction and gives 20.
    """
    kind = types[-1]
    ftz = ".ftz" in trial.opcode
    upper = ftz and kind == "f64"
    bound = 2.0**-19 if upper else 2.0**-22.9 if kind == "f32" else 2.0**-51

    def take(a):
        a = flushed(a, kind) if ftz else a
        sign, size = number(a, kind)
        if size == 0:
            return (encode(sign, INFINITY, kind),)
        if size == NOT_A_NUMBER or sign:
            return (any_nan(kind),)
        if size == INFINITY:
            return (0,)

        def fits(answer):
            got = number(answer, kind)[1]
            good = got not in (INFINITY, NOT_A_NUMBER) and abs(got * got * size - 1) <= 2 * Fraction(bound)
            return good and not (upper and answer & 0xFFFFFFFF) and answer >> (WIDTH[kind] - 1) == 0

        return (fits,)

    return take


@rule("frcp64approx")
def _coarse_inverse(types, options, trial):
    """ "Computes a coarse approximation … the lower 32 bits are zero"; subnormals are flushed."""

    def take(a):
        sign, size = number(flushed(a, "f64"), "f64")
        if size == NOT_A_NUMBER:
            return (any_nan("f64"),)
        if size in (0, INFINITY):
            return (encode(sign, INFINITY if size == 0 else Fraction(0), "f64"),)
        exact = (-1 if sign else 1) / size
        fits = near("f64", exact, relative=2.0**-19)
        return (or_flushed(lambda r: fits(r) and not r & 0xFFFFFFFF, exact, "f64"),)

    return take


def as_float(raw, kind):
    """Any format as Python's float, exactly."""
    if kind == "f64":
        return struct.unpack("<d", raw.to_bytes(8, "little"))[0]
    sign, size = number(raw, kind)
    if size == NOT_A_NUMBER:
        return math.nan
    return (-1.0 if sign else 1.0) * (math.inf if size == INFINITY else float(size))


def approximate(kind, op):
    """Special values, and the errors that the PTX ISA states for each."""
    half = kind in {"f16", "bf16"}

    def take(raw):
        x = as_float(raw, kind)
        if math.isnan(x) or (op in {"sin", "cos"} and math.isinf(x)) or (op == "lg2" and x < 0):
            return any_nan(kind)
        if op == "ex2":
            if math.isinf(x):
                return encode(0, INFINITY if x > 0 else Fraction(0), kind)
            exact = Fraction(2.0 ** max(-1000.0, min(1000.0, x)))
            return near(kind, exact, relative={"f16": 2.0**-9.9, "bf16": 2.0**-7}.get(kind, 0), ulps=0 if half else 2)
        if op == "lg2":
            if x in (0, math.inf):
                return encode(int(x == 0), INFINITY, kind)
            exact = math.log2(x)
            return near(kind, exact, absolute=2.0**-22) if 0.5 < x < 2 else near(kind, exact, relative=2.0**-22)
        if op == "tanh":
            exact = 0.0 if x == 0 else math.tanh(x)
            if half:
                return near(kind, exact, absolute=2.0**-10.987 if kind == "f16" else 2.0**-8)
            return near(kind, exact, relative=2.0**-11)
        if abs(x) > 100 * math.pi:
            return lambda answer: as_float(answer, kind) >= -1 and as_float(answer, kind) <= 1
        exact = math.sin(x) if op == "sin" else math.cos(x)
        return near(kind, exact, absolute=2.0**-20.5 if abs(x) <= 2 * math.pi else 2.0**-14.7)

    return take


@rule("fapprox", "happrox")
def _approximation(types, options, trial):
    def one(kind):
        take, ftz = approximate(kind, options["op"]), "ftz" in options

        def run(raw):
            if not ftz:
                return (take(raw),)
            fits = take(flushed(raw, kind))
            if not callable(fits):
                return (fits,)
            if options["op"] == "ex2" and as_float(raw, kind) < {"f16": -13.9}.get(kind, -125.9):
                return (lambda r: flushed(r, kind) == r and (r == 0 or fits(r)),)
            return (fits,)

        return run

    return on_halves(types[-1], one)


@rule("fsign", "hsign")
def _signs(types, options, trial):
    """abs, neg: "NaN inputs yield an unspecified NaN"."""

    def one(kind):
        top, ftz = 1 << (WIDTH[kind] - 1), "ftz" in options

        def run(raw):
            if is_nan(raw, kind):
                return (any_nan(kind),)
            raw = flushed(raw, kind) if ftz else raw
            return (raw & ~top if options["op"] == "abs" else raw ^ top,)

        return run

    return on_halves(types[-1], one)


@rule("fminmax", "hminmax")
def _float_extremes(types, options, trial):
    """ "If one input is NaN, the other"; with .NaN the canonical NaN; +0 above -0; .xorsign.abs: |a|, |b|, and the
    sign is the exclusive or of both unless the result is NaN."""

    def one(kind):
        top, ftz, least = 1 << (WIDTH[kind] - 1), "ftz" in options, options["op"] == "min"

        def run(a, b):
            if ftz:
                a, b = flushed(a, kind), flushed(b, kind)
            sign = (a ^ b) & top
            if "xabs" in options:
                a, b = a & ~top, b & ~top
            nans = is_nan(a, kind), is_nan(b, kind)
            if all(nans) or (any(nans) and "NaN" in options):
                return (a_nan(kind),)
            if any(nans):
                out = b if nans[0] else a
            else:
                order = sorted((a, b), key=lambda r: key(r, kind))
                out = order[0] if least else order[1]
            return (out & ~top | sign if "xorsign" in options else out,)

        return run

    return on_halves(types[-1], one)


@lru_cache(maxsize=200_000)
def key(raw, kind):
    """Order of the numbers of a format: its bits, with the negative ones turned about."""
    top = 1 << (WIDTH[kind] - 1)
    return -(raw & ~top) - 1 if raw & top else raw


@rule("testp")
def _testp(types, options, trial):
    kind = types[-1]
    least = Fraction(2) ** {"f32": -126, "f64": -1022}[kind]

    def test(raw):
        _, size = number(raw, kind)
        nan, infinite = size == NOT_A_NUMBER, size == INFINITY
        finite = not nan and not infinite
        return (
            int({
                "finite": finite, "infinite": infinite, "number": not nan, "notanumber": nan,
                "normal": finite and (size >= least or size == 0), "subnormal": finite and 0 < size < least,
            }[options["op"]]),
        )  # fmt: skip

    return test


@rule("copysign")
def _copysign(types, options, trial):
    top = 1 << (WIDTH[types[-1]] - 1)
    return lambda a, b: (a & top | b & ~top,)
