"""Atomics: each on a cell of its own with corners, and many threads on one cell (PTX ISA, atom and red)."""

from collections import defaultdict
from fractions import Fraction

import numpy as np

from exact_floats import decode, encode, flushed, total
from simt.conformance.cases import HEAD, Case
from simt.conformance.inputs import float_corners, integer_corners, random_bits
from simt.conformance.memory import LETTER, parts, space_of
from undertorch.simt.ptx.opcodes import match


def _values(kind, seed):
    """64 operands: small whole numbers for floats (so that sums do not hang on their order), anything for integers."""
    if kind.floating:
        one = kind.name.removesuffix("x2")
        numbers = [int(n) - 8 for n in (random_bits(seed, 64 * kind.lanes) % np.uint64(17)).tolist()]
        raw = [encode(int(n < 0), Fraction(abs(n)), one) for n in numbers]
        return [raw[2 * n] | raw[2 * n + 1] << 16 for n in range(64)] if kind.lanes == 2 else raw
    corners = integer_corners(kind.bits)
    return [*corners, *(int(x) >> (64 - kind.bits) for x in random_bits(seed, 64 - len(corners)).tolist())]


def _corner_values(kind, seed):
    if not kind.floating:
        return _values(kind, seed)
    one = kind.name.removesuffix("x2")
    corners = float_corners(one)
    order = (random_bits(seed, 64 * kind.lanes) % np.uint64(16)).tolist()
    raw = [corners[n] for n in order]
    return [raw[2 * n] | raw[2 * n + 1] << 16 for n in range(64)] if kind.lanes == 2 else raw


def applied(op, kind, space, old, b, c=None):
    """The new value of a cell (PTX ISA, atom)."""
    ones = (1 << kind.bits) - 1
    if kind.floating:
        one = kind.name.removesuffix("x2")
        if kind.lanes == 2:
            low, high = (applied(op, _Half(one), space, old >> s & 0xFFFF, b >> s & 0xFFFF) for s in (0, 16))
            return low | high << 16 if low is not None and high is not None else None
        ftz = one == "f32" and space != "shared"  # "atom.add.f32 on global memory flushes subnormal inputs and results"
        x, y = (flushed(v) if ftz else v for v in (old, b))
        out = encode(*total([decode(x, one), decode(y, one)], "rn"), one)
        return flushed(out) if ftz and out is not None else out

    def number(v):
        return v - (1 << kind.bits) if kind.signed and v >> (kind.bits - 1) else v

    match op:
        case "add":
            return old + b & ones
        case "min" | "max":
            return (min if op == "min" else max)(old, b, key=number)
        case "inc":
            return 0 if old >= b else old + 1
        case "dec":
            return b if old == 0 or old > b else old - 1
        case "and":
            return old & b
        case "or":
            return old | b
        case "xor":
            return old ^ b
        case "exch":
            return b
        case "cas":
            return c if old == b else old
    raise ValueError(op)


class _Half:
    floating, lanes = True, 1

    def __init__(self, name):
        self.name, self.bits = name, 16


def atomic_cases(opcodes):
    """Alone: each thread on its own cell, with corners; what comes back and what stays. Together: 64 threads of two
    blocks on one cell each of global and shared memory, where the result hangs on no order."""
    wanted = [o for o in opcodes if match(o).form.name in {"atom", "red"}]
    groups = defaultdict(list)
    for opcode in wanted:
        groups[match(opcode).types[-1].name].append(opcode)
    for name, group in sorted(groups.items()):
        for number, part in enumerate(parts(group, 40)):
            yield _alone(name, part, number)
            case = _together(name, part, number)
            if case is not None:
                yield case


def _alone(name, opcodes, number):
    kind = match(opcodes[0]).types[-1]
    bits, letter, size = kind.bits, LETTER[max(16, kind.bits)], kind.bits // 8
    cells, b, c = _corner_values(kind, 21 + number), _corner_values(kind, 22 + number), _values(kind, 23)
    some = [x if n % 3 else cells[n] for n, x in enumerate(b)]
    lines, want, old = [], [], []
    for place, opcode in enumerate(opcodes):
        found = match(opcode)
        op, space = found.options["op"], space_of(found.options)
        given = some if op == "cas" else b
        want += [applied(op, kind, space, *row) for row in zip(cells, given, c, strict=True)]
        old += cells if found.form.name == "atom" else c
        at, shared = 64 * size * place, space == "shared"
        result = f"{letter}9, " if found.form.name == "atom" else ""
        more = f", {letter}1" if op == "cas" else ""
        hint = ", %c" if "L2::cache_hint" in opcode else ""
        if shared:
            lines += [f"ld.global.b{bits} {letter}2, [%a+{at}];", f"st.shared.b{bits} [%s], {letter}2;"]
        where, second = "%s" if shared else f"%a+{at}", f"{letter}{3 if op == 'cas' else 0}"
        lines += [f"mov.b{bits} {letter}9, {letter}1;", f"{opcode} {result}[{where}], {second}{more}{hint};"]
        if shared:
            lines += [f"ld.shared.b{bits} {letter}2, [%s];", f"st.global.b{bits} [%a+{at}], {letter}2;"]
        lines.append(f"st.global.b{bits} [%p+{at}], {letter}9;")
    loads = "".join(
        f"ld.param.u64 %p, [{word}]; mad.wide.u32 %p, %t, {size}, %p; ld.global.b{bits} {letter}{n}, [%p];\n"
        for word, n in (("bs", 0), ("cs", 1), ("some", 3))
    )
    body = "\n".join(lines)
    policy = "createpolicy.fractional.L2::evict_last.b64 %c, 1.0;" if "%c;" in body else ""
    text = f"""{HEAD}
.visible .entry kernel(.param .u64 cells, .param .u64 bs, .param .u64 cs, .param .u64 some, .param .u64 out)
{{
.reg .b16 %h<10>; .reg .b32 %r<10>, %t, %s; .reg .b64 %l<10>, %a, %p, %c;
.shared .align 16 .b8 room[512];
mov.u32 %t, %tid.x; {policy}
{loads}ld.param.u64 %a, [cells]; mad.wide.u32 %a, %t, {size}, %a;
ld.param.u64 %p, [out]; mad.wide.u32 %p, %t, {size}, %p;
mov.u32 %s, room; mad.lo.u32 %s, %t, {size}, %s;
{body}
ret;
}}
"""
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    free = [n for n, a in enumerate(want) if a is None or (kind.floating and _a_nan(a, kind))]
    arguments = (cells * len(opcodes), b, c, some, [0] * len(old))
    return Case(f"atomics alone {name} {number}", tuple(opcodes), text, (1, 1, 1), (64, 1, 1),
                tuple(np.array(x, dtype) for x in arguments),
                {0: np.array([a or 0 for a in want], dtype), 4: np.array(old, dtype)}, free={0: free})  # fmt: skip


def _a_nan(raw, kind):
    """The ISA does not say which NaN an atomic addition gives."""
    one = kind.name.removesuffix("x2")
    return any(decode(raw >> 16 * n & (1 << kind.bits // kind.lanes) - 1, one)[1] == "nan" for n in range(kind.lanes))


def _together(name, opcodes, number):
    lines, want, forms, start = [], [], [], []
    kind = match(opcodes[0]).types[-1]
    bits, letter, size = kind.bits, LETTER[max(16, kind.bits)], kind.bits // 8
    values = _values(kind, 31)
    for opcode in opcodes:
        found = match(opcode)
        op, space = found.options["op"], space_of(found.options)
        if op in {"exch", "cas"}:
            continue
        forms.append(opcode)
        at = size * len(want)
        operands = [12345 & (1 << bits) - 1] * 64 if op in {"inc", "dec"} else values
        first = 0 if kind.floating or op not in {"and", "min"} else (1 << (bits - 1)) - 1
        cell = first
        for b in operands:
            cell = applied(op, kind, space, cell, b)
        if op in {"inc", "dec"}:
            lines.append(f"mov.b{bits} {letter}0, 12345;")
        else:
            lines.append(f"mov.b{bits} {letter}0, {letter}8;")
        result = f"{letter}9, " if found.form.name == "atom" else ""
        hint = ", %c" if "L2::cache_hint" in opcode else ""
        if space == "shared":
            lines += [
                f"ld.global.b{bits} {letter}2, [%a+{at}];", f"st.shared.b{bits} [room], {letter}2;",
                f"bar.sync 0;\n{opcode} {result}[room], {letter}0{hint};\nbar.sync 0;",
                f"ld.shared.b{bits} {letter}2, [room];", f"st.global.b{bits} [%a+{at}], {letter}2;", "bar.sync 0;",
            ]  # fmt: skip
        else:
            lines.append(f"{opcode} {result}[%a+{at}], {letter}0{hint};")
        start.append(first)
        want.append(cell)
    if not want:
        return None
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    body = "\n".join(lines)
    policy = "createpolicy.fractional.L2::evict_last.b64 %c, 1.0;" if "%c;" in body else ""
    text = f"""{HEAD}
.visible .entry kernel(.param .u64 cells, .param .u64 bs)
{{
.reg .b16 %h<10>; .reg .b32 %r<10>, %t; .reg .b64 %l<10>, %a, %p, %c;
.shared .align 16 .b8 room[16];
mov.u32 %t, %tid.x; {policy}
ld.param.u64 %a, [cells];
ld.param.u64 %p, [bs]; mad.wide.u32 %p, %t, {size}, %p; ld.global.b{bits} {letter}8, [%p];
{body}
ret;
}}
"""
    return Case(f"atomics together {name} {number}", tuple(forms), text, (1, 1, 1), (64, 1, 1),
                (np.array(start, dtype), np.array(values, dtype)), {0: np.array(want, dtype)})  # fmt: skip
