"""When in the step a call ran: told by the autograd engine's ranges, the optimizer's, and what lies between."""

from dataclasses import dataclass

from undertorch.records import Phase
from undertorch.steps.traces.fields import Is, number
from undertorch.steps.traces.joining import NODE, Joined, node_of
from undertorch.steps.traces.nesting import outwards
from undertorch.steps.traces.reading import Seen

LOSSES = ("_loss", "nll_loss", "binary_cross_entropy", "kl_div", "huber", "soft_margin")
"""Are in the names of ATen's losses."""

NORMS = ("foreach_norm", "linalg_vector_norm", "clip_grad")
"""Are in the names of what clips gradients, between backward and update."""

COLLECTIVES = ("nccl", "c10d::", "rccl", "all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Landmarks:
    """Moments of the step, on the CPU; None where there is no such thing."""

    backward: tuple[float, float] | None
    """From the first node to the last."""
    update: float | None
    loss: float | None
    clips: bool
    """Whether something between backward and update takes norms."""


def landmarks(joined: Joined, calls: list[Seen]) -> Landmarks:
    """Of the calls of a step."""
    first, last = (min, max) if calls else (None, None)
    if first is None or last is None:
        return Landmarks(backward=None, update=None, loss=None, clips=False)
    begin, end = first(call.start for call in calls), last(call.end for call in calls)
    inside = [one for one in joined.trace.on_cpu if begin <= one.start <= end]
    nodes = [one for one in inside if one.name.startswith(NODE)]
    backward = (nodes[0].start, max(one.end for one in nodes)) if nodes else None
    updates = [one.start for one in inside if _is_update(one) and (backward is None or one.start > backward[0])]
    update = updates[0] if updates else None
    before = end if backward is None else backward[0]
    losses = [one.start for one in inside if _is_loss(one) and one.start < before]
    clips = backward is not None and any(
        backward[1] <= one.start < (end if update is None else update) and any(norm in one.name for norm in NORMS)
        for one in inside
    )
    return Landmarks(backward=backward, update=update, loss=losses[-1] if losses else None, clips=clips)


def phase_of(call: Seen | None, on_gpu: Seen, marks: Landmarks) -> Phase:
    """The phase of a launch; OTHER where no call is known."""
    around = list(outwards(call))
    if any(word in on_gpu.name.lower() for word in ("nccl", "rccl")) or any(
        word in one.name for one in around for word in COLLECTIVES
    ):
        return Phase.COMMUNICATE
    if call is None:
        return Phase.OTHER
    if any(_is_update(one) for one in around):
        return Phase.UPDATE
    node = node_of(call)
    if node is not None:
        return _in_backward(call, node)
    if any(one.name.startswith("Optimizer.zero_grad") for one in around):
        return Phase.OTHER
    if marks.backward is not None and call.start >= marks.backward[1]:
        before_update = marks.update is None or call.start < marks.update
        return Phase.CLIP if marks.clips and before_update else Phase.OTHER
    if marks.loss is not None and call.start >= marks.loss:
        return Phase.LOSS
    if any(_is_loss(one) for one in around):
        return Phase.LOSS
    return Phase.FORWARD


def _in_backward(call: Seen, node: Seen) -> Phase:
    """Forward calls in a node, which autograd notes for a backward of their own, are computed again (checkpointing)."""
    if "AccumulateGrad" in node.name:
        return Phase.ACCUMULATE
    for one in outwards(call):
        if one is node:
            return Phase.BACKWARD
        noted = number(one.args.sequence) is not None and number(one.args.forward_thread) == 0
        if one.kind is Is.CALL and noted:
            return Phase.RECOMPUTE
    return Phase.BACKWARD


def _is_update(one: Seen) -> bool:
    return one.kind is Is.RANGE and one.name.startswith("Optimizer.step")


def _is_loss(one: Seen) -> bool:
    return one.kind is Is.CALL and one.name.startswith("aten::") and any(word in one.name for word in LOSSES)
