"""Numbers of the tensor cores' types: their bits, their values, and tiles of them that tell models of sums apart."""

import math
from fractions import Fraction

import numpy as np

from simt.conformance.inputs import random_bits

FORMATS = {
    "f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "f32": (8, 23), "f64": (11, 52), "e4m3": (4, 3), "e5m2": (5, 2),
}  # fmt: skip
"""Bits of exponent and fraction in a register. (tf32 is a float32 whose last 13 bits nobody reads.)"""
INTEGERS = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15), "s32": (-(2**31), 2**31 - 1)}
WORDS = {4: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
KINDS = ("plain", "one huge", "cancelling", "any size", "subnormal", "special", "at the cut", "zeros")
"""What a tile is like; several of each."""


def width(kind):
    return 1 + sum(FORMATS[kind]) if kind in FORMATS else {"b1": 32, "s32": 32}.get(kind) or int(kind[1:])


def value(kind, raw):
    """One number as Python's float (an integer as int)."""
    raw = int(raw)
    if kind in INTEGERS:
        bits = width(kind)
        return raw - (1 << bits) if kind[0] == "s" and raw >> (bits - 1) else raw
    exponent_bits, fraction_bits = FORMATS[kind]
    if kind == "tf32":
        raw &= ~0x1FFF
    sign = -1.0 if raw >> (exponent_bits + fraction_bits) else 1.0
    exponent = raw >> fraction_bits & (1 << exponent_bits) - 1
    fraction = raw & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if kind == "e4m3":
        if (exponent, fraction) == (15, 7):
            return math.nan
    elif exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)


def values(kind, raw):
    out = np.array([value(kind, one) for one in raw.ravel().tolist()], object if kind in INTEGERS else np.float64)
    return out.reshape(raw.shape)


def _joined(kind, sign, exponent, fraction):
    """Bits of numbers whose exponents count from the type's zero; cut to what is finite and normal."""
    exponent_bits, fraction_bits = FORMATS[kind]
    bias = (1 << exponent_bits - 1) - 1
    top = (1 << exponent_bits) - (1 if kind == "e4m3" else 2)
    field = np.clip(exponent.astype(np.int64) + bias, 1, top).astype(np.uint64)
    fraction = fraction & np.uint64((1 << fraction_bits) - 1)
    if kind == "e4m3":
        fraction = np.where((field == 15) & (fraction == 7), np.uint64(6), fraction)
    raw = sign << np.uint64(exponent_bits + fraction_bits) | field << np.uint64(fraction_bits) | fraction
    return raw.astype(WORDS[width(kind)])


def numbers(kind, shape, seed, low, high):
    """Random ones with exponents from `low` to `high`."""
    count = int(np.prod(shape))
    x, y = random_bits(seed, count), random_bits(seed + 5000, count)
    exponent = low + ((x >> np.uint64(8)) % np.uint64(high - low + 1)).astype(np.int64)
    return _joined(kind, x >> np.uint64(63), exponent, y >> np.uint64(3)).reshape(shape)


def specials(kind):
    exponent_bits, fraction_bits = FORMATS[kind]
    sign, top = 1 << exponent_bits + fraction_bits, ((1 << exponent_bits) - 1) << fraction_bits
    if kind == "e4m3":
        return [0x7F, 0xFF, 0x7E, 0xFE, 0x00, 0x80, 0x01, 0x81]
    return [
        top,
        sign | top,
        top | 1 << fraction_bits - 1,
        top | 3 << max(0, fraction_bits - 3),
        top - 1,
        sign | top - 1,
        0,
        sign,
    ]


def sprinkled(raw, kind, seed, one_in):
    """Some numbers replaced by special ones."""
    x = random_bits(seed, raw.size).reshape(raw.shape)
    pick = np.array(specials(kind), raw.dtype)[(x >> np.uint64(20)) % np.uint64(8)]
    return np.where(x % np.uint64(one_in) == 0, pick, raw)


def tile(kinds, m, n, k, what, seed):
    """A, B and C of one instruction, as bits: the types of A, B and C."""
    a, b, c = kinds
    most = {"e4m3": 3, "e5m2": 8, "f16": 6}.get(a, 20)
    low = {"e4m3": -6, "e5m2": -14, "f16": -14}.get(a, -120)
    A, B, C = numbers(a, (m, k), seed, -2, 2), numbers(b, (k, n), seed + 1, -2, 2), numbers(c, (m, n), seed + 2, -3, 4)
    rows = np.arange(m)
    match what:
        case "one huge":
            place = (random_bits(seed + 3, m) % np.uint64(k)).astype(int)
            A[rows, place] = numbers(a, (m,), seed + 4, most - 1, most)
            B = numbers(b, (k, n), seed + 1, -4, 1)
        case "cancelling":
            A[:, 1::2] = A[:, : k - k % 2 : 2] ^ A.dtype.type(1 << width(a) - 1)
            B[1::2, :] = B[: k - k % 2 : 2, :]
            C = numbers(c, (m, n), seed + 2, -26 if c != "f16" else -13, -10)
        case "any size":
            A, B = numbers(a, (m, k), seed, low // 2, most), numbers(b, (k, n), seed + 1, low // 2, most)
            C = numbers(c, (m, n), seed + 2, low, 2 * most if c != "f16" else 15)
        case "subnormal":
            small = (1 << FORMATS[a][1]) - 1
            A &= A.dtype.type(1 << width(a) - 1 | small)
            B = numbers(b, (k, n), seed + 1, -1, 4)
            C = C & C.dtype.type(1 << width(c) - 1 | 0xFFFF) if c != "f16" else C & C.dtype.type(0x83FF)
            if what and seed % 2:
                B = B & B.dtype.type(1 << width(b) - 1 | small)
        case "special":
            A, B, C = (sprinkled(x, t, seed + 7 + i, 40) for i, (x, t) in enumerate(((A, a), (B, b), (C, c))))
        case "at the cut":
            step = 22 + seed % 7 if c != "f16" else 9 + seed % 6
            A, B = numbers(a, (m, k), seed, -1, 0), numbers(b, (k, n), seed + 1, -1, 0)
            C = numbers(c, (m, n), seed + 2, min(step, 15) if c == "f16" else step, step)
        case "zeros":
            A = np.where(
                random_bits(seed + 8, A.size).reshape(A.shape) % np.uint64(4) != 0,
                A & A.dtype.type(1 << width(a) - 1),
                A,
            )
            B = np.where(
                random_bits(seed + 9, B.size).reshape(B.shape) % np.uint64(3) != 0,
                B & B.dtype.type(1 << width(b) - 1),
                B,
            )
            C = np.where(
                random_bits(seed + 10, C.size).reshape(C.shape) % np.uint64(2) != 0,
                C & C.dtype.type(1 << width(c) - 1),
                C,
            )
    return A, B, C


def integer_tile(kinds, m, n, k, seed):
    """Random ones over the whole type; C near the ends every second time, so that sums run over."""
    a, b, _ = kinds
    A, B, C = (random_bits(seed + i, x * y).reshape(x, y) for i, (x, y) in enumerate(((m, k), (k, n), (m, n))))
    mask = (1 << width(a)) - 1
    A, B = ((x >> np.uint64(9) & np.uint64(mask)).astype(WORDS[width(a)]) for x in (A, B))
    if seed % 3 == 1:  # the largest products
        A, B = (
            np.full_like(A, mask if a[0] in "ub" else 1 << width(a) - 1),
            np.full_like(B, mask if b[0] in "ub" else 1 << width(b) - 1),
        )
    C = (C >> np.uint64(7)).astype(np.uint32)
    if seed % 2:
        C = np.where(C & 1, C | 0x7FFFF000, C & 0x80000FFF).astype(np.uint32)
        C = np.where(C & 2, C & 0x7FFFFFFF, C | 0x80000000).astype(np.uint32)
    return A, B, C


def integer_product(kinds, A, B, C, *, saturates=False, bits=None):
    """D of integers, as 32 bits: exact, then wrapped or clamped. `bits`: xor or and, whose ones are counted."""
    a, b, _ = kinds
    total = np.array([value("s32", x) for x in C.ravel()], object).reshape(C.shape)
    if a == "b1":
        both = np.bitwise_xor if bits == "xor" else np.bitwise_and
        ones = [[sum(int(x).bit_count() for x in both(row, column).tolist()) for column in B.T] for row in A]
        total = total + np.array(ones, object)
    else:
        total = total + values(a, A) @ values(b, B)
    if saturates:
        total = np.clip(total, *INTEGERS["s32"])
    return np.array([int(t) & 0xFFFFFFFF for t in total.ravel()], np.uint32).reshape(C.shape)


def chained(a, b, c):
    """float64: fused multiply-adds, k ascending."""
    for x, y in zip(a, b, strict=True):
        if all(map(math.isfinite, (x, y, c))):
            exact = Fraction(x) * Fraction(y) + Fraction(c)
            if exact == 0:
                c = x * y + c
                continue
            try:
                c = float(exact)
            except OverflowError:
                c = math.inf if exact > 0 else -math.inf
        elif not (math.isfinite(x) and math.isfinite(y)):
            c = x * y + c
    return c
