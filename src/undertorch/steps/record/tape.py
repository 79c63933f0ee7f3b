"""The Ops of the run in their order, and the stretch that is cut out of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from undertorch.records import Memory, MemorySample, Op, Origin, Phase
from undertorch.steps.record.samples import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment of the run: how many Ops there were, and how many bytes were alive."""

    op: int
    live_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A stretch of the run, its Ops counted from 0."""

    ops: tuple[Op, ...]
    memory: Memory
    samples: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call of a module that is no part of another's."""

    op: int
    """Id of the next Op."""
    microbatch: int
    batch: Batch | None
    """None: it was called without one."""


class Tape:
    """Keeps the Ops since the step before the running one."""

    def __init__(self) -> None:
        self.next = 0
        """Id of the next Op."""
        self._base = 0
        self._ops: list[Op] = []
        self._live: list[int] = []
        self._calls: list[ModelCall] = []
        self._until: int | None = None
        self._over: Callable[[], None] = lambda: None

    def until(self, op: int, over: Callable[[], None]) -> None:
        """`over` is called once there are Ops up to that id."""
        self._until, self._over = op, over

    def append(self, op: Op, live_bytes: int) -> None:
        """One more, with the bytes alive after it."""
        self._ops.append(op)
        self._live.append(live_bytes)
        self.next += 1
        if self.next == self._until:
            self._over()

    def drop(self, number: int) -> None:
        """Takes back the Ops from that id on."""
        del self._ops[number - self._base :]
        del self._live[number - self._base :]
        self.next = number

    def called(self, microbatch: int, batch: Batch | None) -> None:
        """A model is called in a microbatch."""
        self._calls.append(ModelCall(op=self.next, microbatch=microbatch, batch=batch))

    def called_with(self, batch: Batch) -> None:
        """The model that was called last is found to have been called with this."""
        self._calls[-1] = replace(self._calls[-1], batch=batch)

    def op(self, number: int) -> Op | None:
        """The Op of that id; None where it is no longer kept."""
        return self._ops[number - self._base] if number >= self._base else None

    def first_forward(self) -> Mark:
        """Just before the first Op of a module's forward; the beginning where there is none."""
        for index, op in enumerate(self._ops):
            if op.phase is Phase.FORWARD and op.module is not None:
                return Mark(op=op.id, live_bytes=self._live[index - 1] if index else 0)
        return Mark(op=self._base, live_bytes=0)

    def forget(self, before: int) -> None:
        """Ops before this id are not needed any more."""
        del self._ops[: before - self._base]
        del self._live[: before - self._base]
        self._calls = [call for call in self._calls if call.op >= before]
        self._base = before

    def cut(self, start: Mark, end: int, by_hand: bool = False) -> Cut:
        """The Ops from a mark to an id (which is left out). `by_hand`: no optimizer updates the parameters."""
        first, last = start.op - self._base, end - self._base
        ops = self._ops[first:last]
        if by_hand:
            ops = _updating(ops)
        calls = [call for call in self._calls if start.op <= call.op < end]
        beginnings = _beginnings(ops, calls)
        return Cut(
            ops=_counted_from_zero(ops, start.op, beginnings),
            memory=_memory(self._live[first:last], start.live_bytes),
            samples=_samples(calls, beginnings),
        )


FORWARDS = (Phase.FORWARD, Phase.LOSS)


def _updating(ops: Sequence[Op]) -> list[Op]:
    """With what a script computes out of its gradients by itself as part of its update, momenta included."""
    first = next((index for index, op in enumerate(ops) if _keeps_a_gradient(op)), len(ops))
    reached: set[int] = set()
    before = -1
    while len(reached) > before:  # what is written before a gradient is added to it is found in a second round
        before = len(reached)
        for op in ops[first:]:
            if _keeps_a_gradient(op) or _follows(op, reached):
                reached.update(tensor.storage for tensor in op.results)
    return [
        replace(op, phase=Phase.UPDATE) if index > first and _follows(op, reached) else op
        for index, op in enumerate(ops)
    ]


def _keeps_a_gradient(op: Op) -> bool:
    return op.node == "AccumulateGrad" or op.phase is Phase.ACCUMULATE


def _follows(op: Op, reached: set[int]) -> bool:
    return op.phase is Phase.OTHER and any(tensor.storage in reached for tensor in op.inputs)


def _beginnings(ops: Sequence[Op], calls: Sequence[ModelCall]) -> dict[int, int]:
    """Id of the Op that each microbatch's training begins with: the call of a model that its backward goes back to.

    Only the backward shows what was trained. What ran before that call with gradients on (an evaluation that forgot to
    switch them off, a metric of the last loss) was not.
    """
    owners = {op.forward for op in ops if op.forward is not None}
    firsts: dict[int, int] = {}
    for op in ops:
        if op.phase in FORWARDS and op.id in owners and op.microbatch is not None:
            firsts.setdefault(op.microbatch, op.id)
    return {
        microbatch: max((c.op for c in calls if c.microbatch == microbatch and c.op <= first), default=first)
        for microbatch, first in firsts.items()
    }


def _counted_from_zero(ops: Sequence[Op], base: int, beginnings: Mapping[int, int]) -> tuple[Op, ...]:
    """Ids and microbatches as they are within the stretch, and what only looked like a forward as what it is."""
    numbers = sorted({op.microbatch for op in ops if op.phase is Phase.BACKWARD and op.microbatch is not None})
    order = {number: index for index, number in enumerate(numbers)}
    return tuple(_counted(op, base, order, beginnings) for op in ops)


def _counted(op: Op, base: int, order: Mapping[int, int], beginnings: Mapping[int, int]) -> Op:
    number = op.microbatch
    trained = op.phase not in FORWARDS or (number is not None and op.id >= beginnings.get(number, op.id + 1))
    return replace(
        op,
        id=op.id - base,
        phase=op.phase if trained else Phase.OTHER,
        forward=None if op.forward is None or op.forward < base else op.forward - base,
        microbatch=order.get(number) if trained and number is not None else None,
    )


def _memory(live: Sequence[int], start_bytes: int) -> Memory:
    samples: list[MemorySample] = []
    before = start_bytes
    for op, now in enumerate(live):
        if now != before:
            samples.append(MemorySample(op=op, live_bytes=now))
        before = now
    peak = max(range(len(live)), key=lambda op: live[op], default=None)
    return Memory(
        peak_bytes=None if peak is None else live[peak],
        peak_op=peak,
        start_bytes=start_bytes,
        samples=tuple(samples),
        origin=Origin.COMPUTED,
    )


def _samples(calls: Sequence[ModelCall], beginnings: Mapping[int, int]) -> int | None:
    """Each microbatch counts by the model call that it begins with. None where one of them is unknown."""
    first: dict[int, int | None] = {}
    for call in calls:
        if call.batch is not None and call.op >= beginnings.get(call.microbatch, call.op + 1):
            first.setdefault(call.microbatch, call.batch.samples)
    counts = [count for count in first.values() if count is not None]
    return sum(counts) if counts and len(counts) == len(first) else None
