"""When each launch starts: the CPU issues Ops one after another, the GPU runs kernels in order on one stream."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from undertorch.records import Bound, Gpu, Idle, IdleCause, Launch, Op
from undertorch.steps.predict import own_ops, shares

LAUNCH_LATENCY_US = 3.0
"""From the launch call to the kernel's start on an idle GPU: 3 to 5 µs on today's drivers; the lower end, since the
call's own time is in the Op's."""

SYNCHRONIZING = frozenset(
    {
        *("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"),
        *("cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamSynchronize"),
    }
)
"""Ops after which the CPU waits for everything before them: their result is needed on the host, or the script asks for
that.
"""
MAY_HAVE_MASKS = frozenset({"aten::index", "aten::index_put_", "aten::_index_put_impl_"})
"""Ops that count, where an index is a mask, how many elements it has; the count goes to the host."""
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
"""A copy after which the CPU waits too: cudaMemcpyAsync to memory that is not pinned returns when it is done."""

INDUCTOR = "inductor::"
"""Begins the name of an Op whose kernel Inductor wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costed:
    """An Op with the kernels it launches and their predicted times and occupancies."""

    op: Op
    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step laid out in time."""

    launches: tuple[Launch, ...]
    idle: tuple[Idle, ...]
    step_us: float


def lay_out(costed: Iterable[Costed], gpu: Gpu) -> Timeline:
    """Places the launches as in the steady state of a loop: the step is laid out twice, and the second is reported.

    Its wall time is from the end of the first's last kernel to the end of its own.
    """
    items = tuple(costed)
    first = _once(items, gpu, host_us=0.0, free_us=0.0)
    begin = first.free_us
    second = _once(items, gpu, host_us=first.host_us, free_us=first.free_us)
    return Timeline(
        launches=tuple(replace(launch, start_us=launch.start_us - begin) for launch in second.launches),
        idle=tuple(replace(idle, start_us=idle.start_us - begin) for idle in second.idle),
        step_us=second.free_us - begin if second.launches else second.host_us - first.host_us,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    launches: tuple[Launch, ...]
    idle: tuple[Idle, ...]
    host_us: float
    free_us: float


def _once(items: tuple[Costed, ...], gpu: Gpu, host_us: float, free_us: float) -> _Pass:
    """`host_us` is when the CPU is free, `free_us` when the GPU is."""
    launches: list[Launch] = []
    idle: list[Idle] = []
    gap = gpu.launch_gap_us or shares.GAP_US
    waited: Op | None = None
    for item in items:
        host_us += _cpu_us(item) / (gpu.host_speed or 1.0)
        for launch in item.launches:
            queued, arrived = free_us + gap, host_us + LAUNCH_LATENCY_US
            start = max(queued, arrived)
            if start > free_us:
                idle.append(_idle(free_us, start, arrived > queued, item.op, waited))
            waited = waited if arrived > queued else None
            # A kernel that would be short anyhow waits for its launch; a long one for what bounds it.
            late = arrived - queued > launch.time_us and launch.bound is Bound.LATENCY
            launches.append(replace(launch, start_us=start, bound=Bound.LAUNCH if late else launch.bound))
            free_us = start + launch.time_us
        if _synchronizes(item):
            host_us = max(host_us, free_us)
            waited = item.op
    return _Pass(launches=tuple(launches), idle=tuple(idle), host_us=host_us, free_us=free_us)


def _cpu_us(item: Costed) -> float:
    """CPU time of an Op, on the server that it was measured on. A further line of a kernel of Inductor's is no call."""
    if item.op.name.startswith(INDUCTOR):
        return shares.HOST_INDUCTOR_US if item.launches else 0.0
    if not item.launches:
        return shares.HOST_VIEW_US
    own = own_ops.host_us(item.op.name)
    return shares.HOST_OP_US if own is None else own


def _synchronizes(item: Costed) -> bool:
    names = {launch.kernel.name for launch in item.launches}
    by_mask = item.op.name in MAY_HAVE_MASKS and any(name.startswith("Memcpy DtoH") for name in names)
    return item.op.name in SYNCHRONIZING or by_mask or TO_HOST in names


def _idle(begin_us: float, end_us: float, late: bool, op: Op, waited: Op | None) -> Idle:
    """An interval before an Op's launch. After the CPU has waited for the GPU the queue is empty: until it fills again,
    what is idle is owed to the line that waited."""
    if not late:
        return Idle(start_us=begin_us, time_us=end_us - begin_us, cause=IdleCause.GAP, where=op.where)
    cause, where = (IdleCause.LAUNCH, op.where) if waited is None else (IdleCause.SYNC, waited.where)
    return Idle(start_us=begin_us, time_us=end_us - begin_us, cause=cause, where=where)
