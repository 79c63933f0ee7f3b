"""Random kernels, and a second machine for them: NumPy, the whole grid in lockstep, masks for who takes part.

A kernel is a list of statements over 6 words, 3 long words, 4 floats and 3 predicates: instructions (some under a
guard), branches whose arms nest, loops whose length differs by thread, exchanges through shared memory and by shuffles.
`ptx` writes it down; `interpret` runs the same statements one by one on all threads. Nothing here knows how the machine
works.

`python tests/simt/lockstep.py FIRST COUNT` compares COUNT of them.
"""

import random
import sys
from dataclasses import dataclass, field

import numpy as np

WORDS, LONGS, FLOATS, PREDICATES = 6, 3, 4, 3
BLOCK = 96


@dataclass
class Step:
    """One instruction: opcode, where its result goes, operands; `guard`: a predicate and whether it is negated."""

    op: str
    result: str
    operands: tuple
    guard: tuple[str, bool] | None = None


@dataclass
class Branch:
    predicate: str
    then: list = field(default_factory=list)
    other: list = field(default_factory=list)


@dataclass
class Loop:
    """`times` (a word, its low bits) rounds."""

    times: str
    bits: int
    body: list = field(default_factory=list)


@dataclass
class Exchange:
    """Through shared memory: a thread reads what the one `distance` further (around the block) wrote."""

    result: str
    source: str
    distance: int


@dataclass
class Shuffle:
    result: str
    source: str
    mode: str
    amount: int


def wrapped(function):
    return lambda *x: function(*(v.astype(np.int64) for v in x)).astype(np.uint64).astype(np.uint32)


def as_signed(x):
    return x.view(np.int32) if x.dtype == np.uint32 else x.view(np.int64)


def shift(left):
    def run(a, b):
        b = b.astype(np.uint64)
        wide = a.astype(np.uint64) << np.minimum(b, 32) if left else a.astype(np.uint64) >> np.minimum(b, 32)
        return wide.astype(np.uint32)

    return run


def float_op(function):
    def run(*x):
        with np.errstate(all="ignore"):
            out = function(*(v.view(np.float32) for v in x)).astype(np.float32)
        bits = out.view(np.uint32)
        return np.where(np.isnan(out), np.uint32(0x7FFFFFFF), bits)

    return run


def to_int(a):
    x = a.view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        return (
            np.where(np.isnan(x), 0, np.clip(np.trunc(x), -(2.0**31), 2.0**31 - 1)).astype(np.int64).astype(np.uint32)
        )


def bit_find(a):
    out = np.full(a.shape, 0xFFFFFFFF, np.uint32)
    for n in range(32):
        out = np.where(a >> np.uint32(n) & 1 == 1, np.uint32(n), out)
    return out


INTEGER = {
    "add.s32": wrapped(np.add), "sub.s32": wrapped(np.subtract), "mul.lo.s32": wrapped(np.multiply),
    "and.b32": np.bitwise_and, "or.b32": np.bitwise_or, "xor.b32": np.bitwise_xor,
    "min.s32": lambda a, b: np.minimum(as_signed(a), as_signed(b)).view(np.uint32), "max.u32": np.maximum,
    "shl.b32": shift(True), "shr.u32": shift(False),
    "shr.s32": lambda a, b: (as_signed(a).astype(np.int64) >> np.minimum(b, 32).astype(np.int64)).astype(np.uint32),
    "mul.hi.u32": lambda a, b: (a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32)).astype(np.uint32),
}  # fmt: skip
ONE = {
    "not.b32": np.bitwise_not,
    "neg.s32": lambda a: (0 - a.astype(np.int64)).astype(np.uint32),
    "bfind.u32": bit_find,
}
LONG = {
    "add.s64": lambda a, b: a + b, "sub.s64": lambda a, b: a - b, "xor.b64": np.bitwise_xor,
    "mul.lo.s64": lambda a, b: a * b, "max.s64": lambda a, b: np.maximum(as_signed(a), as_signed(b)).view(np.uint64),
}  # fmt: skip
FLOAT = {
    "add.rn.f32": float_op(np.add), "sub.rn.f32": float_op(np.subtract), "mul.rn.f32": float_op(np.multiply),
    "div.rn.f32": float_op(np.divide),
}  # fmt: skip
COMPARE = {"lt": np.less, "eq": np.equal, "ge": np.greater_equal}


class Maker:
    """Draws a kernel."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def word(self):
        return f"%r{self.rng.randrange(WORDS)}"

    def long(self):
        return f"%l{self.rng.randrange(LONGS)}"

    def real(self):
        return f"%f{self.rng.randrange(FLOATS)}"

    def predicate(self):
        return f"%p{self.rng.randrange(PREDICATES)}"

    def word_or_number(self):
        if self.rng.random() < 0.7:
            return self.word()
        return self.rng.choice([0, 1, 3, 31, 32, 255, 65535, 0x7FFFFFFF, 0xFFFFFFFF, self.rng.getrandbits(32)])

    def step(self):
        rng = self.rng
        guard = (self.predicate(), rng.random() < 0.5) if rng.random() < 0.2 else None
        match rng.randrange(14):
            case 0 | 1 | 2 | 3:
                return Step(rng.choice(list(INTEGER)), self.word(), (self.word(), self.word_or_number()), guard)
            case 4:
                return Step(rng.choice(list(ONE)), self.word(), (self.word(),), guard)
            case 5 | 6:
                return Step(rng.choice(list(FLOAT)), self.real(), (self.real(), self.real()), guard)
            case 7:
                return Step(rng.choice(list(LONG)), self.long(), (self.long(), self.long()), guard)
            case 8:
                return Step("mul.wide.s32", self.long(), (self.word(), self.word()), guard)
            case 9:
                return Step("cvt.u32.u64", self.word(), (self.long(),), guard)
            case 10:
                return Step(*rng.choice([("cvt.rn.f32.s32", self.real(), (self.word(),)),
                                         ("cvt.rzi.s32.f32", self.word(), (self.real(),)),
                                         ("mov.b32", self.real(), (self.word(),)),
                                         ("mov.b32", self.word(), (self.real(),))]),
                            guard)  # fmt: skip
            case 11:
                kind, pick = rng.choice(
                    [("s32", self.word), ("u32", self.word), ("f32", self.real), ("s64", self.long)]
                )
                return Step(f"setp.{rng.choice(list(COMPARE))}.{kind}", self.predicate(), (pick(), pick()), guard)
            case 12:
                return Step("selp.b32", self.word(), (self.word(), self.word_or_number(), self.predicate()), guard)
            case _:
                return Step("xor.pred", self.predicate(), (self.predicate(), self.predicate()), guard)

    def block(self, length, depth):
        out = []
        for _ in range(length):
            draw = self.rng.random()
            if depth < 3 and draw < 0.12:
                out.append(Branch(self.predicate(), self.block(self.rng.randint(1, 5), depth + 1),
                                  self.block(self.rng.randint(0, 4), depth + 1)))  # fmt: skip
            elif depth < 2 and draw < 0.18:
                out.append(Loop(self.word(), self.rng.randint(1, 3), self.block(self.rng.randint(1, 4), depth + 1)))
            elif depth == 0 and draw < 0.24:
                out.append(Exchange(self.word(), self.word(), self.rng.choice([1, 7, 32, 33, 64])))
            elif depth == 0 and draw < 0.30:
                out.append(
                    Shuffle(
                        self.word(), self.word(), self.rng.choice(["up", "down", "bfly", "idx"]), self.rng.randrange(32)
                    )
                )
            else:
                out.append(self.step())
        return out


def ptx(statements):
    """The kernel's text."""
    lines, count = [], [0]

    def write(items):
        for item in items:
            count[0] += 1
            n = count[0]
            match item:
                case Step():
                    guard = f"@{'!' if item.guard[1] else ''}{item.guard[0]} " if item.guard else ""
                    lines.append(f"{guard}{item.op} {item.result}, {', '.join(map(str, item.operands))};")
                case Branch():
                    lines.append(f"@!{item.predicate} bra other{n};")
                    write(item.then)
                    lines.append(f"bra done{n};\nother{n}:")
                    write(item.other)
                    lines.append(f"done{n}:")
                case Loop():
                    lines.append(
                        f"and.b32 %n{n}, {item.times}, {(1 << item.bits) - 1};\nround{n}: setp.eq.u32 %end, %n{n}, 0;"
                    )
                    lines.append(f"@%end bra done{n};")
                    write(item.body)
                    lines.append(f"sub.u32 %n{n}, %n{n}, 1; bra round{n};\ndone{n}:")
                case Exchange():
                    lines.append(f"st.shared.b32 [%own], {item.source}; bar.sync 0;")
                    lines.append(
                        f"add.u32 %i, %t, {item.distance}; rem.u32 %i, %i, {BLOCK}; mad.lo.u32 %i, %i, 4, %room;"
                    )
                    lines.append(f"ld.shared.b32 {item.result}, [%i]; bar.sync 0;")
                case Shuffle():
                    clamp = 0 if item.mode == "up" else 31
                    lines.append(f"shfl.sync.{item.mode}.b32 {item.result}, {item.source}, {item.amount}, {clamp}, -1;")

    write(statements)
    loops = "".join(f", %n{n}" for n in range(1, count[0] + 1))
    registers = [f"%r{n}" for n in range(WORDS)] + [f"%f{n}" for n in range(FLOATS)]
    loads = "\n".join(f"ld.global.b32 {r}, [%in+{4 * n}];" for n, r in enumerate(registers))
    stores = "\n".join(f"st.global.b32 [%out+{4 * n}], {r};" for n, r in enumerate(registers))
    longs = "\n".join(f"st.global.b64 [%out+{4 * len(registers) + 8 * n}], %l{n};" for n in range(LONGS))
    each = 4 * len(registers) + 8 * LONGS
    return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 given, .param .u64 taken)
{{
.reg .pred %p<{PREDICATES}>, %end; .reg .b32 %r<{WORDS}>, %f<{FLOATS}>, %t, %b, %i, %room, %own{loops};
.reg .b64 %l<{LONGS}>, %in, %out;
.shared .align 4 .b8 room[{4 * BLOCK}];
mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %b, %b, {BLOCK}, %t;
mov.u32 %room, room; mad.lo.u32 %own, %t, 4, %room;
ld.param.u64 %in, [given]; mad.wide.u32 %in, %b, {4 * len(registers)}, %in;
ld.param.u64 %out, [taken]; mad.wide.u32 %out, %b, {each}, %out;
{loads}
{"".join(f"mul.wide.u32 %l{n}, %r{n}, %r{n + 1}; setp.gt.s32 %p{n}, %r{n}, %r{n + 2};" for n in range(3))}
{chr(10).join(lines)}
{stores}
{longs}
ret;
}}
"""


class Threads:
    """All threads' registers, a column each; `run` executes statements for those that a mask names."""

    def __init__(self, given):
        self.count = given.shape[1]
        self.now = {f"%r{n}": given[n].copy() for n in range(WORDS)}
        self.now |= {f"%f{n}": given[WORDS + n].copy() for n in range(FLOATS)}
        for n in range(3):
            a, b, c = (self.now[f"%r{n + k}"] for k in range(3))
            self.now[f"%l{n}"] = a.astype(np.uint64) * b.astype(np.uint64)
            self.now[f"%p{n}"] = as_signed(a) > as_signed(c)

    def value(self, operand):
        return self.now[operand] if isinstance(operand, str) else np.full(self.count, operand, np.uint32)

    def put(self, name, value, mask):
        self.now[name] = np.where(mask, value, self.now[name])

    def run(self, items, mask):
        for item in items:
            match item:
                case Step():
                    active = mask
                    if item.guard:
                        active = mask & (self.now[item.guard[0]] ^ item.guard[1])
                    self.put(item.result, self.result(item), active)
                case Branch():
                    taken = self.now[item.predicate].copy()
                    self.run(item.then, mask & taken)
                    self.run(item.other, mask & ~taken)
                case Loop():
                    left = self.now[item.times] & np.uint32((1 << item.bits) - 1)
                    while (mask & (left > 0)).any():
                        self.run(item.body, mask & (left > 0))
                        left = np.where(left > 0, left - 1, 0)
                case Exchange():
                    at = np.arange(self.count)
                    other = at // BLOCK * BLOCK + (at % BLOCK + item.distance) % BLOCK
                    self.put(item.result, self.now[item.source][other], mask)
                case Shuffle():
                    at = np.arange(self.count)
                    lane, base = at % 32, at // 32 * 32
                    to = {"up": lane - item.amount, "down": lane + item.amount, "bfly": lane ^ item.amount,
                          "idx": np.full(self.count, item.amount)}[item.mode]  # fmt: skip
                    to = np.where((to < 0) | (to > 31), lane, to)
                    self.put(item.result, self.now[item.source][base + to], mask)

    def result(self, item):
        x = [self.value(o) for o in item.operands]
        op = item.op
        for table in (INTEGER, ONE, LONG, FLOAT):
            if op in table:
                with np.errstate(over="ignore"):
                    return table[op](*x)
        if op.startswith("setp"):
            _, word, kind = op.split(".")
            view = {"s32": np.int32, "u32": np.uint32, "f32": np.float32, "s64": np.int64}[kind]
            return COMPARE[word](*(v.view(view) for v in x))
        match op:
            case "mul.wide.s32":
                return (as_signed(x[0]).astype(np.int64) * as_signed(x[1]).astype(np.int64)).view(np.uint64)
            case "cvt.u32.u64":
                return x[0].astype(np.uint32)
            case "cvt.rn.f32.s32":
                return as_signed(x[0]).astype(np.float32).view(np.uint32)
            case "cvt.rzi.s32.f32":
                return to_int(x[0])
            case "mov.b32":
                return x[0]
            case "selp.b32":
                return np.where(x[2], x[0], x[1])
            case "xor.pred":
                return x[0] ^ x[1]
        raise ValueError(op)

    def columns(self):
        """As the kernel stores them: a row a thread, words of 32 bits."""
        words = np.stack([self.now[f"%r{n}"] for n in range(WORDS)] + [self.now[f"%f{n}"] for n in range(FLOATS)], 1)
        longs = np.stack([self.now[f"%l{n}"] for n in range(LONGS)], 1)
        return np.concatenate([words, longs.view(np.uint32)], 1)


def compare(number, **options):
    """Kernel `number`: None, or the kernel's text where the machine and NumPy differ."""
    from undertorch.gpus import find
    from undertorch.simt import launch

    maker = Maker(number)
    statements = maker.block(maker.rng.randint(10, 45), 0)
    rng = np.random.default_rng(number)
    blocks = maker.rng.choice([1, 2])
    words = rng.integers(0, 2**32, (WORDS, BLOCK * blocks), np.uint64).astype(np.uint32)
    words = np.where(rng.random(words.shape) < 0.4, words % np.uint32(50), words)
    reals = (rng.standard_normal((FLOATS, BLOCK * blocks)) * 100).astype(np.float32).view(np.uint32)
    given = np.concatenate([words, reals])
    threads = Threads(given)
    threads.run(statements, np.ones(BLOCK * blocks, bool))
    wanted = threads.columns()
    got = np.zeros_like(wanted)
    text = ptx(statements)
    launch(text, "kernel", blocks, BLOCK, (np.ascontiguousarray(given.T), got), gpu=find("A100-80GB"), **options)
    return None if np.array_equal(got, wanted) else text


if __name__ == "__main__":
    start, number = int(sys.argv[1]), int(sys.argv[2])
    for one in range(start, start + number):
        print(one, end=" ", flush=True)
        assert compare(one) is None, f"kernel {one} differs"
        print("same", flush=True)
