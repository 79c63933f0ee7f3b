"""Calls are inlined: PTX passes arguments through named memory, so a call is a renaming.

A call through a pointer compares it with each function whose address the file takes and whose parameters are of the
same sizes, and goes to the one that it is.
"""

from dataclasses import dataclass, field, replace

from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.instructions import (
    Address,
    Function,
    Group,
    Instruction,
    Label,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
)
from undertorch.simt.ptx.opcodes import match
from undertorch.simt.ptx.types import TYPES

Sizes = tuple[int | None, ...]
"""Bytes of results, or of arguments; None: it lies in no variable."""
HOST_CALLS: dict[str, tuple[Sizes, Sizes]] = {
    "vprintf": ((4,), (8, 8)), "__assertfail": ((), (8, 8, 4, 8, 8)), "malloc": ((8,), (8,)), "free": ((), (8,)),
}  # fmt: skip
"""Functions that the machine answers itself (CUDA C++ Programming Guide, "C++ Language Extensions")."""
NO_FUNCTION = "calls through a pointer that leads to no function of this file with such parameters"
RECURSION = "calls through a pointer a function that is under way; recursion is not supported"

MOST_STATEMENTS = 200_000
"""Of a kernel with all that it calls: LLVM takes half a minute for them."""

Body = list[Instruction | Label]


@dataclass(slots=True, kw_only=True)
class Inliner:
    """Puts the functions that a kernel calls where it calls them."""

    module: Module
    variables: list[Variable] = field(default_factory=list)
    """The kernel's own, and those of what was inlined."""
    stack: list[str] = field(default_factory=list)
    """Functions under way."""
    count: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    """Statements of functions, with all that they call."""

    def kernel(self, function: Function) -> tuple[Body, tuple[Variable, ...]]:
        """A kernel without calls. Raises Unsupported for recursion and for functions of other files."""
        size = self._size(function, ())
        if size > MOST_STATEMENTS:
            raise Unsupported(
                f"{function.name} comes to {size} statements where every call becomes what it calls, and at most "
                f"{MOST_STATEMENTS} can be compiled; let functions that call others be called from fewer places."
            )
        self.variables += function.variables
        body = self._body(function)
        body = [replace(i, name="exit") if isinstance(i, Instruction) and i.name == "ret" else i for i in body]
        return body, tuple(self.variables)

    def _size(self, function: Function, above: tuple[str, ...]) -> int:
        """Statements with all that is called; what calls itself is told later, by its line."""
        if function.name in above:
            return 0
        if function.name not in self.sizes:
            total = len(function.body)
            for item in function.body:
                if isinstance(item, Instruction) and item.name == "call":
                    target = item.sources[1]
                    names = (target.name,) if isinstance(target, Symbol) else self.module.pointed_to
                    known = [self.module.functions[name] for name in names if name in self.module.functions]
                    total += sum(self._size(callee, (*above, function.name)) for callee in known)
            self.sizes[function.name] = total
        return self.sizes[function.name]

    def _suffix(self) -> str:
        self.count += 1
        return f"@{self.count}"

    def _body(self, function: Function) -> Body:
        if function.unsupported:
            more = len(function.unsupported) - 1
            raise Unsupported(function.unsupported[0] + (f" ({more} more in {function.name})" if more else ""))
        self.stack.append(function.name)
        out: Body = []
        for item in function.body:
            if isinstance(item, Instruction) and item.name == "call":
                out += self._guarded(item, function)
            else:
                out.append(item)
        self.stack.pop()
        return out

    def _guarded(self, call: Instruction, caller: Function) -> Body:
        """A call's guard becomes a branch around what is called."""
        bare = replace(call, guard=None, guard_negated=False)
        target = call.sources[1]
        given = tuple(_sizes(caller, group) for group in (call.sources[0], call.sources[2]))
        body = self._direct(bare, target.name, given) if isinstance(target, Symbol) else self._indirect(bare, given)
        if call.guard is None:
            return body
        past = Label(f"after{self._suffix()}")
        around = _branch(call, past, call.guard)
        return [replace(around, guard_negated=not call.guard_negated), *body, past]

    def _direct(self, call: Instruction, name: str, given: tuple[Sizes, ...]) -> Body:
        where = f"PTX line {call.text_line}"
        if name in HOST_CALLS:
            if given != HOST_CALLS[name]:
                raise PtxError(f"{where}: {name} is called with other arguments than it has.")
            return [replace(call, name="hostcall")]
        callee = self.module.functions.get(name)
        if callee is None:
            raise Unsupported(f"{where}: {name} is called, and its code is not in this file.")
        if callee.kernel:
            raise PtxError(f"{where}: {name} is called, and it is a kernel.")
        if name in self.stack:
            raise Unsupported(f"{where}: {name} calls itself; recursion is not supported.")
        return self._called(call, callee)

    def _called(self, call: Instruction, callee: Function) -> Body:
        results, _, arguments = call.sources
        assert isinstance(results, Group)
        assert isinstance(arguments, Group)
        suffix = self._suffix()
        given = (*results.items, *arguments.items)
        formals = (*callee.returns, *callee.parameters)
        if len(formals) != len(given) or not all(isinstance(actual, Symbol) for actual in given):
            raise Unsupported(f"PTX line {call.text_line}: {callee.name} takes other arguments, or some in registers.")
        renames = {f.name: a.name for f, a in zip(formals, given, strict=True) if isinstance(a, Symbol)}
        renames |= {v.name: v.name + suffix for v in callee.variables}
        self.variables += [replace(v, name=v.name + suffix) for v in callee.variables]
        body = self._body(callee)
        done = Label(f"after{suffix}")
        out: Body = []
        for item in body:
            if isinstance(item, Label):
                out.append(Label(item.name + suffix))
            elif item.name == "ret":
                out.append(replace(item, name="bra", sources=(done,)))
            else:
                out.append(_renamed(item, renames, suffix))
        return [*out, done]

    def _indirect(self, call: Instruction, given: tuple[Sizes, ...]) -> Body:
        pointer = call.sources[1]
        found = match("setp.ne.u64")
        assert found is not None
        done, out = Label(f"after{self._suffix()}"), []
        for name in self.module.pointed_to:
            callee = self.module.functions.get(name)
            if callee is None or given != (_bytes(callee.returns), _bytes(callee.parameters)):
                continue
            suffix = self._suffix()
            other, past = Register(f"%other{suffix}", TYPES["pred"]), Label(f"after{suffix}")
            compared = replace(
                call, name="setp", types=found.types, options=found.options, results=(other,),
                sources=(pointer, Symbol(name)), converge=False,
            )  # fmt: skip
            body = [_trap(call, RECURSION)] if name in self.stack else self._called(call, callee)
            out += [compared, _branch(call, past, other), *body, _branch(call, done, None), past]
        return [*out, _trap(call, NO_FUNCTION), done]


def _sizes(caller: Function, group: Operand) -> Sizes:
    assert isinstance(group, Group)
    sizes = {v.name: v.size for v in (*caller.variables, *caller.parameters, *caller.returns)}
    return tuple(sizes.get(item.name) if isinstance(item, Symbol) else None for item in group.items)


def _bytes(variables: tuple[Variable, ...]) -> Sizes:
    return tuple(v.size for v in variables)


def _branch(call: Instruction, to: Label, guard: Register | None) -> Instruction:
    return replace(call, name="bra", results=(), sources=(to,), guard=guard, converge=False)


def _trap(call: Instruction, why: str) -> Instruction:
    return replace(call, name="trap", results=(), sources=(), options={"why": why}, converge=False)


def _renamed(item: Instruction, renames: dict[str, str], suffix: str) -> Instruction:
    def operand(of: Operand) -> Operand:
        match of:
            case Register(name, type):
                return Register(name + suffix, type)
            case Negated(register):
                return Negated(Register(register.name + suffix, register.type))
            case Symbol(name, offset):
                return Symbol(renames.get(name, name), offset)
            case Address(base, offset):
                inner = operand(base) if base is not None else None
                assert inner is None or isinstance(inner, Register | Symbol)
                return Address(inner, offset)
            case Group(items):
                return Group(tuple(operand(i) for i in items))
            case Pair(first, second):
                return Pair(operand(first), operand(second))
            case Label(name):
                return Label(name + suffix)
            case _:
                return of

    guard = Register(item.guard.name + suffix, item.guard.type) if item.guard else None
    return replace(
        item,
        guard=guard,
        results=tuple(operand(o) for o in item.results),
        sources=tuple(operand(o) for o in item.sources),
    )
