"""The native runtime's language: a typed subset of Python, translated to LLVM IR text.

The runtime (memory accesses, atomics, the turns of warps) has to be native and there is no C compiler where undertorch
is installed. So its functions are written in Python's syntax in runtime/native/, read as syntax trees and translated
here. They are never imported or run by Python.

- Types are annotations: `i1 i8 i16 i32 i64 f32 f64`, `V[T]` a vector of 32 lanes, `Row[T]` one of 8 (a row of a
  matrix's tile), `P[T]` a pointer to T, `Ptr` to bytes, and the structs of layout.py (a parameter `warp: Warp` is a
  pointer to one).
- All integers are unsigned: `<` `>>` `//` `%` are; `signed_less` is the other. A literal takes the type of what it
  meets.
- `and`, `or` evaluate both sides. Names in capitals are constants, and what an `if` on constants excludes is not
  translated.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertorch.simt.codegen.dialect_types import F32, I1, I32, I64, PTR, VOID, Kind, Value, numpy_kind, vector
from undertorch.simt.codegen.intrinsics import INTRINSICS
from undertorch.simt.runtime.layout import STRUCTS, field_offset

COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "ult", ast.LtE: "ule", ast.Gt: "ugt", ast.GtE: "uge"}
INTEGER_OPS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "lshr",
}  # fmt: skip
FLOAT_OPS: dict[type, str] = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
SCALARS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


class DialectError(Exception):
    """The runtime's source says what the dialect has no words for: a mistake in undertorch itself."""


@dataclass(slots=True)
class Program:
    """Functions of the dialect, translated on demand with what they call."""

    sources: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, object]
    """Values, and types (`R="i32"`), of the names in capitals."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Functions that are only called, by their names in another object."""
    structs: "Mapping[str, np.dtype[Any]]" = field(default_factory=lambda: STRUCTS)
    done: dict[str, str] = field(default_factory=dict)
    external: dict[str, str] = field(default_factory=dict)
    """Declarations of intrinsics."""
    signatures: dict[str, tuple[list[Kind], Kind]] = field(default_factory=dict)

    def text(self, exported: Mapping[str, str]) -> str:
        """A module that exports functions, each under the name given for it."""
        for entry in exported:
            self.signature(entry)
        parts = dict(self.done)
        for entry, name in exported.items():
            result = self.signatures[entry][1].llvm
            parts[entry] = parts[entry].replace(f"define internal {result} @{entry}(", f"define {result} @{name}(", 1)
        body = "\n".join(parts.values())
        for entry, name in exported.items():
            body = body.replace(f"@{entry}(", f"@{name}(")
        return "\n".join(self.external.values()) + "\n" + body

    def signature(self, name: str) -> tuple[list[Kind], Kind]:
        """The kinds of a function's parameters and of its result; translates it."""
        if name not in self.signatures:
            if name not in self.sources:
                raise DialectError(f"There is no function {name}.")
            tree = self.sources[name]
            kinds = [self.kind(argument.annotation) for argument in tree.args.args]
            result = VOID if tree.returns is None or isinstance(tree.returns, ast.Constant) else self.kind(tree.returns)
            self.signatures[name] = (kinds, result)
            if name in self.elsewhere:
                at = self.elsewhere[name]
                # They are called rarely: LLVM keeps what they would overwrite in registers until then.
                self.external[name] = f"declare {result.llvm} @{at}({', '.join(kind.llvm for kind in kinds)}) cold"
                return self.signatures[name]
            self.done[name] = ""
            self.done[name] = _Function(self, tree, kinds, result).translate()
        return self.signatures[name]

    def kind(self, annotation: ast.expr | None) -> Kind:
        """The kind that an annotation names."""
        if isinstance(annotation, ast.Subscript):
            inner = self.kind(annotation.slice)
            outer = _name(annotation.value)
            lanes = {"V": 32, "Row": 8}.get(outer)
            return vector(inner, lanes) if lanes else Kind("ptr", "ptr", to=inner)
        name = _name(annotation)
        if name in self.constants and isinstance(self.constants[name], str):
            name = str(self.constants[name])
        if name in SCALARS:
            return Kind(name, "int")
        if name in self.structs:
            return Kind("ptr", "ptr", struct=name)
        known = {"half": Kind("half", "float"), "f32": F32, "f64": Kind("double", "float"), "Ptr": PTR}
        if name not in known:
            raise DialectError(f"There is no type {name}.")
        return known[name]


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant):
        return str(node.value)
    raise DialectError(f"A name is expected, not {ast.dump(node) if node else 'nothing'}.")


class _Function:
    """Translates one function."""

    def __init__(self, program: Program, tree: ast.FunctionDef, kinds: list[Kind], result: Kind) -> None:
        self.program, self.tree, self.kinds, self.result = program, tree, kinds, result
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.variables: dict[str, tuple[str, Kind]] = {}
        self.count = 0
        self.loops: list[tuple[str, str]] = []
        self.ended = False

    def translate(self) -> str:
        names = [argument.arg for argument in self.tree.args.args]
        for name, kind in zip(names, self.kinds, strict=True):
            self.assign(name, Value(f"%arg.{name}", kind))
        self.body(self.tree.body)
        if not self.ended:
            self.line("ret void" if self.result is VOID else "unreachable")
        parameters = ", ".join(f"{kind.llvm} %arg.{name}" for name, kind in zip(names, self.kinds, strict=True))
        head = f"define internal {self.result.llvm} @{self.tree.name}({parameters}) {{\nentry:"
        return "\n".join([head, *self.allocas, *self.lines, "}"])

    # -- text

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def value(self, text: str, kind: Kind) -> Value:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return Value(name, kind)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.ended = False

    def labels(self, *names: str) -> list[str]:
        self.count += 1
        return [f"{name}{self.count}" for name in names]

    def jump(self, to: str) -> None:
        if not self.ended:
            self.line(f"br label %{to}")
            self.ended = True

    def declare(self, name: str, text: str) -> None:
        self.program.external[name] = text

    def alloca(self, text: str) -> str:
        name = self.fresh()
        self.allocas.append(f"  {name} = alloca {text}")
        return name

    # -- statements

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.ended:
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self.expression(value)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value) if value is not None:
                self.assign(name, self.fit(self.expression(value), self.program.kind(annotation)))
            case ast.Assign(targets=[target], value=value):
                self.store(target, self.expression(value))
            case ast.AugAssign(target=target, op=op, value=value):
                old = self.expression(target)
                self.store(target, self.binary(op, old, self.expression(value)))
            case ast.If():
                self.if_(node)
            case ast.While(test=test, body=body):
                self.while_(test, body)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=[end]), body=body):
                self.for_(name, end, body)
            case ast.Return(value=value):
                self.return_(value)
            case ast.Break():
                self.jump(self.loops[-1][1])
            case ast.Continue():
                self.jump(self.loops[-1][0])
            case _:
                raise DialectError(f"{self.tree.name}: {ast.unparse(node)}")

    def return_(self, value: ast.expr | None) -> None:
        if value is None:
            self.line("ret void")
        else:
            found = self.fit(self.expression(value), self.result)
            self.line(f"ret {found.kind.llvm} {found.text}")
        self.ended = True

    def if_(self, node: ast.If) -> None:
        known = self.constant(node.test)
        if known is not None:
            self.body(node.body if known else node.orelse)
            return
        test = self.fit(self.expression(node.test), I1)
        then, other, after = self.labels("then", "else", "after")
        self.line(f"br i1 {test.text}, label %{then}, label %{other}")
        self.label(then)
        self.body(node.body)
        ended = self.ended
        self.jump(after)
        self.label(other)
        self.body(node.orelse)
        both = ended and self.ended
        self.jump(after)
        if both:
            self.ended = True
        else:
            self.label(after)

    def while_(self, test: ast.expr, body: list[ast.stmt]) -> None:
        again, inside, after = self.labels("again", "inside", "after")
        self.jump(again)
        self.label(again)
        if self.constant(test):
            self.line(f"br label %{inside}")
        else:
            condition = self.fit(self.expression(test), I1)
            self.line(f"br i1 {condition.text}, label %{inside}, label %{after}")
        self.label(inside)
        self.loops.append((again, after))
        self.body(body)
        self.loops.pop()
        self.jump(again)
        self.label(after)

    def for_(self, name: str, end: ast.expr, body: list[ast.stmt]) -> None:
        limit = self.expression(end)
        limit = self.fit(limit, I32) if limit.kind.family == "literal" else limit
        again, inside, following, after = self.labels("again", "inside", "following", "after")
        self.assign(name, Value("0", limit.kind))
        self.jump(again)
        self.label(again)
        at = self.read(name)
        go = self.value(f"icmp ult {at.kind.llvm} {at.text}, {limit.text}", I1)
        self.line(f"br i1 {go.text}, label %{inside}, label %{after}")
        self.label(inside)
        self.loops.append((following, after))
        self.body(body)
        self.loops.pop()
        self.jump(following)
        self.label(following)
        at = self.read(name)
        self.assign(name, self.value(f"add {at.kind.llvm} {at.text}, 1", at.kind))
        self.line(f"br label %{again}")
        self.label(after)

    # -- variables and memory

    def assign(self, name: str, value: Value) -> None:
        if name not in self.variables:
            value = self.fit(value, I32) if value.kind.family == "literal" else value
            self.variables[name] = (self.alloca(value.kind.llvm), value.kind)
        place, kind = self.variables[name]
        value = self.fit(value, kind)
        self.line(f"store {kind.llvm} {value.text}, ptr {place}")

    def read(self, name: str) -> Value:
        place, kind = self.variables[name]
        return self.value(f"load {kind.llvm}, ptr {place}", kind)

    def store(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
            return
        place, kind = self.place(target)
        value = self.fit(value, kind)
        self.line(f"store {kind.llvm} {value.text}, ptr {place}")

    def place(self, node: ast.expr) -> tuple[str, Kind]:
        """Where `a.b` or `p[i]` lies, and what lies there."""
        if isinstance(node, ast.Attribute):
            base = self.expression(node.value)
            if base.kind.struct is None:
                raise DialectError(f"{self.tree.name}: {ast.unparse(node)}: not a struct")
            struct = self.program.structs[base.kind.struct]
            at = self.value(f"getelementptr i8, ptr {base.text}, i64 {field_offset(struct, node.attr)}", PTR)
            assert struct.fields is not None
            return at.text, self.kind_in(struct.fields[node.attr][0])
        if isinstance(node, ast.Subscript):
            base = self.expression(node.value)
            return self.element(base, self.expression(node.slice))
        raise DialectError(f"{self.tree.name}: cannot assign to {ast.unparse(node)}")

    def element(self, base: Value, index: Value) -> tuple[str, Kind]:
        index = self.fit(index, I64) if index.kind.family == "literal" else index
        if index.kind.llvm != "i64":
            index = self.value(f"zext {index.kind.llvm} {index.text} to i64", I64)
        if base.kind.struct is not None:
            size = self.program.structs[base.kind.struct].itemsize
            at = self.value(f"getelementptr [{size} x i8], ptr {base.text}, i64 {index.text}", PTR)
            return at.text, base.kind
        if base.kind.to is None:
            raise DialectError(f"{self.tree.name}: not a typed pointer: {base.kind}")
        at = self.value(f"getelementptr {base.kind.to.llvm}, ptr {base.text}, i64 {index.text}", PTR)
        return at.text, base.kind.to

    # -- expressions

    def constant(self, node: ast.expr) -> Any:
        """The value of an expression of constants; None where it has others in it."""
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        if any(n.id not in self.program.constants for n in names):
            return None
        if any(isinstance(n, ast.Call) for n in ast.walk(node)):
            return None
        return eval(compile(ast.Expression(node), "<constants>", "eval"), {}, dict(self.program.constants))

    def expression(self, node: ast.expr) -> Value:
        known = self.constant(node)
        if known is not None and not isinstance(known, str):
            return Value(str(int(known)), Kind("", "literal"))
        match node:
            case ast.Name(id=name):
                if name not in self.variables:
                    raise DialectError(f"{self.tree.name}: {name} was not assigned")
                return self.read(name)
            case ast.Attribute():
                return self.field(node)
            case ast.Subscript(value=base, slice=index):
                place, kind = self.element(self.expression(base), self.expression(index))
                return Value(place, kind) if kind.struct else self.value(f"load {kind.llvm}, ptr {place}", kind)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.expression(left), self.expression(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compare(op, self.expression(left), self.expression(right))
            case ast.BoolOp(op=op, values=values):
                return self.boolean(op, values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.fit(self.expression(operand), I1)
                return self.value(f"xor i1 {inner.text}, true", I1)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                inner = self.expression(operand)
                return self.value(f"xor {inner.kind.llvm} {inner.text}, {_ones(inner.kind)}", inner.kind)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self.call(name, arguments)
        raise DialectError(f"{self.tree.name}: {ast.unparse(node)}")

    def boolean(self, op: ast.boolop, values: list[ast.expr]) -> Value:
        word = "and" if isinstance(op, ast.And) else "or"
        out = self.fit(self.expression(values[0]), I1)
        for other in values[1:]:
            right = self.fit(self.expression(other), I1)
            out = self.value(f"{word} i1 {out.text}, {right.text}", I1)
        return out

    def field(self, node: ast.Attribute) -> Value:
        place, kind = self.place(node)
        base = self.kind_of_field(node)
        if base.subdtype is not None or base.fields is not None:
            return Value(place, kind)
        return self.value(f"load {kind.llvm}, ptr {place}", kind)

    def kind_of_field(self, node: ast.Attribute) -> "np.dtype[Any]":
        base = self.expression(node.value)
        assert base.kind.struct is not None
        fields = self.program.structs[base.kind.struct].fields
        assert fields is not None
        return fields[node.attr][0]

    def kind_in(self, of: "np.dtype[Any]") -> Kind:
        """The kind of a struct's field."""
        if of.subdtype is not None:
            inner = of.subdtype[0]
            if inner.fields is not None:
                structs = self.program.structs
                return Kind("ptr", "ptr", struct=next(n for n, d in structs.items() if d == inner))
            return Kind("ptr", "ptr", to=numpy_kind(inner))
        return numpy_kind(of)

    def call(self, name: str, arguments: list[ast.expr]) -> Value:
        if name in INTRINSICS:
            return INTRINSICS[name](self, arguments)
        kinds, result = self.program.signature(name)
        values = [self.fit(self.expression(a), k) for a, k in zip(arguments, kinds, strict=True)]
        called = self.program.elsewhere.get(name, name)
        text = f"call {result.llvm} @{called}({', '.join(f'{v.kind.llvm} {v.text}' for v in values)})"
        if result is VOID:
            self.line(text)
            return Value("", VOID)
        return self.value(text, result)

    def fit(self, value: Value, kind: Kind) -> Value:
        """A literal, or a pointer, under another kind. Nothing else converts by itself."""
        if value.kind.family == "literal":
            if kind.family == "ptr":
                return Value("null" if value.text == "0" else f"inttoptr (i64 {value.text} to ptr)", kind)
            text = f"{value.text}.0" if kind.family == "float" else value.text
            if kind.lanes > 1:
                return Value(f"splat ({kind.element} {text})", kind)
            if kind.llvm == "i1":
                return Value("true" if value.text not in {"0", "False"} else "false", kind)
            return Value(text, kind)
        if value.kind.family == kind.family == "ptr":
            return Value(value.text, kind)
        if value.kind.family == "int" and value.kind.lanes == 1 and kind.family == "ptr":
            return self.value(f"inttoptr {value.kind.llvm} {value.text} to ptr", kind)
        if kind.llvm == "i1" and value.kind.family == "int" and value.kind.lanes == 1 and value.kind.llvm != "i1":
            return self.value(f"icmp ne {value.kind.llvm} {value.text}, 0", I1)
        if value.kind.llvm != kind.llvm:
            raise DialectError(f"{self.tree.name}: {value.kind.llvm} where {kind.llvm} is needed")
        return value

    def matched(self, left: Value, right: Value) -> tuple[Value, Value]:
        if left.kind.family == "literal" and right.kind.family == "literal":
            return self.fit(left, I32), self.fit(right, I32)
        if left.kind.family == "literal":
            return self.fit(left, right.kind), right
        return left, self.fit(right, left.kind)

    def binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        if left.kind.family == "ptr":
            place, kind = self.element(left, right)
            return Value(place, left.kind if kind.struct is None else kind)
        left, right = self.matched(left, right)
        ops = FLOAT_OPS if left.kind.family == "float" else INTEGER_OPS
        return self.value(f"{ops[type(op)]} {left.kind.llvm} {left.text}, {right.text}", left.kind)

    def compare(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        left, right = self.matched(left, right)
        word = COMPARISONS[type(op)]
        result = vector(I1, left.kind.lanes) if left.kind.lanes > 1 else I1
        if left.kind.family == "float":
            ordered = {"eq": "oeq", "ne": "une"}.get(word, "o" + word[1:])
            return self.value(f"fcmp {ordered} {left.kind.llvm} {left.text}, {right.text}", result)
        return self.value(f"icmp {word} {left.kind.llvm} {left.text}, {right.text}", result)


def _ones(kind: Kind) -> str:
    if kind.lanes > 1:
        return f"splat ({kind.element} {'true' if kind.element == 'i1' else '-1'})"
    return "true" if kind.llvm == "i1" else "-1"
