"""Many tensors in one launch: a table on the GPU of where each begins, and which block works where.

A block takes a chunk of one tensor. The table is made anew only where a tensor has moved.

A CUDA graph replays the address of the table it was captured with, so that one stays, as it is, as long as the process:
nobody is told when a graph goes. It is uploaded beside the capture, not in it: a captured upload would leave the table
empty until that very graph is replayed, for whoever else finds it, and would hold on to pinned memory.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from undertorch.ops.calls import on_device_of
from undertorch.ops.captures import beside_capture, captures

KEPT = 8
"""Tables that are kept besides those of graphs; each is 16 bytes a block, and 8 an address."""


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
    """By stream too: what the allocator takes back goes to the next table of its stream, after whoever still reads."""
    in_graphs: dict[tuple[object, ...], Table] = field(default_factory=dict)
    """Those that a graph may read: complete when they were made, never changed and never let go."""

    def of(self, lists: Sequence[Sequence[Tensor]], chunk: int, numbers: Sequence[Tensor] = ()) -> Table:
        """The table of these tensors, a block taking `chunk` elements. `numbers`: one a tensor, for a last list."""
        addresses = tuple(tensor.data_ptr() for tensors in lists for tensor in tensors)
        aligned = all(address % 16 == 0 for address in addresses)
        lists = [*lists, numbers] if numbers else lists
        addresses += tuple(number.data_ptr() for number in numbers)
        sizes = tuple(tensor.numel() for tensor in lists[0])
        key = (chunk, len(lists), addresses, sizes)
        found = self.in_graphs.get(key)
        if found is not None:
            return found
        like = lists[0][0]
        with on_device_of(like):
            if captures(like):
                with beside_capture():
                    found = self.in_graphs[key] = _table(lists, addresses, sizes, chunk, aligned)
                return found
            here = (torch.cuda.current_stream().cuda_stream if like.is_cuda else 0, *key)
            found = self.made.get(here)
            if found is None:
                found = self.made[here] = _table(lists, addresses, sizes, chunk, aligned)
                while len(self.made) > KEPT:
                    self.made.popitem(last=False)
            self.made.move_to_end(here)
        return found


def _table(
    lists: Sequence[Sequence[Tensor]], addresses: tuple[int, ...], sizes: tuple[int, ...], chunk: int, aligned: bool
) -> Table:
    """What comes later in the current stream finds it on the GPU."""
    device = lists[0][0].device
    size = torch.tensor(sizes, dtype=torch.int64)
    blocks = (size + (chunk - 1)) // chunk
    tensor = torch.repeat_interleave(torch.arange(len(sizes)), blocks)
    first = torch.repeat_interleave(blocks.cumsum(0) - blocks, blocks)
    start = (torch.arange(int(blocks.sum())) - first) * chunk
    # One upload, of memory that CUDA has copied when the call returns.
    whole = torch.cat([torch.tensor(addresses, dtype=torch.int64), size, tensor, start])
    parts = whole.to(device, non_blocking=True).split([len(addresses), len(sizes), len(tensor), len(start)])
    return Table(
        pointers=parts[0].view(len(lists), -1),
        sizes=parts[1],
        tensor_of_block=parts[2],
        start_of_block=parts[3],
        aligned=aligned,
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
    """Groups of places whose tensors have the same dtypes and device, list by list, empty tensors left out.

    One tensor that does not begin at a multiple of 16 bytes is read element by element; it does not slow the others.
    """
    groups: dict[tuple[object, ...], list[tuple[Tensor, ...]]] = {}
    for place in zip(*lists, strict=True):
        if place[0].numel():
            whole = all(tensor.data_ptr() % 16 == 0 for tensor in place if tensor.numel() == place[0].numel())
            key = (whole, place[0].device, *(tensor.dtype for tensor in place))
            groups.setdefault(key, []).append(place)
    yield from groups.values()
