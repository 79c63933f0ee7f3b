"""Which form of an op autograd takes: in place on a GPU, and out of place under a dispatch mode.

Autograd avoids writing into tensor subclasses, and counts every tensor as one while a dispatch mode is on
(ATen/TensorSubclassLikeUtils.h). A recording shall say what the GPU does, without the second tensor, so the op is
turned back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from undertorch.steps.record.backward import Node

aten = torch.ops.aten

TWINS = {
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.index_add.default: aten.index_add_.default,
    aten.put.default: aten.put_.default,
}
"""Written into zeros that the formula has just made (torch/csrc/autograd/FunctionsManual.cpp)."""

TWINS_OF_A_NODE = {
    ("BinaryCrossEntropyWithLogitsBackward0", aten.sub.Tensor): aten.sub_.Tensor,
    ("BinaryCrossEntropyWithLogitsBackward0", aten.mul.Tensor): aten.mul_.Tensor,
}
"""Written into the result of the op before, in the formula of one node alone."""

SELECTING = {
    "KthvalueBackward0",
    "MaxBackward0",
    "MedianBackward1",
    "MinBackward0",
    "ModeBackward0",
    "NanmedianBackward1",
    "SortBackward0",
    "TopkBackward0",
}
"""Nodes that scatter into zeros by value_selecting_reduction_backward; under a mode these are made by `new_zeros`."""

Call = tuple[torch._ops.OpOverload, Sequence[Any], Mapping[str, Any]]


def as_on_a_gpu(func: torch._ops.OpOverload, args: Sequence[Any], named: Mapping[str, Any], node: Node) -> Call:
    """The op and its arguments as the engine calls it on a GPU. `node`: what runs, or ran last."""
    if torch.is_grad_enabled():
        return func, args, named
    if not node.runs:
        return _addition(func, args), args, named
    if func is aten.index_put.default:
        # The last argument tells that the indices are known to be in range: they were those of the forward.
        return aten._index_put_impl_.default, (*args[:3], True, True), named
    if func is aten.new_zeros.default and node.name in SELECTING:
        like: dict[str, Any] = {"dtype": args[0].dtype, "device": args[0].device}
        return aten.zeros.default, args[1:], like | dict(named)
    twin = TWINS.get(func) or TWINS_OF_A_NODE.get((node.name, func))
    return twin or func, args, named


def _addition(func: torch._ops.OpOverload, args: Sequence[Any]) -> torch._ops.OpOverload:
    """The addition where two gradients meet: in place where the engine holds the only reference to the first.

    The rule is that of torch/csrc/autograd/input_buffer.cpp (can_accumulate_inplace).
    """
    if func is not aten.add.Tensor:
        return func
    first = args[0]
    storage = first.untyped_storage()
    alone = first._use_count() <= TENSOR_HOLDERS and torch._C._storage_Use_Count(storage._cdata) <= STORAGE_HOLDERS
    return aten.add_.Tensor if alone and aten.is_non_overlapping_and_dense(first) else func


TENSOR_HOLDERS = 4
"""What holds a gradient here that only the engine's buffer holds: the buffer, the stack of the call, and Python's
wrapper.
"""
STORAGE_HOLDERS = 2
"""The tensor, and Python's wrapper of the storage. The base of a view is a third."""
