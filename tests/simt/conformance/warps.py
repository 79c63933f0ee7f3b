"""Lanes together, barriers, control, copies in the background, addresses: kernels that try them, and what they give."""

import numpy as np

from simt.conformance.cases import HEAD, Case, patterned
from simt.conformance.inputs import random_bits
from simt.conformance.memory import space_of, spellings
from undertorch.simt.ptx.opcodes import CONTROL, WARP, match

ALL = 0xFFFFFFFF
MASKS = [ALL, ALL, 0x0F0F55AA, 0x80000001, 0x00010000, 0xFFFF0000]
OPERANDS = {
    "bar.sync": "0", "bar.arrive": "1, 64", "bar.warp.sync": "-1", "shfl.sync": "%r0, %r1, %r2, 31, -1",
    "redux.sync": "%r0, %r1, -1", "activemask": "%r0", "bra": "far", "ret": "", "exit": "", "call": "", "trap": "",
    "nanosleep": "1",
}  # fmt: skip


def spelt_warps():
    """(opcode, PTX with registers as golden_ptx_forms.py declares them)."""
    for form in (*WARP, *CONTROL):
        for opcode in dict.fromkeys(spellings(form)):
            found = match(opcode)
            if found is not None and found.form is form and form.name != "call":
                yield opcode, f"{opcode} {_operands(opcode, found)};"


def _operands(opcode, found):
    name = found.form.name
    if name == "bar.red":
        return "%r0, 0, %q1" if found.options["op"] == "popc" else "%q0, 0, %q1"
    if name == "vote.sync":
        return "%r0, %q1, -1" if found.options["mode"] == "ballot" else "%q0, %q1, -1"
    if name == "match.sync":
        source = "%r1" if found.types[-1].bits == 32 else "%l1"
        return f"%r0|%q0, {source}, -1" if found.options["mode"] == "all" else f"%r0, {source}, -1"
    if name == "nothing":
        return {"brkpt": "", "nanosleep": "1"}.get(opcode.split(".")[0], "1")
    return OPERANDS[name]


def _kernel(parameters, declarations, body, more=""):
    given = ", ".join(f".param .u64 {name}" for name in parameters)
    loads = "\n".join(f"ld.param.u64 %{name}, [{name}];" for name in parameters)
    registers = ", ".join(f"%{name}" for name in parameters)
    return f"""{HEAD}
{more}
.visible .entry kernel({given})
{{
.reg .pred %q<20>; .reg .b16 %h<10>; .reg .b32 %r<20>, %t; .reg .b64 %l<20>, {registers};
{declarations}
mov.u32 %t, %tid.x;
{loads}
{body}
ret;
}}
"""


def _case(name, forms, text, arguments, expected, block=32, **more):
    return Case(name, tuple(forms), text, (1, 1, 1), (block, 1, 1), arguments, expected, **more)


# -- lanes


def shuffled(mode, lane, b, c):
    """(the lane read from, whether it lies in range): the pseudocode of shfl.sync in the PTX ISA."""
    segment, clamp = c >> 8 & 31, c & 31
    most, least = lane & segment | clamp & ~segment & 31, lane & segment
    b &= 31
    match mode:
        case "up":
            j = lane - b
            inside = j >= most
        case "down":
            j = lane + b
            inside = j <= most
        case "bfly":
            j = lane ^ b
            inside = j <= most
        case _:
            j = least | b & ~segment & 31
            inside = j <= most
    return (j if inside else lane), int(inside)


def shuffle_cases():
    for number, mode in enumerate(("up", "down", "bfly", "idx")):
        values = random_bits(50 + number, 32).astype(np.uint32)
        rounds, forms = [], [f"shfl.sync.{mode}.b32"]
        for n, mask in enumerate(MASKS * 3):
            words = random_bits(60 + n, 2)
            spread = random_bits(80 + n, 32) % np.uint64(40)
            b = np.full(32, int(words[0]) % 33, np.uint32) if n % 3 else spread.astype(np.uint32)
            segment = (0, 0x10, 0x18, 0x1C, 0x1E, 0x1F)[n % 6]
            clamp = (0 if mode == "up" else 31) if n < 12 else int(words[1]) & 31
            rounds.append((mask, b, segment << 8 | clamp))
        body, want, valid, free = [], [], [], []
        for n, (mask, b, c) in enumerate(rounds):
            body.append(_in_mask(mask, n, f"""
ld.global.b32 %r1, [%pb+{128 * n}];
shfl.sync.{mode}.b32 %r2|%q2, %r0, %r1, {c}, {mask};
selp.b32 %r3, 1, 0, %q2;
st.global.b32 [%out+{128 * n}], %r2; st.global.b32 [%flag+{128 * n}], %r3;
shfl.sync.{mode}.b32 %r2, %r0, {int(b[0])}, {c}, {mask};
st.global.b32 [%fixed+{128 * n}], %r2;"""))  # fmt: skip
            for lane in range(32):
                for row, amount in ((want, int(b[lane])), (valid, int(b[0]))):
                    source, inside = shuffled(mode, lane, amount, c)
                    reached = mask >> lane & 1
                    row.append((int(values[source]) if reached else 0, inside if reached else 0,
                                bool(reached) and not mask >> source & 1))  # fmt: skip
            free.append(n)
        count = 32 * len(rounds)
        text = _kernel(
            ("in", "b", "out", "flag", "fixed"), ".reg .b64 %pb;",
            "mad.wide.u32 %in, %t, 4, %in; mad.wide.u32 %pb, %t, 4, %b; mad.wide.u32 %out, %t, 4, %out;\n"
            "mad.wide.u32 %flag, %t, 4, %flag; mad.wide.u32 %fixed, %t, 4, %fixed; ld.global.b32 %r0, [%in];\n"
            + "\n".join(body),
        )  # fmt: skip
        arguments = (values, np.concatenate([b for _, b, _ in rounds]), *(np.zeros(count, np.uint32) for _ in range(3)))
        expected = {
            2: np.array([w[0] for w in want], np.uint32), 3: np.array([w[1] for w in want], np.uint32),
            4: np.array([w[0] for w in valid], np.uint32),
        }  # fmt: skip
        unread = {2: [n for n, w in enumerate(want) if w[2]], 4: [n for n, w in enumerate(valid) if w[2]]}
        yield _case(f"shuffles {mode}", forms, text, arguments, expected, unread=unread)


def _in_mask(mask, number, lines):
    """Only the lanes of a mask come here: the others would wait for a meeting that is not theirs."""
    if mask == ALL:
        return lines
    skip = f"shr.u32 %r9, {mask}, %t; and.b32 %r9, %r9, 1; setp.eq.u32 %q9, %r9, 0; @%q9 bra past{number};"
    return f"{skip}\n{lines}\npast{number}:"


def vote_cases():
    """all, any, uni, ballot; match; redux: over the lanes of a mask."""
    small = (random_bits(70, 32) % np.uint64(5)).astype(np.uint32)
    values = random_bits(71, 32).astype(np.uint32)
    same = np.full(32, 0xDEADBEEF, np.uint32)
    long = (random_bits(72, 32) % np.uint64(3) << np.uint64(40)) | np.uint64(7)
    body, forms, outs = [], set(), []

    def out(opcode, lines, result, mask, want):
        at = 128 * len(outs)
        forms.add(opcode)
        body.append(_in_mask(mask, len(body), f"{lines}\n{result} st.global.b32 [%out+{at}], %r5;"))
        outs.append([want(lane) & ALL if mask >> lane & 1 else 0 for lane in range(32)])

    def lanes_of(mask):
        return [n for n in range(32) if mask >> n & 1]

    for array, name in ((small, "small"), (values, "values"), (same, "same")):
        for mask in MASKS[1:]:
            numbers = [int(array[n]) for n in lanes_of(mask)]
            yes = [n for n in lanes_of(mask) if int(array[n]) & 1]
            load = f"ld.global.b32 %r1, [%{name}];"
            for mode, held in {
                "all": len(yes) == len(numbers), "any": bool(yes), "uni": len(yes) in {0, len(numbers)},
            }.items():  # fmt: skip
                out(f"vote.sync.{mode}.pred", f"{load} and.b32 %r2, %r1, 1; setp.ne.u32 %q1, %r2, 0;\n"
                    f"vote.sync.{mode}.pred %q2, %q1, {mask};", "selp.b32 %r5, 1, 0, %q2;", mask,
                    lambda lane, held=held: int(held))  # fmt: skip
            ballot = sum(1 << n for n in lanes_of(mask) if n not in yes)
            out("vote.sync.ballot.b32", f"{load} and.b32 %r2, %r1, 1; setp.ne.u32 %q1, %r2, 0;\n"
                f"vote.sync.ballot.b32 %r5, !%q1, {mask};", "", mask, lambda lane, ballot=ballot: ballot)  # fmt: skip
            out("match.any.sync.b32", f"{load} match.any.sync.b32 %r5, %r1, {mask};", "", mask,
                lambda lane, mask=mask, x=array: sum(1 << n for n in lanes_of(mask) if x[n] == x[lane]))  # fmt: skip
            out("match.any.sync.b64", f"ld.global.b64 %l1, [%long]; match.any.sync.b64 %r5, %l1, {mask};", "", mask,
                lambda lane, mask=mask: sum(1 << n for n in lanes_of(mask) if long[n] == long[lane]))  # fmt: skip
            equal = len(set(numbers)) == 1
            out("match.all.sync.b32", f"{load} match.all.sync.b32 %r4|%q3, %r1, {mask}; selp.b32 %r5, 7, 0, %q3;",
                "xor.b32 %r5, %r4, %r5;", mask, lambda lane, e=equal, mask=mask: mask ^ 7 if e else 0)  # fmt: skip
            out("match.all.sync.b64", f"{load} cvt.u64.u32 %l2, %r1; match.all.sync.b64 %r4|%q3, %l2, {mask};",
                "selp.b32 %r5, 7, 0, %q3; xor.b32 %r5, %r4, %r5;", mask,
                lambda lane, e=equal, mask=mask: mask ^ 7 if e else 0)  # fmt: skip

            def signed(v):
                return v - (1 << 32) if v >> 31 else v

            for op, kind, function in (
                ("add", "u32", sum), ("add", "s32", sum), ("min", "u32", min), ("max", "u32", max),
                ("min", "s32", lambda x: min(map(signed, x))), ("max", "s32", lambda x: max(map(signed, x))),
                ("and", "b32", lambda x: int(np.bitwise_and.reduce(np.array(x, np.uint32)))),
                ("or", "b32", lambda x: int(np.bitwise_or.reduce(np.array(x, np.uint32)))),
                ("xor", "b32", lambda x: int(np.bitwise_xor.reduce(np.array(x, np.uint32)))),
            ):  # fmt: skip
                answer = function(numbers)
                out(f"redux.sync.{op}.{kind}", f"{load} redux.sync.{op}.{kind} %r5, %r1, {mask};", "", mask,
                    lambda lane, answer=answer: answer)  # fmt: skip
            out("activemask.b32", "", "activemask.b32 %r5;", mask, lambda lane, mask=mask: mask)
            out("bar.warp.sync", f"bar.warp.sync {mask}; mov.b32 %r5, %t;", "", mask, lambda lane: lane)
    names = ("small", "values", "same", "long", "out")
    places = [f"mad.wide.u32 %{n}, %t, {8 if n == 'long' else 4}, %{n};" for n in names]
    text = _kernel(names, "", "\n".join([*places, *body]))
    total = np.zeros(32 * len(outs), np.uint32)
    yield _case("votes", sorted(forms), text, (small, values, same, long, total),
                {4: np.array(outs, np.uint32).ravel()})  # fmt: skip


def parted_cases():
    """The same instruction for several groups of lanes at once, each with a mask of its own in a register."""
    values = (random_bits(75, 32) % np.uint64(6)).astype(np.uint32)
    numbers = random_bits(76, 32) % np.uint64(3)
    lines, want, forms = [], [], []
    for groups in (np.arange(32) // 16, np.arange(32) % 2, numbers, np.arange(32)):
        lanes = [[n for n in range(32) if groups[n] == groups[lane]] for lane in range(32)]
        at = 128 * len(want)
        lines.append(f"ld.global.b32 %r2, [%masks+{at}];")
        want.append([sum(1 << n for n in of) for of in lanes])
        for opcode, code, result in (
            ("vote.sync.any.pred", "vote.sync.any.pred %q2, %q1, %r2; selp.b32 %r5, 1, 0, %q2;",
             lambda of, lane: int(any(values[n] & 1 for n in of))),
            ("vote.sync.all.pred", "vote.sync.all.pred %q2, %q1, %r2; selp.b32 %r5, 1, 0, %q2;",
             lambda of, lane: int(all(values[n] & 1 for n in of))),
            ("vote.sync.uni.pred", "vote.sync.uni.pred %q2, %q1, %r2; selp.b32 %r5, 1, 0, %q2;",
             lambda of, lane: int(len({int(values[n]) & 1 for n in of}) == 1)),
            ("vote.sync.ballot.b32", "vote.sync.ballot.b32 %r5, %q1, %r2;",
             lambda of, lane: sum(1 << n for n in of if values[n] & 1)),
            ("match.any.sync.b32", "match.any.sync.b32 %r5, %r1, %r2;",
             lambda of, lane: sum(1 << n for n in of if values[n] == values[lane])),
            ("match.all.sync.b32",
             "match.all.sync.b32 %r4|%q3, %r1, %r2; selp.b32 %r5, 7, 0, %q3; xor.b32 %r5, %r4, %r5;",
             lambda of, lane: sum(1 << n for n in of) ^ 7 if len({int(values[n]) for n in of}) == 1 else 0),
            ("redux.sync.add.u32", "redux.sync.add.u32 %r5, %r1, %r2;",
             lambda of, lane: sum(int(values[n]) for n in of)),
            ("redux.sync.max.s32", "mov.b32 %r5, %r2; redux.sync.max.s32 %r5, %r1, %r5;",
             lambda of, lane: max(int(values[n]) for n in of)),
        ):  # fmt: skip
            forms.append(opcode)
            lines.append(f"{code} st.global.b32 [%out+{128 * len(want)}], %r5;")
            want.append([result(of, lane) for lane, of in enumerate(lanes)])
    masks = np.array(want, np.uint32)
    text = _kernel(("in", "masks", "out"), "", "\n".join([
        *(f"mad.wide.u32 %{name}, %t, 4, %{name};" for name in ("in", "masks", "out")),
        "ld.global.b32 %r1, [%in]; and.b32 %r3, %r1, 1; setp.ne.u32 %q1, %r3, 0;", *lines,
    ]))  # fmt: skip
    expected = masks.copy()
    expected[:: len(want) // 4] = 0  # these rows are masks, and nobody writes there
    yield _case("votes of several groups at once", sorted(set(forms)), text,
                (values, masks.ravel(), np.zeros(masks.size, np.uint32)), {2: expected.ravel()})  # fmt: skip


# -- barriers


def barrier_cases(opcodes):
    """96 threads write, meet, and read what another warp wrote; and count predicates."""
    x = (random_bits(90, 96) % np.uint64(7)).astype(np.uint32)
    body, want, forms = [], [], []
    for opcode in opcodes:
        found = match(opcode)
        name = found.form.name
        if name not in {"bar.sync", "bar.red", "bar.arrive"}:
            continue
        forms.append(opcode)
        at = 4 * 96 * len(want)
        if name == "bar.sync":
            for n, more in enumerate(("", ", 96")):
                body.append(f"""
xor.b32 %r2, %r0, {n + len(want)}; st.shared.b32 [%s], %r2; {opcode} 3{more};
ld.shared.b32 %r3, [%other]; st.global.b32 [%out+{at + 4 * 96 * n}], %r3; bar.sync 0;""")
            want += [[int(v) ^ n + len(want) for v in x[::-1]] for n in range(2)]
        elif name == "bar.red":
            op = found.options["op"]
            results = {"popc": sum(int(v) > 2 for v in x), "and": 0, "or": 1}
            turned = {"popc": sum(int(v) <= 2 for v in x), "and": 0, "or": 1}
            for n, (sign, answer) in enumerate((("", results[op]), ("!", turned[op]))):
                result = "%r3" if op == "popc" else "%q3"
                body.append(f"setp.gt.u32 %q2, %r0, 2; {opcode} {result}, {4 + n}, 96, {sign}%q2;")
                body.append("" if op == "popc" else "selp.b32 %r3, 1, 0, %q3;")
                body.append(f"st.global.b32 [%out+{at + 4 * 96 * n}], %r3;")
                want.append([answer] * 96)
        else:
            number = len(want)
            body.append(f"""
setp.lt.u32 %q4, %t, 32; @%q4 bra waits{number};
add.u32 %r2, %r0, {number}; st.shared.b32 [%s], %r2; membar.cta; {opcode} 7, 96; bra done{number};
waits{number}: bar.sync 7, 96; ld.shared.b32 %r3, [%other]; st.global.b32 [%out+{at}], %r3;
done{number}: bar.sync 0;""")
            want.append([int(x[95 - t]) + number if t < 32 else 0 for t in range(96)])
    text = _kernel(("in", "out"), ".reg .b32 %s, %other; .shared .align 4 .b8 room[384];", f"""
mad.wide.u32 %in, %t, 4, %in; mad.wide.u32 %out, %t, 4, %out; ld.global.b32 %r0, [%in];
mov.u32 %s, room; mad.lo.u32 %s, %t, 4, %s; sub.u32 %r1, 95, %t; mov.u32 %other, room;
mad.lo.u32 %other, %r1, 4, %other;
{"".join(body)}""")  # fmt: skip
    yield _case("barriers", forms, text, (x, np.zeros(96 * len(want), np.uint32)),
                {1: np.array(want, np.uint32).ravel()}, block=96)  # fmt: skip


# -- control, hints, addresses


def control_cases(opcodes):
    """Branches, returns, a function, and what changes nothing."""
    out = np.zeros(64, np.uint32)
    text = _kernel(("out",), "", """
mad.wide.u32 %out, %t, 4, %out;
mov.b32 %r1, 0; mov.b32 %r2, %t;
loop: setp.eq.u32 %q1, %r2, 0; @%q1 bra done;
add.u32 %r1, %r1, %r2; sub.u32 %r2, %r2, 1; bra loop;
done: bra.uni next;
mov.b32 %r1, 77;
next: { .param .b32 given; .param .b32 back; st.param.b32 [given], %r1;
call.uni (back), thrice, (given); ld.param.b32 %r3, [back]; }
st.global.b32 [%out], %r3;
setp.gt.u32 %q2, %t, 40; @%q2 exit;
add.u32 %r3, %r3, 1; st.global.b32 [%out], %r3;
setp.gt.u32 %q3, %t, 20; @!%q3 bra.uni on; ret.uni;
on: add.u32 %r3, %r3, 1; st.global.b32 [%out], %r3; exit;
""", """.func (.param .b32 back) thrice(.param .b32 given) { .reg .b32 %x; .reg .pred %p;
ld.param.b32 %x, [given]; setp.gt.u32 %p, %x, 1000; @%p bra big; mul.lo.u32 %x, %x, 3; st.param.b32 [back], %x; ret;
big: st.param.b32 [back], %x; ret.uni; }""")  # fmt: skip

    def answer(t):
        total = t * (t + 1) // 2
        total = total if total > 1000 else 3 * total
        return total + (0 if t > 40 else 1 if t > 20 else 2)

    forms = ["bra", "bra.uni", "ret", "ret.uni", "exit"]
    yield _case("control", forms, text, (out,), {0: np.array([answer(t) for t in range(64)], np.uint32)}, block=64)
    quiet = [o for o in opcodes if match(o).form.name in {"nothing", "fence", "createpolicy"} and o != "brkpt"]
    lines = []
    for opcode in quiet:
        operands = (
            "[%l1], 128" if opcode.startswith("applypriority") else "[%spare], 128" if opcode.startswith("discard")
            else "[stack]" if ".local" in opcode else "[%l1]" if opcode.startswith("prefetch")
            else "20" if opcode.startswith("nanosleep") else "3" if opcode.startswith("pmevent")
            else "%l2, [%l1], 128, 256" if opcode.startswith("createpolicy.range") else "%l2, %l3"
            if opcode.startswith("createpolicy.cvt") else "%l2, 0.5" if opcode.startswith("createpolicy") else ""
        )  # fmt: skip
        lines.append(f"{opcode} {operands};")
    given = patterned(512, 7).view(np.uint32)
    text = _kernel(("in", "out", "spare"), ".local .align 16 .b8 stack[64];", "\n".join([
        "mov.b64 %l3, 0; mov.b64 %l1, %in; mad.wide.u32 %in, %t, 4, %in; mad.wide.u32 %out, %t, 4, %out;", *lines,
        "ld.global.b32 %r1, [%in]; st.global.b32 [%out], %r1;",
    ]))  # fmt: skip
    yield _case(
        "what changes no value",
        quiet,
        text,
        (given, np.zeros(32, np.uint32), np.zeros(128, np.uint8)),
        {1: given[:32]},
        scratch=(2,),
    )


def address_cases(opcodes):
    """isspacep of one generic address a space; cvta there and back again."""
    asked = [o for o in opcodes if match(o).form.name == "isspacep"
             and space_of(match(o).options) in {"global", "shared", "local"}]  # fmt: skip
    lines, want = [], []
    for place, space in (("%in", "global"), ("%l1", "shared"), ("%l2", "local")):
        for opcode in asked:
            lines.append(
                f"{opcode} %q1, {place}; selp.b32 %r5, 1, 0, %q1; st.global.b32 [%out+{128 * len(want)}], %r5;"
            )
            want.append([int(space_of(match(opcode).options) == space)] * 32)
    forms = list(asked)
    for opcode in opcodes:
        found = match(opcode)
        space = space_of(found.options)
        if found.form.name in {"cvta", "cvtato"} and space == "param":  # holds the first argument, an address
            forms.append(opcode)
            lines.append(f"mov.u64 %l5, in; {opcode if found.form.name == 'cvta' else 'cvta.param.u64'} %l6, %l5;")
            lines.append(
                "ld.b64 %l7, [%l6];" if found.form.name == "cvta" else f"{opcode} %l7, %l6; ld.param.b64 %l7, [%l7];"
            )
            lines.append(
                f"setp.eq.u64 %q1, %l7, %in; selp.b32 %r5, 1, 0, %q1; st.global.b32 [%out+{128 * len(want)}], %r5;"
            )
            want.append([1] * 32)
        if found.form.name not in {"cvta", "cvtato"} or space not in {"global", "shared", "local", "const"}:
            continue
        forms.append(opcode)
        name = {"global": "%in", "shared": "room", "local": "stack", "const": "table"}[space]
        lines.append(f"mov.u64 %l5, {name};")
        if found.form.name == "cvta":
            lines.append(f"{opcode} %l6, %l5; ld.b32 %r5, [%l6];")
        else:
            word = "shared" if space == "shared" else space
            lines.append(f"cvta.{word}.u64 %l6, %l5; {opcode} %l7, %l6; ld.{space}.b32 %r5, [%l7];")
        lines.append(f"st.global.b32 [%out+{128 * len(want)}], %r5;")
        want.append([{"global": 11, "shared": 22, "local": 33, "const": 44}[space]] * 32)
    more = ".const .align 4 .b32 table[1] = {44};"
    text = _kernel(("in", "out"), ".shared .align 16 .b8 room[64]; .local .align 16 .b8 stack[64];", "\n".join([
        "mad.wide.u32 %out, %t, 4, %out; mov.b32 %r1, 22; st.shared.b32 [room], %r1; mov.b32 %r1, 33;",
        "st.local.b32 [stack], %r1; cvta.shared.u64 %l1, room; cvta.local.u64 %l2, stack; bar.sync 0;", *lines,
    ]), more)  # fmt: skip
    yield _case("addresses", forms, text, (np.array([11], np.uint32), np.zeros(32 * len(want), np.uint32)),
                {1: np.array(want, np.uint32).ravel()})  # fmt: skip


def copy_cases(opcodes):
    """cp.async: whole, with fewer bytes than it fills (the rest zeros), groups waited for in their order."""
    lines, want, forms = [], [], []
    source = patterned(32 * 16 * 2, 8)
    for opcode in opcodes:
        if match(opcode).form.name != "cp.async":
            continue
        forms.append(opcode)
        hint = ", %l4" if "L2::cache_hint" in opcode else ""
        for size in (16,) if ".cg" in opcode else (4, 8, 16):
            for have in (None, size, size // 2, 0):
                if have is not None and hint:
                    continue
                last = f", {have}" if have is not None else hint
                wait = ("cp.async.wait_all;", "cp.async.commit_group;\ncp.async.wait_group 0;")[len(want) // 2 % 2]
                lines.append(f"mov.b64 %l9, -1; st.shared.b64 [%s], %l9; st.shared.b64 [%s+8], %l9;\n"
                             f"{opcode} [%s], [%in], {size}{last};\n{wait}")  # fmt: skip
                for half in range(2):
                    lines.append(f"ld.shared.b64 %l9, [%s+{8 * half}]; st.global.b64 [%out+{256 * len(want)}], %l9;")
                    row = []
                    for t in range(32):
                        data = source[16 * t : 16 * t + (size if have is None else have)].tobytes()
                        data = data.ljust(size, b"\0").ljust(16, b"\xff")
                        row.append(int.from_bytes(data[8 * half : 8 * half + 8], "little"))
                    want.append(row)
    forms += ["cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all"]
    lines.append(f"""
cp.async.ca.shared.global [%s], [%in], 8; cp.async.commit_group;
cp.async.ca.shared.global [%s+8], [%in], 8; cp.async.commit_group;
cp.async.wait_group 1; ld.shared.b64 %l9, [%s]; st.global.b64 [%out+{256 * len(want)}], %l9;
cp.async.wait_group 0; ld.shared.b64 %l9, [%s+8]; st.global.b64 [%out+{256 * len(want) + 256}], %l9;""")
    want += [[int.from_bytes(source[16 * t : 16 * t + 8].tobytes(), "little") for t in range(32)]] * 2
    text = _kernel(("in", "out"), ".reg .b32 %s; .shared .align 16 .b8 room[512];", "\n".join([
        "createpolicy.fractional.L2::evict_last.b64 %l4, 1.0; mad.wide.u32 %in, %t, 16, %in;",
        "mad.wide.u32 %out, %t, 8, %out; mov.u32 %s, room; mad.lo.u32 %s, %t, 16, %s;", *lines,
    ]))  # fmt: skip
    yield _case("copies in the background", forms, text, (source, np.zeros(32 * len(want), np.uint64)),
                {1: np.array(want, np.uint64).ravel()})  # fmt: skip


def register_cases():
    """Special registers of 2 × 3 × 2 blocks of 8 × 4 × 2 threads (PTX ISA, "Special Registers")."""
    names = [f"{n}.{a}" for n in ("tid", "ntid", "ctaid", "nctaid") for a in "xyz"]
    names += ["laneid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt"]
    lines = [f"mov.u32 %r5, %{name}; st.global.b32 [%out+{4 * n}], %r5;" for n, name in enumerate(names)]
    text = _kernel(("out",), "", "\n".join([
        "mov.u32 %r1, %ctaid.z; mad.lo.u32 %r1, %r1, 3, %ctaid.y; mad.lo.u32 %r1, %r1, 2, %ctaid.x;"
        .replace("3, %ctaid.y;", "3, %r11;").replace("2, %ctaid.x;", "2, %r12;")
        .replace("mad", "mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.x; mad", 1),
        "mov.u32 %r2, %tid.z; mov.u32 %r13, %tid.y; mad.lo.u32 %r2, %r2, 4, %r13; mov.u32 %r13, %tid.x;",
        "mad.lo.u32 %r2, %r2, 8, %r13; mad.lo.u32 %r1, %r1, 64, %r2;",
        f"mad.wide.u32 %out, %r1, {4 * len(names)}, %out;", *lines,
    ]))  # fmt: skip
    want = []
    for block in range(12):
        for t in range(64):
            lane = t % 32
            row = [t % 8, t // 8 % 4, t // 32, 8, 4, 2, block % 2, block // 2 % 3, block // 6, 2, 3, 2]
            row += [
                lane,
                1 << lane,
                (2 << lane) - 1,
                (1 << lane) - 1,
                ALL << lane & ALL,
                (ALL << lane & ALL) ^ 1 << lane,
            ]
            want += row
    yield Case("special registers", (), text, (2, 3, 2), (8, 4, 2), (np.zeros(len(want), np.uint32),),
               {0: np.array(want, np.uint32)})  # fmt: skip


def warp_cases(opcodes):
    """All of the above, for opcodes that ptxas takes."""
    yield from shuffle_cases()
    yield from vote_cases()
    yield from parted_cases()
    yield from barrier_cases(opcodes)
    yield from control_cases(opcodes)
    yield from address_cases(opcodes)
    yield from copy_cases(opcodes)
    yield from register_cases()
