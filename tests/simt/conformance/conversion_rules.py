"""Comparisons, selections, moves and conversions (PTX ISA, their sections)."""

import math
from fractions import Fraction

from exact_floats import (
    INFINITY,
    NOT_A_NUMBER,
    WIDTH,
    flushed,
)
from simt.conformance.float_rules import any_nan, is_nan, key, number, relu, rounded, saturated
from simt.conformance.rules import ONE, bits_of, clamp, cut, limits, rule, value


def order(a, b, kind):
    """-1, 0, 1, or None where there is none."""
    if kind not in WIDTH:
        x, y = value(a, kind), value(b, kind)
    elif is_nan(a, kind) or is_nan(b, kind):
        return None
    else:
        top = (1 << (WIDTH[kind] - 1)) - 1
        x, y = (key(r, kind) if r & top else 0 for r in (a, b))
    return (x > y) - (x < y)


HOLDS = {
    "eq": {0}, "ne": {-1, 1}, "lt": {-1}, "le": {-1, 0}, "gt": {1}, "ge": {0, 1}, "lo": {-1}, "ls": {-1, 0},
    "hi": {1}, "hs": {0, 1}, "equ": {0, None}, "neu": {-1, 1, None}, "ltu": {-1, None}, "leu": {-1, 0, None},
    "gtu": {1, None}, "geu": {0, 1, None}, "num": {-1, 0, 1}, "nan": {None},
}  # fmt: skip


def comparison(kind, options):
    holds, ftz = HOLDS[options["compare"]], "ftz" in options and kind in {"f32", "f16"}

    def compare(a, b):
        if ftz:
            a, b = flushed(a, kind), flushed(b, kind)
        return order(a, b, kind) in holds

    return compare


def boolean(options, result, other):
    match options.get("boolean") if other is not None else None:
        case "and":
            return bool(result and other)
        case "or":
            return bool(result or other)
        case "xor":
            return bool(result) != bool(other)
    return bool(result)


@rule("setp")
def _setp(types, options, trial):
    kind = types[-1]
    if kind.endswith("x2"):
        compare = comparison(kind.removesuffix("x2"), options)
        return lambda a, b, c=None: (
            int(boolean(options, compare(a & 0xFFFF, b & 0xFFFF), c)),
            int(boolean(options, compare(a >> 16, b >> 16), c)),
        )
    compare = comparison(kind, options)
    if trial.variant == "two results":  # the third operand stands negated

        def both(a, b, c):
            result = compare(a, b)
            return int(boolean(options, result, not c)), int(boolean(options, not result, not c))

        return both
    return lambda a, b, c=None: (int(boolean(options, compare(a, b), c)),)


def true_of(kind):
    return ONE[kind] if kind in ONE else (1 << bits_of(kind)) - 1


@rule("set")
def _set(types, options, trial):
    compare, yes = comparison(types[1], options), true_of(types[0])
    return lambda a, b, c=None: (yes if boolean(options, compare(a, b), c) else 0,)


@rule("set2")
def _set2(types, options, trial):
    compare, yes = comparison(types[1].removesuffix("x2"), options), true_of(types[0].removesuffix("x2"))

    def both(a, b, c=None):
        halves = [compare(a & 0xFFFF, b & 0xFFFF), compare(a >> 16, b >> 16)]
        return (sum(yes << 16 * n for n, h in enumerate(halves) if boolean(options, h, c)),)

    return both


@rule("selp")
def _selp(types, options, trial):
    return lambda a, b, p: (a if p else b,)


@rule("slct")
def _slct(types, options, trial):
    """a where c >= 0; -0 equals zero, NaN selects b."""
    kind = types[1]

    def select(a, b, c):
        if kind == "s32":
            return (a if value(c, "s32") >= 0 else b,)
        c = flushed(c) if "ftz" in options else c
        sign, size = number(c, "f32")
        return (a if size != NOT_A_NUMBER and (not sign or size == 0) else b,)

    return select


@rule("mov")
def _mov(types, options, trial):
    if types[-1] == "b128":
        return lambda a, b: (b, a)
    return lambda a: (a,)


WHOLE = {"rni": round, "rzi": int, "rmi": math.floor, "rpi": math.ceil}


def in_register(number_, kind):
    """An integer of 8 bits fills its register of 16 by its type."""
    low = cut(number_, bits_of(kind))
    return cut(value(low, kind), max(16, bits_of(kind)))


@rule("cvt")
def _cvt(types, options, trial):
    to, source = types
    sat, ftz = "sat" in options, "ftz" in options
    mode = options.get("rounding", "")
    if to not in WIDTH and source not in WIDTH:
        return lambda a: (in_register(clamp(value(a, source), to) if sat else value(a, source), to),)
    if to not in WIDTH:
        return lambda a: (in_register(whole_number(flush_single(a, source, ftz), source, to, mode), to),)
    if source not in WIDTH:

        def from_integer(a):
            n = value(a, source)
            out = rounded((int(n < 0), Fraction(abs(n))), to, mode or "rn")
            return (saturated(out, to) if sat else out,)

        return from_integer

    def between(a):
        a = flush_single(a, source, ftz and to != "f16")  # an H200 flushes nothing there, the ISA says it would
        sign, size = number(a, source)
        if size == NOT_A_NUMBER:
            out = any_nan(to)
        elif mode in WHOLE and size != INFINITY:
            out = rounded((sign, abs(Fraction(WHOLE[mode](-size if sign else size)))), to)
        else:
            out = rounded((sign, size), to, mode or "rn", ftz and to == "f32")
        if options.get("satfinite") and not callable(out) and number(out, to)[1] == INFINITY:
            out = out - 1  # the greatest finite number
        if sat:
            out = saturated(out, to)
        elif "relu" in options:
            out = relu(out, to)
        return (flush_single(out, to, ftz),)

    return between


def flush_single(raw, kind, ftz):
    """cvt's .ftz: of float32 alone, as what goes in and what comes out."""
    return flushed(raw) if ftz and kind == "f32" and not callable(raw) else raw


def whole_number(raw, source, to, mode):
    """Out of range: the nearest end; NaN: 0 (PTX ISA, cvt), but where one side has 64 bits the least number on an
    H200."""
    sign, size = number(raw, source)
    if size == NOT_A_NUMBER:
        return 1 << bits_of(to) - 1 if 64 in {bits_of(to), WIDTH[source]} else 0
    low, high = limits(to)
    if size == INFINITY:
        return low if sign else high
    return clamp(WHOLE[mode](-size if sign else size), to)


@rule("cvt2")
def _cvt2(types, options, trial):
    """a above, b below."""
    to = types[0].removesuffix("x2")
    one = _cvt([to, "f32"], options, trial)

    def both(a, b):
        (high,), (low,) = one(a), one(b)

        def fits(answer):
            return all(
                want(got) if callable(want) else want == got
                for want, got in ((low, answer & 0xFFFF), (high, answer >> 16))
            )

        return (fits,)

    return both


@rule("cvttf32")
def _cvttf32(types, options, trial):
    """8 bits of exponent and 10 of fraction; the ISA leaves the lower 13 bits of the register open."""
    mode = options["rounding"]

    def convert(a):
        sign, size = number(a, "f32")
        if size == NOT_A_NUMBER:
            return (any_nan("f32"),)
        top = 0x7F7FE000
        out = 0x7F800000
        if size != INFINITY:
            low, rest = a & 0x7FFFE000, a & 0x1FFF
            up = {
                "rna": rest >= 0x1000,
                "rz": False,
                "rn": rest > 0x1000 or (rest == 0x1000 and bool(low & 0x2000)),
            }[mode]
            out = low + (0x2000 if up else 0)
        if out > top and options.get("satfinite"):
            out = top
        out |= sign << 31
        if "relu" in options and sign:
            return (lambda r: r >> 13 in {0, 1 << 18} if out == 0x80000000 else r >> 13 == 0,)
        return (lambda r: r >> 13 == out >> 13,)

    return convert


@rule("cvtpack")
def _pack(types, options, trial):
    to = types[0]
    return lambda a, b: (cut(clamp(value(a, "s32"), to), 16) << 16 | cut(clamp(value(b, "s32"), to), 16),)


@rule("cvtpack8")
def _pack8(types, options, trial):
    """d = c's lower half moved up, then a, then b."""
    to = types[0]
    return lambda a, b, c: (
        cut(c << 16, 32) | cut(clamp(value(a, "s32"), to), 8) << 8 | cut(clamp(value(b, "s32"), to), 8),
    )
