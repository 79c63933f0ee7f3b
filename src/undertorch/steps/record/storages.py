"""Storages: the number each bears in a recording, and the bytes that are alive on the device."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

BLOCK_BYTES = 512
"""The caching allocator gives memory in multiples of this (c10/cuda/CUDACachingAllocator.h, kMinBlockSize)."""


@dataclass(slots=True)
class _Entry:
    number: int
    on_device: bool
    bytes: int
    """On the device, rounded up; 0 for a storage in host memory."""
    alive: "weakref.ref[torch.UntypedStorage]"
    """Its callback strikes the entry the moment that torch frees the storage, so an address always stands for one
    storage.
    """


class Storages:
    """Numbers storages in the order they are met, forgets them when they are freed, and gives no number twice."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._numbers = 0
        self.freed: Callable[[int], None] = lambda number: None
        """Told of each storage that is freed, by its number."""
        self.live_bytes = 0
        """Bytes alive on the device, each storage rounded up to BLOCK_BYTES."""
        self.most_bytes = 0
        """The most that was alive, since the start or since `forget_most`."""

    def number(self, tensor: torch.Tensor) -> int:
        """The number of the storage that a tensor lies in. Takes notice of a storage that is new or was resized."""
        storage = tensor.untyped_storage()
        entry = self._entries.get(storage._cdata)
        if entry is None:
            entry = self._enter(storage, tensor.device.type == "cuda")
        elif entry.on_device:
            self._size(entry, storage.nbytes())
        return entry.number

    def forget_most(self) -> None:
        """The most that is alive counts from now on."""
        self.most_bytes = self.live_bytes

    def _enter(self, storage: torch.UntypedStorage, on_device: bool) -> _Entry:
        address = storage._cdata
        entry = _Entry(self._numbers, on_device, 0, weakref.ref(storage, lambda _: self._free(address)))
        self._entries[address] = entry
        self._numbers += 1
        if on_device:
            self._size(entry, storage.nbytes())
        return entry

    def _size(self, entry: _Entry, size: int) -> None:
        rounded = -(-size // BLOCK_BYTES) * BLOCK_BYTES
        self.live_bytes += rounded - entry.bytes
        entry.bytes = rounded
        self.most_bytes = max(self.most_bytes, self.live_bytes)

    def _free(self, address: int) -> None:
        entry = self._entries.pop(address)
        self.live_bytes -= entry.bytes
        self.freed(entry.number)
