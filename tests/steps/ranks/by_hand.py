"""Ranks of a step written down by hand: launches as (start, time), collectives by name, group and number."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from steps_by_hand import kernel, launch
from undertorch.records import (
    Accounting,
    Environment,
    Kind,
    Memory,
    Op,
    Origin,
    Phase,
    Step,
    Where,
)
from undertorch.records.ranks import Collective, RankedStep


@dataclass(frozen=True, kw_only=True)
class Comm:
    """A collective on one rank."""

    start: float
    time: float
    operation: str = "all_reduce"
    group: str = "0"
    ranks: tuple[int, ...] = ()
    sequence: int | None = None
    line: int | None = None
    bytes: int | None = None


def rank(
    number: int,
    compute: Sequence[tuple[float, float]],
    comms: Sequence[Comm],
    clock: float = 0.0,
    world_size: int | None = None,
    step: int = 5,
) -> RankedStep:
    """Its clock shows `clock` when the step begins. Times are those of the rank's own step."""
    ops, launches = [], []
    for start, time in compute:
        launches.append(launch(kernel("gemm", Kind.MATMUL), (), Phase.FORWARD, start, time))
    for comm in comms:
        where = None if comm.line is None else Where(file="train.py", line=comm.line, function="step")
        ops.append(
            Op(
                id=len(ops),
                name=f"c10d::{comm.operation}",
                overload="default",
                where=where,
                phase=Phase.COMMUNICATE,
                arguments=(),
                outputs=(),
            )
        )
        ran = launch(
            kernel("ncclDevKernel", Kind.COLLECTIVE), (len(ops) - 1,), Phase.COMMUNICATE, comm.start, comm.time
        )
        launches.append(replace(ran, stream=20))
    order = sorted(range(len(launches)), key=lambda place: launches[place].start_us)
    collectives = [
        Collective(
            launch=order.index(len(compute) + place),
            operation=comm.operation,
            group=comm.group,
            ranks=comm.ranks,
            sequence=comm.sequence,
            bytes=comm.bytes,
        )
        for place, comm in enumerate(comms)
    ]
    launches = [launches[place] for place in order]
    end = max(one.end_us for one in launches)
    return RankedStep(
        rank=number,
        clock_us=clock,
        collectives=tuple(sorted(collectives, key=lambda one: one.launch)),
        world_size=world_size,
        step=Step(
            gpu="H200",
            step_us=end,
            time_origin=Origin.MEASURED,
            samples=None,
            ops=tuple(ops),
            launches=tuple(launches),
            memory=Memory(peak_bytes=None, peak_op=None, start_bytes=None, origin=Origin.MEASURED),
            accounting=Accounting(launches=len(launches), time_with_line=None),
            environment=Environment(script=f"rank{number}.json", step=step),
        ),
    )
