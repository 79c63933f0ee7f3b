"""One number as C's printf writes it (C17, 7.21.6.1): where Python's `%` differs, this is C's."""

import math


def padded(sign: str, prefix: str, digits: str, flags: str, width: int, *, zeros: bool) -> str:
    """`zeros`: whether the flag 0 counts; `-` goes before it."""
    text = sign + prefix + digits
    if "-" in flags:
        return text.ljust(width)
    if zeros and "0" in flags:
        return sign + prefix + digits.rjust(width - len(sign) - len(prefix), "0")
    return text.rjust(width)


def integer(value: int, letter: str, flags: str, width: int, precision: int | None) -> str:
    """`value` is not negative but for `d`. Signs are of signed conversions only; precision 0 writes 0 as nothing."""
    base = {"o": "o", "x": "x", "X": "X"}.get(letter, "d")
    digits = format(abs(value), base)
    if precision is not None:
        digits = "" if precision == 0 and value == 0 else digits.rjust(precision, "0")
    prefix = ""
    if "#" in flags:
        if letter == "o" and not digits.startswith("0"):
            digits = "0" + digits
        elif letter in "xX" and value:
            prefix = "0" + letter
    return padded(_sign(value < 0, flags) if letter == "d" else "", prefix, digits, flags, width,
                  zeros=precision is None)  # fmt: skip


def floating(value: float, letter: str, flags: str, width: int, precision: int | None) -> str:
    """Of e, f, g, a and their capitals."""
    sign = _sign(math.copysign(1.0, value) < 0, flags)
    if not math.isfinite(value):
        word = "nan" if math.isnan(value) else "inf"
        return padded(sign, "", word.upper() if letter.isupper() else word, flags, width, zeros=False)
    if letter in "aA":
        prefix, digits = hexadecimal(abs(value), precision, point="#" in flags)
        if letter == "A":
            prefix, digits = prefix.upper(), digits.upper()
        return padded(sign, prefix, digits, flags, width, zeros=True)
    form = "%" + ("#" if "#" in flags else "") + (f".{precision}" if precision is not None else "") + letter
    return padded(sign, "", form % abs(value), flags, width, zeros=True)


def hexadecimal(value: float, precision: int | None, *, point: bool) -> tuple[str, str]:
    """`0x` and `1.8p+0`: without a precision as many digits as tell the value, else rounded to nearest even."""
    _, exponent = math.frexp(value)
    if value == 0:
        whole, rest, power = 0, 0, 0
    else:
        power = max(exponent - 1, -1022)
        scaled = int(math.ldexp(value, 52 - power))
        whole, rest = scaled >> 52, scaled & ((1 << 52) - 1)
    digits = f"{rest:013x}"
    if precision is None:
        digits = digits.rstrip("0")
    elif precision < 13:
        shift = 4 * (13 - precision)
        kept = round_half_even((whole << 52) + rest, shift)
        whole, rest = kept >> 4 * precision, kept & ((1 << 4 * precision) - 1)
        digits = f"{rest:0{precision}x}" if precision else ""
    else:
        digits = digits.ljust(precision, "0")
    dot = "." if digits or point else ""
    return "0x", f"{whole}{dot}{digits}p{power:+d}"


def round_half_even(value: int, shift: int) -> int:
    """value / 2^shift."""
    low, half = value & ((1 << shift) - 1), 1 << (shift - 1)
    up = low > half or (low == half and value >> shift & 1)
    return (value >> shift) + up


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""
