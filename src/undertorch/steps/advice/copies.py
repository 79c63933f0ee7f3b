"""Copies that change nothing but the order in memory."""

from collections import defaultdict
from collections.abc import Iterator

from undertorch.records import Kind, Op, Phase, Where
from undertorch.steps.advice.dataflow import Queue, Saving

PACKS = frozenset({"aten::cat", "aten::stack"})
UNPACKED = ("SplitBackward", "SplitWithSizesBackward", "UnbindBackward", "ChunkBackward")
"""Autograd nodes of what takes a tensor apart; they put the gradients together again."""


def copies(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """One saving a line, over all layers: of tensors put together again in backward, or laid out anew."""
    packs: dict[Where | None, list[Op]] = defaultdict(list)
    layouts: dict[Where | None, list[Op]] = defaultdict(list)
    for op in (queue.ops[number] for number in sorted(queue.runs) if number not in taken):
        if _packs(op):
            packs[op.where].append(op)
        elif _changes_layout(op):
            layouts[op.where].append(op)
    twice = {op.id for some in layouts.values() for op in some if _repacked(queue, op) is not None}
    for some in packs.values():
        yield from _pack(queue, some, taken)
    for some in layouts.values():
        rest = [op for op in some if op.id not in twice]
        if rest:
            yield _layout(queue, rest)


def _changes_layout(op: Op) -> bool:
    """A copy of the same elements and dtype from strides into rows."""
    if op.name not in ("aten::clone", "aten::_to_copy") or op.phase in (Phase.UPDATE, Phase.CLIP):
        return False
    if len(op.inputs) != 1 or len(op.results) != 1:
        return False
    source, result = op.inputs[0], op.results[0]
    return (
        source.dtype == result.dtype
        and source.elements == source.distinct_elements  # an expanded tensor is made larger and not only laid out
        and not source.contiguous
        and result.contiguous
    )


def _repacked(queue: Queue, copy: Op) -> Op | None:
    """The Op that put together what a copy lays out anew."""
    source = queue.source(copy.inputs[0], copy.id)
    return source if source is not None and _packs(source) else None


def _packs(op: Op) -> bool:
    return op.name in PACKS and op.node is not None and op.node.startswith(UNPACKED)


def _pack(queue: Queue, packs: list[Op], taken: frozenset[int]) -> Iterator[Saving]:
    """Gradients of slices put together again; where they are laid out anew after that, one copy would do."""
    numbers = {op.id for op in packs}
    after = [
        number
        for number in queue.runs
        if number not in taken
        and _changes_layout(queue.ops[number])
        and (source := _repacked(queue, queue.ops[number])) is not None
        and source.id in numbers
    ]
    once = queue.moved(numbers)
    ops = frozenset((*numbers, *after))
    moved = queue.moved(ops)
    if once is None or moved is None:
        return
    alone = sum(queue.fused_us([], queue.moved([number]) or 0) for number in numbers)
    spent = queue.time_us(ops)
    parts = len(packs[0].tensors("tensors"))
    if after:
        yield Saving(
            kind="copies",
            ops=ops,
            saves_us=spent - alone,
            saves_bytes=moved - once,
            what=(
                f"Backward stacks the gradients of {parts} slices and then copies them into the order of the tensor "
                "they were cut from. Cut that tensor along its last dimension (split) before view and transpose: the "
                "gradients are then put together by one copy of whole rows."
            ),
        )
        return
    if not all(_of_attention(queue, op) for op in packs):
        return
    yield Saving(
        kind="copies",
        ops=ops,
        saves_us=spent,
        saves_bytes=moved,
        what=(
            f"Attention takes {parts} slices of one tensor and gives their gradients one by one, which backward copies "
            "together. PyTorch's own attention cannot do without; one that takes the packed tensor can, such as "
            "flash_attn_qkvpacked_func of the flash-attn package, whose kernels are seen on a GPU alone."
        ),
    )


def _of_attention(queue: Queue, pack: Op) -> bool:
    sources = [queue.source(tensor, pack.id) for tensor in pack.tensors("tensors")]
    return all(source is not None and Kind.ATTENTION in queue.kinds(source) for source in sources)


def _layout(queue: Queue, some: list[Op]) -> Saving:
    numbers = frozenset(op.id for op in some)
    return Saving(
        kind="copies",
        ops=numbers,
        saves_us=queue.time_us(numbers),
        saves_bytes=queue.moved(numbers),
        what=(
            "A transposed or permuted tensor is copied into rows (contiguous, reshape or flatten). Let the kernel "
            "before it write that order, or hand on the strided tensor: matmul and scaled_dot_product_attention take "
            "it as it is."
        ),
    )
