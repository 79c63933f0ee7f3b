"""Integer, logic and shift instructions on Python's integers (PTX ISA, their sections)."""

from simt.conformance.rules import ANY, bits_of, clamp, cut, rule, value


def on_integers(kinds, result, function):
    """A rule from a function on numbers."""
    return lambda *raw: (cut(function(*(value(r, k) for r, k in zip(raw, kinds, strict=True))), result),)


@rule("add", "sub")
def _sum(types, options, trial):
    t, sign = types[-1], 1 if trial.opcode.startswith("add") else -1
    end = (lambda n: clamp(n, t)) if "sat" in options else (lambda n: n)
    return on_integers([t, t], bits_of(t), lambda a, b: end(a + sign * b))


@rule("add2")
def _packed_sum(types, options, trial):
    return lambda a, b: (cut(a + b, 16) | cut((a >> 16) + (b >> 16), 16) << 16,)


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@rule("div", "rem")
def _division(types, options, trial):
    """By zero: "yields an unspecified, machine-specific value"."""
    t, remainder = types[-1], trial.opcode.startswith("rem")

    def divide(a, b):
        x, y = value(a, t), value(b, t)
        if y == 0:
            return (ANY,)
        whole = truncated(x, y)
        return (cut(x - whole * y if remainder else whole, bits_of(t)),)

    return divide


@rule("min", "max")
def _extremes(types, options, trial):
    t = types[-1]
    return on_integers([t, t], bits_of(t), min if trial.opcode.startswith("min") else max)


@rule("abs")
def _abs(types, options, trial):
    return on_integers(types, bits_of(types[-1]), abs)


@rule("neg")
def _neg(types, options, trial):
    return on_integers(types, bits_of(types[-1]), lambda a: -a)


def part_of_product(half, t):
    bits = bits_of(t)
    return {"lo": lambda p: cut(p, bits), "hi": lambda p: p >> bits, "wide": lambda p: p}[half]


@rule("mul")
def _mul(types, options, trial):
    t, half = types[-1], options["half"]
    part = part_of_product(half, t)
    return on_integers([t, t], bits_of(t) * (2 if half == "wide" else 1), lambda a, b: part(a * b))


@rule("mad")
def _mad(types, options, trial):
    t, half = types[-1], options["half"]
    part, wide = part_of_product(half, t), f"{t[0]}{2 * bits_of(t)}" if half == "wide" else t
    return on_integers([t, t, wide], bits_of(wide), lambda a, b, c: part(a * b) + c)


@rule("madsat")
def _madsat(types, options, trial):
    return on_integers(["s32"] * 3, 32, lambda a, b, c: clamp((a * b >> 32) + c, "s32"))


@rule("mul24")
def _mul24(types, options, trial):
    t = types[-1]

    def low(raw):
        return value(raw << 8, t) >> 8

    def multiply(a, b, c=0):
        whole = low(a) * low(b)
        return (cut((whole >> 16 if options["half"] == "hi" else whole) + c, 32),)

    return multiply


@rule("sad")
def _sad(types, options, trial):
    return on_integers(types * 3, bits_of(types[-1]), lambda a, b, c: c + abs(a - b))


@rule("carry")
def _carry(types, options, trial):
    """CC.CF holds the carry out of an addition, the borrow out of a subtraction."""
    bits, first = bits_of(types[-1]), trial.opcode.split(".")[0]
    sign = -1 if first.startswith("sub") else 1
    gives = ".cc" in trial.opcode

    def chain(a, b, c=None):
        if c is None:
            x, y, flag = a, b, 0
        else:
            x, y, flag = b, c, int(not 0 <= a + sign * b < 1 << bits)
        whole = x + sign * (y + flag)
        out = int(not 0 <= whole < 1 << bits)
        return (cut(whole, bits), cut(sign * out, bits)) if gives else (cut(whole, bits),)

    return chain


@rule("madcarry")
def _mad_carry(types, options, trial):
    """mad.cc: "CC.CF is written with the carry out of the addition of c"."""
    t = types[-1]
    bits, half = bits_of(t), options["half"]
    part, gives = part_of_product(half, t), ".cc" in trial.opcode

    def chain(a, b, c):
        flag = (a + b) >> bits if options["first"] == "madc" else 0
        whole = cut(part(value(a, t) * value(b, t)), bits) + c + flag
        return (cut(whole, bits), whole >> bits) if gives else (cut(whole, bits),)

    return chain


@rule("popc")
def _popc(types, options, trial):
    return lambda a: (a.bit_count(),)


@rule("clz")
def _clz(types, options, trial):
    return lambda a: (bits_of(types[-1]) - a.bit_length(),)


@rule("brev")
def _brev(types, options, trial):
    bits = bits_of(types[-1])
    return lambda a: (int(f"{a:0{bits}b}"[::-1], 2),)


@rule("bfind")
def _bfind(types, options, trial):
    """The most significant non-sign bit; 0xFFFFFFFF where there is none."""
    t = types[-1]

    def find(a):
        number = value(a, t)
        at = (number if number >= 0 else ~number).bit_length() - 1
        return (cut(at if at < 0 or "shiftamt" not in options else bits_of(t) - 1 - at, 32),)

    return find


def place_in(bits):
    """The low 8 bits count, the ISA says; of 64-bit words an H200 takes all of them."""
    return (lambda x: min(x, 255)) if bits == 64 else (lambda x: x & 0xFF)


@rule("bfe")
def _bfe(types, options, trial):
    """The pseudocode of the PTX ISA, bit by bit."""
    t = types[-1]
    bits, msb = bits_of(t), bits_of(t) - 1
    field = place_in(bits)

    def extract(a, b, c):
        at, length = field(b), field(c)
        sign = 0 if t[0] == "u" or length == 0 else a >> min(at + length - 1, msb) & 1
        return (sum((a >> at + i & 1 if i < length and at + i <= msb else sign) << i for i in range(bits)),)

    return extract


@rule("bfi")
def _bfi(types, options, trial):
    bits = bits_of(types[-1])
    field = place_in(bits)

    def insert(a, b, c, e):
        at, length = field(c), field(e)
        for i in range(length):
            if at + i < bits and i < bits:
                b = b & ~(1 << at + i) | (a >> i & 1) << at + i
        return (b,)

    return insert


@rule("bmsk")
def _bmsk(types, options, trial):
    """A mask of b ones from bit a; clamp: both to 32, wrap: both modulo 32."""

    def mask(a, b):
        a, b = (min(x, 32) if options["mode"] == "clamp" else x & 31 for x in (a, b))
        return (cut(((1 << b) - 1) << a, 32),)

    return mask


@rule("szext")
def _szext(types, options, trial):
    """Of the n low bits; clamp: n at most 32, wrap: n modulo 32; n = 0 gives 0."""

    def extend(a, n):
        n = min(n, 32) if options["mode"] == "clamp" else n & 31
        return (cut(value(a, f"{types[-1][0]}{n}"), 32) if n else 0,)

    return extend


def pieces(raw, count, bits, kind):
    return [value(raw >> bits * n, f"{kind[0]}{bits}") for n in range(count)]


@rule("dp4a")
def _dp4a(types, options, trial):
    s, t = types
    return lambda a, b, c: (
        cut(c + sum(x * y for x, y in zip(pieces(a, 4, 8, s), pieces(b, 4, 8, t), strict=True)), 32),
    )


@rule("dp2a")
def _dp2a(types, options, trial):
    s, t = types
    down = 0 if options["half"] == "lo" else 16
    return lambda a, b, c: (
        cut(c + sum(x * y for x, y in zip(pieces(a, 2, 16, s), pieces(b >> down, 2, 8, t), strict=True)), 32),
    )


# -- logic


@rule("logic")
def _logic(types, options, trial):
    op = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[options["op"]]
    return lambda a, b: (op(a, b),)


@rule("not")
def _not(types, options, trial):
    bits = 1 if types[-1] == "pred" else bits_of(types[-1])
    return lambda a: (cut(~a, bits),)


@rule("cnot")
def _cnot(types, options, trial):
    return lambda a: (int(a == 0),)


@rule("lop3")
def _lop3(types, options, trial):
    """The table of F(0xF0, 0xCC, 0xAA)."""
    table = int(trial.variant, 16)
    return lambda a, b, c: (
        sum((table >> (4 * (a >> n & 1) + 2 * (b >> n & 1) + (c >> n & 1)) & 1) << n for n in range(32)),
    )


@rule("shl", "shr")
def _shift(types, options, trial):
    """ "Shift amounts greater than the register width N are clamped to N"."""
    t, left = types[-1], trial.opcode.startswith("shl")
    bits = bits_of(t)
    fixed = int(trial.variant.split()[-1]) if trial.variant else None

    def shift(a, b=fixed):
        b = min(b, bits)
        return (cut(a << b if left else value(a, t) >> b, bits),)

    return shift


@rule("shf")
def _shf(types, options, trial):
    def shift(a, b, c):
        n = min(c, 32) if options["mode"] == "clamp" else c & 31
        pair = b << 32 | a
        return (cut(pair << n >> 32 if options["way"] == "l" else pair >> n, 32),)

    return shift


@rule("prmt")
def _prmt(types, options, trial):
    """Generic: a selector's high bit replicates the byte's sign. Modes: the ISA's table, as formulas on bytes."""
    fixed = {
        "f4e": lambda n, c: n + c, "b4e": lambda n, c: (c - n) & 7, "rc8": lambda n, c: c, "ecl": max, "ecr": min,
        "rc16": lambda n, c: (c & 1) * 2 + (n & 1),
    }  # fmt: skip
    mode = options.get("mode")

    def permute(a, b, c):
        pair, out = b << 32 | a, 0
        for n in range(4):
            if mode:
                byte = pair >> 8 * fixed[mode](n, c & 3) & 0xFF
            else:
                byte = pair >> 8 * (c >> 4 * n & 7) & 0xFF
                if c >> 4 * n & 8:
                    byte = 0xFF if byte & 0x80 else 0
            out |= byte << 8 * n
        return (out,)

    return permute
