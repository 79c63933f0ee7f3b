"""Cross entropy that goes over its logits again and again: casts, log-softmax, and their gradients, each a kernel."""

from collections.abc import Iterator

from undertorch.records import Kind, Op, TensorRef
from undertorch.steps.advice.dataflow import PHASES, Queue, Saving, changes_dtype, largest

PASSES = 3
"""Of a compiled loss over its logits: forward reads them, backward reads them again and writes their gradient."""


def cross_entropy(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """One saving a loss: all that is done to tensors of the size of its logits besides the matmuls."""
    seen: set[int] = set()
    for op in queue.step.ops:
        if op.name != "aten::_log_softmax" or op.id in seen | taken or not _feeds_loss(queue, op):
            continue
        if queue.compiles(op):
            continue
        logits = _logits(queue, op)
        about = frozenset(_about(queue, logits, op))
        seen |= about
        moved = queue.moved(about)
        passes = PASSES if _has_backward(queue, about) else 1
        least = passes * logits.bytes
        if moved is None or moved <= least:
            continue
        rows, classes = logits.elements // logits.shape[-1], logits.shape[-1]
        linear = queue.source(logits, op.id)
        from_matmul = linear is not None and Kind.MATMUL in queue.kinds(linear)
        casts = any(changes_dtype(queue.ops[number]) for number in about)
        # In float16 that op hands on to torch.
        such_as = "" if logits.dtype == "float16" else " (undertorch.ops.linear_cross_entropy)"
        yield Saving(
            kind="cross-entropy",
            ops=about,
            about=frozenset([op.id]),
            saves_us=queue.time_us(about) - queue.fused_us(about, least, kernels=min(passes, 2)),
            saves_bytes=moved - least,
            what=(
                f"The loss moves its {rows:,} × {classes:,} logits {moved / logits.bytes:.0f} times over, since "
                f"{'casts, ' if casts else ''}log-softmax and {'their gradients' if casts else 'its gradient'} are "
                f"kernels of their own. Put the loss{', with its cast,' if casts else ''} into a function and "
                f"torch.compile that: forward then reads the {logits.dtype} logits once, backward reads "
                "them and writes their gradient."
                + (
                    f" A loss that takes in the last linear layer and goes by chunks of rows{such_as} keeps "
                    "no logits at all."
                    if from_matmul
                    else ""
                )
            ),
            op="linear_cross_entropy" if from_matmul else "cross_entropy",
        )


def _feeds_loss(queue: Queue, softmax: Op) -> bool:
    """Whether its result, cast or not, is what a negative log-likelihood reads."""
    reached = {tensor.storage for tensor in softmax.results}
    for number in range(softmax.id + 1, softmax.id + 8):
        op = queue.ops.get(number)
        if op is None or not reached & {tensor.storage for tensor in op.inputs}:
            continue
        if op.name.startswith("aten::nll_loss"):
            return True
        reached |= {tensor.storage for tensor in op.results}
    return False


def _logits(queue: Queue, softmax: Op) -> TensorRef:
    """The tensor that the loss begins with: behind the casts."""
    tensor = softmax.inputs[0]
    number = softmax.id
    while (source := queue.source(tensor, number)) is not None and source.name == "aten::_to_copy":
        tensor, number = source.inputs[0], source.id
    return tensor


def _about(queue: Queue, logits: TensorRef, softmax: Op) -> Iterator[int]:
    """What is done to tensors of the logits' size, by the loss or on their way there and back.

    Told by what flows from one to the next, since other tensors of a model may well have that size too.
    """
    reached = {logits.storage, *_before(queue, logits, softmax)}
    for number in queue.runs:
        op = queue.ops[number]
        tensors = (*op.inputs, *op.results)
        if not any(tensor.storage in reached for tensor in tensors) or largest(op) != logits.elements:
            continue
        if all(tensor.elements != logits.elements or tensor.shape[-1] != logits.shape[-1] for tensor in tensors):
            continue
        if op.phase in PHASES and op.microbatch == softmax.microbatch and Kind.MATMUL not in queue.kinds(op):
            reached |= {tensor.storage for tensor in op.results}
            yield number


def _before(queue: Queue, logits: TensorRef, softmax: Op) -> Iterator[int]:
    """Storages of what the logits were, back to the matmul: where they are scaled or capped."""
    tensor, number = logits, softmax.id
    while (source := queue.source(tensor, number)) is not None and Kind.MATMUL not in queue.kinds(source):
        same = [given for given in source.inputs if given.elements == logits.elements]
        if not same:
            return
        tensor, number = same[0], source.id
        yield tensor.storage


def _has_backward(queue: Queue, ops: frozenset[int]) -> bool:
    return any(queue.ops[number].node is not None for number in ops)
