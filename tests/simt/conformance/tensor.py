"""Tensor cores and the moves of their matrices: every form of the table's TENSOR rows, kernels that try it.

One mma is tried on many tiles, a block each. Integers are exact; of floats the bits are recorded, since each generation
of GPUs adds in its own way (numerics.py), and held to a bound here. wmma is tried with its loads and stores, on whole
numbers whose sums are exact, since where its fragments have their elements is the GPU's own affair.
"""

import itertools
import math
from functools import cache

import numpy as np

from simt.conformance.cases import HEAD, Case, patterned
from simt.conformance.inputs import random_bits
from simt.conformance.memory import spellings
from simt.conformance.numbers import (
    FORMATS,
    KINDS,
    WORDS,
    chained,
    integer_product,
    integer_tile,
    numbers,
    sprinkled,
    tile,
    value,
    values,
    width,
)
from undertorch.simt.numerics import LEAST
from undertorch.simt.ptx.fragments import Product, shape
from undertorch.simt.ptx.opcodes import NARROW, TENSOR, match

TILES = 4
"""Of each kind of float tiles."""
LETTER = {32: "%r", 64: "%l"}


def product_of(opcode):
    found = match(opcode)
    options = found.options
    m, n, k = shape(options["shape"])
    types = {name: options.get(name, "f16") for name in "dabc"}
    return Product(m=m, n=n, k=k, wmma=found.form.name == "wmma", **types)


def braces(letter, first, count):
    return "{" + ", ".join(f"{letter}{first + n}" for n in range(count)) + "}"


def spelt_tensor():
    """(opcode, PTX with registers as golden_ptx_forms.py declares them)."""
    for form in (*TENSOR, *NARROW):
        for opcode in dict.fromkeys(spellings(form)):
            found = match(opcode)
            if found is not None and found.form is form:
                yield opcode, _plain_text(opcode, found)


def _plain_text(opcode, found):
    options = found.options
    if found.form.name == "cvtto8":
        return f"{opcode} %h0, %r1, %r2;" if opcode.endswith("f32") else f"{opcode} %h0, %r1;"
    if found.form.name == "cvtfrom8":
        return f"{opcode} %r0, %h1;"
    if found.form.name in {"mma", "wmma"}:
        whole = product_of(opcode)
        parts = [whole.fragment(role) for role in "dabc"]
        return f"{opcode} {', '.join(braces(LETTER[f.register], 0, f.registers) for f in parts)};"
    address = "[room]" if "shared" in options.get("space", "") else "[%g]"
    if found.form.name in {"wmma.load", "wmma.store"}:
        m, n, k = shape(options["shape"])
        kind = options["kind"]
        f = Product(m=m, n=n, k=k, d=kind, a=kind, b=kind, c=kind, wmma=True).fragment(options["role"])
        registers = braces(LETTER[f.register], 0, f.registers)
        return f"{opcode} {f'{registers}, {address}' if 'load' in opcode else f'{address}, {registers}'}, 128;"
    if found.form.name == "movmatrix":
        return f"{opcode} %r0, %r1;"
    registers = braces("%r", 0, int(options["count"][1:]))
    return f"{opcode} {f'{registers}, {address}' if opcode.startswith('ldm') else f'{address}, {registers}'};"


# -- fragments as they lie in memory: [register][lane] of words


def packed(fragment, matrix):
    out = np.zeros((fragment.registers, 32), WORDS[fragment.register])
    for register, lane, element in fragment.elements():
        bits = int(matrix[fragment.position(register, lane, element)]) << fragment.element * element
        out[register, lane] |= out.dtype.type(bits)
    return out


def unpacked(fragment, words):
    out = np.zeros((fragment.rows, fragment.columns), WORDS[fragment.element])
    for register, lane, element in fragment.elements():
        bits = int(words[register, lane]) >> fragment.element * element & (1 << fragment.element) - 1
        out[fragment.position(register, lane, element)] = bits
    return out


# -- mma


def tiles_of(opcode):
    """(A, B, C) of each tile of an opcode, as bits; of .b1 as words."""
    whole = product_of(opcode)
    kinds = (whole.a, whole.b, whole.c)
    if whole.a in FORMATS:
        for number, what in enumerate(KINDS):
            for again in range(TILES):
                yield what, tile(kinds, whole.m, whole.n, whole.k, what, 1000 * number + 10 * again + again % 2)
        return
    for seed in range(9):
        yield "integers", integer_tile(kinds, whole.m, whole.n, whole.depth, seed)


def result_kind(whole):
    """The type of a register of D."""
    return "f16x2" if whole.d == "f16" else whole.d


def mma_case(opcode):
    """One opcode on all its tiles."""
    whole, tiles = product_of(opcode), list(tiles_of(opcode))
    parts = {role: whole.fragment(role) for role in "dabc"}
    a, b, c = (np.stack([packed(parts[role], given[at]) for _, given in tiles]) for at, role in enumerate("abc"))
    d = np.zeros((len(tiles), parts["d"].registers, 32), WORDS[parts["d"].register])
    expected = {}
    if whole.a not in FORMATS:
        options = match(opcode).options
        rule = {"saturates": "satfinite" in options, "bits": options.get("bits")}
        made = [integer_product((whole.a, whole.b, whole.c), *given, **rule) for _, given in tiles]
        expected = {3: np.stack([packed(parts["d"], one) for one in made])}
    return Case(
        f"mma {opcode}", (opcode,), _mma_kernel(opcode, parts), (len(tiles), 1, 1), (32, 1, 1), (a, b, c, d), expected,
        scratch=(0, 1, 2), bounded=not expected, kind="" if expected else result_kind(whole),
    )  # fmt: skip


def _mma_kernel(opcode, parts):
    lines = ["mov.u32 %t, %tid.x;", "mov.u32 %s, %ctaid.x;"]
    registers = {}
    for role, f in parts.items():
        letter, size = f"%{role}", f.register // 8
        lines.insert(0, f".reg .b{f.register} {letter}<{f.registers}>;")
        registers[role] = braces(letter, 0, f.registers)
        lines.append(f"ld.param.u64 %p{role}, [{role}]; mad.wide.u32 %p{role}, %t, {size}, %p{role};")
        lines.append(f"mad.wide.u32 %p{role}, %s, {32 * size * f.registers}, %p{role};")
        if role != "d":
            lines += [f"ld.global.b{f.register} {letter}{n}, [%p{role}+{32 * size * n}];" for n in range(f.registers)]
    lines.append(f"{opcode} {registers['d']}, {registers['a']}, {registers['b']}, {registers['c']};")
    f = parts["d"]
    lines += [f"st.global.b{f.register} [%pd+{4 * f.register * n}], %d{n};" for n in range(f.registers)]
    body = "\n".join(lines)
    given = ", ".join(f".param .u64 {role}" for role in "abcd")
    return f"""{HEAD}
.visible .entry kernel({given})
{{
.reg .b32 %t, %s; .reg .b64 %pa, %pb, %pc, %pd;
{body}
ret;
}}
"""


def outside(case, arguments):
    """Results of floats that are further off than any order of sums with such numbers may be.

    Each product or sum of at most k + 1 loses 2^-22 of the largest summand (a float16's last place of the result more),
    which counts as a product of normal numbers; where one is NaN or infinite, what the sum is follows.
    """
    opcode = case.forms[0]
    whole = product_of(opcode)
    plain = whole.wmma
    for number, (what, (A, B, C)) in enumerate((wmma_tiles if plain else tiles_of)(opcode)):
        d = arguments[3][number]
        got = values(whole.d, d if plain else unpacked(whole.fragment("d"), d))
        a, b, c = (values(kind, x) for kind, x in ((whole.a, A), (whole.b, B), (whole.c, C)))
        least = [2.0 ** LEAST.get(kind, -1022) for kind in (whole.a, whole.b, whole.c)]
        given = zip((a, b, c), least, strict=True)
        sizes = [np.where(np.isfinite(x) & (x != 0), np.maximum(np.abs(x), low), 0.0) for x, low in given]
        for row, column in itertools.product(range(whole.m), range(whole.n)):
            one = float(got[row, column])
            with np.errstate(all="ignore"):
                products = a[row] * b[:, column]
                largest = max((sizes[0][row] * sizes[1][:, column]).max(), sizes[2][row, column])
                right = within(whole.d, [*products, c[row, column]], one, largest)
                if whole.a == "f64":
                    chain = chained(a[row], b[:, column], c[row, column])
                    right = one == chain or (math.isnan(one) and math.isnan(chain))
            if not right:
                yield what, number, row, column, one


def within(kind, parts, got, counted):
    """`counted`: the size that the largest of them is counted with."""
    plain = sum(parts)
    finite = [abs(part) for part in parts if math.isfinite(part)]
    # A sum on the way may have run over, and then over the other way: 8-bit floats have some of float16 on an H200.
    most = 65504 * (1 - 2.0**-10) if kind == "f16" else 2.0**128 * (1 - 2.0**-20)
    if math.fsum(finite) >= most and not math.isfinite(got):
        return True
    if not math.isfinite(plain):
        return math.isnan(got) if math.isnan(plain) else got == plain
    exact, largest = math.fsum(parts), max(*finite, counted)
    loss = len(parts) * largest * 2.0**-22 + len(parts) * 2.0**-149
    if kind == "f16":
        loss += len(parts) * (2.0**-11 * largest + 2.0**-25)
        if abs(exact) + loss >= 65504 and math.isinf(got):
            return True
    return abs(got - exact) <= loss


# -- moves of 8×8 matrices


ROWS = 96
"""Of 16 bytes, in shared memory."""


def _matrix_case(opcode):
    found = match(opcode)
    name, options = found.form.name, found.options
    source = patterned(16 * ROWS, 91).reshape(ROWS, 16)
    order = np.argsort(random_bits(92, ROWS), kind="stable").astype(np.uint32)[:32]
    near = "shared" in options.get("space", "")
    count = int(options.get("count", "x1")[1:])
    transposed = "trans" in options
    registers = braces("%r", 0, count)
    taken = {True: "[%s]", False: "[%g]"}[near]
    out = np.zeros((count, 32), np.uint32)
    if name == "ldmatrix":
        want = np.stack([_in_registers(source[order[8 * j : 8 * j + 8]], transposed) for j in range(count)])
        body = f"{opcode} {registers}, {taken};\n" + _stored(count)
    elif name == "movmatrix":
        body = "ld.shared.b32 %r1, [%own];\n" + f"{opcode} %r0, %r1;\n" + _stored(1)
        want = _in_registers(source[:8], True)[None]
    else:
        body = "\n".join(f"ld.shared.b32 %r{n}, [%own+{128 * n}];" for n in range(count))
        body += f"\nbar.warp.sync -1;\n{opcode} {taken}, {registers};\nbar.warp.sync -1;\n"
        body += "\n".join(f"ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%row+{512 * n}]; "
                          f"st.global.v4.b32 [%orow+{512 * n}], {{%r4, %r5, %r6, %r7}};" for n in range(3))  # fmt: skip
        want = source.copy()
        for j in range(count):
            piece = source[8 * j : 8 * j + 8]
            rows = piece.view(np.uint16).T.copy().view(np.uint8) if transposed else piece
            want[order[8 * j : 8 * j + 8]] = rows
        out = np.zeros_like(source)
    kernel = f"""{HEAD}
.shared .align 16 .b8 room[{16 * ROWS}];
.visible .entry kernel(.param .u64 source, .param .u64 rows, .param .u64 out)
{{
.reg .b32 %r<10>, %t, %s, %own, %row; .reg .b64 %g, %p, %o, %orow;
mov.u32 %t, %tid.x;
ld.param.u64 %p, [source]; mad.wide.u32 %p, %t, 16, %p;
mov.u32 %row, room; mad.lo.u32 %row, %t, 16, %row; mov.u32 %own, room; mad.lo.u32 %own, %t, 4, %own;
ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%p]; st.shared.v4.b32 [%row], {{%r0, %r1, %r2, %r3}};
ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%p+512]; st.shared.v4.b32 [%row+512], {{%r0, %r1, %r2, %r3}};
ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%p+1024]; st.shared.v4.b32 [%row+1024], {{%r0, %r1, %r2, %r3}};
bar.warp.sync -1;
ld.param.u64 %p, [rows]; mad.wide.u32 %p, %t, 4, %p; ld.global.b32 %r9, [%p];
mov.u32 %s, room; mad.lo.u32 %s, %r9, 16, %s; cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g;
ld.param.u64 %o, [out]; mad.wide.u32 %orow, %t, 16, %o; mad.wide.u32 %o, %t, 4, %o;
{body}
ret;
}}
"""
    arguments = (source.copy(), order, out)
    return Case(f"matrices {opcode}", (opcode,), kernel, (1, 1, 1), (32, 1, 1), arguments, {2: want}, scratch=(0, 1))


def _in_registers(rows, transposed):
    """8 rows of 16 bytes: lane 4r + t has elements 2t and 2t + 1 of row r."""
    halves = rows.reshape(8, 16).view(np.uint16)
    return np.ascontiguousarray(halves.T if transposed else halves).view(np.uint32).reshape(32)


def _stored(count):
    return "\n".join(f"st.global.b32 [%o+{128 * n}], %r{n};" for n in range(count))


# -- wmma


SPACES = {"global": 0, "shared": 1, "shared::cta": 1, None: 0}
PAD = {"f16": 8, "bf16": 8, "tf32": 4, "f32": 4, "f64": 2, "s32": 4, "s8": 16, "u8": 16, "s4": 32, "u4": 32, "b1": 128}
"""Elements that lie behind each row in memory: 16 bytes, so that a stride is none of the shape's."""


def memory_bits(kind):
    return {"b1": 1}.get(kind) or width(kind)


def in_memory(matrix, kind, row_major, pad, fill=0xEE):
    """Bytes of a matrix, with padding behind each of its lines. Words of bits stand for 32 elements."""
    lines = matrix if row_major else matrix.T
    bits = 32 if kind == "b1" else memory_bits(kind)
    length = lines.shape[1] * bits // 8 + pad * memory_bits(kind) // 8
    out = np.full((lines.shape[0], length), fill, np.uint8)
    for number, line in enumerate(lines.tolist()):
        whole = sum(int(x) << bits * n for n, x in enumerate(line))
        data = whole.to_bytes(lines.shape[1] * bits // 8, "little")
        out[number, : len(data)] = np.frombuffer(data, np.uint8)
    return out


def stride(rows, columns, kind, row_major, pad):
    return (columns if row_major else rows) * (32 if kind == "b1" else 1) + pad


def small_tile(whole, seed):
    """Whole numbers, as bits of the types, whose sums every float has exactly; integers of any size."""
    kinds = (whole.a, whole.b, whole.c)
    if whole.a not in FORMATS:
        return integer_tile(kinds, whole.m, whole.n, whole.depth, seed)
    shapes = ((whole.m, whole.k), (whole.k, whole.n), (whole.m, whole.n))
    out = []
    for place, (kind, (rows, columns)) in enumerate(zip(kinds, shapes, strict=True)):
        whole_numbers = (random_bits(seed + place, rows * columns) >> np.uint64(11)) % np.uint64(9)
        raw = [exact_bits(kind, int(x) - 4) for x in whole_numbers]
        out.append(np.array(raw, WORDS[width(kind)]).reshape(rows, columns))
    return tuple(out)


def exact_bits(kind, number):
    """Bits of a small whole number."""
    exponent_bits, fraction_bits = FORMATS[kind]
    if number == 0:
        return 0
    size = abs(number)
    exponent = size.bit_length() - 1
    field = exponent + (1 << exponent_bits - 1) - 1
    fraction = (size << fraction_bits >> exponent) & (1 << fraction_bits) - 1
    return (number < 0) << exponent_bits + fraction_bits | field << fraction_bits | fraction


def small_product(opcode, tiles):
    """D of such a tile, as bits."""
    whole, options = product_of(opcode), match(opcode).options
    if whole.a not in FORMATS:
        rule = {"saturates": "satfinite" in options, "bits": options.get("bits")}
        return integer_product((whole.a, whole.b, whole.c), *tiles, **rule)
    a, b, c = (values(kind, x) for kind, x in zip((whole.a, whole.b, whole.c), tiles, strict=True))
    exact = a @ b + c
    raw = [exact_bits(whole.d, int(x)) for x in exact.ravel()]
    return np.array(raw, WORDS[width(whole.d)]).reshape(exact.shape)


def _wmma_chain(number, chosen):
    """A, B and C loaded, multiplied, and D stored, by one opcode each; `chosen` by role a, b, c, d and mma."""
    opcode = chosen["mma"]
    whole = product_of(opcode)
    tiles = small_tile(whole, 3 * number + 1)
    wanted = small_product(opcode, tiles)
    arguments, lines, registers = [], [], {}
    for place, (role, matrix) in enumerate(zip("abcd", (*tiles, wanted), strict=True)):
        kind = getattr(whole, role)
        options = match(chosen[role]).options
        row_major, pad = options["major"] == "row", PAD[kind] if number % 3 else 0
        data = in_memory(matrix, kind, row_major, pad)
        f = whole.fragment(role)
        registers[role] = braces(f"%{role}", 0, f.registers)
        lines.insert(0, f".reg .b{f.register} %{role}<{f.registers}>;")
        step = stride(f.rows, f.columns, kind, row_major, pad)
        lines.append(f"ld.param.u64 %p, [{role}];")
        near = "shared" in options.get("space", "")
        at = "%p"
        if near:
            at = "%s"
            lines.append(f"mov.u32 %s, room; add.u32 %s, %s, {4096 * place};")
            lines.append(_copied(data.size, "%p", "global", "%s", "shared"))
        behind = "" if number % 3 == 0 else f", {step}" if number % 3 == 1 else ", %stride"
        lines.append(f"mov.u32 %stride, {step};")
        if role == "d":
            lines.append(f"{opcode} {registers['d']}, {registers['a']}, {registers['b']}, {registers['c']};")
            lines.append(f"{chosen['d']} [{at}], {registers['d']}{behind};")
            if near:
                lines.append("bar.warp.sync -1;")
                lines.append(_copied(data.size, "%s", "shared", "%p", "global"))
            holes = data != in_memory(matrix, kind, row_major, pad, fill=0x11)
            final = np.where(holes, np.uint8(0xEE), data)
            arguments.append(np.where(holes, final, np.uint8(0)))
        else:
            lines.append(f"{chosen[role]} {registers[role]}, [{at}]{behind};")
            arguments.append(data)
    body = "\n".join(lines)
    given = ", ".join(f".param .u64 {role}" for role in "abcd")
    kernel = f"""{HEAD}
.shared .align 128 .b8 room[16384];
.visible .entry kernel({given})
{{
.reg .b32 %s, %x, %y, %stride; .reg .b64 %p, %q;
{body}
ret;
}}
"""
    forms = tuple(dict.fromkeys(chosen.values()))
    return Case(f"wmma {number} {opcode}", forms, kernel, (1, 1, 1), (32, 1, 1), tuple(arguments), {3: final},
                scratch=(0, 1, 2))  # fmt: skip


def _copied(count, source, source_space, target, target_space):
    """Lanes copy words; the address registers are as wide as their spaces'."""
    lines = ["mov.u32 %x, %tid.x; mul.lo.u32 %x, %x, 4;"]
    for at in range(0, count, 128):
        more = at + 128 > count
        lines.append(
            f"{{ .reg .b32 %i; .reg .b64 %w; .reg .pred %in; add.u32 %i, %x, {at}; setp.lt.u32 %in, %i, {count};"
        )
        lines.append("cvt.u64.u32 %w, %i; add.u64 %q, %p, %w; add.u32 %i, %i, %s;")
        near, far = "[%i]", "[%q]"
        guard = "@%in " if more else ""
        lines.append(f"{guard}ld.{source_space}.b32 %y, {far if source_space == 'global' else near};")
        lines.append(f"{guard}st.{target_space}.b32 {far if target_space == 'global' else near}, %y; }}")
    return "\n".join([*lines, "bar.warp.sync -1;"])


def _wmma_cases(forms):
    """Chains that use every opcode at least once."""
    opcodes = sorted(o for o in forms if match(o).form.name in {"wmma", "wmma.load", "wmma.store"})
    moves = {}
    for opcode in opcodes:
        options = match(opcode).options
        if "role" in options:
            moves.setdefault((options["role"], options["shape"], options["kind"]), []).append(opcode)
    left = {o for found in moves.values() for o in found}
    products = [o for o in opcodes if match(o).form.name == "wmma"]
    number, tried = 0, set()
    while True:
        before = number
        for opcode in products:
            chosen = _chosen(opcode, moves, left, number)
            if chosen is None or (opcode in tried and not left & set(chosen.values())):
                continue
            tried.add(opcode)
            left -= set(chosen.values())
            yield _wmma_chain(number, chosen)
            number += 1
        if number == before:
            return


def _chosen(opcode, moves, left, number):
    """Loads and a store for a wmma, such as were not tried yet, if there are any; None where a load does not exist."""
    whole, text = product_of(opcode), match(opcode).options["shape"]
    majors = dict(zip("ab", [w for w in opcode.split(".") if w in {"row", "col"}], strict=True))
    chosen = {"mma": opcode}
    for role in "abcd":
        known = moves.get((role, text, getattr(whole, role)), [])
        fitting = [o for o in known if majors.get(role) in {None, match(o).options["major"]}]
        if not fitting:
            return None
        new = [o for o in fitting if o in left]
        chosen[role] = new[0] if new else fitting[number % len(fitting)]
    return chosen


def wmma_products(forms):
    """wmma of floats, row by column, on tiles as for mma: the bits are recorded. A load and a store lie about it."""
    for opcode in sorted(o for o in forms if match(o).form.name == "wmma"):
        whole = product_of(opcode)
        if ".row.col." not in opcode or whole.a not in FORMATS or "satfinite" in opcode:
            continue
        yield _wmma_bits(opcode, whole)


def wmma_tiles(opcode):
    whole = product_of(opcode)
    for number, what in enumerate(KINDS):
        yield what, tile((whole.a, whole.b, whole.c), whole.m, whole.n, whole.k, what, 100 * number + 7)


def _wmma_bits(opcode, whole):
    text = f"m{whole.m}n{whole.n}k{whole.k}"
    given = [tiles for _, tiles in wmma_tiles(opcode)]
    a = np.stack([t[0] for t in given])
    b = np.stack([np.ascontiguousarray(t[1].T) for t in given])
    c = np.stack([t[2] for t in given])
    d = np.zeros(c.shape, WORDS[width(whole.d)])
    kinds = dict(zip("abcd", (whole.a, whole.b, whole.c, whole.d), strict=True))
    lines, registers = ["mov.u32 %s, %ctaid.x;"], {}
    for role, array in zip("abcd", (a, b, c, d), strict=True):
        f = whole.fragment(role)
        registers[role] = braces(f"%{role}", 0, f.registers)
        lines.insert(0, f".reg .b{f.register} %{role}<{f.registers}>;")
        lines.append(f"ld.param.u64 %p, [{role}]; mad.wide.u32 %p, %s, {array[0].nbytes}, %p;")
        major = "col" if role == "b" else "row"
        if role == "d":
            lines.append(f"{opcode} {registers['d']}, {registers['a']}, {registers['b']}, {registers['c']};")
            lines.append(f"wmma.store.d.sync.aligned.row.{text}.global.{kinds['d']} [%p], {registers['d']};")
        else:
            lines.append(f"wmma.load.{role}.sync.aligned.{major}.{text}.global.{kinds[role]} {registers[role]}, [%p];")
    body = "\n".join(lines)
    parameters = ", ".join(f".param .u64 {role}" for role in "abcd")
    kernel = f"{HEAD}\n.visible .entry kernel({parameters})\n{{\n.reg .b32 %s; .reg .b64 %p;\n{body}\nret;\n}}\n"
    return Case(f"wmma bits {opcode}", (opcode,), kernel, (len(given), 1, 1), (32, 1, 1), (a, b, c, d), {},
                scratch=(0, 1, 2), bounded=True, kind=result_kind(whole))  # fmt: skip


def fragment_cases(forms):
    """Where a GPU has the elements of wmma's fragments, each its number. Nothing is expected: the ISA leaves it."""
    for opcode in sorted(o for o in forms if match(o).form.name == "wmma.load"):
        options = match(opcode).options
        if options.get("space") != "global" or options["kind"] in {"s4", "u4", "b1"}:
            continue
        kind, role = options["kind"], options["role"]
        m, n, k = shape(options["shape"])
        f = Product(m=m, n=n, k=k, d=kind, a=kind, b=kind, c=kind, wmma=True).fragment(role)
        matrix = np.arange(f.rows * f.columns, dtype=WORDS[f.element]).reshape(f.rows, f.columns)
        data = in_memory(matrix, kind, options["major"] == "row", 0)
        out = np.zeros((f.registers, 32), WORDS[f.register])
        size = f.register // 8
        stores = "\n".join(f"st.global.b{f.register} [%o+{32 * size * n}], %r{n};" for n in range(f.registers))
        kernel = f"""{HEAD}
.visible .entry kernel(.param .u64 source, .param .u64 out)
{{
.reg .b32 %t; .reg .b{f.register} %r<{f.registers}>; .reg .b64 %p, %o;
mov.u32 %t, %tid.x;
ld.param.u64 %p, [source]; ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, {size}, %o;
{opcode} {braces("%r", 0, f.registers)}, [%p];
{stores}
ret;
}}
"""
        yield Case(f"fragment {opcode}", (opcode,), kernel, (1, 1, 1), (32, 1, 1), (data, out), {}, scratch=(0,),
                   bounded=True)  # fmt: skip


# -- 8-bit floats


@cache
def finite(kind):
    """The positive finite numbers of an 8-bit type, in the order of their bits."""
    return np.array([value(kind, raw) for raw in range(0x7F if kind == "e4m3" else 0x7C)])


def narrowed(kind, given, relu):
    """Of the numbers of a type the nearest, of two the even one; what is beyond them all as the largest. As bits."""
    known = finite(kind)
    size = np.minimum(np.abs(given), known[-1])
    above = np.searchsorted(known, np.nan_to_num(size))
    below = np.maximum(above - 1, 0)
    up, down = known[above] - size, size - known[below]
    bits = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below).astype(np.uint32)
    negative = np.signbit(given)
    bits = np.where(negative, np.uint32(0), bits) if relu else bits | negative.astype(np.uint32) << np.uint32(7)
    return np.where(np.isnan(given), np.uint32(0x7F), bits)


def half_bits(kind, raw, relu):
    number = value(kind, raw)
    if math.isnan(number):
        return 0x7FFF
    if relu and raw & 0x80:
        return 0
    return int(np.float16(number).view(np.uint16))


def _narrow_inputs(opcode):
    """Bits of the operands: all bytes in pairs, all float16, or float32 of the sizes that matter."""
    if match(opcode).form.name == "cvtfrom8":
        return (np.arange(1 << 16, dtype=np.uint32),)
    if opcode.endswith("f16x2"):
        low = np.arange(1 << 16, dtype=np.uint32)
        return (low | np.roll(low, 1000) << np.uint32(16),)
    columns = []
    for seed in (301, 302):
        near = numbers("f32", (8192,), seed, -20, 18)
        near[::4] &= np.uint32(0xFFF00000)  # and halfway between two
        near[1::4] &= np.uint32(0xFFF80000)
        columns.append(sprinkled(near, "f32", seed, 50).astype(np.uint32))
    return tuple(columns)


def narrow_cases(forms):
    """Conversions to and from e4m3 and e5m2."""
    for opcode in (o for o in forms if match(o).form in NARROW):
        found = match(opcode)
        kind = next(t.name for t in found.types if t.name.startswith("e")).removesuffix("x2")
        relu, inputs = "relu" in found.options, _narrow_inputs(opcode)
        if found.form.name == "cvtfrom8":
            byte = np.array([half_bits(kind, raw, relu) for raw in range(256)], np.uint32)
            want = byte[inputs[0] & 0xFF] | byte[inputs[0] >> 8] << np.uint32(16)
            text = f"cvt.u16.u32 %h0, %a; {opcode} %d, %h0;"
        else:
            if len(inputs) == 2:
                above, below = (values("f32", column) for column in inputs)
            else:
                below, above = (values("f16", inputs[0] >> shift & 0xFFFF) for shift in (0, 16))
            want = narrowed(kind, above, relu) << np.uint32(8) | narrowed(kind, below, relu)
            text = f"{opcode} %h0, {'%a, %b' if len(inputs) == 2 else '%a'}; cvt.u32.u16 %d, %h0;"
        pointers = "abcdef"[: len(inputs)]
        loads = "\n".join(f"ld.param.u64 %p, [{x}]; add.u64 %p, %p, %o; ld.global.b32 %{x}, [%p];" for x in pointers)
        given = "".join(f".param .u64 {x}, " for x in pointers)
        kernel = f"""{HEAD}
.visible .entry kernel({given}.param .u64 out)
{{
.reg .b32 %t, %s, %n, %a, %b, %d; .reg .b16 %h0; .reg .b64 %p, %o;
mov.u32 %t, %tid.x; mov.u32 %s, %ctaid.x; mad.lo.u32 %n, %s, 128, %t; mul.wide.u32 %o, %n, 4;
{loads}
{text}
ld.param.u64 %p, [out]; add.u64 %p, %p, %o; st.global.b32 [%p], %d;
ret;
}}
"""
        out = np.zeros_like(want)
        yield Case(f"narrow {opcode}", (opcode,), kernel, (want.size // 128, 1, 1), (128, 1, 1), (*inputs, out),
                   {len(inputs): want}, scratch=tuple(range(len(inputs))))  # fmt: skip


def held_cases(forms):
    """What has a right answer, or a bound."""
    for opcode in forms:
        name = match(opcode).form.name
        if name == "mma":
            yield mma_case(opcode)
        elif name in {"ldmatrix", "stmatrix", "movmatrix"}:
            yield _matrix_case(opcode)
    yield from _wmma_cases(forms)
    yield from wmma_products(forms)
    yield from narrow_cases(forms)


def tensor_cases(forms):
    """Everything, as it is recorded."""
    yield from held_cases(forms)
    yield from fragment_cases(forms)
