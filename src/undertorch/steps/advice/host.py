"""Time in which the GPU has nothing to do: the CPU launches too slowly, or waits for a value."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from undertorch.records import Idle, IdleCause, Launch, Op, Origin, Phase, Where
from undertorch.records.totals import longest_first
from undertorch.steps.advice.dataflow import Queue, Saving
from undertorch.steps.predict.timeline import SYNCHRONIZING, Costed, Timeline, lay_out

WORST = 3
"""Lines of a model that are named."""
ROUNDING_US = 0.01
"""By how much the end of an idle interval may miss the start of the launch that ends it."""

HAVE_FOREACH = frozenset(
    {"add", "addcdiv", "addcmul", "copy", "div", "lerp", "linalg_vector_norm", "mul", "pow", "sqrt", "sub", "zero"}
)
"""Ops of which such loops are made and that have a form for a list (native_functions.yaml, `_foreach_*`)."""

OUTSIDE = frozenset({Phase.OTHER, Phase.CLIP, Phase.UPDATE})
"""When launches are the script's own or the optimizer's, where no module is running."""
LOOPS = (
    (
        frozenset({Phase.OTHER, Phase.CLIP}),
        "foreach",
        "come one by one from a loop over tensors outside the model, which compiling the model does not change. Give "
        "all tensors to one call: torch._foreach_mul_(emas, d) and torch._foreach_add_(emas, params, alpha=1 - d) in "
        "place of p.mul_(d).add_(q, alpha=1 - d). An average of weights is kept so by "
        "torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(d)).",
    ),
    (
        frozenset({Phase.UPDATE}),
        "update-loop",
        "of the update come parameter by parameter, which compiling the model does not change. Pass fused=True to the "
        "optimizer, or foreach=True where it has no fused form.",
    ),
)
"""By phase: the kind of advice and what to do."""

_Site = tuple[Where | None, str]
"""A line and an Op that it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Late:
    """An interval that the GPU waits for a launch."""

    op: Op | None
    """That launches then; None where it is not known."""
    where: Where | None
    time_us: float


def waiting(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """Values that the script asks for: the CPU waits for the GPU, which then waits for the CPU."""
    syncs = frozenset(op.id for op in queue.step.ops if op.name in SYNCHRONIZING)
    if not syncs:
        return
    if queue.step.time_origin is Origin.PREDICTED:
        saved = _laid_out(queue, frozenset()).step_us - _laid_out(queue, syncs).step_us
    else:
        saved = sum(idle.time_us for idle in queue.step.idle if idle.cause is IdleCause.SYNC)
    yield Saving(
        kind="sync",
        ops=frozenset(),
        about=syncs,
        saves_us=saved,
        saves_bytes=None,
        what=(
            f"{'Once' if len(syncs) == 1 else f'{len(syncs):,} times'} in the step the CPU waits for the GPU (.item(), "
            "print, a comparison, nonzero, torch.save, synchronize), and the GPU then waits for launches. Keep values "
            "on the GPU (torch.where, loss.detach() added up), and read, save and take times every so many steps."
            f"{_refilling(queue, saved)}"
        ),
    )


def _refilling(queue: Queue, saved: float) -> str:
    """The step's idle time by its causes counts the wait alone; most of what it costs may come later."""
    waited = sum(idle.time_us for idle in queue.step.idle if idle.cause is IdleCause.SYNC)
    if saved <= 2 * waited:
        return ""
    return (
        f" The GPU waits {waited / 1e3:,.2f} ms for that itself, and then for launches until the queue is full again."
    )


def looping(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """Launches of loops over tensors, outside the model: no compiled model takes them in, but one call for the whole
    list of tensors makes them a few."""
    late = _late(queue)
    for phases, kind, what in LOOPS:
        calls: dict[_Site, list[int]] = defaultdict(list)
        for op in queue.step.ops:
            if op.phase in phases and _in_loop(op) and op.id in queue.runs and not queue.compiled.takes(op):
                calls[op.where, op.name].append(op.id)
        loops: dict[_Site, list[_Late]] = defaultdict(list)
        for one in late:
            if one.op is not None and (one.op.where, one.op.name) in calls:
                loops[one.op.where, one.op.name].append(one)
        repeated = {site: some for site, some in loops.items() if len(some) > 1}
        # What somebody has advice on already is told apart, since of the two one is said.
        for known in (True, False):
            some = {site: found for site, found in repeated.items() if known != taken.isdisjoint(calls[site])}
            if some:
                yield _loop(queue, kind, what, some, frozenset(number for site in some for number in calls[site]))


def _loop(queue: Queue, kind: str, what: str, loops: Mapping[_Site, Sequence[_Late]], ops: frozenset[int]) -> Saving:
    every = [one for some in loops.values() for one in some]
    return Saving(
        kind=kind,
        ops=ops,
        lines=_by_time(every),
        # One call of each loop stays.
        saves_us=sum(one.time_us for one in every) - sum(fmean(one.time_us for one in some) for some in loops.values()),
        saves_bytes=0,
        what=f"{queue.launches(ops):,} launches {what}",
    )


def launching(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """The GPU is idle because the CPU launches the model more slowly than it works. What waiting for values makes is
    left out, and so is what the model does not launch."""
    if queue.compiled.models or queue.compiled.captured:
        return
    late = [one for one in _late(queue) if one.op is None or not (_outside(one.op) or queue.compiled.takes(one.op))]
    outside = queue.launches(op.id for op in queue.step.ops if _outside(op) or queue.compiled.takes(op))
    call = (
        "mode='reduce-overhead' of torch.compile"
        if queue.by_inductor
        else "torch.compile(model, mode='reduce-overhead')"
    )
    yield Saving(
        kind="launching",
        ops=frozenset(),
        lines=_by_time(late)[:WORST],
        saves_us=sum(one.time_us for one in late),
        saves_bytes=0,
        what=(
            f"The CPU cannot launch the {'model' if outside else 'step'}'s {len(queue.step.launches) - outside:,} "
            "kernels as fast as this GPU runs them. "
            f"{call} replays them as CUDA graphs, with one launch each (so does "
            "torch.cuda.make_graphed_callables, without compiling); a larger batch gives each kernel more to do."
        ),
    )


def _outside(op: Op) -> bool:
    """Whether no module was running, nor its backward."""
    return not op.module and op.phase in OUTSIDE


def _in_loop(op: Op) -> bool:
    """Whether it takes one tensor where there is a form that takes a list."""
    return _outside(op) and op.name.removeprefix("aten::").strip("_") in HAVE_FOREACH


def _late(queue: Queue) -> list[_Late]:
    """What is idle because a launch came late, with the Op that launched then. What waiting for values makes is not
    among it."""
    syncs = frozenset(op.id for op in queue.step.ops if op.name in SYNCHRONIZING)
    idle: tuple[Idle, ...] = queue.step.idle
    launches: tuple[Launch, ...] = queue.step.launches
    if queue.step.time_origin is Origin.PREDICTED and syncs:
        laid_out = _laid_out(queue, syncs)
        idle, launches = laid_out.idle, laid_out.launches
    order = sorted(launches, key=lambda launch: launch.start_us)
    starts = [launch.start_us for launch in order]
    found = []
    for one in idle:
        if one.cause is IdleCause.LAUNCH:
            next_one = bisect_left(starts, one.start_us + one.time_us - ROUNDING_US)
            ops = order[next_one].ops if next_one < len(order) else ()
            op = queue.ops[ops[0]] if ops else None
            found.append(_Late(op=op, where=one.where or (None if op is None else op.where), time_us=one.time_us))
    return found


def _by_time(late: Sequence[_Late]) -> tuple[Where, ...]:
    """Lines, the one that causes most idle time first."""
    spent: dict[Where, float] = defaultdict(float)
    for one in late:
        if one.where is not None:
            spent[one.where] += one.time_us
    return tuple(longest_first(spent, lambda where: spent[where]))


def _laid_out(queue: Queue, without: frozenset[int]) -> Timeline:
    """The step's timeline without some of its Ops."""
    return lay_out(
        (
            Costed(op=op, launches=tuple(run.launch for run in queue.runs.get(op.id, ())))
            for op in queue.step.ops
            if op.id not in without
        ),
        queue.gpu,
    )
