"""Floating point against exact rational arithmetic, rounded once."""

from fractions import Fraction

import numpy as np
import pytest

from exact_floats import (
    INFINITY,
    NAN,
    NOT_A_NUMBER,
    WIDTH,
    decode,
    encode,
    flushed,
    product,
    quotient,
    root,
    total,
)
from one_instruction import UNSIGNED, bits, execute, floats, integers, signed

MODES = ["rn", "rz", "rm", "rp"]


def is_nan(raw, format):
    return decode(raw, format)[1] == NOT_A_NUMBER


def check(instruction, formats, to, expected, count=600, inputs=None):
    """Bit for bit; a NaN has to be the canonical one, but for float64."""
    inputs = inputs or [floats(WIDTH[f], count, seed=n) for n, f in enumerate(formats)]
    got = execute(instruction, inputs, WIDTH[to])
    for row, answer in zip(zip(*(i.tolist() for i in inputs), strict=True), got.tolist(), strict=True):
        wanted = expected(*row)
        if wanted is None:
            assert is_nan(answer, to), f"{instruction} of {[hex(r) for r in row]}: {answer:#x}, no NaN"
        else:
            assert answer == wanted, f"{instruction} of {[hex(r) for r in row]}: {answer:#x}, not {wanted:#x}"


def plus(format, mode, *raw):
    terms = [decode(r, format) for r in raw]
    return encode(*total(terms, mode), format, mode)


def times(format, mode, a, b):
    return encode(*product(decode(a, format), decode(b, format)), format, mode)


def fused(format, mode, a, b, c):
    return encode(*total([product(decode(a, format), decode(b, format)), decode(c, format)], mode), format, mode)


def minus(raw, format):
    return raw ^ 1 << (WIDTH[format] - 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type", ["f32", "f64"])
def test_sums_products_and_fused_ones(type, mode):
    check(f"add.{mode}.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, lambda a, b: plus(type, mode, a, b))
    check(f"sub.{mode}.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, lambda a, b: plus(type, mode, a, minus(b, type)))
    check(f"mul.{mode}.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, lambda a, b: times(type, mode, a, b))
    check(
        f"fma.{mode}.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type] * 3, type, lambda a, b, c: fused(type, mode, a, b, c)
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type", ["f32", "f64"])
def test_quotients_and_roots(type, mode):
    one = encode(0, Fraction(1), type)

    def over(a, b):
        return encode(*quotient(decode(a, type), decode(b, type)), type, mode)

    check(f"div.{mode}.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, over)
    check(f"rcp.{mode}.{type} {{d}}, {{a}};", [type], type, lambda a: over(one, a))
    check(f"sqrt.{mode}.{type} {{d}}, {{a}};", [type], type, lambda a: root(decode(a, type), type, mode))


def test_ftz_flushes_what_goes_in_and_what_comes_out():
    def ftz(rule):
        return lambda *raw: flushed(rule(*(flushed(r) for r in raw)))

    check("add.ftz.f32 {d}, {a}, {b};", ["f32"] * 2, "f32", ftz(lambda a, b: plus("f32", "rn", a, b)))
    check("mul.ftz.f32 {d}, {a}, {b};", ["f32"] * 2, "f32", ftz(lambda a, b: times("f32", "rn", a, b)))
    check("fma.rn.ftz.f32 {d}, {a}, {b}, {c};", ["f32"] * 3, "f32", ftz(lambda a, b, c: fused("f32", "rn", a, b, c)))


def saturate(raw, format="f32"):
    sign, value = decode(raw, format) if raw is not None else (0, NOT_A_NUMBER)
    if value == NOT_A_NUMBER or sign:
        return 0
    return encode(0, Fraction(1) if value == INFINITY else min(value, Fraction(1)), format)


def test_saturation_gives_0_to_1_and_0_for_nan():
    check("add.sat.f32 {d}, {a}, {b};", ["f32"] * 2, "f32", lambda a, b: saturate(plus("f32", "rn", a, b)))
    check(
        "fma.rn.sat.f32 {d}, {a}, {b}, {c};", ["f32"] * 3, "f32", lambda a, b, c: saturate(fused("f32", "rn", a, b, c))
    )


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_halves(type):
    check(f"add.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, lambda a, b: plus(type, "rn", a, b))
    check(f"sub.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, lambda a, b: plus(type, "rn", a, minus(b, type)))
    check(f"mul.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, lambda a, b: times(type, "rn", a, b))
    check(
        f"fma.rn.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type] * 3, type, lambda a, b, c: fused(type, "rn", a, b, c), 2000
    )
    check(
        f"fma.rn.relu.{type} {{d}}, {{a}}, {{b}}, {{c}};",
        [type] * 3,
        type,
        lambda a, b, c: relu(fused(type, "rn", a, b, c)),
    )
    check(f"neg.{type} {{d}}, {{a}};", [type], type, lambda a: canonical(a ^ 0x8000, type))
    check(f"abs.{type} {{d}}, {{a}};", [type], type, lambda a: canonical(a & 0x7FFF, type))


def canonical(raw, type):
    """neg and abs are additions on an H200: of a NaN they give the canonical one (float64's keeps its payload)."""
    return NAN.get(type) if is_nan(raw, type) else raw


def relu(raw):
    return 0 if raw >> 15 else raw


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_two_halves_at_once(type):
    inputs = [floats(16, 800, seed=n).view(np.uint32) for n in range(3)]

    def both(rule):
        return lambda *raw: rule(*(r & 0xFFFF for r in raw)) | rule(*(r >> 16 for r in raw)) << 16

    for text, rule, operands in (
        ("add.{}x2 {{d}}, {{a}}, {{b}};", lambda a, b: plus(type, "rn", a, b), 2),
        ("mul.{}x2 {{d}}, {{a}}, {{b}};", lambda a, b: times(type, "rn", a, b), 2),
        ("fma.rn.{}x2 {{d}}, {{a}}, {{b}}, {{c}};", lambda a, b, c: fused(type, "rn", a, b, c), 3),
    ):
        got = execute(text.format(type), inputs[:operands], 32)
        wanted = [both(rule)(*row) for row in zip(*(i.tolist() for i in inputs[:operands]), strict=True)]
        assert got.tolist() == wanted


def least(format, a, b, *, nan=False, greatest=False):
    """A number wins over a NaN, unless nan; -0 is less than +0."""
    x, y = (is_nan(r, format) for r in (a, b))
    if ((x or y) and nan) or (x and y):
        return NAN.get(format)
    if x or y:
        return b if x else a

    def key(raw):
        sign, value = decode(raw, format)
        value = Fraction(2) ** 2000 if value == INFINITY else value
        return (-value if sign else value, -sign)

    return (max if greatest else min)((a, b), key=key)


@pytest.mark.parametrize("type", ["f32", "f64", "f16", "bf16"])
def test_min_and_max(type):
    for word, greatest in (("min", False), ("max", True)):
        check(
            f"{word}.{type} {{d}}, {{a}}, {{b}};",
            [type] * 2,
            type,
            lambda a, b, g=greatest: least(type, a, b, greatest=g),
        )
        if type != "f64":
            check(
                f"{word}.NaN.{type} {{d}}, {{a}}, {{b}};",
                [type] * 2,
                type,
                lambda a, b, g=greatest: least(type, a, b, nan=True, greatest=g),
            )


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_signs_and_classes(type):
    top = 1 << (WIDTH[type] - 1)
    check(f"neg.{type} {{d}}, {{a}};", [type], type, lambda a: canonical(a ^ top, type))
    check(f"abs.{type} {{d}}, {{a}};", [type], type, lambda a: canonical(a & ~top, type))
    check(f"copysign.{type} {{d}}, {{a}}, {{b}};", [type] * 2, type, lambda a, b: a & top | b & ~top)
    raw = floats(WIDTH[type])
    values = raw.view({"f32": np.float32, "f64": np.float64}[type])
    tiny = np.finfo(values.dtype).tiny
    with np.errstate(invalid="ignore"):
        classes = {
            "finite": np.isfinite(values), "infinite": np.isinf(values), "number": ~np.isnan(values),
            "notanumber": np.isnan(values), "normal": np.isfinite(values) & ((np.abs(values) >= tiny) | (values == 0)),
            "subnormal": (np.abs(values) < tiny) & (values != 0),
        }  # fmt: skip
    for word, wanted in classes.items():
        assert np.array_equal(execute(f"testp.{word}.{type} {{d}}, {{a}};", [raw], 1), wanted), word


@pytest.mark.parametrize("type", ["f32", "f64", "f16", "bf16"])
def test_comparisons(type):
    a, b = floats(WIDTH[type], seed=1), floats(WIDTH[type], seed=2)
    b[::5] = a[::5]

    def order(x, y):
        """-1, 0, 1, or None where they have none."""
        if is_nan(x, type) or is_nan(y, type):
            return None
        x, y = (
            (-1 if s else 1) * (Fraction(2) ** 2000 if v == INFINITY else v)
            for s, v in (decode(x, type), decode(y, type))
        )
        return (x > y) - (x < y)

    orders = [order(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    rules = {
        "eq": {0},
        "ne": {-1, 1},
        "lt": {-1},
        "le": {-1, 0},
        "gt": {1},
        "ge": {0, 1},
        "num": {-1, 0, 1},
        "nan": set(),
    }
    for word, holds in rules.items():
        got = execute(f"setp.{word}.{type} {{d}}, {{a}}, {{b}};", [a, b], 1)
        assert got.tolist() == [int(o in holds or (word == "nan" and o is None)) for o in orders], word
        if word not in {"num", "nan"}:
            got = execute(f"setp.{word}u.{type} {{d}}, {{a}}, {{b}};", [a, b], 1)
            assert got.tolist() == [int(o in holds or o is None) for o in orders], word


FLOATS = ["f16", "bf16", "f32", "f64"]


def conversions():
    for source in FLOATS:
        for to in FLOATS:
            if source == to or {source, to} == {"f16", "bf16"} or ("f64" in {source, to} and "bf16" in {source, to}):
                continue
            wider = WIDTH[to] > WIDTH[source]
            for mode in [""] if wider else MODES:
                yield pytest.param(to, source, mode, id=f"{to} from {source} {mode}")


@pytest.mark.parametrize(("to", "source", "mode"), list(conversions()))
def test_float_conversions(to, source, mode):
    """A float64's NaN keeps as much of its payload as there is room for, on an H200: any will do here."""

    def convert(a):
        if source == "f64" and is_nan(a, source):
            return None
        return encode(*decode(a, source), to, mode or "rn")

    word = f".{mode}" if mode else ""
    check(f"cvt{word}.{to}.{source} {{d}}, {{a}};", [source], to, convert, 3000)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("to", ["f16", "f32", "f64"])
def test_integers_become_floats(to, source, mode):
    width = int(source[1:])

    def convert(raw):
        value = signed(raw, width) if source[0] == "s" else raw
        return encode(int(value < 0), Fraction(abs(value)), to, mode)

    check(f"cvt.{mode}.{to}.{source} {{d}}, {{a}};", [source], to, convert, inputs=[integers(width)])


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_floats_become_integers(to, source, mode):
    """Out of range they saturate. NaN becomes 0 (PTX ISA, cvt), on an H200 the sign's bit where a type has 64 bits."""
    width = int(to[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    raw = floats(WIDTH[source], 1500)
    got = execute(f"cvt.{mode}.{to}.{source} {{d}}, {{a}};", [raw], width)
    for a, answer in zip(raw.tolist(), got.tolist(), strict=True):
        sign, value = decode(a, source)
        if value == NOT_A_NUMBER:
            wanted = 1 << width - 1 if 64 in {width, WIDTH[source]} else 0
        elif value == INFINITY:
            wanted = low if sign else high
        else:
            value = -value if sign else value
            whole = {"rni": round(value), "rzi": int(value), "rmi": value // 1, "rpi": -(-value // 1)}[mode]
            wanted = max(low, min(high, int(whole)))
        assert answer == bits(wanted, width), f"{a:#x}: {answer:#x}, not {wanted}"


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_floats_become_whole(type):
    for mode, rule in {"rni": round, "rzi": int, "rmi": lambda v: v // 1, "rpi": lambda v: -(-v // 1)}.items():

        def whole(a, rule=rule):
            sign, value = decode(a, type)
            if value in (NOT_A_NUMBER, INFINITY):
                return encode(sign, value, type)
            return encode(sign, abs(Fraction(rule(-value if sign else value))), type)

        check(f"cvt.{mode}.{type}.{type} {{d}}, {{a}};", [type], type, whole)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_two_floats_become_a_pair(kind):
    a, b = floats(32, 2000, 1), floats(32, 2000, 2)
    got = execute(f"cvt.rn.{kind}x2.f32 {{d}}, {{a}}, {{b}};", [a, b], 32)
    wanted = [
        encode(*decode(x, "f32"), kind) << 16 | encode(*decode(y, "f32"), kind)
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert got.tolist() == wanted


def test_tf32_keeps_ten_bits_of_fraction():
    """rna: halves away from zero. A tf32 is a float32 whose last 13 bits are not looked at; they come out as zeros."""
    raw = floats(32, 2000)

    def rounded(a):
        sign, value = decode(a, "f32")
        if value == NOT_A_NUMBER:
            return a & 0xFFFFE000  # as an H200 does
        if value == INFINITY:
            return encode(sign, value, "f32")
        return (a & 0x7FFFE000) + (0x2000 if a & 0x1000 else 0) | sign << 31

    check("cvt.rna.tf32.f32 {d}, {a};", ["f32"], "f32", rounded, inputs=[raw])


APPROXIMATE = {
    "ex2": (np.exp2, 2 * 2.0**-23),
    "lg2": (np.log2, None),
    "sin": (np.sin, None),
    "cos": (np.cos, None),
    "tanh": (np.tanh, 2.0**-11),
    "rcp": (lambda x: 1 / x, 2.0**-23),
    "sqrt": (np.sqrt, 2.0**-23),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2.0**-22.9),
}
"""Greatest relative errors that the PTX ISA states; None: an absolute one of 2⁻²⁰·⁵, in the range it is stated for."""


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximations_keep_to_the_stated_error(name):
    exact, relative = APPROXIMATE[name]
    rng = np.random.default_rng(5)
    x = rng.uniform(-3, 3, 2000).astype(np.float32)
    if name in {"lg2", "sqrt", "rsqrt"}:
        x = np.abs(x) + np.float32(1e-3)
    got = execute(f"{name}.approx.f32 {{d}}, {{a}};", [x.view(np.uint32)], 32).view(np.float32).astype(np.float64)
    wanted = exact(x.astype(np.float64))
    bound = 2.0**-20.5 if relative is None else relative * np.abs(wanted)
    assert np.all(np.abs(got - wanted) <= bound)


INF = np.inf
CORNERS = {
    "ex2": [(-INF, 0), (0, 1), (INF, INF), (200, INF), (-200, 0)],
    "lg2": [(-1, np.nan), (0, -INF), (INF, INF), (1, 0)],
    "sin": [(INF, np.nan), (0, 0)],
    "cos": [(INF, np.nan), (0, 1)],
    "tanh": [(INF, 1), (-INF, -1), (0, 0)],
    "rcp": [(INF, 0), (0, INF), (-0.0, -INF)],
    "sqrt": [(-1, np.nan), (INF, INF), (0, 0)],
    "rsqrt": [(-1, np.nan), (INF, 0), (0, INF), (-0.0, -INF)],
}
"""Of the tables of special values in the PTX ISA."""


@pytest.mark.parametrize("name", CORNERS)
def test_approximations_at_special_values(name):
    x, wanted = np.array([*CORNERS[name], (np.nan, np.nan)], np.float32).T
    got = execute(f"{name}.approx.f32 {{d}}, {{a}};", [np.ascontiguousarray(x).view(np.uint32)], 32).view(np.float32)
    assert np.array_equal(got, wanted, equal_nan=True)


def test_every_width_has_a_type():
    assert {8, 16, 32, 64} == UNSIGNED.keys()
