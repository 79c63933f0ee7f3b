"""Every instruction form that the machine runs: one row a form. Parser, codegen and documentation read this table.

A pattern is the opcode as written, with `<set>` where it may be any member of a set, `<name:set>` where that member is
kept as an option under a name, and `?` behind what may be left out. `since` is the least PTX version and target, as
the PTX ISA gives them under "PTX ISA Notes" and "Target ISA Notes"; 7.0 and sm_70 stand for everything older.
"""

import re
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
    "any": "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f32|f64",
    "register": "pred|b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64|f16|bf16|f16x2|bf16x2",
    "half": "f16|f16x2|bf16|bf16x2",
    "f16s": "f16|f16x2",
    "bf16s": "bf16|bf16x2",
    "rounding": "rn|rz|rm|rp",
    "cvtround": "rni|rzi|rmi|rpi|rn|rz|rm|rp|rna",
    "number": "u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f32|f64",
    "compare": "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan",
    "boolean": "and|or|xor",
    "space": "global|shared::cta|shared|local|param::entry|param::func|param|const",
    "write": "global|shared::cta|shared|local|param::func|param",
    "order": "weak|relaxed|acquire|release|acq_rel|volatile|mmio",
    "scope": "cta|cluster|gpu|sys",
    "cop": "ca|cg|cs|lu|cv|wb|wt|nc",
    "hint": r"L1::\w+|L2::\w+|L2::cache_hint|unified",
    "vector": "v2|v4",
    "atomspace": "global|shared::cta|shared",
    "window": "global|shared::cta|shared|local|const|param::entry|param",
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
    _form("mul.<half:hi|lo|wide>.<int>", "d a b", cost="imad"),
    _form("mad.<half:hi|lo|wide>.<int>", "d a b c", cost="imad"),
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
    _form("<op:fma|mad>.<rounding:rounding>?.ftz?.sat?.f32", "d a b c", name="ffma", cost="fma"),
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
    _form("<op:min|max>.ftz?.NaN?.<xorsign:xorsign>?.<xabs:abs>?.f32", "d a b", name="fminmax"),
    _form("<op:min|max>.f64", "d a b", name="fminmax", cost="f64"),
    _form("testp.<op:finite|infinite|number|notanumber|normal|subnormal>.<f32|f64>", "d a"),
    _form("copysign.<f32|f64>", "d a b"),
)

HALF = (
    _form("<op:add|sub|mul>.<rounding:rn>?.ftz?.sat?.<f16s>", "d a b", name="harith", cost="half"),
    _form("<op:add|sub|mul>.<rounding:rn>?.<bf16s>", "d a b", name="harith", cost="half", since=(7, 8), target=90),
    _form("<op:fma>.rn.ftz?.sat?.relu?.<f16s>", "d a b c", name="harith", cost="half"),
    _form("<op:fma>.rn.relu?.<bf16s>", "d a b c", name="harith", cost="half", target=80),
    _form("<op:abs|neg>.ftz?.<half>", "d a", name="hsign"),
    _form("<op:min|max>.ftz?.NaN?.<xorsign:xorsign>?.<xabs:abs>?.<half>", "d a b", name="hminmax", target=80),
    _form("<op:ex2|tanh>.approx.ftz?.<half>", "d a", name="happrox", cost="sfu", target=75),
)

COMPARE = (
    _form(
        "setp.<compare:compare>.<boolean:boolean>?.ftz?.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64>",
        "d a b c?",
    ),
    _form(
        "set.<compare:compare>.<boolean:boolean>?.ftz?.<u32|s32|f32|f16|bf16|u16>.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f16|bf16|f32|f64>",
        "d a b c?",
    ),
    _form("set.<compare:compare>.<boolean:boolean>?.ftz?.<f16x2|bf16x2>.<f16x2|bf16x2>", "d a b c?", name="set2"),
    _form("selp.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>", "d a b p"),
    _form("slct.ftz?.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>.<s32|f32>", "d a b c"),
)

MOVE = (
    _form("mov.<register>", "d a"),
    _form("mov.b128", "d a", since=(8, 3)),
    _form("cvt.<rounding:cvtround>?.ftz?.sat?.<number>.<number>", "d a", cost="convert"),
    _form(
        "cvt.<rounding:rna|rn|rz>.relu?.<satfinite:satfinite>?.tf32.f32",
        "d a",
        name="cvttf32",
        cost="convert",
        target=80,
    ),
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
    _form("cvta.<space:window>.<u32|u64>", "d a"),
    _form("cvta.to.<space:window>.<u32|u64>", "d a", name="cvtato"),
    _form("isspacep.<space:global|shared::cta|shared|local>", "d a"),
)

MEMORY = (
    _form(
        "ld.<order:order>?.<scope:scope>?.<space:space>?.<cop:cop>?.<hint>?.<hint>?.<hint>?.<vector:vector>?.<any>",
        "d [a] c?",
        cost="memory",
    ),
    _form("ldu.<space:global>?.<vector:vector>?.<any>", "d [a]", name="ld", cost="memory"),
    _form(
        "st.<order:order>?.<scope:scope>?.<space:write>?.<cop:cop>?.<hint>?.<hint>?.<vector:vector>?.<any>",
        "[a] b c?",
        cost="memory",
    ),
    _form(
        "<prefetch|prefetchu>.<global|local>?.<L1|L2|L2::evict_last|L2::evict_normal>",
        "[a]",
        name="nothing",
        cost="memory",
    ),
    _form("applypriority.<global>?.L2::evict_normal", "[a] b", name="nothing", cost="memory"),
    _form("discard.<global>?.L2", "[a] b", name="nothing", cost="memory"),
    _form(
        "atom.<order:order>?.<scope:scope>?.<space:atomspace>?.<op:add|min|max|inc|dec|and|or|xor|exch>.<hint>?.<b32|b64|u32|u64|s32|s64|f32|f64>",
        "d [a] b c?",
        cost="atomic",
    ),
    _form(
        "atom.<order:order>?.<scope:scope>?.<space:atomspace>?.<op:add>.<noftz:noftz>.<hint>?.<half>",
        "d [a] b c?",
        cost="atomic",
    ),
    _form(
        "atom.<order:order>?.<scope:scope>?.<space:atomspace>?.<op:cas>.<hint>?.<bits>", "d [a] b c e?", cost="atomic"
    ),
    _form(
        "red.<order:order>?.<scope:scope>?.<space:atomspace>?.<op:add|min|max|inc|dec|and|or|xor>.<hint>?.<b32|b64|u32|u64|s32|s64|f32|f64>",
        "[a] b c?",
        cost="atomic",
    ),
    _form(
        "red.<order:order>?.<scope:scope>?.<space:atomspace>?.<op:add>.<noftz:noftz>.<hint>?.<half>",
        "[a] b c?",
        cost="atomic",
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
    _form("<membar|fence>.<level:cta|gl|sys|gpu|cluster>", "", name="fence", cost="memory"),
    _form("fence.<order:sc|acq_rel|acquire|release>.<scope:scope>", "", cost="memory"),
    _form(
        "cp.async.<cop:ca|cg>.shared.global.<hint>?.<hint>?",
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
    _form("<bar|barrier>.cta?.red.<op:popc>.aligned?.u32", "d a b c?", name="bar.red", cost="barrier", converge=True),
    _form(
        "<bar|barrier>.cta?.red.<op:and|or>.aligned?.pred", "d a b c?", name="bar.red", cost="barrier", converge=True
    ),
    _form("bar.warp.sync", "a", name="bar.warp.sync", cost="barrier", converge=True),
    _form("shfl.sync.<mode:up|down|bfly|idx>.b32", "d a b c e", name="shfl.sync", cost="shuffle", converge=True),
    _form("vote.sync.<mode:all|any|uni>.pred", "d a b", name="vote.sync", cost="vote", converge=True),
    _form("vote.sync.<mode:ballot>.b32", "d a b", name="vote.sync", cost="vote", converge=True),
    _form("match.<mode:any|all>.sync.<b32|b64>", "d a b", name="match.sync", cost="vote", converge=True),
    _form("activemask.b32", "d", cost="vote"),
    _form("redux.sync.<op:add|min|max>.<i32>", "d a b", name="redux.sync", cost="vote", target=80, converge=True),
    _form("redux.sync.<op:and|or|xor>.b32", "d a b", name="redux.sync", cost="vote", target=80, converge=True),
)

FORMS = (*INTEGER, *LOGIC, *FLOAT, *HALF, *COMPARE, *MOVE, *MEMORY, *CONTROL, *WARP)


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
