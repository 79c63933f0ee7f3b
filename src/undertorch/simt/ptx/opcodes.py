"""Every instruction form that the machine runs: one row a form. Parser, codegen and documentation read this table.

A pattern is the opcode as written, with `<set>` where it may be any member of a set, `<name:set>` where that member is
kept as an option under a name, and `?` behind what may be left out. `since` is the least PTX version and target, as
the PTX ISA gives them under "PTX ISA Notes" and "Target ISA Notes"; 7.0 and sm_70 stand for everything older.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from undertorch.simt.ptx.types import TYPES, Type

INTEGERS = "u16|u32|u64|s16|s32|s64"
SETS = {
    "int": INTEGERS,
    "word": "u32|u64|s32|s64",
    "i32": "u32|s32",
    "bits": "b16|b32|b64",
    "logic": "pred|b16|b32|b64",
    "any": "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64",
    "quarter": "b8|b16|b32|u8|u16|u32|s8|s16|s32|f32",
    "register": "pred|b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64",
    "anyint": "u8|u16|u32|u64|s8|s16|s32|s64",
    "signed": "s16|s32|s64",
    "unsigned": "u16|u32|u64",
    "half": "f16|f16x2|bf16|bf16x2",
    "f16s": "f16|f16x2",
    "bf16s": "bf16|bf16x2",
    "rounding": "rn|rz|rm|rp",
    "whole": "rni|rzi|rmi|rpi",
    "equal": "eq|ne",
    "ordered": "eq|ne|lt|le|gt|ge",
    "sizes": "eq|ne|lt|le|gt|ge|lo|ls|hi|hs",
    "floats": "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan",
    "boolean": "and|or|xor",
    "space": "global|shared::cta|shared|local|param::entry|param::func|param|const",
    "write": "global|shared::cta|shared|local|param::func|param",
    "order": "relaxed|acquire|release|acq_rel",
    "scope": "cta|cluster|gpu|sys",
    "inner": "shared::cta|shared|local|param::entry|param::func|param|const",
    "loads": "ca|cg|cs|lu|cv",
    "stores": "wb|cg|cs|wt",
    "hint": (
        "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate|L2::cache_hint|L2::64B|"
        "L2::128B|L2::256B"
    ),
    "second": "L2::cache_hint|L2::64B|L2::128B|L2::256B",
    "keep": "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate",
    "vector": "v2|v4",
    "atomspace": "global|shared::cta|shared",
    "window": "global|shared::cta|shared|local|const|param::entry|param",
    "near": "shared::cta|shared",
    "far": "global|shared::cta|shared",
    "major": "row|col",
    "s8s": "s8|u8",
    "s4s": "s4|u4",
    "fp8": "e4m3|e5m2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One row: how it is written, what it takes, what it needs."""

    pattern: str
    name: str
    """The instruction's name in codegen."""
    operands: str
    """`d` are results, the rest sources; `d|p` a pair, `[a]` an address, `{…}` several in braces, `?` optional."""
    since: tuple[int, int] = (7, 0)
    target: int = 70
    cost: str = "alu"
    converge: bool = False
    """Threads of a member mask, or of a barrier, meet here."""

    @property
    def regex(self) -> "re.Pattern[str]":
        """What its opcodes match, with a group for each place that may differ."""
        return _regex(self.pattern)

    @property
    def first_words(self) -> tuple[str, ...]:
        """What stands before the first dot of its opcodes."""
        word = self.pattern.split(".", maxsplit=1)[0]
        return tuple(word.strip("<>").split(":")[-1].split("|"))

    @property
    def results(self) -> int:
        """How many operands it writes."""
        return sum(o.startswith("d") for o in self.operands.split())

    @property
    def most_operands(self) -> int:
        """Operands with the optional ones."""
        return len(self.operands.split())

    @property
    def least_operands(self) -> int:
        """Operands without the optional ones."""
        return sum(not o.endswith("?") for o in self.operands.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A form, with what its open places were filled with."""

    form: Form
    types: tuple[Type, ...]
    options: dict[str, str]


NAMED = re.compile(r"(\w+):(?!:)(.*)")
PIECE = re.compile(r"(?:\.?)(<[^>]+>|[A-Za-z0-9_:]+)(\?)?")


@cache  # compiled when a file first has such an opcode: the whole table takes longer than a small kernel
def _regex(pattern: str) -> "re.Pattern[str]":
    out, types = "", 0
    for number, found in enumerate(PIECE.finditer(pattern)):
        piece, optional = found.group(1), found.group(2)
        if piece.startswith("<"):
            named = NAMED.match(piece[1:-1])
            name, of = named.groups() if named else ("", piece[1:-1])
            choices = SETS.get(of, of)
            if set(choices.split("|")) <= TYPES.keys() and not name:
                name, types = f"type{types}", types + 1
            group = f"(?P<{name}>{choices})" if name else f"(?:{choices})"
        elif piece in TYPES:
            group, types = f"(?P<type{types}>{piece})", types + 1
        elif optional:
            group = f"(?P<{piece.replace('::', '_')}>{piece})"
        else:
            group = piece
        dot = "" if number == 0 else r"\."
        out += f"(?:{dot}{group})?" if optional else f"{dot}{group}"
    return re.compile(out + r"\Z")


def _form(  # the columns of the table
    pattern: str,
    operands: str,
    name: str = "",
    cost: str = "alu",
    since: tuple[int, int] = (7, 0),
    target: int = 70,
    converge: bool = False,
) -> Form:
    named = name or pattern.split(".", maxsplit=1)[0]
    return Form(
        pattern=pattern,
        name=named,
        operands=operands,
        since=since,
        target=target,
        cost=cost,
        converge=converge,
    )


INTEGER = (
    _form("add.sat?.s32", "d a b"),
    _form("<add|sub>.cc.<word>", "d a b", name="carry", cost="alu"),
    _form("<addc|subc>.<cc:cc>?.<word>", "d a b", name="carry"),
    _form("<mad|madc>.<half:hi|lo>.<cc:cc>?.<word>", "d a b c", name="madcarry", cost="imad"),
    _form("add.<int>", "d a b"),
    _form("add.<u16x2|s16x2>", "d a b", since=(8, 0), target=90, name="add2"),
    _form("sub.sat?.s32", "d a b"),
    _form("sub.<int>", "d a b"),
    _form("mul.<half:hi|lo>.<int>", "d a b", cost="imad"),
    _form("mul.<half:wide>.<u16|u32|s16|s32>", "d a b", cost="imad"),
    _form("mad.<half:hi|lo>.<int>", "d a b c", cost="imad"),
    _form("mad.<half:wide>.<u16|u32|s16|s32>", "d a b c", cost="imad"),
    _form("mad.hi.<sat:sat>.s32", "d a b c", cost="imad", name="madsat"),
    _form("<mul24|mad24>.<half:hi|lo>.<i32>", "d a b c?", cost="imad", name="mul24"),
    _form("sad.<int>", "d a b c"),
    _form("div.<int>", "d a b", cost="call"),
    _form("rem.<int>", "d a b", cost="call"),
    _form("abs.<s16|s32|s64>", "d a"),
    _form("neg.<s16|s32|s64>", "d a"),
    _form("min.<int>", "d a b"),
    _form("max.<int>", "d a b"),
    _form("popc.<b32|b64>", "d a", cost="quarter"),
    _form("clz.<b32|b64>", "d a", cost="quarter"),
    _form("bfind.<shiftamt:shiftamt>?.<word>", "d a", cost="quarter"),
    _form("brev.<b32|b64>", "d a", cost="quarter"),
    _form("bfe.<word>", "d a b c"),
    _form("bfi.<b32|b64>", "d a b c e"),
    _form("bmsk.<mode:clamp|wrap>.b32", "d a b", since=(7, 6)),
    _form("szext.<mode:clamp|wrap>.<i32>", "d a b", since=(7, 6)),
    _form("dp4a.<i32>.<i32>", "d a b c", cost="imad"),
    _form("dp2a.<half:lo|hi>.<i32>.<i32>", "d a b c", cost="imad"),
)

LOGIC = (
    _form("<op:and|or|xor>.<logic>", "d a b", name="logic"),
    _form("not.<logic>", "d a"),
    _form("cnot.<bits>", "d a"),
    _form("lop3.b32", "d a b c e"),
    _form("shl.<bits>", "d a b"),
    _form("shr.<b16|b32|b64|u16|u32|u64|s16|s32|s64>", "d a b"),
    _form("shf.<way:l|r>.<mode:clamp|wrap>.b32", "d a b c"),
    _form("prmt.b32.<mode:f4e|b4e|rc8|ecl|ecr|rc16>?", "d a b c"),
)

FLOAT = (
    _form("<op:add|sub|mul>.<rounding:rounding>?.ftz?.sat?.f32", "d a b", name="farith", cost="fma"),
    _form("<op:add|sub|mul>.<rounding:rounding>?.f64", "d a b", name="farith", cost="f64"),
    _form("<op:fma|mad>.<rounding:rounding>.ftz?.sat?.f32", "d a b c", name="ffma", cost="fma"),
    _form("<op:fma|mad>.<rounding:rounding>.f64", "d a b c", name="ffma", cost="f64"),
    _form("div.<rounding:approx|full|rn|rz|rm|rp>.ftz?.f32", "d a b", name="fdiv", cost="call"),
    _form("div.<rounding:rounding>.f64", "d a b", name="fdiv", cost="call"),
    _form("rcp.<rounding:approx|rn|rz|rm|rp>.ftz?.f32", "d a", name="frcp", cost="sfu"),
    _form("rcp.<rounding:rounding>.f64", "d a", name="frcp", cost="call"),
    _form("rcp.<rounding:approx>.ftz.f64", "d a", name="frcp64approx", cost="sfu"),
    _form("rsqrt.<rounding:approx>.ftz.f64", "d a", name="frsqrt64approx", cost="sfu"),
    _form("sqrt.<rounding:approx|rn|rz|rm|rp>.ftz?.f32", "d a", name="fsqrt", cost="sfu"),
    _form("sqrt.<rounding:rounding>.f64", "d a", name="fsqrt", cost="call"),
    _form("rsqrt.approx.ftz?.f32", "d a", name="frsqrt", cost="sfu"),
    _form("rsqrt.approx.f64", "d a", name="frsqrt", cost="call"),
    _form("<op:sin|cos|lg2|ex2>.approx.ftz?.f32", "d a", name="fapprox", cost="sfu"),
    _form("<op:tanh>.approx.f32", "d a", name="fapprox", cost="sfu", target=75),
    _form("<op:abs|neg>.ftz?.f32", "d a", name="fsign"),
    _form("<op:abs|neg>.f64", "d a", name="fsign"),
    _form("<op:min|max>.ftz?.NaN?.f32", "d a b", name="fminmax"),
    _form("<op:min|max>.ftz?.NaN?.<xorsign:xorsign>.<xabs:abs>.f32", "d a b", name="fminmax"),
    _form("<op:min|max>.f64", "d a b", name="fminmax", cost="f64"),
    _form("testp.<op:finite|infinite|number|notanumber|normal|subnormal>.<f32|f64>", "d a"),
    _form("copysign.<f32|f64>", "d a b"),
)

HALF = (
    _form("<op:add|sub|mul>.<rounding:rn>?.ftz?.sat?.<f16s>", "d a b", name="harith", cost="half"),
    _form("<op:add|sub|mul>.<rounding:rn>?.<bf16s>", "d a b", name="harith", cost="half", since=(7, 8), target=90),
    _form("<op:fma>.rn.ftz?.sat?.<f16s>", "d a b c", name="harith", cost="half"),
    _form("<op:fma>.rn.ftz?.<relu:relu>.<f16s>", "d a b c", name="harith", cost="half", target=80),
    _form("<op:fma>.rn.relu?.<bf16s>", "d a b c", name="harith", cost="half", target=80),
    _form("<op:abs|neg>.ftz?.<f16s>", "d a", name="hsign"),
    _form("<op:abs|neg>.<bf16s>", "d a", name="hsign"),
    _form("<op:min|max>.ftz?.NaN?.<f16s>", "d a b", name="hminmax", target=80),
    _form("<op:min|max>.ftz?.NaN?.<xorsign:xorsign>.<xabs:abs>.<f16s>", "d a b", name="hminmax", target=80),
    _form("<op:min|max>.NaN?.<bf16s>", "d a b", name="hminmax", target=80),
    _form("<op:min|max>.NaN?.<xorsign:xorsign>.<xabs:abs>.<bf16s>", "d a b", name="hminmax", target=80),
    _form("<op:ex2>.approx.<f16s>", "d a", name="happrox", cost="sfu", target=75),
    _form("<op:ex2>.approx.<ftz:ftz>.<bf16s>", "d a", name="happrox", cost="sfu", target=75),
    _form("<op:tanh>.approx.<half>", "d a", name="happrox", cost="sfu", target=75),
)


def _compared(word: str, name: str, ends: str) -> tuple[Form, ...]:
    """Comparisons of one kind of numbers: `setp` or `set`, and what follows the boolean operator."""
    return tuple(
        _form(f"{word}.<compare:{compare}>.<boolean:boolean>?.{end}", "d a b c?", name=name)
        for compare, end in (row.split() for row in ends.split(";"))
    )


COMPARE = (
    *_compared(
        "setp",
        "",
        "equal <bits>;ordered <signed>;sizes <unsigned>;floats ftz?.<f16|f16x2|f32>;floats <bf16|bf16x2|f64>",
    ),
    *_compared(
        "set",
        "",
        "equal <u32|s32|f16|bf16|f32>.<bits>;ordered <u32|s32|f16|bf16|f32>.<signed>;"
        "sizes <u32|s32|f16|bf16|f32>.<unsigned>;floats ftz?.<u32|s32|f16>.<f16|f32>;floats ftz?.f32.f32;"
        "floats ftz?.u16.f16;floats <u32|s32>.<bf16|f64>;floats bf16.<f16|bf16|f32|f64>;floats <f16|f32>.f64;"
        "floats u16.bf16",
    ),
    *_compared("set", "set2", "floats ftz?.f16x2.f16x2;floats bf16x2.bf16x2"),
    _form("selp.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>", "d a b p"),
    _form("slct.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>.s32", "d a b c"),
    _form("slct.ftz?.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>.f32", "d a b c"),
)

MOVE = (
    _form("mov.<register>", "d a"),
    _form("mov.b128", "d a", since=(8, 3)),
    *(
        _form(f"cvt.{end}", "d a", cost="convert")
        for end in (
            "<anyint>.<anyint>",
            "<sat:sat>.s8.<s16|s32|s64|u8|u16|u32|u64>",
            "<sat:sat>.u8.<s8|s16|s32|s64|u16|u32|u64>",
            "<sat:sat>.s16.<s32|s64|u16|u32|u64>",
            "<sat:sat>.u16.<s8|s16|s32|s64|u32|u64>",
            "<sat:sat>.s32.<s64|u32|u64>",
            "<sat:sat>.u32.<s8|s16|s32|s64|u64>",
            "<sat:sat>.s64.u64",
            "<sat:sat>.u64.<s8|s16|s32|s64>",
            "<f16|bf16>.<f16|bf16>",
            "ftz?.f32.<f16|bf16|f32>",
            "ftz?.f64.f32",
            "f64.<f16|bf16|f64>",
            "<sat:sat>.f16.f16",
            "ftz?.<sat:sat>.f32.<f16|f32>",
            "ftz?.<sat:sat>.f64.f32",
            "<sat:sat>.f64.<f16|f64>",
            "<rounding:rounding>.bf16.<f16|f64|u16|u32|u64|s16|s32|s64>",
            "<rounding:rounding>.ftz?.bf16.f32",
            "<rounding:rounding>.<f16|f64>.bf16",
            "<rounding:rounding>.ftz?.f32.bf16",
            "<rounding:rounding>.ftz?.sat?.f16.f32",
            "<rounding:rounding>.sat?.f16.<f64|u8|u16|u32|u64|s8|s16|s32|s64>",
            "<rounding:rounding>.ftz?.sat?.f32.<f64|u8|u16|u32|u64|s8|s16|s32|s64>",
            "<rounding:rounding>.sat?.f64.<anyint>",
            "<rounding:whole>.bf16.bf16",
            "<rounding:whole>.sat?.f16.f16",
            "<rounding:whole>.ftz?.sat?.f32.f32",
            "<rounding:whole>.sat?.f64.f64",
            "<rounding:whole>.<int>.bf16",
            "<rounding:whole>.sat?.<anyint>.<f16|f64>",
            "<rounding:whole>.ftz?.sat?.<anyint>.f32",
        )
    ),
    _form("cvt.<rounding:rna>.<satfinite:satfinite>?.tf32.f32", "d a", name="cvttf32", cost="convert", target=80),
    _form("cvt.<rounding:rn|rz>.relu?.tf32.f32", "d a", name="cvttf32", cost="convert", target=80),
    _form(
        "cvt.<rounding:rn|rz>.relu?.<satfinite:satfinite>?.<f16|bf16>.f32", "d a", name="cvt", cost="convert", target=80
    ),
    _form(
        "cvt.<rounding:rn|rz>.relu?.<satfinite:satfinite>?.<f16x2|bf16x2>.f32",
        "d a b",
        name="cvt2",
        cost="convert",
        target=80,
    ),
    _form("cvt.pack.sat.<u16|s16>.s32", "d a b", name="cvtpack", cost="convert", target=72),
    _form("cvt.pack.sat.<u8|s8>.s32.b32", "d a b c", name="cvtpack8", cost="convert", target=72),
    _form("cvta.<space:window>.u64", "d a"),
    _form("cvta.to.<space:window>.u64", "d a", name="cvtato"),
    _form("isspacep.<space:global|shared::cta|shared|local>", "d a"),
)


def _memory(pattern: str, operands: str, end: str = "<vector:vector>?.<any>") -> Form:
    """A load or store of one, two or four elements: of at most 16 bytes (checks.py)."""
    return _form(f"{pattern}.{end}", operands, name="ld" if pattern.startswith("ld") else "st", cost="memory")


def _vectors(pattern: str, operands: str) -> tuple[Form, ...]:
    """The same, as two rows."""
    return tuple(_memory(pattern, operands, end) for end in ("<vector:v2>?.<any>", "<vector:v4>.<quarter>"))


def _atomics(result: str) -> Iterator[tuple[str, str]]:
    """What follows order and scope, and the operands; `result` is empty where there is none."""
    rows = [
        ("<op:add>", "<u32|u64|s32|f32|f64>"),
        ("<op:add>.<noftz:noftz>", "<half>"),
        ("<op:min|max>", "<word>"),
        ("<op:and|or|xor>", "<b32|b64>"),
        ("<op:inc|dec>", "u32"),
    ]
    for op, types in rows + ([("<op:exch>", "<b32|b64>"), ("<op:cas>", "<bits>")] if result else []):
        if "cas" in op:
            yield f"<space:atomspace>?.{op}.{types}", f"{result}[a] b c"
        else:
            yield f"<space:global>?.{op}.L2::cache_hint?.{types}", f"{result}[a] b c?"
            yield f"<space:shared::cta|shared>.{op}.{types}", f"{result}[a] b"


MEMORY = (
    *_vectors("ld.<order:weak>?.<space:inner>.<cop:loads>?", "d [a]"),
    *_vectors("ld.<order:weak>?.<space:global>?.<cop:loads>?", "d [a]"),
    _memory("ld.<order:weak>?.<space:global>?.<cop:loads>?.<second>.<second>?", "d [a] c?"),
    _memory("ld.<order:weak>?.<space:global>?.<hint>.<hint>?.<hint>?", "d [a] c?"),
    _memory("ld.<space:global>.<cop:nc>.<hint>?.<hint>?.<hint>?", "d [a] c?"),
    _memory("ld.<order:relaxed|acquire>.<scope:scope>.<space:far>?.<hint>?.<hint>?.<hint>?", "d [a] c?"),
    _memory("ld.<order:volatile>.<space:far>?", "d [a]"),
    *_vectors("ldu.<space:global>?", "d [a]"),
    *_vectors("st.<order:weak>?.<space:shared::cta|shared|local|param::func|param>.<cop:stores>?", "[a] b"),
    *_vectors("st.<order:weak>?.<space:global>?.<cop:stores>?", "[a] b"),
    _memory("st.<order:weak>?.<space:global>?.<cop:stores>?.<L2::cache_hint>", "[a] b c"),
    _memory("st.<order:weak>?.<space:global>?.<keep>.L2::cache_hint?", "[a] b c?"),
    _memory("st.<order:relaxed|release>.<scope:scope>.<space:far>?.<keep>?.L2::cache_hint?", "[a] b c?"),
    _memory("st.<order:volatile>.<space:far>?", "[a] b"),
    _form("prefetch.<global>?.<L1|L2|L2::evict_last|L2::evict_normal>", "[a]", name="nothing", cost="memory"),
    _form("prefetch.local.<L1|L2>", "[a]", name="nothing", cost="memory"),
    _form("prefetchu.L1", "[a]", name="nothing", cost="memory"),
    _form("applypriority.<global>?.L2::evict_normal", "[a] b", name="nothing", cost="memory"),
    _form("discard.<global>?.L2", "[a] b", name="nothing", cost="memory"),
    *(
        _form(f"{word}.<order:{order}>?.<scope:scope>?.{end}", operands, name=word, cost="atomic")
        for word, order, result in (("atom", "order", "d "), ("red", "relaxed|release", ""))
        for end, operands in _atomics(result)
    ),
    _form(
        "createpolicy.fractional.<first:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged>"
        ".<second:L2::evict_first|L2::evict_unchanged>?.b64",
        "d a?",
        name="createpolicy",
        since=(7, 4),
        target=80,
    ),
    _form(
        "createpolicy.range.<global>?.<first:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged>"
        ".<second:L2::evict_first|L2::evict_unchanged>?.b64",
        "d [a] b c",
        name="createpolicy",
        since=(7, 4),
        target=80,
    ),
    _form("createpolicy.cvt.L2.b64", "d a", name="createpolicy", since=(7, 4), target=80),
    _form("<membar>.<level:cta|gl|sys>", "", name="fence", cost="memory"),
    _form("fence.<level:cta|gpu|sys|cluster>", "", cost="memory"),
    _form("fence.<order:sc|acq_rel|acquire|release>.<scope:scope>", "", cost="memory"),
    _form(
        "cp.async.<cop:ca|cg>.shared.global.L2::cache_hint?.<L2::64B|L2::128B|L2::256B>?",
        "[a] [b] c e? f?",
        name="cp.async",
        cost="memory",
        target=80,
    ),
    _form("cp.async.commit_group", "", name="cp.async.commit", cost="memory", target=80),
    _form("cp.async.wait_group", "a", name="cp.async.wait", cost="memory", target=80),
    _form("cp.async.wait_all", "", name="cp.async.wait", cost="memory", target=80),
)

CONTROL = (
    _form("bra.uni?", "a", cost="branch"),
    _form("ret.uni?", "", cost="branch"),
    _form("exit", "", cost="branch"),
    _form("call.uni?", "", cost="branch"),
    _form("trap", "", cost="branch"),
    _form("brkpt", "", name="nothing", cost="branch"),
    _form("pmevent.mask?", "a", name="nothing", cost="branch"),
    _form("nanosleep.u32", "a", name="nothing", cost="branch"),
)

WARP = (
    _form("bar.sync", "a b?", name="bar.sync", cost="barrier", converge=True),
    _form("bar.arrive", "a b", name="bar.arrive", cost="barrier", converge=True),
    _form("barrier.cta?.sync.aligned?", "a b?", name="bar.sync", cost="barrier", converge=True),
    _form("bar.cta.sync", "a b?", name="bar.sync", cost="barrier", converge=True),
    _form("barrier.cta?.arrive.aligned?", "a b", name="bar.arrive", cost="barrier", converge=True),
    _form("bar.cta?.red.<op:popc>.u32", "d a b c?", name="bar.red", cost="barrier", converge=True),
    _form("bar.cta?.red.<op:and|or>.pred", "d a b c?", name="bar.red", cost="barrier", converge=True),
    _form("barrier.cta?.red.<op:popc>.aligned?.u32", "d a b c?", name="bar.red", cost="barrier", converge=True),
    _form("barrier.cta?.red.<op:and|or>.aligned?.pred", "d a b c?", name="bar.red", cost="barrier", converge=True),
    _form("bar.warp.sync", "a", name="bar.warp.sync", cost="barrier", converge=True),
    _form("shfl.sync.<mode:up|down|bfly|idx>.b32", "d a b c e", name="shfl.sync", cost="shuffle", converge=True),
    _form("vote.sync.<mode:all|any|uni>.pred", "d a b", name="vote.sync", cost="vote", converge=True),
    _form("vote.sync.<mode:ballot>.b32", "d a b", name="vote.sync", cost="vote", converge=True),
    _form("match.<mode:any|all>.sync.<b32|b64>", "d a b", name="match.sync", cost="vote", converge=True),
    _form("activemask.b32", "d", cost="vote"),
    _form("redux.sync.<op:add|min|max>.<i32>", "d a b", name="redux.sync", cost="vote", target=80, converge=True),
    _form("redux.sync.<op:and|or|xor>.b32", "d a b", name="redux.sync", cost="vote", target=80, converge=True),
)


def _mma(shapes: str, types: str, since: tuple[int, int], target: int, middle: str = "", end: str = "") -> Form:
    """`types` of D, A, B and C, in this order."""
    d, a, b, c = types.split()
    pattern = f"mma.sync.aligned.<shape:{shapes}>.row.col{middle}.<d:{d}>.<a:{a}>.<b:{b}>.<c:{c}>{end}"
    return _form(pattern, "d a b c", name="mma", cost="tensor", since=since, target=target, converge=True)


def _wmma(  # the columns of the table
    shapes: str,
    types: str,
    target: int,
    middle: str = "",
    end: str = "",
    first: str = "mma",
    majors: str = "<major>.<major>",
) -> Form:
    """`types` of D, A, B and C; of D and C alone, where A and B are f16."""
    names = "dabc" if len(types.split()) == 4 else "dc"
    pairs = ".".join(f"<{name}:{kind}>" for name, kind in zip(names, types.split(), strict=True))
    pattern = f"wmma.{first}.sync.aligned.{majors}.<shape:{shapes}>{middle}.{pairs}{end}"
    return _form(pattern, "d a b c", name="wmma", cost="tensor", target=target, converge=True)


def _wmma_load(role: str, shapes: str, kinds: str, target: int, major: str = "row|col") -> Form:
    pattern = f"wmma.load.<role:{role}>.sync.aligned.<major:{major}>.<shape:{shapes}>.<space:far>?.<kind:{kinds}>"
    return _form(pattern, "d [a] b?", name="wmma.load", cost="memory", target=target)


def _wmma_store(shapes: str, kinds: str, target: int) -> Form:
    pattern = f"wmma.store.<role:d>.sync.aligned.<major:major>.<shape:{shapes}>.<space:far>?.<kind:{kinds}>"
    return _form(pattern, "[a] b c?", name="wmma.store", cost="memory", target=target)


SQUARES = "m16n16k16|m8n32k16|m32n8k16"
TENSOR = (
    _form(
        "ldmatrix.sync.aligned.m8n8.<count:x1|x2|x4>.trans?.<space:near>?.b16",
        "d [a]",
        name="ldmatrix",
        cost="memory",
        target=75,
        converge=True,
    ),
    _form(
        "stmatrix.sync.aligned.m8n8.<count:x1|x2|x4>.trans?.<space:near>?.b16",
        "[a] b",
        name="stmatrix",
        cost="memory",
        since=(7, 8),
        target=90,
        converge=True,
    ),
    _form(
        "movmatrix.sync.aligned.m8n8.trans.b16",
        "d a",
        name="movmatrix",
        since=(7, 8),
        target=75,
        cost="shuffle",
        converge=True,
    ),
    _mma("m16n8k8", "f16 f16 f16 f16", (7, 0), 75),
    _mma("m16n8k8", "f32 f16 f16 f32", (7, 0), 75),
    _mma("m16n8k16", "f16 f16 f16 f16", (7, 0), 80),
    _mma("m16n8k16", "f32 f16 f16 f32", (7, 0), 80),
    _mma("m16n8k8|m16n8k16", "f32 bf16 bf16 f32", (7, 0), 80),
    _mma("m16n8k4|m16n8k8", "f32 tf32 tf32 f32", (7, 0), 80),
    _mma("m16n8k32", "f32 fp8 fp8 f32", (8, 4), 89),
    _mma("m16n8k16", "f16 fp8 fp8 f16", (8, 7), 89),
    _mma("m16n8k16", "f32 fp8 fp8 f32", (8, 7), 89),
    _mma("m16n8k32", "f16 fp8 fp8 f16", (8, 7), 89),
    _mma("m8n8k4", "f64 f64 f64 f64", (7, 0), 80),
    _mma("m16n8k4|m16n8k8|m16n8k16", "f64 f64 f64 f64", (7, 8), 90),
    _mma("m8n8k16", "s32 s8s s8s s32", (7, 0), 75, middle=".satfinite?"),
    _mma("m16n8k16|m16n8k32", "s32 s8s s8s s32", (7, 0), 80, middle=".satfinite?"),
    _mma("m8n8k32", "s32 s4s s4s s32", (7, 0), 75, middle=".satfinite?"),
    _mma("m16n8k32|m16n8k64", "s32 s4s s4s s32", (7, 0), 80, middle=".satfinite?"),
    _mma("m8n8k128", "s32 b1 b1 s32", (7, 0), 75, end=".<bits:xor|and>.popc"),
    _mma("m16n8k128|m16n8k256", "s32 b1 b1 s32", (7, 0), 80, end=".<bits:xor|and>.popc"),
    _wmma(SQUARES, "f16|f32 f16|f32", 70),
    _wmma(SQUARES, "f32 bf16 bf16 f32", 80),
    _wmma("m16n16k8", "f32 tf32 tf32 f32", 80),
    _wmma("m8n8k4", "f64 f64 f64 f64", 80, middle=".<rounding:rn>?"),
    _wmma(SQUARES, "s32 s8 s8 s32", 72, end=".satfinite?"),
    _wmma(SQUARES, "s32 u8 u8 s32", 72, end=".satfinite?"),
    _wmma("m8n8k32", "s32 s4 s4 s32", 75, end=".satfinite?", majors="row.col"),
    _wmma("m8n8k32", "s32 u4 u4 s32", 75, end=".satfinite?", majors="row.col"),
    _wmma("m8n8k128", "s32 b1 b1 s32", 75, first="mma.<bits:xor|and>.popc", majors="row.col"),
    _wmma_load("a|b", SQUARES, "f16", 70),
    _wmma_load("c", SQUARES, "f16|f32", 70),
    _wmma_store(SQUARES, "f16|f32", 70),
    _wmma_load("a|b", SQUARES, "bf16", 80),
    _wmma_load("a|b", "m16n16k8", "tf32", 80),
    _wmma_load("c", "m16n16k8", "f32", 80),
    _wmma_store("m16n16k8", "f32", 80),
    _wmma_load("a|b|c", "m8n8k4", "f64", 80),
    _wmma_store("m8n8k4", "f64", 80),
    _wmma_load("a|b", SQUARES, "s8s", 72),
    _wmma_load("c", SQUARES, "s32", 72),
    _wmma_store(SQUARES, "s32", 72),
    _wmma_load("a", "m8n8k32", "s4s", 75, major="row"),
    _wmma_load("b", "m8n8k32", "s4s", 75, major="col"),
    _wmma_load("a", "m8n8k128", "b1", 75, major="row"),
    _wmma_load("b", "m8n8k128", "b1", 75, major="col"),
    _wmma_load("c", "m8n8k32|m8n8k128", "s32", 75),
    _wmma_store("m8n8k32|m8n8k128", "s32", 75),
)

NARROW = (
    _form(
        "cvt.rn.satfinite.relu?.<e4m3x2|e5m2x2>.f32", "d a b", name="cvtto8", cost="convert", since=(8, 1), target=89
    ),
    _form(
        "cvt.rn.satfinite.relu?.<e4m3x2|e5m2x2>.f16x2", "d a", name="cvtto8", cost="convert", since=(8, 1), target=89
    ),
    _form("cvt.rn.relu?.f16x2.<e4m3x2|e5m2x2>", "d a", name="cvtfrom8", cost="convert", since=(8, 1), target=89),
)

FORMS = (*INTEGER, *LOGIC, *FLOAT, *HALF, *COMPARE, *MOVE, *MEMORY, *CONTROL, *WARP, *TENSOR, *NARROW)


@cache
def _by_first_word() -> dict[str, list[Form]]:
    found: dict[str, list[Form]] = {}
    for form in FORMS:
        for word in form.first_words:
            found.setdefault(word, []).append(form)
    return found


@cache
def match(opcode: str) -> Match | None:
    """The form that an opcode, such as `fma.rn.ftz.f32`, is an instance of; None where there is none."""
    written = _in_order(opcode)
    for form in _by_first_word().get(opcode.split(".", maxsplit=1)[0], ()):
        found = form.regex.match(written)
        if found:
            given = {k: v for k, v in found.groupdict().items() if v is not None}
            types = tuple(TYPES[v] for k, v in given.items() if k.startswith("type"))
            options = {k: v for k, v in given.items() if not k.startswith("type")}
            return Match(form=form, types=types, options={**options, **_first(form, opcode)})
    return None


PLACES = (SETS["order"], SETS["scope"], SETS["atomspace"], "add|min|max|inc|dec|and|or|xor|exch|cas", "noftz")


def _in_order(opcode: str) -> str:
    """atom, red and vote as the ISA spells them: ptxas takes their modifiers in any order, and libraries use that."""
    first, *words = opcode.split(".")
    if first == "vote" and words[1:2] == ["sync"]:
        words[:2] = words[1::-1]
    elif first in {"atom", "red"}:
        words.sort(key=lambda word: next((n for n, of in enumerate(PLACES) if word in of.split("|")), len(PLACES)))
    return ".".join((first, *words))


def _first(form: Form, opcode: str) -> dict[str, str]:
    """Forms that share a row but not their first word keep it as an option."""
    return (
        {"first": opcode.split(".", maxsplit=1)[0]}
        if form.pattern.startswith("<") and not form.pattern.startswith("<op:")
        else {}
    )
