"""Attention whose scores are written to memory, each query against each key, though no kernel needs them there."""

from collections.abc import Iterator

from undertorch.records import Kind, Op, TensorRef
from undertorch.records.totals import source_line
from undertorch.steps.advice.dataflow import Queue, Saving, largest

PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm", "aten::matmul"})


def explicit_attention(queue: Queue, taken: frozenset[int]) -> Iterator[Saving]:
    """One saving a line of softmax, over all layers: what is done to tensors of the size of the scores."""
    sites: dict[tuple[str, int] | None, list[Op]] = {}
    for op in queue.step.ops:
        if op.name == "aten::_softmax" and op.id not in taken and op.id in queue.runs and _is_attention(queue, op):
            sites.setdefault(None if op.where is None else (op.where.file, op.where.line), []).append(op)
    for softmaxes in sites.values():
        sizes = {softmax.results[0].elements for softmax in softmaxes}
        near = frozenset(_on_scores(queue, sizes)) - taken
        products = [op for op in queue.step.ops if op.name in PRODUCTS and _scores_of(op, sizes) is not None]
        again = [op for op in products if op.node is None and _scores_of(op, sizes) in op.results]
        moved = queue.moved(near)
        if moved is None:
            continue
        through = sum(scores.bytes for op in products if (scores := _scores_of(op, sizes)) is not None)
        backward = any(op.node is not None for op in products)
        # Flash attention keeps no scores, so its backward makes each product of query and key once more.
        extra = queue.time_us(op.id for op in again) if backward else 0.0
        yield Saving(
            kind="attention",
            ops=near,
            about=frozenset(softmax.id for softmax in softmaxes),
            saves_us=queue.time_us(near) - extra,
            saves_bytes=moved + through,
            what=_what(queue, softmaxes),
            op=None,
        )


def _is_attention(queue: Queue, softmax: Op) -> bool:
    """Whether a batched product made what it reads, and another reads what it makes, through elementwise kernels."""
    made = softmax.inputs[0]
    number = softmax.id
    for _ in range(6):
        source = queue.source(made, number)
        if source is None:
            return False
        if source.name in PRODUCTS:
            return _reaches_product(queue, softmax)
        same = [tensor for tensor in source.inputs if tensor.elements == made.elements]
        if not same:
            return False
        made, number = same[0], source.id
    return False


def _reaches_product(queue: Queue, softmax: Op) -> bool:
    reached, size = {softmax.results[0].storage}, softmax.results[0].elements
    for op in (queue.ops[number] for number in sorted(queue.runs) if number > softmax.id):
        if not reached & {tensor.storage for tensor in op.inputs} or op.phase is not softmax.phase:
            continue
        if op.name in PRODUCTS:
            return True
        reached |= {tensor.storage for tensor in op.results if tensor.elements == size}
    return False


def _on_scores(queue: Queue, sizes: set[int]) -> Iterator[int]:
    for number in queue.runs:
        op = queue.ops[number]
        if largest(op) in sizes and op.name not in PRODUCTS and Kind.MATMUL not in queue.kinds(op):
            yield number


def _scores_of(op: Op, sizes: set[int]) -> TensorRef | None:
    """The tensor of a product that is as large as the scores; None where it has none."""
    return next((tensor for tensor in (*op.results, *op.inputs) if tensor.elements in sizes), None)


def _what(queue: Queue, softmaxes: list[Op]) -> str:
    """What to do depends on whether scaled_dot_product_attention is called already."""
    scores = softmaxes[0].results[0]
    shape = " × ".join(f"{size:,}" for size in scores.shape)
    where = softmaxes[0].where
    source = None if where is None else source_line(queue.step.environment.sources, where.file, where.line)
    if source is not None and "scaled_dot_product_attention" in source:
        return (
            f"This call writes its {shape} scores to memory: none of PyTorch's fused kernels takes these inputs. Give "
            "it float16 or bfloat16 and is_causal=True in place of a mask where that is what the mask says; "
            "torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION) warns what else is in the way."
        )
    return (
        f"The {shape} scores are written and read again by every kernel from product to product, and kept for "
        "backward. F.scaled_dot_product_attention(q, k, v, is_causal=…) computes the same in one kernel that keeps "
        "them on the chip."
    )
