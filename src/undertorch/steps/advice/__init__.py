"""What is worth changing in a script, found in its step: from the step's own figures, and only what can be done now."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from undertorch.records import Advice, Gpu, Step
from undertorch.records.totals import busy_us, longest_first
from undertorch.steps.advice.attention import explicit_attention
from undertorch.steps.advice.casts import weight_casts
from undertorch.steps.advice.chains import chains
from undertorch.steps.advice.copies import copies
from undertorch.steps.advice.dataflow import Queue, Saving
from undertorch.steps.advice.host import launching, looping, waiting
from undertorch.steps.advice.loss import cross_entropy
from undertorch.steps.advice.matmul import misaligned, without_bfloat16, without_tf32
from undertorch.steps.advice.update import clipping, optimizer

__all__ = ["advise"]

WORTH = 0.01
"""Share of the busy time below which nothing is said."""

FINDERS = (
    cross_entropy,
    explicit_attention,
    optimizer,
    clipping,
    weight_casts,
    copies,
    chains,
    without_bfloat16,
    without_tf32,
    misaligned,
    waiting,
    looping,
    launching,
)
"""In this order: what one of them takes up is no more the next one's, so that no launch is saved twice. Where two save
different time of the same launches, such as that of an update and the GPU's waiting for it, the larger is said."""


def _joined(savings: Iterable[Saving]) -> Iterator[Saving]:
    """What is said word for word of several places of the step, as of each microbatch, is said once."""
    alike: dict[tuple[str, str], list[Saving]] = defaultdict(list)
    for one in savings:
        alike[one.kind, one.what].append(one)
    for some in alike.values():
        yield some[0] if len(some) == 1 else _together(some)


def _together(some: Sequence[Saving]) -> Saving:
    times, sizes = [one.saves_us for one in some], [one.saves_bytes for one in some]
    return replace(
        some[0],
        ops=frozenset().union(*(one.ops for one in some)),
        about=frozenset().union(*(one.about for one in some)),
        lines=tuple(dict.fromkeys(line for one in some for line in one.lines)),
        saves_us=None if None in times else sum(time for time in times if time is not None),
        saves_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        what=f"{some[0].what} ({len(some)} times in the step.)",
    )


def _worth(saving: Saving, least: float) -> bool:
    return saving.saves_us is None or (saving.saves_us > 0 and saving.saves_us >= least)


def _saved(saving: Saving) -> float:
    return saving.saves_us or 0.0


def advise(step: Step, gpu: Gpu) -> tuple[Advice, ...]:
    """What is worth changing, the largest saving first, unknown ones last; nothing that is known to save less than 1 %
    of the busy time.

    `saves_us` is time of the step as the figures of its launches have it, `saves_bytes` what would be moved less to
    and from global memory. A fused kernel is taken to be no faster than the slowest launch that it replaces. No time is
    saved twice: together they save no more than the step takes.
    """
    queue = Queue(step, gpu)
    least = WORTH * busy_us(step.launches)
    found: list[Saving] = []
    taken: set[int] = set()
    for find in FINDERS:
        for saving in _joined(find(queue, frozenset(taken))):
            rivals = [one for one in found if one.ops & saving.ops]
            if _worth(saving, least) and _saved(saving) >= sum(map(_saved, rivals)):
                found = [*(one for one in found if one not in rivals), saving]
                taken |= saving.ops
    return tuple(
        Advice(
            kind=saving.kind,
            lines=saving.lines or queue.lines(saving.about or saving.ops),
            saves_us=saving.saves_us,
            saves_bytes=saving.saves_bytes,
            what=saving.what,
            op=saving.op,
        )
        for saving in longest_first(found, _saved)
    )
