"""Every instruction form that the machine runs: one row a form. Parser, codegen and documentation read this table.

The rows stand in arithmetic_forms.py, memory_forms.py and tensor_forms.py, and here what steers threads and warps;
forms.py says how one is written.
"""

from dataclasses import dataclass
from functools import cache

from undertorch.simt.ptx.arithmetic_forms import COMPARE, FLOAT, HALF, INTEGER, LOGIC, MOVE
from undertorch.simt.ptx.forms import SETS, Form, row
from undertorch.simt.ptx.memory_forms import MEMORY
from undertorch.simt.ptx.tensor_forms import NARROW, TENSOR
from undertorch.simt.ptx.types import TYPES, Type

CONTROL = (
    row("bra.uni?", "a", cost="branch"),
    row("ret.uni?", "", cost="branch"),
    row("exit", "", cost="branch"),
    row("call.uni?", "", cost="branch"),
    row("trap", "", cost="branch"),
    row("brkpt", "", name="nothing", cost="branch"),
    row("pmevent.mask?", "a", name="nothing", cost="branch"),
    row("nanosleep.u32", "a", name="nothing", cost="branch"),
)

WARP = (
    row("bar.sync", "a b?", name="bar.sync", cost="barrier", converge=True),
    row("bar.arrive", "a b", name="bar.arrive", cost="barrier", converge=True),
    row("barrier.cta?.sync.aligned?", "a b?", name="bar.sync", cost="barrier", converge=True),
    row("bar.cta.sync", "a b?", name="bar.sync", cost="barrier", converge=True),
    row("barrier.cta?.arrive.aligned?", "a b", name="bar.arrive", cost="barrier", converge=True),
    row("bar.cta?.red.<op:popc>.u32", "d a b c?", name="bar.red", cost="barrier", converge=True),
    row("bar.cta?.red.<op:and|or>.pred", "d a b c?", name="bar.red", cost="barrier", converge=True),
    row("barrier.cta?.red.<op:popc>.aligned?.u32", "d a b c?", name="bar.red", cost="barrier", converge=True),
    row("barrier.cta?.red.<op:and|or>.aligned?.pred", "d a b c?", name="bar.red", cost="barrier", converge=True),
    row("bar.warp.sync", "a", name="bar.warp.sync", cost="barrier", converge=True),
    row("shfl.sync.<mode:up|down|bfly|idx>.b32", "d a b c e", name="shfl.sync", cost="shuffle", converge=True),
    row("vote.sync.<mode:all|any|uni>.pred", "d a b", name="vote.sync", cost="vote", converge=True),
    row("vote.sync.<mode:ballot>.b32", "d a b", name="vote.sync", cost="vote", converge=True),
    row("match.<mode:any|all>.sync.<b32|b64>", "d a b", name="match.sync", cost="vote", converge=True),
    row("activemask.b32", "d", cost="vote"),
    row("redux.sync.<op:add|min|max>.<i32>", "d a b", name="redux.sync", cost="vote", target=80, converge=True),
    row("redux.sync.<op:and|or|xor>.b32", "d a b", name="redux.sync", cost="vote", target=80, converge=True),
)

FORMS = (*INTEGER, *LOGIC, *FLOAT, *HALF, *COMPARE, *MOVE, *MEMORY, *CONTROL, *WARP, *TENSOR, *NARROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A form, with what its open places were filled with."""

    form: Form
    types: tuple[Type, ...]
    options: dict[str, str]


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
