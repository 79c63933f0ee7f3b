"""Operands: the corners of each type crossed with each other, then numbers of every size.

Made by splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), so that they are the
same with any NumPy.
"""

import numpy as np

CORNERS = 256
COUNT = 512
"""Lanes a form is tried in: the first CORNERS cross corners, the rest is spread over the type."""
UNSIGNED = {1: np.uint32, 16: np.uint16, 32: np.uint32, 64: np.uint64}
FRACTION = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def random_bits(seed, count):
    """`count` words of 64 bits."""
    z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed * 1_000_003)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def float_corners(kind):
    """16 of them: NaN, ±inf, ±0, subnormals, the ends, 1 and its neighbours, halves."""
    fraction, bits = FRACTION[kind], BITS[kind]
    sign = 1 << (bits - 1)
    infinity = ((1 << (bits - 1 - fraction)) - 1) << fraction
    one = (infinity // 2) & ~((1 << fraction) - 1)
    quiet = infinity | 1 << (fraction - 1)
    return [
        0, sign, 1, sign | ((1 << fraction) - 1), 1 << fraction, sign | 1 << fraction, infinity - 1,
        sign | infinity - 1, infinity, sign | infinity, quiet | 5, one, sign | one, one + 1, one - 1,
        sign | one + (1 << (fraction - 1)),
    ]  # fmt: skip


def integer_corners(bits):
    top, ones = 1 << (bits - 1), (1 << bits) - 1
    return [0, 1, 2, 3, 7, ones, ones - 1, top, top - 1, top + 1, ones // 3, ones // 3 * 2,
            bits, bits - 1, 1 << (bits // 2), (1 << (bits // 2)) - 1]  # fmt: skip


def _brink(kind, place, x, y):
    """Factors whose product lies just below the least normal number, by less than half of what can be told apart there:
    (1 - h)(1 + h)·least, h too small for its square to show. Of float64: numbers at float32's least normal one."""
    fraction, bits = FRACTION[kind], BITS[kind]
    one = ((1 << (bits - 1 - fraction)) // 2 - 1) << fraction
    if kind == "f64":
        return (1023 - 126 << 52) + (y % 2**31 - 2**30 << (x >> 32) % 20)
    half = fraction // 2 + 1 + y % 2
    if place == 0:  # 1 - 2^-half, one binade below
        return one - (1 << fraction + 1 - half)
    return (1 << fraction) + (1 << fraction - half) if place == 1 else x % 2


def _spread_float(kind, seed, place=0):
    """Numbers of any size, numbers near 1, whole numbers with halves, halfway cases of shorter formats, NaN of any
    payload (signalling ones too), and numbers on the brink of the subnormal."""
    fraction, bits = FRACTION[kind], BITS[kind]
    words, more = random_bits(seed, COUNT - CORNERS), random_bits(seed + 77, COUNT - CORNERS)
    infinity = ((1 << (bits - 1 - fraction)) - 1) << fraction
    one = (infinity // 2) & ~((1 << fraction) - 1)
    reach = min(40, (1 << (bits - 2 - fraction)) - 2)
    out = []
    for n, (x, y) in enumerate(zip(words.tolist(), more.tolist(), strict=True)):
        sign = (x >> 63) << (bits - 1)
        if n % 16 == 7:
            out.append(sign | _brink(kind, place, x, y))
            continue
        if n % 16 == 15 and (n // 16 + place) % 2:  # one operand of two or three, each in its turn
            out.append(sign | infinity + max(1, y % (1 << fraction)))
            continue
        match n % 4:
            case 0:
                value = x % infinity
            case 1:
                value = one + (y % 9 - 4 << fraction) + x % (1 << fraction)
            case 2:  # any whole part, and a fraction of a few bits: k/4
                value = one + (y % reach << fraction)
                value += x % (1 << fraction) & -1 << max(0, fraction - (y >> 32) % 14)
            case _:  # halfway between two numbers with fewer bits of fraction, or beside it
                cut = min(fraction, {"f64": 52 - (23, 10)[y & 1], "f32": (13, 16)[y & 1]}.get(kind, 3))
                near = x % (1 << fraction) & -1 << cut | 1 << (cut - 1)
                value = one + ((y >> 8) % (2 * reach) - reach << fraction) + near + (y >> 40) % 3 - 1
        out.append(sign | max(0, min(value, infinity - 1)))
    return out


def _spread_integer(bits, seed):
    """Dense bits, small numbers, and powers of two with their neighbours."""
    out = []
    for n, x in enumerate(random_bits(seed, COUNT - CORNERS).tolist()):
        match n % 3:
            case 0:
                value = x >> (64 - bits)
            case 1:
                value = (x >> 20) % 70 * (-1 if x >> 63 else 1)
            case _:
                value = (1 << x % bits) + (x >> 30) % 3 - 1
        out.append(value & ((1 << bits) - 1))
    return out


def _crossed(corners, place):
    """The first operand runs fastest, the second slower; further ones stride through."""
    at = np.arange(CORNERS)
    step = [at, at // 16, at * 7 + at // 16, at * 3 + 5 * (at // 16)][place]
    return [corners[n % len(corners)] for n in step.tolist()]


def operand(kind, place):
    """The bits of one operand, one a lane."""
    seed = 1 + place
    if kind == "pred":
        return (random_bits(seed + 900, COUNT) & np.uint64(1)).astype(np.uint32)
    if kind == "shift":
        corners = [0, 1, 2, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 65, 255, 256]
        words = random_bits(seed + 300, COUNT - CORNERS)
        rest = np.where(words % np.uint64(4) == 0, words >> np.uint64(32), words >> np.uint64(40) & np.uint64(63))
        return np.array([*_crossed(corners, place), *rest.tolist()], np.uint32)
    if kind in {"f16x2", "bf16x2"}:
        half = kind.removesuffix("x2")
        low = np.array([*_crossed(float_corners(half), place), *_spread_float(half, seed, place)], np.uint32)
        high = np.array(
            [*_crossed(float_corners(half)[::-1], place), *_spread_float(half, seed + 40, place)], np.uint32
        )
        return low | high << np.uint32(16)
    if kind in FRACTION:
        values = [*_crossed(float_corners(kind), place), *_spread_float(kind, seed, place)]
        return np.array(values, UNSIGNED[BITS[kind]])
    bits = 32 if kind.endswith("x2") else int(kind[1:])
    values = [*_crossed(integer_corners(bits), place), *_spread_integer(bits, seed)]
    return np.array(values, np.uint64).astype(UNSIGNED[max(16, bits)])
