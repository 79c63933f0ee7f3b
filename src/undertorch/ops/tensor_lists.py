"""Many tensors in one launch: a table on the GPU of where each begins, and which block works where.

A block takes a chunk of one tensor. The table is made anew only where a tensor has moved: its upload is asynchronous,
from pinned memory that stays as it is, so that a captured CUDA graph can repeat it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

KEPT = 8
"""Tables that are kept; each is a few bytes a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Lists of tensors side by side: the tensors of one place have the same number of elements."""

    pointers: Tensor
    """int64, (lists, tensors)."""
    sizes: Tensor
    """int64, (tensors,)."""
    tensor_of_block: Tensor
    """int64, (blocks,)."""
    start_of_block: Tensor
    """int64, (blocks,): the element of its tensor that a block begins at."""
    aligned: bool
    """Whether every tensor begins at a multiple of 16 bytes."""
    uploaded_from: Tensor

    @property
    def blocks(self) -> int:
        """Of a launch over all of it."""
        return self.tensor_of_block.numel()

    @property
    def tensors(self) -> int:
        """Of each list."""
        return self.sizes.numel()


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that one caller made last."""

    made: OrderedDict[tuple[object, ...], Table] = field(default_factory=OrderedDict)
    in_graphs: dict[tuple[object, ...], Table] = field(default_factory=dict)
    """Those that a CUDA graph may read as long as the process lives."""

    def of(self, lists: Sequence[Sequence[Tensor]], chunk: int, numbers: Sequence[Tensor] = ()) -> Table:
        """The table of these tensors, a block taking `chunk` elements. `numbers`: one a tensor, for a last list."""
        addresses = tuple(tensor.data_ptr() for tensors in lists for tensor in tensors)
        aligned = all(address % 16 == 0 for address in addresses)
        lists = [*lists, numbers] if numbers else lists
        addresses += tuple(number.data_ptr() for number in numbers)
        sizes = tuple(tensor.numel() for tensor in lists[0])
        key = (chunk, len(lists), addresses, sizes)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = _table(lists, addresses, sizes, chunk, aligned)
            while len(self.made) > KEPT:
                self.made.popitem(last=False)
        else:
            self.made.move_to_end(key)
        if lists[0][0].is_cuda and torch.cuda.is_current_stream_capturing():
            self.in_graphs[key] = found
        return found


def _table(
    lists: Sequence[Sequence[Tensor]], addresses: tuple[int, ...], sizes: tuple[int, ...], chunk: int, aligned: bool
) -> Table:
    device = lists[0][0].device
    size = torch.tensor(sizes, dtype=torch.int64)
    blocks = (size + (chunk - 1)) // chunk
    tensor = torch.repeat_interleave(torch.arange(len(sizes)), blocks)
    first = torch.repeat_interleave(blocks.cumsum(0) - blocks, blocks)
    start = (torch.arange(int(blocks.sum())) - first) * chunk
    # One upload. A graph that is being captured makes it again at every replay: from memory that is pinned and stays.
    whole = torch.cat([torch.tensor(addresses, dtype=torch.int64), size, tensor, start])
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        pinned = torch.empty(whole.shape, dtype=torch.int64, device="cpu", pin_memory=True)
        whole = pinned.copy_(whole)
    parts = whole.to(device, non_blocking=True).split([len(addresses), len(sizes), len(tensor), len(start)])
    return Table(
        pointers=parts[0].view(len(lists), -1),
        sizes=parts[1],
        tensor_of_block=parts[2],
        start_of_block=parts[3],
        aligned=aligned,
        uploaded_from=whole,
    )


def local(tensor: Tensor) -> Tensor:
    """The part of a DTensor that lies here; any other tensor itself."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def dense(tensor: Tensor) -> bool:
    """Whether its elements fill a stretch of memory without gaps or overlaps, in whatever order."""
    return tensor.is_contiguous() or (torch._debug_has_internal_overlap(tensor) == 0 and _fills(tensor))


def _fills(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    ):
        if stride != expected:
            return False
        expected *= size
    return True


def laid_as(tensor: Tensor, other: Tensor) -> Tensor:
    """The tensor with the other's strides, so that each element lies where the other's does: a copy if they differ."""
    if tensor.stride() == other.stride() or (tensor.is_contiguous() and other.is_contiguous()):
        return tensor
    return torch.empty_like(other, dtype=tensor.dtype).copy_(tensor)


def by_dtypes(*lists: Sequence[Tensor]) -> Iterator[list[tuple[Tensor, ...]]]:
    """Groups of places whose tensors have the same dtypes and device, list by list, empty tensors left out."""
    groups: dict[tuple[object, ...], list[tuple[Tensor, ...]]] = {}
    for place in zip(*lists, strict=True):
        if place[0].numel():
            key = (place[0].device, *(tensor.dtype for tensor in place))
            groups.setdefault(key, []).append(place)
    yield from groups.values()
