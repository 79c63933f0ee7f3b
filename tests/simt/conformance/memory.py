"""Loads, stores, atomics and addresses: opcodes of the table's memory rows, kernels that try them, what they give.

Of a row all combinations of what changes a value (space, width, vector, operation) are tried; what only orders or
hints (`.relaxed.gpu`, `.cg`, `.L2::128B`) once each, on one type, in every space.
"""

from itertools import product

import numpy as np

from simt.conformance.cases import HEAD, Case, patterned
from simt.conformance.forms import choices, width
from undertorch.simt.ptx.forms import NAMED, PIECE
from undertorch.simt.ptx.opcodes import MEMORY, MOVE, match

NEUTRAL = {"order", "scope", "cop", "hint"}
HINTS = ["L1::no_allocate", "L1::evict_last", "L2::128B", "L2::evict_last", "L2::cache_hint", "unified"]
THREADS, ROOM = 32, 64
"""Threads of a kernel, and bytes that each has in every space."""


def spelt_memory():
    """(opcode, PTX with registers as golden_ptx_forms.py declares them)."""
    for form in (*MEMORY, *(f for f in MOVE if f.name in {"cvta", "cvtato", "isspacep"})):
        for opcode in dict.fromkeys(spellings(form)):
            found = match(opcode)
            if found is not None and found.form is form:
                yield opcode, _plain_text(opcode, found)


def spellings(form):
    places = []
    for m in PIECE.finditer(form.pattern):
        piece, optional = m.group(1), m.group(2)
        named = NAMED.match(piece[1:-1]) if piece.startswith("<") else None
        name = named.group(1) if named else piece.strip("<>")
        words = HINTS if name == "hint" else choices(piece, optional)
        if name == "hint":
            words = ["", *words]
        places.append((name if optional and name in NEUTRAL else "", words))
    yield from _joined([[""] if name else words for name, words in places])
    few = [words if not name and not {"u32", "global", "add"} & set(words) else
           [w for w in words if w in {"u32", "add"}] or words for name, words in places]  # fmt: skip
    few = [[""] if words[:2] == ["", "v2"] else words for words in few]
    hints = [n for n, (name, _) in enumerate(places) if name == "hint"]
    for group in ({"order", "scope"}, {"cop"}, {"hint"}):
        open_ = [
            few[n] if name in group and (name != "hint" or n == hints[0]) else [""] if name else few[n]
            for n, (name, _) in enumerate(places)
        ]
        yield from _joined(open_)


def _joined(places):
    for words in product(*places):
        yield ".".join(w for w in words if w)


PLACE = {"shared": "room", "const": "table", "param": "given", "local": "stack"}
LETTER = {16: "%h", 32: "%r", 64: "%l", 128: "%w", 1: "%q"}


def space_of(options):
    return options.get("space", "generic").split("::")[0]


def _address(options, name):
    space = space_of(options)
    if space == "param" and name == "st":
        return "[sent]"
    return f"[{PLACE[space]}]" if space in PLACE else "[%g]"


def _plain_text(opcode, found):
    """One line that ptxas can read, whatever it does."""
    name, options = found.form.name, found.options
    t = found.types[-1].name if found.types else ""
    bits = width(t) if t else 0
    hint = ", %c" if "L2::cache_hint" in opcode else ""
    if name in {"ld", "st"}:
        count = int(options["vector"][1:]) if "vector" in options else 1
        registers = ", ".join(f"{LETTER[bits]}{n}" for n in range(count))
        value = f"{{{registers}}}" if count > 1 else registers
        parts = [value, _address(options, name)] if name == "ld" else [_address(options, name), value]
        return f"{opcode} {', '.join(parts)}{hint};"
    if name in {"atom", "red"}:
        result = f"{LETTER[bits]}9, " if name == "atom" else ""
        more = f", {LETTER[bits]}1" if options.get("op") == "cas" else ""
        return f"{opcode} {result}{_address(options, name)}, {LETTER[bits]}0{more}{hint};"
    if name in {"cvta", "cvtato"}:
        return f"{opcode} {LETTER[bits]}0, {LETTER[bits]}1;"
    if name == "isspacep":
        return f"{opcode} %q0, %g;"
    if name == "cp.async":
        size = 16 if options["cop"] == "cg" else 4
        return f"{opcode} [room], [%g], {size}{hint};"
    if name == "cp.async.wait":
        return f"{opcode} 0;" if found.form.operands else f"{opcode};"
    if name == "createpolicy":
        rest = {"range": "[%g], 128, 256", "cvt": "%l1"}.get(opcode.split(".")[1], "0.5")
        return f"{opcode} %l0, {rest};"
    if name == "nothing":
        size = ", 128" if opcode.startswith(("applypriority", "discard")) else ""
        return f"{opcode} [%g]{size};"
    return f"{opcode};"


# -- loads and stores


PROLOGUE = f"""
mov.u32 %t, %tid.x;
ld.param.u64 %in, [source]; ld.param.u64 %out, [target];
mad.wide.u32 %in, %t, {ROOM}, %in;
mad.wide.u32 %out, %t, 8, %out;
mov.u32 %shared, room; mad.lo.u32 %shared, %t, {ROOM}, %shared;
mov.u32 %local, stack;
cvta.shared.u64 %gshared, room; mad.wide.u32 %gshared, %t, {ROOM}, %gshared;
cvta.local.u64 %glocal, stack;
"""


def _filled():
    """Both rooms hold what the thread's part of the source holds."""
    lines = []
    for at in range(0, ROOM, 4):
        lines += [f"ld.global.b32 %r0, [%in+{at}];", f"st.shared.b32 [%shared+{at}], %r0;",
                  f"st.local.b32 [%local+{at}], %r0;"]  # fmt: skip
    return lines


WAYS = {"global": ("%in",), "shared": ("%shared",), "local": ("%local",), "param": ("block",), "const": ("table",),
        "generic": ("%in", "%gshared", "%glocal")}  # fmt: skip


def load_cases(opcodes):
    """Each load from every place that it reaches, into registers of its own and of greater width."""
    wanted = [o for o in opcodes if match(o).form.name == "ld"]
    for number, part in enumerate(parts(wanted, 50)):
        lines, want, forms = [*_filled()], [], []
        source = patterned(THREADS * ROOM, 11)
        constants, given = patterned(ROOM, 12), patterned(ROOM, 13)
        for opcode in part:
            found = match(opcode)
            kind = found.types[-1]
            count = int(found.options["vector"][1:]) if "vector" in found.options else 1
            forms.append(opcode)
            for base in WAYS[space_of(found.options)]:
                for bits in [b for b in (16, 32, 64) if b >= kind.bits]:
                    at = (16 * len(want)) % (ROOM - 16)
                    size = kind.bits // 8
                    lines += _load(opcode, base, at, bits, count, 8 * THREADS * len(want))
                    data = constants if base == "table" else given if base == "block" else source
                    own = base not in {"table", "block"}
                    for n in range(count):
                        place = [(t * ROOM if own else 0) + at + n * size for t in range(THREADS)]
                        values = [int.from_bytes(data[p : p + size].tobytes(), "little") for p in place]
                        if kind.signed:
                            values = [
                                (v - (1 << kind.bits) if v >> (kind.bits - 1) else v) % (1 << bits) for v in values
                            ]
                        want.append(values)
        output = np.zeros(THREADS * len(want), np.uint64)
        expected = np.array(want, np.uint64).ravel()
        text = _kernel(lines, constants)
        yield Case(f"loads {number}", tuple(forms), text, (1, 1, 1), (THREADS, 1, 1),
                   (source, output, given.tobytes()), {1: expected})  # fmt: skip


def _load(opcode, base, at, bits, count, out):
    registers = [f"{LETTER[bits]}{n}" for n in range(count)]
    value = f"{{{', '.join(registers)}}}" if count > 1 else registers[0]
    hint = ", %c" if "L2::cache_hint" in opcode else ""
    lines = [f"{opcode} {value}, [{base}+{at}]{hint};"]
    for n, register in enumerate(registers):
        wide = register
        if bits < 64:
            lines.append(f"cvt.u64.u{bits} %l9, {register};")
            wide = "%l9"
        lines.append(f"st.global.b64 [%out+{out + 8 * THREADS * n}], {wide};")
    return lines


def store_cases(opcodes):
    """Each store to every place that it reaches; what lies there is read back byte by byte."""
    wanted = [o for o in opcodes if match(o).form.name == "st" and space_of(match(o).options) != "param"]
    for number, part in enumerate(parts(wanted, 50)):
        lines, want, forms = [], [], []
        source = patterned(THREADS * ROOM, 14)
        scratch = np.zeros(THREADS * ROOM, np.uint8)
        for opcode in part:
            found = match(opcode)
            kind, count = found.types[-1], int(found.options.get("vector", "v1")[1:])
            forms.append(opcode)
            for base in {"global": ("%scratch",), "generic": ("%scratch", "%gshared", "%glocal")}.get(
                space_of(found.options), (f"%{space_of(found.options)}",)
            ):
                lines += _store(opcode, base, kind, count, 8 * THREADS * len(want))
                size, bits = kind.bits // 8, max(16, kind.bits)
                for half in range(2):
                    row = []
                    for t in range(THREADS):
                        data = b"".join(source[t * ROOM + n * bits // 8 :][:size].tobytes() for n in range(count))
                        data = data.ljust(16, b"\xee")
                        row.append(int.from_bytes(data[8 * half : 8 * half + 8], "little"))
                    want.append(row)
        output = np.zeros(THREADS * len(want), np.uint64)
        text = _kernel(lines, patterned(ROOM, 12))
        yield Case(f"stores {number}", tuple(forms), text, (1, 1, 1), (THREADS, 1, 1),
                   (source, output, patterned(ROOM, 13).tobytes(), scratch),
                   {1: np.array(want, np.uint64).ravel()}, scratch=(3,))  # fmt: skip


def _store(opcode, base, kind, count, out):
    bits = max(16, kind.bits)
    space = {"%shared": ".shared", "%local": ".local"}.get(base, "")
    registers = [f"{LETTER[bits]}{n}" for n in range(count)]
    value = f"{{{', '.join(registers)}}}" if count > 1 else registers[0]
    hint = ", %c" if "L2::cache_hint" in opcode else ""
    lines = [f"ld.param.u64 %scratch, [place]; mad.wide.u32 %scratch, %t, {ROOM}, %scratch;",
             f"mov.b64 %l9, 0x{16 * 'e'}; st{space}.b64 [{base}], %l9; st{space}.b64 [{base}+8], %l9;"]  # fmt: skip
    for n, register in enumerate(registers):
        lines.append(f"ld.global.b{bits} {register}, [%in+{bits // 8 * n}];")
    lines.append(f"{opcode} [{base}], {value}{hint};")
    for half in (0, 1):
        lines += [f"ld{space}.b64 %l9, [{base}+{8 * half}];", f"st.global.b64 [%out+{out + 8 * THREADS * half}], %l9;"]
    return lines


def _kernel(lines, constants):
    body = "\n".join(lines)
    table = ", ".join(str(b) for b in constants.tolist())
    place = ", .param .u64 place" if "[place]" in body else ""
    return f"""{HEAD}
.const .align 16 .b8 table[{ROOM}] = {{{table}}};
.visible .entry kernel(.param .u64 source, .param .u64 target, .param .align 16 .b8 block[{ROOM}]{place})
{{
.reg .pred %q<10>; .reg .b16 %h<10>; .reg .b32 %r<10>, %t, %shared, %local; .reg .b64 %l<10>, %in, %out, %scratch, %c;
.reg .b64 %gshared, %glocal; .reg .b128 %w<10>;
.shared .align 16 .b8 room[{THREADS * ROOM}]; .local .align 16 .b8 stack[{ROOM}];
{PROLOGUE}
createpolicy_here
{body}
ret;
}}
""".replace("createpolicy_here\n", "createpolicy.fractional.L2::evict_last.b64 %c, 1.0;\n" if "%c;" in body else "")


def parts(items, size):
    return [items[n : n + size] for n in range(0, len(items), size)]


def sent_cases(opcodes):
    """Each store into a parameter of a function, which gives back the bytes that came. What lies beside them is not
    looked at: ptxas passes parameters in registers, and a store of 16 bits made the upper half of its register 0 on an
    H200."""
    wanted = [o for o in opcodes if match(o).form.name == "st" and space_of(match(o).options) == "param"]
    lines, want, forms = [], [], []
    source = patterned(THREADS * ROOM, 15)
    for opcode in wanted:
        found = match(opcode)
        kind, count = found.types[-1], int(found.options.get("vector", "v1")[1:])
        bits = max(16, kind.bits)
        forms.append(opcode)
        registers = [f"{LETTER[bits]}{n}" for n in range(count)]
        value = f"{{{', '.join(registers)}}}" if count > 1 else registers[0]
        lines.append("{ .param .align 16 .b8 to[16]; .param .align 16 .b8 back[16]; mov.b64 %l9, 0x1111111111111111;")
        lines += [f"ld.global.b{bits} {r}, [%in+{bits // 8 * n}];" for n, r in enumerate(registers)]
        lines.append(f"st.param.v2.b64 [to], {{%l9, %l9}}; {opcode} [to], {value}; call (back), echo, (to);")
        for half in range(2):
            written = max(0, min(8, count * kind.bits // 8 - 8 * half))
            lines += [f"ld.param.b64 %l8, [back+{8 * half}];", f"and.b64 %l8, %l8, {(1 << 8 * written) - 1:#x};"]
            lines.append(f"st.global.b64 [%out+{8 * THREADS * len(want)}], %l8;")
            row = []
            for t in range(THREADS):
                data = b"".join(source[t * ROOM + n * bits // 8 :][: kind.bits // 8].tobytes() for n in range(count))
                row.append(int.from_bytes(data[8 * half : 8 * half + 8], "little"))
            want.append(row)
        lines.append("}")
    echo = """.func (.param .align 16 .b8 back[16]) echo(.param .align 16 .b8 to[16]) { .reg .b64 %x<2>;
ld.param.b64 %x0, [to]; st.param.b64 [back], %x0; ld.param.b64 %x1, [to+8]; st.param.b64 [back+8], %x1; ret; }
"""
    text = _kernel(lines, patterned(ROOM, 12)).replace(".visible", echo + ".visible", 1)
    yield Case("stores into parameters", tuple(forms), text, (1, 1, 1), (THREADS, 1, 1),
               (source, np.zeros(THREADS * len(want), np.uint64), patterned(ROOM, 13).tobytes()),
               {1: np.array(want, np.uint64).ravel()})  # fmt: skip
