"""Weights that autocast converts in every step, and their gradients back."""

from collections.abc import Iterator

from undertorch.records import Math, Phase
from undertorch.steps.advice.dataflow import Queue, Saving, changes_dtype


def weight_casts(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """All casts of parameters and of their gradients, together: keeping the weights in 16 bits leaves one write."""
    updated = {
        storage
        for number in queue.runs
        if queue.ops[number].phase is Phase.UPDATE
        for storage in queue.written(queue.ops[number])
    }
    down = {
        op.id: op
        for op in queue.step.ops
        if op.id in queue.runs
        and op.id not in taken
        and changes_dtype(op)
        and op.inputs[0].storage in updated
        and op.results[0].itemsize < op.inputs[0].itemsize
    }
    back = [
        number
        for number in queue.runs
        if changes_dtype(queue.ops[number]) and queue.ops[number].forward in down and number not in taken
    ]
    ops = frozenset((*down, *back))
    moved = queue.moved(ops)
    if not down or moved is None:
        return
    weights = {op.inputs[0].storage: op.results[0] for op in down.values()}
    stays = sum(tensor.bytes for tensor in weights.values())
    dtype = next(iter(down.values())).results[0].dtype
    first = ""
    if dtype == "float16":
        # torch.amp.GradScaler refuses to unscale float16 gradients, and without one they are too small for it.
        if Math.TENSOR_BF16 not in queue.gpu.peaks:
            return
        first, dtype = "Autocast to bfloat16 in place of float16, which needs no GradScaler, and keep", "bfloat16"
    yield Saving(
        kind="weight-casts",
        ops=ops,
        saves_us=queue.time_us(ops) - queue.fused_us([], stays),
        saves_bytes=moved - stays,
        what=(
            f"Autocast turns {len(weights):,} float32 weights into 16 bits in every step and microbatch, and their "
            f"gradients back. {first or 'Keep'} the model's weights in {dtype} (model.to(torch.{dtype})) and float32 "
            "master copies in the optimizer, which writes both (undertorch.ops.AdamW has them): updates that are too "
            "small for the short format are not lost then."
        ),
        op=None,
    )
