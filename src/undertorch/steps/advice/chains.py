"""Kernels in a row that wait for memory and hand one tensor on: fused, what lies between them stays on the chip."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from undertorch.records import Kind, Op, Phase, Where
from undertorch.steps.advice.dataflow import Queue, Saving, largest

FUSABLE = frozenset({Kind.NORM, Kind.ELEMENTWISE, Kind.COPY, Kind.RANDOM, Kind.FILL, Kind.SOFTMAX})
"""What a compiler puts into one kernel when it goes over the same elements (reductions of other rows are not)."""

NOT_FUSED = frozenset({"aten::cat", "aten::stack", "aten::index", "aten::index_put_", "aten::gather"})
"""Of these kinds, what moves elements to other places."""

PHASES = frozenset({Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.RECOMPUTE})

OPEN = 64
"""Chains that can still be added to; in a step, what belongs together follows soon."""

ACTIVATIONS = ("gelu", "silu", "relu", "sigmoid", "tanh", "hardswish", "mish", "elu", "softplus")

NORMS = {
    "norm": ("layer_norm", "add_layer_norm"),
    "activation": ("the activation", "linear_act"),
    "dropout": ("dropout", None),
    "elementwise": ("elementwise work", None),
}
"""Of each family, what its sentence calls it, and the undertorch op."""


@dataclass(slots=True)
class Chain:
    """Ops that one kernel could do, while they are collected."""

    number: int
    phase: Phase
    microbatch: int | None
    elements: int
    ops: list[int] = field(default_factory=list)


def chains(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """One saving for each family of chains whose lines touch: a norm, an activation, dropout, other elementwise work."""
    found: dict[str, list[tuple[list[int], frozenset[Where]]]] = defaultdict(list)
    for chain in collect(queue, taken):
        lines = frozenset(where for number in chain.ops if (where := queue.ops[number].where) is not None)
        found[_family(queue, chain.ops)].append((chain.ops, lines))
    for family, members in found.items():
        for some in _touching(members):
            saving = _saving(queue, family, some)
            if saving is not None:
                yield saving


def collect(queue: Queue, taken: Collection[int]) -> list[Chain]:
    """Chains of at least two Ops: each reads what one before it in the chain made, of the same size, in the same phase.

    An Op does not join a chain on which one of its inputs depends by way of an Op outside of it: the two could not run
    in one kernel.
    """
    chains: dict[int, Chain] = {}
    maker: dict[int, int] = {}  # storage → the chain that made it
    behind: dict[int, set[int]] = defaultdict(set)  # storage → chains that it depends on by way of others
    for op in queue.step.ops:
        if not queue.works(op):
            continue
        inputs = {tensor.storage for tensor in op.inputs}
        oldest = len(chains) - OPEN
        depends = {number for storage in inputs for number in behind[storage] if number >= oldest}
        makers = {maker[storage] for storage in inputs if storage in maker}
        chain = None
        if op.id not in taken and _fusable(queue, op):
            chain = next((chains[n] for n in sorted(makers - depends, reverse=True) if _fits(chains[n], op)), None)
            if chain is None:
                chain = Chain(number=len(chains), phase=op.phase, microbatch=op.microbatch, elements=largest(op))
                chains[chain.number] = chain
            chain.ops.append(op.id)
        for storage in queue.written(op):
            mine = set() if chain is None else {chain.number}
            behind[storage] = (depends | makers) - mine
            if chain is None:
                maker.pop(storage, None)
            else:
                maker[storage] = chain.number
    return [chain for chain in chains.values() if len(chain.ops) > 1]


def _fusable(queue: Queue, op: Op) -> bool:
    kinds = queue.kinds(op)
    return bool(kinds) and kinds <= FUSABLE and op.name not in NOT_FUSED and op.phase in PHASES


def _fits(chain: Chain, op: Op) -> bool:
    """The same elements in the same phase; half of them where a gate takes two of a kind."""
    same = (chain.phase, chain.microbatch) == (op.phase, op.microbatch)
    return (same and largest(op) in (chain.elements, 2 * chain.elements)) or (same and 2 * largest(op) == chain.elements)


def _family(queue: Queue, ops: list[int]) -> str:
    """By what is most work to do without: a norm, then an activation, then dropout."""
    names = [queue.ops[number].name for number in ops]
    if any(Kind.NORM in queue.kinds(queue.ops[number]) or "rsqrt" in queue.ops[number].name for number in ops):
        return "norm"
    if any(activation in name for name in names for activation in ACTIVATIONS):
        return "activation"
    if any("dropout" in name for name in names):
        return "dropout"
    return "elementwise"


def _touching(members: list[tuple[list[int], frozenset[Where]]]) -> list[list[list[int]]]:
    """Chains put together that have a line in common: the layers of a model, their forward and their backward."""
    groups: list[tuple[set[Where], list[list[int]]]] = []
    for ops, lines in members:
        mine: tuple[set[Where], list[list[int]]] = (set(lines), [ops])
        apart = []
        for group in groups:
            if group[0] & mine[0]:
                mine = (group[0] | mine[0], [*group[1], *mine[1]])
            else:
                apart.append(group)
        groups = [*apart, mine]
    return [some for _, some in groups]


def _saving(queue: Queue, family: str, some: list[list[int]]) -> Saving | None:
    """None where the bytes of a launch are not known, or fusing saves none."""
    saved_us, saved_bytes, worth = 0.0, 0, []
    for ops in some:
        moved, least = queue.moved(ops), queue.fused_bytes(ops)
        if moved is None or moved <= least:
            continue
        worth.append(ops)
        saved_bytes += moved - least
        saved_us += max(0.0, queue.time_us(ops) - queue.fused_us(ops, least))
    if not worth:
        return None
    every = frozenset(number for ops in worth for number in ops)
    moved = queue.moved(every) or 0
    called, op = NORMS[family]
    return Saving(
        kind=f"fuse-{family}",
        ops=every,
        saves_us=saved_us,
        saves_bytes=saved_bytes,
        what=(
            f"{queue.launches(every):,} launches in {len(worth):,} chains ({_names(queue, worth)}) hand one tensor on "
            f"through memory, which takes {moved / max(1, moved - saved_bytes):.1f} times the bytes that a kernel for "
            f"each chain would move. torch.compile of the module around {called} fuses them."
        ),
        op=op,
    )


def _names(queue: Queue, some: list[list[int]]) -> str:
    """The most frequent chain, by the names of its Ops."""
    spelled = [" + ".join(queue.ops[number].name.removeprefix("aten::").strip("_") for number in ops) for ops in some]
    return max(spelled, key=lambda name: (spelled.count(name), -len(name), name))
