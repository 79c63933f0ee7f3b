"""Integer instructions against their definitions in the PTX ISA, on Python's integers."""

import numpy as np
import pytest

from one_instruction import bits, execute, integers, signed
from undertorch.simt import Unsupported


def value(raw, type):
    """What a register holds as a type says."""
    width = int(type[1:])
    return signed(bits(raw, width), width) if type[0] == "s" else bits(raw, width)


def check(instruction, types, result_bits, expected, widths=None):
    """Runs it on seeded operands of the types and compares bit for bit."""
    widths = widths or [int(t[1:]) for t in types]
    inputs = [integers(width, seed=n) for n, width in enumerate(widths)]
    got = execute(instruction, inputs, result_bits)
    for row, answer in zip(zip(*(i.tolist() for i in inputs), strict=True), got.tolist(), strict=True):
        wanted = bits(expected(*(value(raw, t) for raw, t in zip(row, types, strict=True))), result_bits)
        assert answer == wanted, f"{instruction} of {[hex(r) for r in row]}: {answer:#x}, not {wanted:#x}"


INTS = ["u16", "s16", "u32", "s32", "u64", "s64"]
WORDS = ["u32", "s32", "u64", "s64"]


def quotient(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("type", INTS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, type):
    check(f"{name}.{type} {{d}}, {{a}}, {{b}};", [type, type], int(type[1:]), BINARY[name])


@pytest.mark.parametrize("type", INTS)
def test_mul_hi_and_mad(type):
    width = int(type[1:])
    check(f"mul.hi.{type} {{d}}, {{a}}, {{b}};", [type, type], width, lambda a, b: a * b >> width)
    check(f"mad.lo.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type] * 3, width, lambda a, b, c: a * b + c)
    check(f"mad.hi.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type] * 3, width, lambda a, b, c: (a * b >> width) + c)
    check(f"sad.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type] * 3, width, lambda a, b, c: c + abs(a - b))


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32"])
def test_wide_products(type):
    width = int(type[1:])
    check(f"mul.wide.{type} {{d}}, {{a}}, {{b}};", [type, type], 2 * width, lambda a, b: a * b)
    wide = f"{type[0]}{2 * width}"
    check(f"mad.wide.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type, type, wide], 2 * width, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("type", INTS)
def test_division_truncates(type):
    """By 0, which PTX leaves open, an H200 gives all ones."""
    check(f"div.{type} {{d}}, {{a}}, {{b}};", [type, type], int(type[1:]), lambda a, b: quotient(a, b) if b else -1)
    check(
        f"rem.{type} {{d}}, {{a}}, {{b}};",
        [type, type],
        int(type[1:]),
        lambda a, b: a - quotient(a, b) * b if b else -1,
    )


@pytest.mark.parametrize("type", ["s16", "s32", "s64"])
def test_signs(type):
    check(f"abs.{type} {{d}}, {{a}};", [type], int(type[1:]), abs)
    check(f"neg.{type} {{d}}, {{a}};", [type], int(type[1:]), lambda a: -a)


def test_saturation():
    def sat(x):
        return max(-(2**31), min(2**31 - 1, x))

    check("add.sat.s32 {d}, {a}, {b};", ["s32"] * 2, 32, lambda a, b: sat(a + b))
    check("sub.sat.s32 {d}, {a}, {b};", ["s32"] * 2, 32, lambda a, b: sat(a - b))
    check("mad.hi.sat.s32 {d}, {a}, {b}, {c};", ["s32"] * 3, 32, lambda a, b, c: sat((a * b >> 32) + c))


@pytest.mark.parametrize("type", ["u32", "s32"])
def test_24_bit_products(type):
    def low(x):
        return value(x << 8, type) >> 8

    check(f"mul24.lo.{type} {{d}}, {{a}}, {{b}};", [type] * 2, 32, lambda a, b: low(a) * low(b))
    check(f"mul24.hi.{type} {{d}}, {{a}}, {{b}};", [type] * 2, 32, lambda a, b: low(a) * low(b) >> 16)
    check(f"mad24.lo.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type] * 3, 32, lambda a, b, c: low(a) * low(b) + c)


@pytest.mark.parametrize("width", [32, 64])
def test_counting_bits(width):
    type = f"u{width}"
    check(f"popc.b{width} {{d}}, {{a}};", [type], 32, lambda a: bin(a).count("1"))
    check(f"clz.b{width} {{d}}, {{a}};", [type], 32, lambda a: width - a.bit_length())
    check(f"brev.b{width} {{d}}, {{a}};", [type], width, lambda a: int(f"{a:0{width}b}"[::-1], 2))
    check(f"bfind.u{width} {{d}}, {{a}};", [type], 32, lambda a: a.bit_length() - 1)
    check(f"bfind.s{width} {{d}}, {{a}};", [f"s{width}"], 32, lambda a: (a if a >= 0 else ~a).bit_length() - 1)
    check(f"bfind.shiftamt.u{width} {{d}}, {{a}};", [type], 32, lambda a: width - a.bit_length() if a else -1)


@pytest.mark.parametrize("type", WORDS)
def test_bit_fields(type):
    width = int(type[1:])

    def field(x):
        """The low 8 bits count (PTX ISA, bfe); of 64-bit words an H200 takes all."""
        return x & 255 if width == 32 else min(x, 255)

    def extract(a, b, c):
        """As the pseudo code of bfe in the PTX ISA reads."""
        at, length = field(b), field(c)
        raw = bits(a, width)
        sign = 0 if type[0] == "u" or length == 0 else raw >> min(at + length - 1, width - 1) & 1
        out = 0
        for n in range(width):
            out |= (raw >> (at + n) & 1 if n < length and at + n < width else sign) << n
        return out

    check(f"bfe.{type} {{d}}, {{a}}, {{b}}, {{c}};", [type, "u32", "u32"], width, extract)

    def insert(a, b, c, d):
        at, length = field(c), field(d)
        out = b
        for n in range(length):
            if at + n < width:
                out = out & ~(1 << (at + n)) | (a >> n & 1) << (at + n)
        return out

    check(f"bfi.b{width} {{d}}, {{a}}, {{b}}, {{c}}, {{e}};", [f"u{width}"] * 2 + ["u32"] * 2, width, insert)


def test_masks_and_extensions():
    def mask(a, b):
        return 0 if b == 0 or a >= 32 else sum(1 << n for n in range(a, min(a + b, 32)))

    check("bmsk.clamp.b32 {d}, {a}, {b};", ["u32"] * 2, 32, mask)
    check("bmsk.wrap.b32 {d}, {a}, {b};", ["u32"] * 2, 32, lambda a, b: mask(a & 31, b & 31))
    check(
        "szext.clamp.s32 {d}, {a}, {b};",
        ["u32"] * 2,
        32,
        lambda a, n: a if n >= 32 else signed(bits(a, n), n) if n else 0,
    )
    check("szext.wrap.u32 {d}, {a}, {b};", ["u32"] * 2, 32, lambda a, n: bits(a, n & 31))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_clamp_their_amount(width):
    u, s = f"u{width}", f"s{width}"
    check(f"shl.b{width} {{d}}, {{a}}, {{b}};", [u, "u32"], width, lambda a, n: a << n if n < width else 0)
    check(f"shr.u{width} {{d}}, {{a}}, {{b}};", [u, "u32"], width, lambda a, n: a >> min(n, width))
    check(f"shr.s{width} {{d}}, {{a}}, {{b}};", [s, "u32"], width, lambda a, n: a >> min(n, width))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_logic(width):
    u = f"u{width}"
    check(f"and.b{width} {{d}}, {{a}}, {{b}};", [u, u], width, lambda a, b: a & b)
    check(f"or.b{width} {{d}}, {{a}}, {{b}};", [u, u], width, lambda a, b: a | b)
    check(f"xor.b{width} {{d}}, {{a}}, {{b}};", [u, u], width, lambda a, b: a ^ b)
    check(f"not.b{width} {{d}}, {{a}};", [u], width, lambda a: ~a)
    check(f"cnot.b{width} {{d}}, {{a}};", [u], width, lambda a: int(a == 0))


@pytest.mark.parametrize("table", [0x00, 0xE8, 0x96, 0xCA, 0x1B, 0xFF])
def test_lop3_is_its_table(table):
    """E8 is the majority, 96 the sum, CA a select."""
    check(
        f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};",
        ["u32"] * 3,
        32,
        lambda a, b, c: sum(
            (table >> ((a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1)) & 1) << n for n in range(32)
        ),
    )


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts(mode):
    def amount(c):
        return min(c, 32) if mode == "clamp" else c & 31

    check(
        f"shf.l.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};",
        ["u32"] * 3,
        32,
        lambda a, b, c: ((b << 32 | a) << amount(c)) >> 32,
    )
    check(f"shf.r.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};", ["u32"] * 3, 32, lambda a, b, c: (b << 32 | a) >> amount(c))


def test_prmt_picks_bytes():
    def pick(a, b, c):
        pair = (b << 32 | a).to_bytes(8, "little")
        out = []
        for n in range(4):
            selector = c >> 4 * n & 15
            byte = pair[selector & 7]
            out.append((255 if byte & 128 else 0) if selector & 8 else byte)
        return int.from_bytes(out, "little")

    check("prmt.b32 {d}, {a}, {b}, {c};", ["u32"] * 3, 32, pick)
    pairs = {
        "f4e": lambda n, c: n + c,
        "b4e": lambda n, c: (c - n) & 7,
        "rc8": lambda n, c: c,
        "ecl": max,
        "ecr": min,
        "rc16": lambda n, c: (c & 1) * 2 + (n & 1),
    }
    for mode, rule in pairs.items():
        check(
            f"prmt.b32.{mode} {{d}}, {{a}}, {{b}}, {{c}};",
            ["u32"] * 3,
            32,
            lambda a, b, c, rule=rule: sum(((b << 32 | a) >> 8 * rule(n, c & 3) & 255) << 8 * n for n in range(4)),
        )


def test_dot_products():
    def parts(x, n, width, sign):
        return [
            signed(x >> width * k & (1 << width) - 1, width) if sign else x >> width * k & (1 << width) - 1
            for k in range(n)
        ]

    for s, t in (("u32", "u32"), ("s32", "u32"), ("u32", "s32"), ("s32", "s32")):
        check(
            f"dp4a.{s}.{t} {{d}}, {{a}}, {{b}}, {{c}};",
            ["u32"] * 3,
            32,
            lambda a, b, c, s=s, t=t: (
                c + sum(x * y for x, y in zip(parts(a, 4, 8, s[0] == "s"), parts(b, 4, 8, t[0] == "s"), strict=True))
            ),
        )
        for half, shift in (("lo", 0), ("hi", 16)):
            check(
                f"dp2a.{half}.{s}.{t} {{d}}, {{a}}, {{b}}, {{c}};",
                ["u32"] * 3,
                32,
                lambda a, b, c, s=s, t=t, shift=shift: (
                    c
                    + sum(
                        x * y
                        for x, y in zip(parts(a, 2, 16, s[0] == "s"), parts(b >> shift, 2, 8, t[0] == "s"), strict=True)
                    )
                ),
            )


@pytest.mark.parametrize("width", [32, 64])
def test_carries_run_through_a_chain(width):
    """A sum of two words from two half words, and its difference."""
    for word in ("add", "sub"):
        chain = (
            f"mov.b{width} %{'r' if width == 32 else 'd'}8, {{a}};\n{word}.cc.u{width} {{d}}, {{a}}, {{b}};\n"
            f"{word}c.u{width} {{d}}, {{b}}, {{c}};"
        )
        check(
            chain,
            [f"u{width}"] * 3,
            width,
            lambda a, b, c, word=word: b + c + (a + b >> width) if word == "add" else b - c - (a < b),
        )
    chain = f"mad.lo.cc.u{width} {{d}}, {{a}}, {{b}}, {{c}};\nmadc.hi.u{width} {{d}}, {{a}}, {{b}}, {{c}};"
    check(
        chain,
        [f"u{width}"] * 3,
        width,
        lambda a, b, c: (a * b >> width) + c + ((a * b & (1 << width) - 1) + c >> width),
    )


COMPARE = {"eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}


@pytest.mark.parametrize("type", INTS)
def test_comparisons(type):
    for word, method in COMPARE.items():
        check(f"setp.{word}.{type} {{d}}, {{a}}, {{b}};", [type] * 2, 1, lambda a, b, m=method: int(getattr(a, m)(b)))
    if type[0] == "u":
        for word, other in {"lo": "__lt__", "ls": "__le__", "hi": "__gt__", "hs": "__ge__"}.items():
            check(
                f"setp.{word}.{type} {{d}}, {{a}}, {{b}};", [type] * 2, 1, lambda a, b, m=other: int(getattr(a, m)(b))
            )
    check(f"set.lt.u32.{type} {{d}}, {{a}}, {{b}};", [type] * 2, 32, lambda a, b: -int(a < b))
    check(
        f"slct.{type}.s32 {{d}}, {{a}}, {{b}}, {{c}};",
        [type, type, "s32"],
        int(type[1:]),
        lambda a, b, c: a if c >= 0 else b,
    )


def test_predicates_combine():
    a, b = integers(32, seed=1), integers(32, seed=2)
    p = np.random.default_rng(3).integers(0, 2, len(a)).astype(bool)
    for word, rule in {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.items():
        got = execute(f"setp.lt.{word}.u32 {{d}}, {{a}}, {{b}}, {{c}};", [a, b, p], 1)
        assert np.array_equal(got, rule(a < b, p))
        got = execute(f"setp.lt.{word}.u32 {{d}}|%q8, {{a}}, {{b}}, !{{c}};\nmov.pred {{d}}, %q8;", [a, b, p], 1)
        assert np.array_equal(got, rule(~(a < b), ~p))
    assert np.array_equal(execute("selp.b32 {d}, {a}, {b}, {c};", [a, b, p], 32), np.where(p, a, b))


def test_a_guard_keeps_the_old_value():
    a, b = integers(32, seed=4), integers(32, seed=5)
    p = np.random.default_rng(6).integers(0, 2, len(a)).astype(bool)
    assert np.array_equal(execute("mov.b32 {d}, {a};\n@{c} mov.b32 {d}, {b};", [a, b, p], 32), np.where(p, b, a))
    assert np.array_equal(
        execute("mov.b32 {d}, {a};\n@!{c} add.u32 {d}, {b}, 1;", [a, b, p], 32), np.where(p, a, b + np.uint32(1))
    )


@pytest.mark.parametrize("to", ["u8", "s8", *INTS])
@pytest.mark.parametrize("source", ["u8", "s8", *INTS])
def test_integer_conversions(to, source):
    width = int(to[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    check(f"cvt.{to}.{source} {{d}}, {{a}};", [source], width, lambda a: a)
    values = (-(1 << int(source[1:]) - 1) if source[0] == "s" else 0, (1 << int(source[1:]) - (source[0] == "s")) - 1)
    if low <= values[0] and values[1] <= high:  # ptxas: `.sat` stands only where it may change a value
        with pytest.raises(Unsupported, match=rf"cvt\.sat\.{to}\.{source}"):
            check(f"cvt.sat.{to}.{source} {{d}}, {{a}};", [source], width, lambda a: a)
    else:
        check(f"cvt.sat.{to}.{source} {{d}}, {{a}};", [source], width, lambda a: max(low, min(high, a)))


def test_packing():
    a, b = integers(32, seed=7), integers(32, seed=8)
    packed = execute("mov.b64 {d}, {{{a}, {b}}};", [a, b], 64)
    assert np.array_equal(packed, a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32))
    upper = execute("mov.b64 {{%r7, {d}}}, {a};", [packed], 32)
    assert np.array_equal(upper, b)

    def sat(x, w, s):
        low, high = (-(1 << w - 1), (1 << w - 1) - 1) if s else (0, (1 << w) - 1)
        return bits(max(low, min(high, x)), w)

    for type, sign in (("u16", False), ("s16", True)):
        check(
            f"cvt.pack.sat.{type}.s32 {{d}}, {{a}}, {{b}};",
            ["s32"] * 2,
            32,
            lambda x, y, s=sign: sat(x, 16, s) << 16 | sat(y, 16, s),
        )
    for type, sign in (("u8", False), ("s8", True)):
        check(
            f"cvt.pack.sat.{type}.s32.b32 {{d}}, {{a}}, {{b}}, {{c}};",
            ["s32", "s32", "u32"],
            32,
            lambda x, y, c, s=sign: c << 16 | sat(x, 8, s) << 8 | sat(y, 8, s),
        )
