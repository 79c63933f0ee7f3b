"""A kernel's instructions as basic blocks of segments and steps, with a slot for each register that lives in memory.

A basic block is the unit that a program counter names. Instructions at which lanes meet start one, so that a lane can
wait there; a barrier ends one. Calls are inlined before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from undertorch.simt.codegen.calls import Inliner
from undertorch.simt.codegen.wmma import with_plain_moves
from undertorch.simt.errors import PtxError
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

ENDS = {"bra", "exit", "trap", "bar.sync", "bar.arrive", "bar.red"}
WHOLE_WARP = {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"}
"""All lanes of a warp do these together."""
MEETINGS = {"shfl.sync", "vote.sync", "match.sync", "redux.sync", "bar.warp.sync"} | WHOLE_WARP
STEPS = MEETINGS | {
    "ld", "st", "atom", "red", "cp.async", "cp.async.commit", "cp.async.wait", "activemask", "hostcall", "bar.result",
    "fence",
}  # fmt: skip
WHOLE = MEETINGS | ENDS | {"hostcall", "ret"} - {"bra"}
"""A guard on these becomes a branch around them."""


@dataclass(slots=True)
class Part:
    """A segment of plain instructions, or one step that a call to the runtime does."""

    instructions: list[Instruction]
    step: bool
    live_after: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Block:
    """A basic block; `end` is the instruction that decides where lanes go on, None: at the next block."""

    number: int
    parts: list[Part] = field(default_factory=list)
    end: Instruction | None = None
    target: int = -1
    count: int = 0
    """Instructions in it."""


@dataclass(slots=True, kw_only=True)
class Flow:
    """A kernel, ready for codegen."""

    function: Function
    blocks: list[Block]
    slots: dict[str, int]
    slot_bytes: int
    variables: tuple[Variable, ...]
    """The kernel's own, and those of what was inlined."""


def flow(module: Module, kernel: str) -> Flow:
    """Lays out a kernel. Raises Unsupported for recursion, PtxError for a jump to nowhere."""
    function = module.functions[kernel]
    body, variables = Inliner(module=module).kernel(function)
    items = list(_unguarded(with_plain_moves(body)))
    blocks = _blocks(items, {p.name for p in function.parameters})
    _liveness(blocks)
    slots, size = _slots(blocks)
    return Flow(function=function, blocks=blocks, slots=slots, slot_bytes=size, variables=variables)


# -- blocks


def _unguarded(items: Iterable[Instruction | Label]) -> Iterable[Instruction | Label]:
    """`@p X` becomes `@!p bra past; X; past:` where X is more than arithmetic or memory."""
    for number, item in enumerate(items):
        if isinstance(item, Instruction) and item.guard and item.name in WHOLE:
            past = Label(f"past@{number}")
            yield replace(
                item, name="bra", guard_negated=not item.guard_negated, results=(), sources=(past,), converge=False
            )
            yield replace(item, guard=None, guard_negated=False)
            yield past
        else:
            yield item


def _blocks(items: list[Instruction | Label], parameters: set[str]) -> list[Block]:
    blocks = [Block(0)]
    labels: dict[str, int] = {}

    def fresh() -> None:
        if blocks[-1].parts or blocks[-1].end:
            blocks.append(Block(len(blocks)))

    for item in items:
        if isinstance(item, Label):
            fresh()
            labels[item.name] = blocks[-1].number
            continue
        if item.name == "nothing":
            blocks[-1].count += 1
            continue
        if item.name in MEETINGS:
            fresh()
        block = blocks[-1]
        block.count += 1
        if item.name in ENDS:
            block.end = item
            blocks.append(Block(len(blocks)))
            if item.name == "bar.red":
                blocks[-1].parts.append(Part([replace(item, name="bar.result")], step=True))
        elif is_step(item, parameters):
            block.parts.append(Part([item], step=True))
        elif block.parts and not block.parts[-1].step:
            block.parts[-1].instructions.append(item)
        else:
            block.parts.append(Part([item], step=False))
    if not blocks[-1].end:
        blocks[-1].end = Instruction(name="exit", text="(end of the kernel)")
    for block in blocks:
        if block.end and block.end.name == "bra":
            label = block.end.sources[0]
            assert isinstance(label, Label)
            if label.name not in labels:
                raise PtxError(f"PTX line {block.end.text_line}: there is no label {label.name}.")
            block.target = labels[label.name]
    return blocks


def is_step(item: Instruction, parameters: set[str]) -> bool:
    """Whether the runtime does it; a kernel parameter (one of `parameters`) is read in place."""
    if item.name == "ld" and item.options.get("space", "").startswith("param"):
        address = item.sources[0]
        assert isinstance(address, Address)
        return not (isinstance(address.base, Symbol) and address.base.name in parameters)
    return item.name in STEPS


# -- liveness and slots


def registers(operands: Iterable[Operand]) -> Iterable[Register]:
    """Every register that operands name."""
    for operand in operands:
        match operand:
            case Register():
                yield operand
            case Negated(register):
                yield register
            case Address(base=Register() as base):
                yield base
            case Group(items):
                yield from registers(items)
            case Pair(first, second):
                yield from registers((first, second))


def reads(item: Instruction) -> list[Register]:
    """Registers whose values an instruction needs: of what it writes only under a guard, the old ones too."""
    out = list(registers(item.sources))
    if item.guard:
        out += [item.guard, *registers(item.results)]
    return out


def writes(item: Instruction) -> list[Register]:
    """Registers that an instruction gives values."""
    return list(registers(item.results))


def following(block: Block, blocks: list[Block]) -> list[int]:
    """Numbers of the blocks that may come next."""
    out = [block.target] if block.target >= 0 else []
    end = block.end
    stops = end is not None and (end.name in {"exit", "trap"} or (end.name == "bra" and end.guard is None))
    if not stops and block.number + 1 < len(blocks):
        out.append(block.number + 1)
    return out


def _end_reads(block: Block) -> list[Register]:
    if block.end is None:
        return []
    return [*registers(block.end.sources), *([block.end.guard] if block.end.guard else [])]


def _liveness(blocks: list[Block]) -> None:
    """Sets every part's `live_after`, backwards to a fixed point."""
    live_in: list[set[str]] = [set() for _ in blocks]
    work = list(range(len(blocks)))
    before: list[list[int]] = [[] for _ in blocks]
    for block in blocks:
        for other in following(block, blocks):
            before[other].append(block.number)
    while work:
        number = work.pop()
        block = blocks[number]
        live: set[str] = set().union(*(live_in[n] for n in following(block, blocks)))
        live |= {r.name for r in _end_reads(block)}
        for part in reversed(block.parts):
            part.live_after = set(live)
            for item in reversed(part.instructions):
                live -= {r.name for r in writes(item)}
                live |= {r.name for r in reads(item)}
        if live != live_in[number]:
            live_in[number] = live
            work += before[number]


def _slots(blocks: list[Block]) -> tuple[dict[str, int], int]:
    """A place for each register that some part reads from memory: linear scan over intervals, by width."""
    spans: dict[str, list[int]] = {}
    widths: dict[str, int] = {}
    position = 0
    for block in blocks:
        for part in block.parts:
            position += 1
            for register in _in_memory(part):
                widths[register.name] = register.type.bits
        for register in _end_reads(block):
            widths[register.name] = register.type.bits
    position = 0
    for block in blocks:
        names: set[str] = {r.name for r in _end_reads(block)}
        first = position
        for part in block.parts:
            position += 1
            touched = {r.name for i in part.instructions for r in (*reads(i), *writes(i))}
            for name in touched | part.live_after:
                _stretch(spans, name, position)
        if block.parts:
            live = _live_into(block.parts[0])
            for name in live:
                _stretch(spans, name, first)
        position += 1
        for name in names | (block.parts[-1].live_after if block.parts else set()):
            _stretch(spans, name, position)
    return _scan({n: (s[0], s[1]) for n, s in spans.items() if n in widths}, widths)


def _live_into(part: Part) -> set[str]:
    live = set(part.live_after)
    for item in reversed(part.instructions):
        live -= {r.name for r in writes(item)}
        live |= {r.name for r in reads(item)}
    return live


def _stretch(spans: dict[str, list[int]], name: str, position: int) -> None:
    span = spans.setdefault(name, [position, position])
    span[0], span[1] = min(span[0], position), max(span[1], position)


def _in_memory(part: Part) -> Iterable[Register]:
    """Registers that a part needs in memory: all of a step's, and what a segment reads before it writes it."""
    written: set[str] = set()
    for item in part.instructions:
        for register in reads(item):
            if part.step or register.name not in written:
                yield register
        for register in writes(item):
            if part.step:
                yield register
            written.add(register.name)


def _scan(spans: dict[str, tuple[int, int]], widths: dict[str, int]) -> tuple[dict[str, int], int]:
    """Slots of one width are taken up again when their register has died."""
    places: dict[str, int] = {}
    offset = 0
    for bits in (64, 32, 16, 8, 128, 1):
        size = 32 * bits // 8
        free: list[int] = []
        active: list[tuple[int, int]] = []
        # In an order that is the same in every process: code of one kernel may come from several, by the store.
        for name, (start, end) in sorted(
            ((n, s) for n, s in spans.items() if widths[n] == bits), key=lambda item: (item[1], item[0])
        ):
            for finished in [a for a in active if a[0] < start]:
                active.remove(finished)
                free.append(finished[1])
            if free:
                place = free.pop()
            else:
                place, offset = offset, offset + size
            active.append((end, place))
            places[name] = place
    return places, (offset + 63) // 64 * 64
