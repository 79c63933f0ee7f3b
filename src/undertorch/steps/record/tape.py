"""The Ops of the run in their order, and the stretch that is cut out of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from undertorch.records import Memory, MemorySample, Op, Origin, Phase


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


class Tape:
    """Keeps the Ops since the step before the running one."""

    def __init__(self) -> None:
        self.next = 0
        """Id of the next Op."""
        self._base = 0
        self._ops: list[Op] = []
        self._live: list[int] = []
        self._batches: list[tuple[int, int, int]] = []

    def append(self, op: Op, live_bytes: int) -> None:
        """One more, with the bytes alive after it."""
        self._ops.append(op)
        self._live.append(live_bytes)
        self.next += 1

    def batch(self, microbatch: int, samples: int) -> None:
        """A model is called with so many samples in a microbatch."""
        self._batches.append((self.next, microbatch, samples))

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
        self._batches = [batch for batch in self._batches if batch[0] >= before]
        self._base = before

    def cut(self, start: Mark, end: int) -> Cut:
        """The Ops from a mark to an id (which is left out)."""
        first, last = start.op - self._base, end - self._base
        ops = self._ops[first:last]
        return Cut(
            ops=_counted_from_zero(ops, start.op),
            memory=_memory(self._live[first:last], start.live_bytes),
            samples=_samples(batch for batch in self._batches if start.op <= batch[0] < end),
        )


def _counted_from_zero(ops: Sequence[Op], base: int) -> tuple[Op, ...]:
    """Ids and microbatches as they are within the stretch, and what only looked like a forward as what it is."""
    trained = _trained(ops)
    numbers = sorted({op.microbatch for op in ops if op.phase is Phase.BACKWARD and op.microbatch is not None})
    order = {number: index for index, number in enumerate(numbers)}
    return tuple(
        replace(
            op,
            id=op.id - base,
            phase=op.phase if op.id in trained or op.phase not in FORWARDS else Phase.OTHER,
            forward=None if op.forward is None or op.forward < base else op.forward - base,
            microbatch=None if op.microbatch is None or op.id not in trained else order.get(op.microbatch),
        )
        for op in ops
    )


FORWARDS = (Phase.FORWARD, Phase.LOSS)


def _trained(ops: Sequence[Op]) -> set[int]:
    """Ids of the Ops of all phases but those of a forward that no backward follows.

    Whether it follows shows only later: an evaluation with gradients on is none, nor is a metric of the last loss,
    which stands between two steps ahead of the model's next call and has no backward of its own.
    """
    followed = {op.microbatch for op in ops if op.phase is Phase.BACKWARD}
    owners = {op.forward for op in ops if op.forward is not None}
    begun: set[int | None] = set()
    found: set[int] = set()
    for op in ops:
        if op.phase in FORWARDS:
            if op.microbatch not in followed:
                continue
            if op.module is not None or op.id in owners:
                begun.add(op.microbatch)
            if op.microbatch not in begun:
                continue
        found.add(op.id)
    return found


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


def _samples(batches: Iterable[tuple[int, int, int]]) -> int | None:
    """Each microbatch counts by the first model that it calls."""
    first: dict[int, int] = {}
    for _, microbatch, samples in batches:
        first.setdefault(microbatch, samples)
    return sum(first.values()) if first else None
