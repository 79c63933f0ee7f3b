"""Functions that the runtime's language has built in, each a line or a few of LLVM IR."""

import ast
from collections.abc import Callable
from typing import Any, Protocol

from undertorch.simt.codegen.dialect_types import I1, I32, I64, PTR, VOID, Kind, Value, vector

LANES = ", ".join(f"i32 {n}" for n in range(32))


class Translator(Protocol):
    """What an intrinsic needs of the function that is being translated."""

    program: Any

    def value(self, text: str, kind: Kind) -> Value:
        """One line that gives a value."""

    def line(self, text: str) -> None:
        """One line."""

    def expression(self, node: ast.expr) -> Value:
        """Translates an expression."""

    def fit(self, value: Value, kind: Kind) -> Value:
        """A literal or a pointer under another kind."""

    def matched(self, left: Value, right: Value) -> tuple[Value, Value]:
        """Both under one kind."""

    def declare(self, name: str, text: str) -> None:
        """A function that has to be declared."""

    def alloca(self, text: str) -> str:
        """Room on the stack."""


Intrinsic = Callable[[Translator, list[ast.expr]], Value]
INTRINSICS: dict[str, Intrinsic] = {}


def _intrinsic(function: Intrinsic) -> Intrinsic:
    INTRINSICS[function.__name__.strip("_")] = function
    return function


def _typed(t: Translator, arguments: list[ast.expr]) -> tuple[Kind, Value]:
    return t.program.kind(arguments[0]), t.expression(arguments[1])


def _short(kind: Kind) -> str:
    scalar = {"float": "f32", "double": "f64"}.get(kind.element, kind.element)
    return f"v{kind.lanes}{scalar}" if kind.lanes > 1 else scalar


@_intrinsic
def load(t: Translator, a: list[ast.expr]) -> Value:
    """`load(T, p)`: any alignment."""
    kind, pointer = _typed(t, a)
    pointer = t.fit(pointer, PTR)
    return t.value(f"load {kind.llvm}, ptr {pointer.text}, align 1", kind)


@_intrinsic
def store(t: Translator, a: list[ast.expr]) -> Value:
    """`store(p, value)`: any alignment."""
    pointer, value = t.fit(t.expression(a[0]), PTR), t.expression(a[1])
    t.line(f"store {value.kind.llvm} {value.text}, ptr {pointer.text}, align 1")
    return Value("", VOID)


def _times(lanes: int) -> Intrinsic:
    def times(t: Translator, a: list[ast.expr]) -> Value:
        value = t.expression(a[0])
        value = t.fit(value, I32) if value.kind.family == "literal" else value
        kind = vector(value.kind, lanes)
        one = t.value(f"insertelement {kind.llvm} poison, {value.kind.llvm} {value.text}, i32 0", kind)
        zeros = f"<{lanes} x i32> zeroinitializer"
        return t.value(f"shufflevector {kind.llvm} {one.text}, {kind.llvm} poison, {zeros}", kind)

    return times


INTRINSICS |= {"splat": _times(32), "eight": _times(8)}
"""`splat(x)`, `eight(x)`: x in every lane of a V, of a Row."""


@_intrinsic
def lane_numbers(t: Translator, a: list[ast.expr]) -> Value:
    """`lane_numbers(T)`: 0, 1, … 31."""
    kind = t.program.kind(a[0])
    return Value("<" + ", ".join(f"{kind.llvm} {n}" for n in range(32)) + ">", vector(kind))


@_intrinsic
def bits(t: Translator, a: list[ast.expr]) -> Value:
    """`bits(v)`: 32 truth values as an i32."""
    value = t.expression(a[0])
    return t.value(f"bitcast <32 x i1> {value.text} to i32", I32)


@_intrinsic
def lanes(t: Translator, a: list[ast.expr]) -> Value:
    """`lanes(mask)`: an i32 as 32 truth values."""
    value = t.expression(a[0])
    return t.value(f"bitcast i32 {value.text} to <32 x i1>", vector(I1))


@_intrinsic
def select(t: Translator, a: list[ast.expr]) -> Value:
    """`select(c, x, y)`."""
    condition = t.expression(a[0])
    x, y = t.matched(t.expression(a[1]), t.expression(a[2]))
    return t.value(
        f"select {condition.kind.llvm} {condition.text}, {x.kind.llvm} {x.text}, {y.kind.llvm} {y.text}", x.kind
    )


def _convert(word: str) -> Intrinsic:
    def convert(t: Translator, a: list[ast.expr]) -> Value:
        kind, value = _typed(t, a)
        if value.kind.lanes > 1 and kind.lanes == 1:
            kind = vector(kind, value.kind.lanes)
        if value.kind.family == "literal":
            return t.fit(value, kind)
        if value.kind.llvm == kind.llvm:
            return value
        return t.value(f"{word} {value.kind.llvm} {value.text} to {kind.llvm}", kind)

    return convert


INTRINSICS |= {
    "widen": _convert("zext"),
    "widen_signed": _convert("sext"),
    "narrow": _convert("trunc"),
    "as_bits": _convert("bitcast"),
    "widen_float": _convert("fpext"),
    "narrow_float": _convert("fptrunc"),
}


@_intrinsic
def address(t: Translator, a: list[ast.expr]) -> Value:
    """`address(p)`: a pointer as an i64."""
    value = t.expression(a[0])
    return t.value(f"ptrtoint ptr {value.text} to i64", I64)


@_intrinsic
def pointer(t: Translator, a: list[ast.expr]) -> Value:
    """`pointer(T, x)`: an i64, or another pointer, as a pointer to T (a type or a struct)."""
    kind, value = _typed(t, a)
    target = kind if kind.struct else Kind("ptr", "ptr", to=kind)
    if value.kind.family == "ptr":
        return Value(value.text, target)
    value = t.fit(value, I64)
    return t.value(f"inttoptr i64 {value.text} to ptr", target)


def _unary(name: str, extra: str = "") -> Intrinsic:
    def unary(t: Translator, a: list[ast.expr]) -> Value:
        value = t.expression(a[0])
        full = f"llvm.{name}.{_short(value.kind)}"
        t.declare(full, f"declare {value.kind.llvm} @{full}({value.kind.llvm}{', i1' if extra else ''})")
        return t.value(f"call {value.kind.llvm} @{full}({value.kind.llvm} {value.text}{extra})", value.kind)

    return unary


INTRINSICS |= {
    "population": _unary("ctpop"),
    "trailing_zeros": _unary("cttz", ", i1 false"),
    "leading_zeros": _unary("ctlz", ", i1 false"),
    "truncated": _unary("trunc"),
    "size_of": _unary("fabs"),
}


def _alike(name: str) -> Intrinsic:
    """Of operands of one kind."""

    def alike(t: Translator, a: list[ast.expr]) -> Value:
        values = [t.expression(x) for x in a]
        kind = values[0].kind
        full = f"llvm.{name}.{_short(kind)}"
        t.declare(full, f"declare {kind.llvm} @{full}({', '.join([kind.llvm] * len(values))})")
        return t.value(f"call {kind.llvm} @{full}({', '.join(f'{kind.llvm} {v.text}' for v in values)})", kind)

    return alike


INTRINSICS |= {"fused": _alike("fma"), "saturating_sum": _alike("sadd.sat")}


def _zip(first: int) -> Intrinsic:
    """`lower_zip(x, y)`: x0 y0 x1 y1 …, of a Row's first four lanes; `upper_zip`: of its last."""

    def zipped(t: Translator, a: list[ast.expr]) -> Value:
        x, y = t.expression(a[0]), t.expression(a[1])
        order = ", ".join(f"i32 {n + at}" for n in range(first, first + 4) for at in (0, 8))
        return t.value(f"shufflevector {x.kind.llvm} {x.text}, {y.kind.llvm} {y.text}, <8 x i32> <{order}>", x.kind)

    return zipped


INTRINSICS |= {"lower_zip": _zip(0), "upper_zip": _zip(4)}


def _across(name: str) -> Intrinsic:
    def across(t: Translator, a: list[ast.expr]) -> Value:
        value = t.expression(a[0])
        full = f"llvm.vector.reduce.{name}.{_short(value.kind)}"
        scalar = Kind(value.kind.element, value.kind.family)
        t.declare(full, f"declare {scalar.llvm} @{full}({value.kind.llvm})")
        return t.value(f"call {scalar.llvm} @{full}({value.kind.llvm} {value.text})", scalar)

    return across


INTRINSICS |= {"least": _across("umin"), "greatest": _across("umax"), "any_bit": _across("or")}


@_intrinsic
def gather(t: Translator, a: list[ast.expr]) -> Value:
    """`gather(T, addresses, mask)`: addresses is V[i64]; 0 where the mask is off."""
    kind, addresses, mask = t.program.kind(a[0]), t.expression(a[1]), t.expression(a[2])
    full = f"llvm.masked.gather.{_short(vector(kind))}.v32p0"
    v = vector(kind)
    t.declare(full, f"declare {v.llvm} @{full}(<32 x ptr>, <32 x i1>, {v.llvm})")
    p = t.value(f"inttoptr <32 x i64> {addresses.text} to <32 x ptr>", v)
    return t.value(
        f"call {v.llvm} @{full}(<32 x ptr> align 1 {p.text}, <32 x i1> {mask.text}, {v.llvm} zeroinitializer)", v
    )


@_intrinsic
def scatter(t: Translator, a: list[ast.expr]) -> Value:
    """`scatter(value, addresses, mask)`: of equal addresses the highest lane's value stays."""
    value, addresses, mask = (t.expression(x) for x in a)
    full = f"llvm.masked.scatter.{_short(value.kind)}.v32p0"
    t.declare(full, f"declare void @{full}({value.kind.llvm}, <32 x ptr>, <32 x i1>)")
    p = t.value(f"inttoptr <32 x i64> {addresses.text} to <32 x ptr>", value.kind)
    t.line(f"call void @{full}({value.kind.llvm} {value.text}, <32 x ptr> align 1 {p.text}, <32 x i1> {mask.text})")
    return Value("", VOID)


@_intrinsic
def masked_load(t: Translator, a: list[ast.expr]) -> Value:
    """`masked_load(T, p, mask)`: 32 neighbours; 0 where the mask is off."""
    kind, at, mask = t.program.kind(a[0]), t.fit(t.expression(a[1]), PTR), t.expression(a[2])
    v = vector(kind)
    full = f"llvm.masked.load.{_short(v)}.p0"
    t.declare(full, f"declare {v.llvm} @{full}(ptr, <32 x i1>, {v.llvm})")
    return t.value(f"call {v.llvm} @{full}(ptr align 1 {at.text}, <32 x i1> {mask.text}, {v.llvm} zeroinitializer)", v)


@_intrinsic
def masked_store(t: Translator, a: list[ast.expr]) -> Value:
    """`masked_store(p, value, mask)`."""
    at, value, mask = t.fit(t.expression(a[0]), PTR), t.expression(a[1]), t.expression(a[2])
    full = f"llvm.masked.store.{_short(value.kind)}.p0"
    t.declare(full, f"declare void @{full}({value.kind.llvm}, ptr, <32 x i1>)")
    t.line(f"call void @{full}({value.kind.llvm} {value.text}, ptr align 1 {at.text}, <32 x i1> {mask.text})")
    return Value("", VOID)


@_intrinsic
def array(t: Translator, a: list[ast.expr]) -> Value:
    """`array(T, n)`: n zeros on the stack."""
    kind = t.program.kind(a[0])
    count = int(t.expression(a[1]).text)
    place = t.alloca(f"[{count} x {kind.llvm}], align 64")
    t.line(f"store [{count} x {kind.llvm}] zeroinitializer, ptr {place}")
    return Value(place, Kind("ptr", "ptr", to=kind))


@_intrinsic
def signed_less(t: Translator, a: list[ast.expr]) -> Value:
    """`signed_less(x, y)`."""
    x, y = t.matched(t.expression(a[0]), t.expression(a[1]))
    result = vector(I1, x.kind.lanes) if x.kind.lanes > 1 else I1
    return t.value(f"icmp slt {x.kind.llvm} {x.text}, {y.text}", result)


@_intrinsic
def atomic(t: Translator, a: list[ast.expr]) -> Value:
    """`atomic(OP, p, value)`: LLVM's atomicrmw; returns the old value."""
    op = str(t.program.constants[ast.unparse(a[0])])
    at, value = t.expression(a[1]), t.expression(a[2])
    return t.value(f"atomicrmw {op} ptr {at.text}, {value.kind.llvm} {value.text} seq_cst", value.kind)


@_intrinsic
def compare_exchange(t: Translator, a: list[ast.expr]) -> Value:
    """`compare_exchange(p, expected, new)`: returns the old value."""
    at, expected, new = (t.expression(x) for x in a)
    expected = t.fit(expected, new.kind)
    both = t.value(
        f"cmpxchg ptr {at.text}, {new.kind.llvm} {expected.text}, {new.kind.llvm} {new.text} seq_cst seq_cst", new.kind
    )
    return t.value(f"extractvalue {{ {new.kind.llvm}, i1 }} {both.text}, 0", new.kind)


@_intrinsic
def fill(t: Translator, a: list[ast.expr]) -> Value:
    """`fill(p, byte, n)`: n an i64."""
    at, byte, n = t.fit(t.expression(a[0]), PTR), t.expression(a[1]), t.fit(t.expression(a[2]), I64)
    t.declare("memset", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    t.line(f"call void @llvm.memset.p0.i64(ptr {at.text}, i8 {byte.text}, i64 {n.text}, i1 false)")
    return Value("", VOID)


@_intrinsic
def copy(t: Translator, a: list[ast.expr]) -> Value:
    """`copy(to, source, n)`: n an i64."""
    to, source, n = t.fit(t.expression(a[0]), PTR), t.fit(t.expression(a[1]), PTR), t.fit(t.expression(a[2]), I64)
    t.declare("memmove", "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
    t.line(f"call void @llvm.memmove.p0.p0.i64(ptr {to.text}, ptr {source.text}, i64 {n.text}, i1 false)")
    return Value("", VOID)


@_intrinsic
def call_address(t: Translator, a: list[ast.expr]) -> Value:
    """`call_address(function, …)`: calls an address; every argument as it is, the result an i32."""
    function, *rest = (t.expression(x) for x in a)
    at = t.fit(function, PTR)
    rest = [t.fit(v, I32) if v.kind.family == "literal" else v for v in rest]
    return t.value(f"call i32 {at.text}({', '.join(f'{v.kind.llvm} {v.text}' for v in rest)})", I32)
