"""A Step's launches with what every sum over them needs: their part of the busy time and the Op they served."""

from dataclasses import dataclass

from undertorch.records import Launch, Op, Step
from undertorch.records.totals import shares_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A launch, its part of the busy time, and its first Op."""

    launch: Launch
    time_us: float
    op: Op | None


def runs(step: Step) -> list[Run]:
    """One Run a launch, in order. Their times sum to the busy time."""
    by_id = {op.id: op for op in step.ops}
    return [
        Run(launch=launch, time_us=share, op=by_id[launch.ops[0]] if launch.ops else None)
        for launch, share in zip(step.launches, shares_us(step.launches), strict=True)
    ]
