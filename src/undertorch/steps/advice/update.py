"""The optimizer's passes over the parameters: several where one would do."""

from collections.abc import Iterator

from undertorch.records import Phase
from undertorch.steps.advice.dataflow import Queue, Saving

FUSED = ("aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad")
"""How the names of PyTorch's one-kernel updates begin."""
OWN = "undertorch::adamw"
"""undertorch's, whose launches are few as they are."""


def optimizer(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """An update in many kernels: one pass would read parameters, gradients and states once and write them once."""
    update = (queue.ops[number] for number in queue.runs if queue.ops[number].phase is Phase.UPDATE)
    ops = frozenset(op.id for op in update if not queue.compiles(op)) - taken
    names = {queue.ops[number].name for number in ops}
    moved = queue.moved(ops)
    if moved is None or any(name.startswith((*FUSED, OWN)) for name in names):
        return
    least = queue.fused_bytes(ops)
    adam = any("addcdiv" in name for name in names) and any("addcmul" in name for name in names)
    looped = not any("_foreach_" in name for name in names)
    do = (
        "Pass fused=True to the optimizer (torch.optim.Adam, AdamW, SGD and Adagrad have it): one kernel updates all"
        if adam
        else "Where it is torch.optim.SGD or Adagrad, pass fused=True; for any other, torch.compile(optimizer.step) "
        "makes one kernel"
    )
    yield Saving(
        kind="optimizer",
        ops=ops,
        saves_us=queue.time_us(ops) - queue.fused_us(ops, least),
        saves_bytes=moved - least,
        what=(
            f"The update is {queue.launches(ops):,} launches{', a few for each parameter' if looped else ''}, which "
            f"read and write parameters, gradients and states several times over. {do}."
        ),
        op="adamw" if adam else None,
    )


def clipping(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """Gradients scaled in a pass of their own before a fused update, which can scale what it reads anyway."""
    fused = [op for op in queue.step.ops if op.id in queue.runs and op.name.startswith(FUSED)]
    grads = {tensor.storage: tensor.bytes for op in fused for tensor in op.tensors("grads")}
    scaled = [
        op
        for op in queue.step.ops
        if op.id in queue.runs
        and op.id not in taken
        and op.phase is Phase.CLIP
        and op.name in ("aten::_foreach_mul_", "aten::mul_")
        and queue.written(op) & grads.keys()
    ]
    ops = frozenset(op.id for op in scaled)
    moved = queue.moved(ops)
    if not ops or moved is None:
        return
    # With a scale the kernel stores the scaled gradient too (native/cuda/fused_adam_utils.cuh), so one write stays.
    stays = sum(size for storage, size in grads.items() if any(storage in queue.written(op) for op in scaled))
    time = queue.time_us(ops)
    yield Saving(
        kind="clipping",
        ops=ops,
        saves_us=time * (1 - stays / moved) if moved else 0.0,
        saves_bytes=moved - stays,
        what=(
            "Clipping reads and writes every gradient once more before the fused update reads it. Compute the norm "
            "alone (torch.nn.utils.get_total_norm) and set optimizer.grad_scale = (norm / limit).clamp(min=1): the "
            "fused update divides by it."
        ),
        op="adamw",
    )
