"""Attention whose scores are written to memory, each query against each key, though no kernel needs them there."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from undertorch.records import Kind, Op, TensorRef
from undertorch.records.totals import source_line
from undertorch.steps.advice.dataflow import PHASES, Queue, Saving, largest

PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm"})

BETWEEN = 6
"""Kernels between a product and its softmax at most: scale, bias, mask, casts."""


def explicit_attention(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """One saving a line of softmax, over all layers: what is done to tensors of the size of the scores. Lines whose
    scores are of one size cannot be told apart, and have one together."""
    sites: dict[tuple[str, int] | None, list[Op]] = defaultdict(list)
    for op in queue.step.ops:
        if op.name == "aten::_softmax" and op.id not in taken and op.id in queue.runs and _is_attention(queue, op):
            sites[None if op.where is None else (op.where.file, op.where.line)].append(op)
    for softmaxes in _apart(sites.values()):
        sizes = _sizes(softmaxes)
        near = frozenset(_on_scores(queue, sizes)) - taken
        moved = queue.moved(near)
        if moved is None:
            continue
        products = [(op, scores) for op in queue.step.ops if (scores := _scores_of(queue, op, sizes)) is not None]
        made = [op.id for op, scores in products if op.node is None and scores in op.results]
        backward = any(op.node is not None for op, _ in products)
        yield Saving(
            kind="attention",
            ops=near,
            about=frozenset(softmax.id for softmax in softmaxes),
            # A fused kernel keeps no scores, so that its backward makes the products of query and key once more.
            saves_us=queue.time_us(near) - (queue.time_us(made) if backward else 0.0),
            saves_bytes=moved + sum(scores.bytes for _, scores in products),
            what=_what(queue, softmaxes),
        )


def _apart(sites: Iterable[list[Op]]) -> list[list[Op]]:
    """Softmaxes put together whose scores are of one size."""
    groups: list[list[Op]] = []
    for site in sites:
        mine = site
        others = []
        for group in groups:
            if _sizes(group) & _sizes(mine):
                mine = [*group, *mine]
            else:
                others.append(group)
        groups = [*others, mine]
    return groups


def _sizes(softmaxes: Iterable[Op]) -> set[int]:
    return {softmax.results[0].elements for softmax in softmaxes}


def _is_attention(queue: Queue, softmax: Op) -> bool:
    """Whether a batched product made what it reads, and another reads what it makes, through elementwise kernels."""
    made, number = softmax.inputs[0], softmax.id
    for _ in range(BETWEEN):
        source = queue.source(made, number)
        if source is None:
            return False
        if source.name in PRODUCTS:
            # Where heads are as wide as the context is long, the scores cannot be told from queries and keys.
            told_apart = all(tensor.elements != made.elements for tensor in source.inputs[-2:])
            return told_apart and _reaches_product(queue, softmax)
        same = [tensor for tensor in source.inputs if tensor.elements == made.elements]
        if not same:
            return False
        made, number = same[0], source.id
    return False


def _reaches_product(queue: Queue, softmax: Op) -> bool:
    reached, size = {softmax.results[0].storage}, softmax.results[0].elements
    for op in (queue.ops[number] for number in sorted(queue.runs) if number > softmax.id):
        if op.phase is not softmax.phase or not reached & {tensor.storage for tensor in op.inputs}:
            continue
        if op.name in PRODUCTS:
            return True
        reached |= {tensor.storage for tensor in op.results if tensor.elements == size}
    return False


def _on_scores(queue: Queue, sizes: set[int]) -> Iterator[int]:
    for number in queue.runs:
        op = queue.ops[number]
        if largest(op) in sizes and op.phase in PHASES and Kind.MATMUL not in queue.kinds(op):
            yield number


def _scores_of(queue: Queue, op: Op, sizes: set[int]) -> TensorRef | None:
    """The tensor of a product that is as large as the scores; None where it is none, or has none."""
    if op.name not in PRODUCTS or op.id not in queue.runs:
        return None
    return next((tensor for tensor in (*op.results, *op.inputs) if tensor.elements in sizes), None)


def _what(queue: Queue, softmaxes: list[Op]) -> str:
    """What to do depends on whether scaled_dot_product_attention is called already."""
    shape = " × ".join(f"{size:,}" for size in softmaxes[0].results[0].shape)
    where = softmaxes[0].where
    source = None if where is None else source_line(queue.step.environment.sources, where.file, where.line)
    if source is not None and "scaled_dot_product_attention" in source:
        return (
            f"This call writes its {shape} scores to memory: none of PyTorch's fused kernels takes these inputs. Give "
            "it float16 or bfloat16, and is_causal=True in place of a mask where that is what the mask says; "
            "torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION) warns of what else is in the way."
        )
    return (
        f"The {shape} scores are written and read again by every kernel from product to product, and kept for "
        "backward. F.scaled_dot_product_attention (is_causal, attn_mask, dropout_p) does the same in one kernel that "
        "keeps them on the chip."
    )
