"""A Recording on a GPU: each Op's kernels, their times, and the step they make."""

from collections import Counter
from collections.abc import Callable

from undertorch import costs
from undertorch.gpus.occupancy import Occupancy, occupancy
from undertorch.records import Accounting, Assumption, Gpu, Kernel, Launch, Op, Origin, Recording, Step
from undertorch.records.ops import LINES
from undertorch.records.totals import shares_us
from undertorch.steps.predict.timeline import Costed, lay_out
from undertorch.steps.predict.times import timing

Cost = Callable[[Op, Gpu], tuple[Kernel, ...] | None]


def predict(recording: Recording, gpu: Gpu, cost: Cost = costs.kernels) -> Step:
    """The step of a recording on a GPU. Ops without a cost launch nothing here and are listed in the accounting.

    The recording is of a script that was told it runs on `recording.gpu`; predicting it for another GPU leaves out
    what the script and torch would have decided differently there.
    """
    found = [(op, cost(op, gpu)) for op in recording.ops]
    costed = [
        Costed(op=op, launches=tuple(_launch(op, kernel, gpu) for kernel in kernels or ())) for op, kernels in found
    ]
    timeline = lay_out(costed, gpu)
    without = Counter(op.name for op, kernels in found if kernels is None)
    return Step(
        gpu=gpu.name,
        step_us=timeline.step_us,
        time_origin=Origin.PREDICTED,
        samples=recording.samples,
        ops=recording.ops,
        launches=timeline.launches,
        idle=timeline.idle,
        memory=recording.memory,
        accounting=Accounting(
            launches=len(timeline.launches),
            time_with_line=_time_with_line(recording.ops, timeline.launches),
            ops_without_cost=tuple(sorted(without)),
            ops_without_cost_count=without.total(),
            assumed=(*recording.assumptions, *_host(gpu)),
        ),
        environment=recording.environment,
    )


def time_us(op: Op, gpu: Gpu, cost: Cost = costs.kernels) -> float:
    """What an Op's kernels take together, one after the other; 0 for an Op without a cost."""
    return sum(_launch(op, kernel, gpu).time_us for kernel in cost(op, gpu) or ())


def _host(gpu: Gpu) -> tuple[Assumption, ...]:
    """That the CPU is another than the one whose times are known."""
    if gpu.host_speed in (None, 1.0):
        return ()
    what = f"the CPU is taken to launch {gpu.host_speed:g} times as fast as the server that its times were measured on."
    return (Assumption(where=None, what=what),)


def _launch(op: Op, kernel: Kernel, gpu: Gpu) -> Launch:
    """A launch without its place in time, which the timeline gives it."""
    resident = _resident(kernel, gpu)
    expected = timing(kernel, gpu, None if resident is None else resident.blocks_per_sm)
    return Launch(
        kernel=kernel,
        ops=_served(op),
        phase=op.phase,
        stream=0,
        start_us=0.0,
        time_us=expected.time_us,
        time_origin=Origin.PREDICTED,
        bound=expected.bound,
        occupancy=None if resident is None else resident.share,
        limiter=None if resident is None else resident.limiter,
        occupancy_origin=None if resident is None else kernel.resources_origin,
    )


def _served(op: Op) -> tuple[int, ...]:
    """The Op, and those after it that stand for further lines of its kernel."""
    lines = next((argument.value for argument in op.arguments if argument.name == LINES), 1)
    return tuple(range(op.id, op.id + (lines if isinstance(lines, int) else 1)))


def _resident(kernel: Kernel, gpu: Gpu) -> Occupancy | None:
    """None where the kernel has no block, or its registers or shared memory are not known."""
    if kernel.threads is None or kernel.registers is None or kernel.shared_bytes is None:
        return None
    return occupancy(gpu, kernel.registers, kernel.shared_bytes, kernel.threads)


def _time_with_line(ops: tuple[Op, ...], launches: tuple[Launch, ...]) -> float | None:
    where = {op.id: op.where for op in ops}
    parts = shares_us(launches)
    total = sum(parts)
    if total == 0:
        return None
    return sum(part for launch, part in zip(launches, parts, strict=True) if where[launch.ops[0]] is not None) / total
