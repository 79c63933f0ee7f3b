"""How the machine's table of instruction forms is written: a row is a Form.

A pattern is the opcode as written, with `<set>` where it may be any member of a set, `<name:set>` where that member is
kept as an option under a name, and `?` behind what may be left out. `since` is the least PTX version and target, as
the PTX ISA gives them under "PTX ISA Notes" and "Target ISA Notes"; 7.0 and sm_70 stand for everything older.
"""

import re
from dataclasses import dataclass
from functools import cache

from undertorch.simt.ptx.types import TYPES

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


def row(  # the columns of the table
    pattern: str,
    operands: str,
    name: str = "",
    cost: str = "alu",
    since: tuple[int, int] = (7, 0),
    target: int = 70,
    converge: bool = False,
) -> Form:
    """A row of the table: its instruction is called after its first word where `name` says nothing else."""
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
