"""Time in which the GPU has nothing to do: the CPU launches too slowly, or waits for a value."""

from collections import defaultdict
from collections.abc import Iterator

from undertorch.records import Idle, IdleCause, Origin
from undertorch.steps.advice.dataflow import Queue, Saving
from undertorch.steps.predict.timeline import SYNCHRONIZING, Costed, Timeline, lay_out


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
            f"{'Once' if len(syncs) == 1 else f'{len(syncs):,} times'} in the step the CPU waits for a value of the "
            "GPU (.item(), .tolist(), a comparison, nonzero), and the GPU then waits for launches. Keep such values "
            "on the GPU (torch.where, loss.detach() added up) and read them every so many steps."
        ),
    )


def launching(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """The GPU is idle because the CPU launches more slowly than it works. What waiting for values makes is left out."""
    syncs = frozenset(op.id for op in queue.step.ops if op.name in SYNCHRONIZING)
    predicted = queue.step.time_origin is Origin.PREDICTED
    idle: tuple[Idle, ...] = _laid_out(queue, syncs).idle if predicted and syncs else queue.step.idle
    late = [one for one in idle if one.cause is IdleCause.LAUNCH]
    spent: dict[tuple[str, int], float] = defaultdict(float)
    for one in late:
        if one.where is not None:
            spent[one.where.file, one.where.line] += one.time_us
    worst = sorted(spent, key=lambda place: -spent[place])[:3]
    about = frozenset(
        op.id for op in queue.step.ops if op.where is not None and (op.where.file, op.where.line) in worst
    )
    yield Saving(
        kind="launching",
        ops=frozenset(),
        about=about,
        saves_us=sum(one.time_us for one in late),
        saves_bytes=0,
        what=(
            f"The CPU cannot launch the step's {len(queue.step.launches):,} kernels as fast as this GPU runs them. "
            "torch.compile(model, mode='reduce-overhead') replays them as CUDA graphs, with one launch each "
            "(torch.cuda.graph does so by hand); a larger batch gives each kernel more to do."
        ),
    )


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
