"""Classes of mistakes that kernels of this kind were found with, here and elsewhere; which rows look for each."""

import re

from ops_promises import Row

PAST_BUGS = {
    "expanded, zero-stride input": r"(input|inputs|logits) .*expanded|zero columns stride",
    "expanded, zero-stride gradient": r"gradient .*expanded|incoming expanded",
    "transposed input": r"(input|inputs|logits|parameters) transposed",
    "labels of any strides": r"labels (transposed|every other|sliced|one)",
    "transposed gradient": r"gradients? transposed",
    "input at an odd address": r"(input|inputs|logits|parameters|gradients) offset by one",
    "ranks 1 to 5": r"rank \d",
    "no rows": r"zero rows|rows \(0,\)|shape \(0",
    "every label ignored": r"all ignored",
    "-inf logits: a block, a row": r"-inf, a (block|row|third)",
    "labels out of range": r": label -?\d+$",
    "other gradients with reduction none": r"none, incoming",
    "more than 2^31 elements": r"more than 2\^31 elements",
    "a row longer than 65,536": r"width (131071|131072|128256)",
    "widths that are no power of two": r"width (7|33|257|1025|4097|5001|8193|40001|50257)\b",
    "mixed dtypes": r"with weights of|float32, gradients",
    "large means, confident labels": r"mean 1000|large mean|confident",
    "autocast": r"autocast",
    "no_grad": r"without gradients",
    "frozen weights": r"frozen",
    "retain_graph": r"retain_graph",
    "an input used twice": r"used twice",
    "another current device": r"not current",
    "another stream": r"another stream",
    "a CUDA graph": r"CUDA graph",
    "torch.compile(fullgraph=True)": r"compiled whole",
    "functorch": r"(functorch|vmap).* refused",
    "second derivatives": r"second derivative is refused",
    "the same every time": r"the same five times",
}
"""By name, what a row of the table is called. Sharded parameters (FSDP2) are in tests/ops/test_dtensor.py."""


def rows_of(bug: str, table: list[Row]) -> list[Row]:
    """Those that look for it."""
    return [row for row in table if re.search(PAST_BUGS[bug], str(row))]
