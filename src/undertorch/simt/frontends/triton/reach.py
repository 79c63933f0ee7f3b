"""Tensors that a kernel reaches by addresses it was handed as numbers: a grouped matmul reads its matrices'
`data_ptr()`s out of a tensor of int64.

On a GPU all memory can be reached; on the machine only what a launch is given. So arguments that may hold addresses are
looked through, and the tensors that these lie in are given to the launch as well.
"""

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

LOWEST, HIGHEST = 1 << 24, 1 << 47
"""Addresses that user memory may have on Linux (x86-64 and 64-bit Arm; far below it nothing is mapped)."""
MOST = 1 << 16
"""Elements of a tensor that are looked through: tables of addresses are short."""


def reachable(arguments: Iterable[object]) -> list[object]:
    """Live tensors on the CPU whose memory an address among the arguments lies in."""
    addresses = np.unique(np.fromiter(_addresses(arguments), np.int64))
    if not addresses.size:
        return []
    found: dict[int, object] = {}
    for tensor in _live_tensors():
        try:
            start, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        except (NotImplementedError, RuntimeError):  # sparse tensors and wrappers have none of their own
            continue
        at = int(np.searchsorted(addresses, start))
        if size and at < addresses.size and addresses[at] < start + size:
            found[start] = tensor
    return list(found.values())


def _addresses(arguments: Iterable[object]) -> Iterator[int]:
    for argument in arguments:
        if isinstance(argument, int):
            if LOWEST <= argument < HIGHEST:
                yield argument
        elif _may_hold_addresses(argument):
            tensor: Any = argument
            yield from (n for n in tensor.reshape(-1).tolist() if LOWEST <= n < HIGHEST)


def _may_hold_addresses(argument: Any) -> bool:
    return (
        hasattr(argument, "untyped_storage")
        and str(argument.dtype) in {"torch.int64", "torch.uint64"}
        and argument.numel() <= MOST
    )


def _live_tensors() -> list[Any]:
    """Of the process, but those that are fake."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    kinds = _with_subclasses(torch.Tensor) - _with_subclasses(FakeTensor)
    return [one for one in gc.get_objects() if type(one) in kinds and one.device.type == "cpu"]


def _with_subclasses(kind: type) -> set[type]:
    found = {kind}
    derived: type
    for derived in type.__subclasses__(kind):
        found |= _with_subclasses(derived)
    return found
