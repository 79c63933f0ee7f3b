"""Constants and constant expressions (PTX ISA, "Constants"): 64-bit integers, and floats that fit their operand."""

import struct
from dataclasses import dataclass

from undertorch.simt.errors import PtxError
from undertorch.simt.ptx.instructions import Immediate
from undertorch.simt.ptx.lexer import Token
from undertorch.simt.ptx.stream import Stream
from undertorch.simt.ptx.types import Type

WORD = 1 << 64
LONGEST = 72
"""Characters of the longest integer of 64 bits, in base 2, with room for leading zeros."""
DEEPEST = 32
"""Parentheses within parentheses; no compiler writes any."""
LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
"""Binary operators, the loosest first (PTX ISA, "Operator Precedence")."""
SUM = 8
"""The level of + and -."""


def integer(token: Token) -> int:
    """The value of an integer token. Raises PtxError for what is none, or none of 64 bits."""
    text = token.text.rstrip("U")
    if token.kind != "int":
        raise PtxError(f"PTX line {token.line}: {token.text!r} stands where a number has to be.")
    octal = text.startswith("0") and text.isdigit()
    if octal and set(text) & {"8", "9"}:
        raise PtxError(f"PTX line {token.line}: {token.text} is no number: what starts with 0 is octal.")
    value = WORD if len(text) > LONGEST else int(text, 8 if octal else 0)
    if value >= WORD:
        raise PtxError(f"PTX line {token.line}: the number {text[:LONGEST]} has more than 64 bits.")
    return value


@dataclass(frozen=True, slots=True)
class _Value:
    """An integer of 64 bits, or a float."""

    number: int | float
    unsigned: bool = False


def starts(stream: Stream) -> bool:
    """Whether a constant comes next."""
    token = stream.peek()
    if token.text == "!":  # of a predicate, else
        return stream.kind_after(1) == "int" or stream.after(1) == "("
    return token.kind in {"int", "float"} or token.text in {"-", "+", "~", "(", "WARP_SZ"}


def constant(stream: Stream) -> Immediate:
    """A constant expression; a float as the nearest float64, but for one in 0f notation: its own 32 bits."""
    token = stream.peek()
    if token.kind == "float" and token.text[1:2] in {"f", "F"} and stream.after(1) not in OPERATORS:
        stream.next()
        return Immediate(int(token.text[2:], 16), "f32")
    negative = token.text == "-" and stream.kind_after(1) == "float" and stream.after(1)[1:2] in {"f", "F"}
    if negative and stream.after(2) not in OPERATORS:
        stream.next()
        return Immediate(int(stream.next().text[2:], 16) ^ 0x80000000, "f32")
    return _immediate(_conditional(stream, 0))


def offset(stream: Stream) -> int:
    """`+ 4`, `- 4`, `+ -4`, or nothing: what is added to an address, as 64 bits with a sign."""
    total = 0
    while stream.peek().text in {"+", "-"}:
        sign = 1 if stream.next().text == "+" else -1
        value = _binary(stream, SUM + 1, 0)
        if isinstance(value.number, float):
            raise PtxError(f"PTX line {stream.peek().line}: a float is no offset of an address.")
        total += sign * value.number
    return _wrapped(total)


OPERATORS = {operator for level in LEVELS for operator in level} | {"?"}


def _immediate(value: _Value) -> Immediate:
    if isinstance(value.number, float):
        return Immediate(struct.unpack("<Q", struct.pack("<d", value.number))[0], "f64")
    return Immediate(value.number)


def _wrapped(number: int, *, unsigned: bool = False) -> int:
    number %= WORD
    return number if unsigned or number < WORD >> 1 else number - WORD


def _conditional(stream: Stream, depth: int) -> _Value:
    value = _binary(stream, 0, depth)
    if not stream.skip("?"):
        return value
    yes = _conditional(stream, depth + 1)
    stream.expect(":")
    no = _conditional(stream, depth + 1)
    return yes if value.number else no


def _binary(stream: Stream, level: int, depth: int) -> _Value:
    if level == len(LEVELS):
        return _unary(stream, depth)
    left = _binary(stream, level + 1, depth)
    while stream.peek().text in LEVELS[level]:
        operator = stream.next()
        left = _applied(operator, left, _binary(stream, level + 1, depth))
    return left


def _unary(stream: Stream, depth: int) -> _Value:
    token = stream.next()
    if depth > DEEPEST:
        raise PtxError(f"PTX line {token.line}: a constant nests deeper than {DEEPEST} levels.")
    if token.text == "(":
        if stream.peek().text in {".s64", ".u64"}:
            unsigned = stream.next().text == ".u64"
            stream.expect(")")
            value = _whole(token, _unary(stream, depth + 1))
            return _Value(_wrapped(value, unsigned=unsigned), unsigned)
        inner = _conditional(stream, depth + 1)
        stream.expect(")")
        return inner
    if token.text in {"+", "-", "~", "!"}:
        return _signed(token, _unary(stream, depth + 1))
    if token.text == "WARP_SZ":
        return _Value(32)
    if token.kind == "float":
        return _Value(_float(token))
    number = integer(token)
    return _Value(number, token.text.endswith("U") or number >= WORD >> 1)


def _signed(operator: Token, value: _Value) -> _Value:
    if operator.text == "+":
        return value
    if isinstance(value.number, float) and operator.text == "-":
        return _Value(-value.number)
    whole = _whole(operator, value)
    if operator.text == "!":
        return _Value(int(not whole))
    return _Value(_wrapped(-whole if operator.text == "-" else ~whole, unsigned=value.unsigned), value.unsigned)


def _applied(operator: Token, a: _Value, b: _Value) -> _Value:
    if isinstance(a.number, float) or isinstance(b.number, float):
        x, y = float(a.number), float(b.number)
        if operator.text not in {"+", "-", "*", "/"} or (operator.text == "/" and y == 0):
            raise PtxError(f"PTX line {operator.line}: {operator.text} of floats is no constant.")
        return _Value({"+": x + y, "-": x - y, "*": x * y, "/": x / (y or 1.0)}[operator.text])
    unsigned = a.unsigned or b.unsigned
    x, y = _wrapped(a.number, unsigned=unsigned), _wrapped(b.number, unsigned=unsigned)
    word = operator.text
    if word in {"==", "!=", "<", "<=", ">", ">=", "&&", "||"}:
        true = {
            "==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y,
            "&&": bool(x) and bool(y), "||": bool(x) or bool(y),
        }[word]  # fmt: skip
        return _Value(int(true))
    if word in {"/", "%"} and y == 0:
        raise PtxError(f"PTX line {operator.line}: a constant is divided by 0.")
    if word in {"<<", ">>"}:
        unsigned, x, y = a.unsigned, _wrapped(a.number, unsigned=a.unsigned), min(max(y, 0), 64)
    match word:
        case "+":
            out = x + y
        case "-":
            out = x - y
        case "*":
            out = x * y
        case "/":
            out = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        case "%":
            out = abs(x) % abs(y) * (-1 if x < 0 else 1)
        case "<<":
            out = x << y
        case ">>":
            out = x >> y
        case "&":
            out = x & y
        case "^":
            out = x ^ y
        case _:
            out = x | y
    return _Value(_wrapped(out, unsigned=unsigned), unsigned)


def _whole(token: Token, value: _Value) -> int:
    if isinstance(value.number, float):
        raise PtxError(f"PTX line {token.line}: {token.text} takes integers, and a float stands there.")
    return value.number


def _float(token: Token) -> float:
    text = token.text
    if text[1:2] in {"f", "F"} and text[0] == "0":
        return float(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if text[1:2] in {"d", "D"} and text[0] == "0":
        return float(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    value = float(text)
    if value == float("inf"):
        raise PtxError(f"PTX line {token.line}: {text} is above every float64.")
    return value


def as_type(given: Immediate, type: Type, line: int) -> Immediate:
    """A constant as an operand of a type has it: floats rounded to it, as ptxas does.

    What ptxas takes: integers for integers and bits; of floats, all notations for .f32 and .f64, 0f… for .b32, 0d… and
    decimal ones for .b64; for halves no constant at all. Raises PtxError for the rest.
    """
    if type.kind == "predicate":
        return given
    if type.floating:
        if type.bits not in {32, 64} or type.lanes > 1 or type.kind == "brain" or type.name == "tf32":
            raise PtxError(f"PTX line {line}: .{type.name} takes no constant; move its bits into a register first.")
        if given.kind == "int":
            raise PtxError(
                f"PTX line {line}: .{type.name} takes no integer constant; write it as a float: {given.bits}.0."
            )
        return _rounded(given, type.bits)
    if given.kind != "int" and (type.kind != "bits" or given.kind != {32: "f32", 64: "f64"}.get(type.bits)):
        raise PtxError(f"PTX line {line}: a float constant stands where .{type.name} has to be.")
    return given


def _rounded(given: Immediate, bits: int) -> Immediate:
    if (given.kind == "f32") == (bits == 32):
        return given
    if bits == 64:
        (value,) = struct.unpack("<f", given.bits.to_bytes(4, "little"))
        return Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], "f64")
    (value,) = struct.unpack("<d", given.bits.to_bytes(8, "little"))
    try:
        data = struct.pack("<f", value)
    except OverflowError:
        data = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return Immediate(struct.unpack("<I", data)[0], "f32")
