"""Who writes and who reads which storage in a step, and what one kernel in the place of several would move."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from undertorch.records import Gpu, Kind, Op, Phase, Step, TensorRef, Where
from undertorch.records.compiled import compiled
from undertorch.records.totals import longest_first
from undertorch.steps.predict.shares import START_US
from undertorch.steps.predict.timeline import INDUCTOR
from undertorch.steps.predict.times import bandwidth
from undertorch.steps.runs import Run, runs

PHASES = frozenset({Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.RECOMPUTE})
"""When a model computes: what its own code, compiled or written otherwise, could do in another way."""

STATES = ("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "momentum_buffer_list", "state_sums")
"""List arguments that the fused optimizers write besides `self` (native_functions.yaml, `_fused_*_`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One thing worth changing, before it is known whether it is worth saying."""

    kind: str
    ops: frozenset[int]
    """Ids of the Ops whose launches it takes up; nobody else counts them again."""
    about: frozenset[int] = field(default_factory=frozenset)
    """Ids of the Ops whose lines it speaks of, where these are others."""
    lines: tuple[Where, ...] = ()
    """The lines themselves, where they stand in another order than by the time of their launches."""
    saves_us: float | None
    """None: not known, and worth saying all the same."""
    saves_bytes: int | None
    what: str
    op: str | None = None


class Queue:
    """A step's Ops in order with their launches, and which of them read what others wrote."""

    def __init__(self, step: Step, gpu: Gpu) -> None:
        self.step = step
        self.gpu = gpu
        self.ops = {op.id: op for op in step.ops}
        made: dict[int, list[Run]] = defaultdict(list)
        for run in runs(step):
            if run.op is not None:
                made[run.op.id].append(run)
        self.runs: Mapping[int, Sequence[Run]] = dict(made)
        """By Op, those that launch something; launches that serve no Op are nobody's."""
        self.compiled = compiled(step)
        """What the script compiles, which is shown as eager code runs it."""
        found = {_code(op) for op in step.ops if op.name.startswith(INDUCTOR)}
        self.by_inductor = bool(found)
        """Whether a part of the step is compiled, and shown so."""
        self._code_of_inductor = found - {None}
        self._unknown = frozenset(step.accounting.ops_without_cost)
        self.writers: dict[int, list[int]] = defaultdict(list)
        """Ids of the Ops that write a storage, in order."""
        self.readers: dict[int, list[int]] = defaultdict(list)
        """Ids of the Ops that read a storage, in order."""
        for op in step.ops:
            if self.works(op):
                for storage in {tensor.storage for tensor in op.inputs}:
                    self.readers[storage].append(op.id)
                for storage in self.written(op):
                    self.writers[storage].append(op.id)

    def works(self, op: Op) -> bool:
        """Whether it launches something, or something that is not known: a view does neither."""
        return op.id in self.runs or op.name in self._unknown

    def compiles(self, op: Op) -> bool:
        """Whether the script compiles what an Op is part of: as it says, or since Inductor wrote kernels for the same
        code, which may hold calls of libraries beside them and run in parts where a graph breaks.
        """
        return self.compiled.takes(op) or op.name.startswith(INDUCTOR) or _code(op) in self._code_of_inductor

    def written(self, op: Op) -> set[int]:
        """Storages that an Op with launches writes: new results, and what it changes in place."""
        found = {tensor.storage for tensor in op.results}
        if op.name.endswith("_"):
            found |= {tensor.storage for name in ("self", *STATES) for tensor in op.tensors(name)}
        return found

    def source(self, tensor: TensorRef, before: int) -> Op | None:
        """The Op that wrote a tensor last before the Op of that id; None where the step began with it."""
        earlier = [writer for writer in self.writers.get(tensor.storage, ()) if writer < before]
        return self.ops[earlier[-1]] if earlier else None

    def kinds(self, op: Op) -> set[Kind]:
        """Kinds of the kernels that it launches."""
        return {run.launch.kernel.kind for run in self._of((op.id,))}

    def time_us(self, ops: Iterable[int]) -> float:
        """What their launches take of the busy time."""
        return sum(run.time_us for run in self._of(ops))

    def moved(self, ops: Iterable[int]) -> int | None:
        """Least bytes of their launches; None where a launch's are not known."""
        known = [run.launch.kernel.min_bytes for run in self._of(ops)]
        return None if None in known else sum(size for size in known if size is not None)

    def launches(self, ops: Iterable[int]) -> int:
        """How many launches they make."""
        return sum(1 for _ in self._of(ops))

    def _of(self, ops: Iterable[int]) -> Iterator[Run]:
        return (run for op in ops for run in self.runs.get(op, ()))

    def fused_bytes(self, ops: Collection[int]) -> int:
        """What one kernel in their place would move: what they read from outside, each once, and what of their
        results is there before them or used by others after them.
        """
        inside = frozenset(ops)
        read: dict[tuple[int, int], int] = {}
        written: dict[int, int] = {}
        for op in (self.ops[number] for number in sorted(inside)):
            for tensor in op.inputs:
                if tensor.storage not in written:
                    place = tensor.storage, tensor.offset
                    read[place] = max(read.get(place, 0), tensor.bytes)
            targets = self.written(op)
            for tensor in (*op.results, *op.inputs):
                if tensor.storage in targets:
                    written[tensor.storage] = max(written.get(tensor.storage, 0), tensor.bytes)
        return sum(read.values()) + sum(size for storage, size in written.items() if self._stays(storage, inside))

    def _stays(self, storage: int, inside: frozenset[int]) -> bool:
        """Whether a result has to reach memory. One that nobody reads may be what the step is for."""
        first = self.writers[storage][0]
        # Changed in place before anything made it: the step began with it.
        begins_outside = first not in inside or any(reader <= first for reader in self.readers[storage])
        readers = [reader for reader in self.readers[storage] if reader >= first]
        consumed = [reader for reader in readers if reader in inside and reader != first]
        return begins_outside or not consumed or any(reader not in inside for reader in readers)

    def fused_us(self, ops: Collection[int], moved: int, kernels: int = 1) -> float:
        """Time of what would move `moved` bytes in their place, never less than the slowest of their launches."""
        slowest = max((run.time_us for run in self._of(ops)), default=0.0)
        return max(kernels * START_US + moved / bandwidth(self.gpu) * 1e6, slowest)

    def lines(self, ops: Iterable[int]) -> tuple[Where, ...]:
        """The lines of Ops, each once, the one with the most time first."""
        spent: dict[Where, float] = defaultdict(float)
        for number in ops:
            where = self.ops[number].where
            if where is not None:
                spent[where] += self.time_us([number])
        in_order = sorted(spent, key=lambda where: (where.file, where.line))
        return tuple(longest_first(in_order, lambda where: spent[where]))


def _code(op: Op) -> tuple[str, str, str | None, Phase | None] | None:
    """The function that an Op stands in, called by the same module; an update's is apart, since code that is compiled
    without lines of the user's has that of its call. None where no line is known.
    """
    if op.where is None:
        return None
    return op.where.file, op.where.function, op.module, None if op.phase in PHASES else op.phase


def largest(op: Op) -> int:
    """Elements of its largest tensor."""
    return max((tensor.elements for tensor in (*op.inputs, *op.results)), default=0)


def changes_dtype(op: Op) -> bool:
    """Whether it is a cast: one tensor in, the same elements out in another dtype."""
    return (
        op.name == "aten::_to_copy"
        and len(op.inputs) == len(op.results) == 1
        and op.inputs[0].dtype != op.results[0].dtype
    )
