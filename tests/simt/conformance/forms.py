"""Every opcode that the table of forms can be spelt as, and the operands it takes (PTX ISA, the instructions' syntax).

`spelt(form)` writes a row out: one opcode for each member of its sets. Not each of them is PTX (`cvt.rn.u8.u8` is
not); which are, ptxas says: tests/golden/ptx_forms.json.gz, made by benchmarks/golden_ptx_forms.py.
"""

from dataclasses import dataclass
from itertools import product

from undertorch.simt.ptx.forms import NAMED, PIECE, SETS
from undertorch.simt.ptx.opcodes import COMPARE, FLOAT, HALF, INTEGER, LOGIC, MOVE, match

APART = {"cvta", "cvtato", "isspacep"}
"""Rows of MOVE that speak of addresses: memory.py has them."""
PLAIN = tuple(f for f in (*INTEGER, *LOGIC, *FLOAT, *HALF, *COMPARE, *MOVE) if f.name not in APART)
"""Rows whose results follow from registers alone."""


def choices(piece, optional):
    """What may stand in one place of a pattern; an empty word where it may be left out."""
    if piece.startswith("<"):
        named = NAMED.match(piece[1:-1])
        of = named.group(2) if named else piece[1:-1]
        words = SETS.get(of, of).split("|")
    else:
        words = [piece]
    return ["", *words] if optional else words


def spelt(form):
    """All opcodes of a row. First come first served, as in the table: what an earlier row takes is that row's."""
    places = [choices(m.group(1), m.group(2)) for m in PIECE.finditer(form.pattern)]
    for words in product(*places):
        opcode = ".".join(w for w in words if w)
        found = match(opcode)
        if found is not None and found.form is form:
            yield opcode


@dataclass(frozen=True)
class Written:
    """How an opcode is tried: PTX with {a} {b} {c} {e} for its operands and {d} {f} for its results."""

    opcode: str
    variant: str
    text: str
    results: tuple[str, ...]
    sources: tuple[str, ...]
    fixed: tuple[int, ...] = ()
    """Bits of operands that are constants in the text, behind the sources."""

    @property
    def name(self):
        return f"{self.opcode} {self.variant}".strip()


def width(kind):
    """Bits of the register that holds a type; 1 for a predicate. Types of 8 bits are kept in 16."""
    if kind == "pred":
        return 1
    if kind in {"f16x2", "bf16x2", "u16x2", "s16x2", "tf32", "shift"}:
        return 32
    return max(16, int(kind.lstrip("bfsu")))


def doubled(kind):
    return f"{kind[0]}{2 * int(kind[1:])}"


def written(opcode):
    """The ways in which an opcode is tried."""
    found = match(opcode)
    name, options = found.form.name, found.options
    types = [t.name for t in found.types]
    simple = _simple(name, types, options) if opcode != "mov.b128" else None
    if simple is not None:
        results, sources = simple
        letters = [f"{{{x}}}" for x in "abce"[: len(sources)]]
        given = ", ".join(["{d}", *letters])
        if name == "lop3":
            for table in (0xE8, 0x96, 0x1B, 0x00, 0xFF):
                yield Written(opcode, f"{table:#x}", f"{opcode} {{d}}, {{a}}, {{b}}, {{c}}, {table};", results, sources)
        elif name == "setp" and types[-1].endswith("x2"):
            text = f"{opcode} {{d}}|{{f}}, {', '.join(letters)};"
            yield Written(opcode, "", text, ("pred", "pred"), sources)
        else:
            yield Written(opcode, "", f"{opcode} {given};", results, sources)
            yield from _with_constants(opcode, name, results, sources, letters)
            if name == "setp" and "boolean" in options and types[-1] not in {"f16", "bf16"}:  # ptxas: these have one
                text = f"{opcode} {{d}}|{{f}}, {{a}}, {{b}}, !{{c}};"
                yield Written(opcode, "two results", text, ("pred", "pred"), sources)
            if name in {"shl", "shr"}:
                for amount in (0, 1, 31, 32, 63, 70):
                    yield Written(opcode, f"by {amount}", f"{opcode} {{d}}, {{a}}, {amount};", results, sources[:1])
        return
    yield from _chains(opcode, name, types[-1], options)


def _simple(name, types, options):
    t = types[-1] if types else ""
    match name:
        case (
            "add"
            | "sub"
            | "min"
            | "max"
            | "div"
            | "rem"
            | "add2"
            | "farith"
            | "fdiv"
            | "fminmax"
            | "hminmax"
            | ("copysign" | "logic")
        ):
            return (t,), (t, t)
        case "harith":
            return (t,), (t,) * (3 if options["op"] == "fma" else 2)
        case (
            "abs"
            | "neg"
            | "brev"
            | "not"
            | "cnot"
            | "frcp"
            | "frcp64approx"
            | "frsqrt64approx"
            | "fsqrt"
            | ("frsqrt" | "fapprox" | "fsign" | "hsign" | "happrox" | "mov")
        ):
            return (t,), (t,)
        case "sad" | "ffma" | "madsat":
            return (t,), (t, t, t)
        case "mul":
            return (doubled(t) if options["half"] == "wide" else t,), (t, t)
        case "mad":
            wide = doubled(t) if options["half"] == "wide" else t
            return (wide,), (t, t, wide)
        case "mul24":
            return (t,), (t,) * (3 if options["first"] == "mad24" else 2)
        case "popc" | "clz" | "bfind":
            return ("u32",), (t,)
        case "bfe":
            return (t,), (t, "shift", "shift")
        case "bfi":
            return (t,), (t, t, "shift", "shift")
        case "bmsk":
            return ("b32",), ("shift", "shift")
        case "szext":
            return (t,), (t, "shift")
        case "dp4a" | "dp2a":
            return ("b32",), ("b32", "b32", "b32")
        case "lop3" | "prmt":
            return ("b32",), ("b32", "b32", "b32")
        case "shl" | "shr":
            return (t,), (t, "shift")
        case "shf":
            return ("b32",), ("b32", "b32", "shift")
        case "testp":
            return ("pred",), (t,)
        case "setp":
            return ("pred",), (t, t, *(["pred"] if "boolean" in options else []))
        case "set" | "set2":
            return (types[0],), (t, t, *(["pred"] if "boolean" in options else []))
        case "selp":
            return (t,), (t, t, "pred")
        case "slct":
            return (types[0],), (types[0], types[0], types[1])
        case "cvt":
            return (types[0],), (types[1],)
        case "cvttf32":
            return ("b32",), ("f32",)
        case "cvt2":
            return ("b32",), ("f32", "f32")
        case "cvtpack":
            return ("b32",), ("s32", "s32")
        case "cvtpack8":
            return ("b32",), ("s32", "s32", "b32")
    return None


CONSTANTS = {
    "s16": ("-3", 0xFFFD), "u16": ("65533", 0xFFFD), "s32": ("-3", 0xFFFFFFFD), "u32": ("4294967293", 0xFFFFFFFD),
    "s64": ("-3", (1 << 64) - 3), "u64": ("5", 5), "b16": ("0x5a3c", 0x5A3C), "b32": ("0x81c35a3c", 0x81C35A3C),
    "b64": ("0x8123456789abcdef", 0x8123456789ABCDEF), "shift": ("13", 13), "f32": ("0fBFC00001", 0xBFC00001),
    "f64": ("0dC008000000000001", 0xC008000000000001),
}  # fmt: skip
"""As written, and the bits. (The ISA has none for halves.)"""


def _with_constants(opcode, name, results, sources, letters):
    """The last operand as a constant, of what has two or more; of the many comparisons only the plain ones."""
    if len(sources) < 2 or sources[-1] not in CONSTANTS or name in {"set", "shl", "shr"}:
        return
    text, bits = CONSTANTS[sources[-1]]
    operands = ", ".join(["{d}", *letters[:-1], text])
    yield Written(opcode, "of a constant", f"{opcode} {operands};", results, sources[:-1], (bits,))


def _chains(opcode, name, t, options):
    """Carries: before what takes one stands what gives it, and behind what gives one stands what takes it."""
    size = t[1:]
    if opcode == "mov.b128":
        text = "mov.b128 %w0, {{{a}, {b}}};\nmov.b128 %w1, %w0;\nmov.b128 {{{f}, {d}}}, %w1;"
        yield Written(opcode, "", text, ("b64", "b64"), ("b64", "b64"))
        return
    first = opcode.split(".", maxsplit=1)[0]
    minus = first.startswith("sub")
    takes, gives = first in {"addc", "subc", "madc"}, ".cc" in opcode
    before = f"{'sub' if minus else 'add'}.cc.u{size} {{d}}, {{a}}, {{b}};\n" if takes else ""
    operands = "{a}, {b}, {c}" if name == "madcarry" else "{b}, {c}" if takes else "{a}, {b}"
    after = f"\n{'subc' if minus else 'addc'}.u{size} {{f}}, 0, 0;" if gives else ""
    results = (t, t) if gives else (t,)
    three = takes or name == "madcarry"
    yield Written(opcode, "", f"{before}{opcode} {{d}}, {operands};{after}", results, (t, t, t) if three else (t, t))
