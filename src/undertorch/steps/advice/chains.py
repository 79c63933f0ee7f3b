"""Kernels in a row that wait for memory and hand one tensor on: fused, what lies between them stays on the chip."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from undertorch.records import Kind, Op, Phase, Where
from undertorch.steps.advice.dataflow import PHASES, Queue, Saving, largest

FUSABLE = frozenset({Kind.NORM, Kind.ELEMENTWISE, Kind.COPY, Kind.RANDOM, Kind.FILL, Kind.SOFTMAX})
"""What a compiler puts into one kernel when it goes over the same elements (reductions of other rows are not)."""

NOT_FUSED = frozenset({"aten::cat", "aten::stack", "aten::index", "aten::index_put_", "aten::gather"})
"""Of these kinds, what moves elements to other places."""

OPEN = 64
"""Chains that can still be added to; in a step, what belongs together follows soon."""

LINKS = 6
"""Links of a chain that are named."""

ACTIVATIONS = ("gelu", "silu", "relu", "sigmoid", "tanh", "hardswish", "mish", "elu", "softplus")

ROW_REDUCTIONS = frozenset(
    {"aten::mean", "aten::sum", "aten::amax", "aten::amin", "aten::var", "aten::var_mean", "aten::linalg_vector_norm"}
)
"""Along its last dimension, such a reduction goes with what is done to the same rows."""


@dataclass(slots=True)
class Chain:
    """Ops that one kernel could do, while they are collected."""

    number: int
    phase: Phase
    microbatch: int | None
    elements: int
    ops: list[int] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)
    """Chains that have to be done before it."""


def chains(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """One saving for each family of chains whose lines touch: with a norm, an activation, dropout, or none of these."""
    found: dict[str, list[tuple[list[int], frozenset[Where]]]] = defaultdict(list)
    for chain in collect(queue, taken):
        if any(queue.compiles(queue.ops[number]) for number in chain.ops):
            continue
        lines = frozenset(where for number in chain.ops if (where := queue.ops[number].where) is not None)
        found[_family(queue, chain.ops)].append((chain.ops, lines))
    around_norms = {where for _, lines in found["norm"] for where in lines}
    for family in ("elementwise", "dropout"):
        apart = [member for member in found[family] if not member[1] & around_norms]
        found["norm"].extend(member for member in found[family] if member[1] & around_norms)
        found[family] = apart
    for family, members in found.items():
        for some in _touching(members):
            saving = _saving(queue, family, some)
            if saving is not None:
                yield saving


def collect(queue: Queue, taken: Collection[int]) -> list[Chain]:
    """Chains of at least two Ops: each reads what one before it in the chain made, of the same size, in the same phase.

    An Op does not join a chain that one of its inputs needs by way of others: then no kernel could do both.
    """
    chains: dict[int, Chain] = {}
    maker: dict[int, Chain] = {}  # of a storage: the chain that wrote it last
    behind: dict[int, set[int]] = defaultdict(set)  # of a storage that others wrote: the chains that it needs
    for op in queue.step.ops:
        if not queue.works(op):
            continue
        oldest = len(chains) - OPEN
        inputs = {tensor.storage for tensor in op.inputs}
        makers = {chain.number: chain for storage in inputs if (chain := maker.get(storage)) is not None}
        needs = {number for storage in inputs if storage not in maker for number in behind[storage]}
        chain = None
        if op.id not in taken and _fusable(queue, op):
            chain = _joined(makers, needs, op)
            if chain is None:
                chain = Chain(number=len(chains), phase=op.phase, microbatch=op.microbatch, elements=largest(op))
                chains[chain.number] = chain
            chain.ops.append(op.id)
        needs |= makers.keys() | {number for one in makers.values() for number in one.needs}
        needs = {number for number in needs if number >= oldest}
        if chain is not None:
            chain.needs |= needs - {chain.number}
        for storage in queue.written(op):
            maker.pop(storage, None)
            if chain is None:
                behind[storage] = needs
            else:
                maker[storage] = chain
    return [chain for chain in chains.values() if len(chain.ops) > 1]


def _joined(makers: Mapping[int, Chain], needs: set[int], op: Op) -> Chain | None:
    """The last chain that an Op can join, of those that made what it reads; None where it begins one."""
    for number in sorted(makers, reverse=True):
        others = {one for other in makers.values() if other.number != number for one in other.needs}
        if number not in needs | others and _fits(makers[number], op):
            return makers[number]
    return None


def _fusable(queue: Queue, op: Op) -> bool:
    kinds = queue.kinds(op)
    if not kinds or op.name in NOT_FUSED or op.phase not in PHASES:
        return False
    return kinds <= FUSABLE or (kinds <= FUSABLE | {Kind.REDUCTION, Kind.MEMSET} and _reduces_rows(op))


def _reduces_rows(op: Op) -> bool:
    if op.name not in ROW_REDUCTIONS or not op.inputs:
        return False
    dim = next((one.value for one in op.arguments if one.name == "dim"), None)
    last = len(op.inputs[0].shape) - 1
    return all(one in (-1, last) for one in (dim if isinstance(dim, tuple) else (dim,)))


def _fits(chain: Chain, op: Op) -> bool:
    """In the same phase, and no larger, such as a row's statistics; a gate takes two of a kind."""
    return (chain.phase, chain.microbatch) == (op.phase, op.microbatch) and largest(op) <= 2 * chain.elements


def _family(queue: Queue, ops: list[int]) -> str:
    """A norm, where there is one; then an activation, then dropout. A gradient is of its forward Op's family."""
    whole = [queue.ops[number] for number in ops]
    whole += [queue.ops[op.forward] for op in whole if op.forward in queue.ops]
    names = [op.name for op in whole]
    if any(Kind.NORM in queue.kinds(op) or "rsqrt" in op.name for op in whole):  # one by hand divides by a root
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
    return Saving(
        kind=f"fuse-{family}",
        ops=every,
        saves_us=saved_us,
        saves_bytes=saved_bytes,
        what=(
            f"{queue.launches(every):,} launches in {_chains(len(worth))}{_names(queue, worth)}) hand "
            "their tensors on through memory, "
            f"{moved / max(1, moved - saved_bytes):.1f} times the bytes that one kernel for "
            "each chain would move. torch.compile of the module or function that holds these lines makes such kernels."
        ),
        op=_op(queue, family, every),
    )


def _chains(number: int) -> str:
    return "a chain (" if number == 1 else f"{number:,} chains (most often "


def _op(queue: Queue, family: str, ops: Collection[int]) -> str | None:
    """The undertorch op that does it, where there is one."""
    names = {queue.ops[number].name for number in ops}
    if family == "norm":
        return "add_layer_norm" if "aten::native_layer_norm" in names else None
    return "linear_act" if family == "activation" and "aten::mul" not in names else None


def _names(queue: Queue, some: list[list[int]]) -> str:
    """The most frequent chain, by the names of its Ops."""
    named = Counter(tuple(queue.ops[number].name.removeprefix("aten::").strip("_") for number in ops) for ops in some)
    most = max(named, key=lambda names: (named[names], -len(names), names))
    return _spelled(most)


def _spelled(names: Sequence[str]) -> str:
    """`add + native_layer_norm + to_copy`; what is repeated stands once, and a long chain is cut."""
    parts = []
    for name, repeated in groupby(names):
        times = len(list(repeated))
        parts.append(f"{name} {times:,}×" if times > 2 else " + ".join([name] * times))
    return " + ".join([*parts[:LINKS], *(["…"] if len(parts) > LINKS else [])])
