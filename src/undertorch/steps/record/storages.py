"""Storages: the number each bears in a recording, and the bytes that are alive on the device."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

BLOCK_BYTES = 512
"""The caching allocator gives memory in multiples of this (c10/cuda/CUDACachingAllocator.h, kMinBlockSize)."""


GIB = 1 << 30
SMALL_BYTES = 1 << 20
"""The largest that the allocator takes from its pool of small blocks (CUDACachingAllocator.h, kSmallSize)."""
POOLS = ("all", "small_pool", "large_pool")
"""As torch.cuda.memory_stats() names them."""


@dataclass(slots=True)
class Gauge:
    """A figure that rises and falls."""

    now: int = 0
    most: int = 0
    """Since the start, or since somebody set it back."""
    added: int = 0
    """All rises together."""
    taken: int = 0
    """All falls together."""

    def change(self, by: int) -> None:
        """Rises by so much, or falls."""
        self.now += by
        self.most = max(self.most, self.now)
        self.added += max(by, 0)
        self.taken += max(-by, 0)


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

    def __init__(self, most: int | None = None) -> None:
        """`most`: bytes of the GPU's memory, which no single storage outgrows."""
        self._largest = most
        self._entries: dict[int, _Entry] = {}
        self._numbers = 0
        self.freed: Callable[[int], None] = lambda number: None
        """Told of each storage that is freed, by its number."""
        self.bytes = {pool: Gauge() for pool in POOLS}
        """Bytes alive on the device, each storage rounded up to BLOCK_BYTES."""
        self.blocks = {pool: Gauge() for pool in POOLS}
        """How many storages these are."""

    @property
    def live_bytes(self) -> int:
        """Bytes alive on the device."""
        return self.bytes["all"].now

    @property
    def most_bytes(self) -> int:
        """The most that was alive, since the start or since `forget_most`."""
        return self.bytes["all"].most

    def number(self, tensor: torch.Tensor) -> int:
        """The number of the storage that a tensor lies in. Takes notice of a storage that is new or was resized."""
        storage = (tensor if tensor.layout == torch.strided else values_of(tensor)).untyped_storage()
        entry = self._entries.get(storage._cdata)
        if entry is None:
            entry = self._enter(storage, tensor.device.type == "cuda")
        elif entry.on_device:
            self._size(entry, storage.nbytes())
        return entry.number

    def unseen(self) -> int:
        """A number for a storage that no tensor of this run lies in."""
        self._numbers += 1
        return self._numbers - 1

    def forget_most(self) -> None:
        """The most that is alive counts from now on."""
        for gauge in (*self.bytes.values(), *self.blocks.values()):
            gauge.most = gauge.now

    def forget_totals(self) -> None:
        """Rises and falls count from now on."""
        for gauge in (*self.bytes.values(), *self.blocks.values()):
            gauge.added = gauge.taken = 0

    def _enter(self, storage: torch.UntypedStorage, on_device: bool) -> _Entry:
        address = storage._cdata
        entry = _Entry(self._numbers, on_device, 0, weakref.ref(storage, lambda _: self._free(address)))
        self._entries[address] = entry
        self._numbers += 1
        if on_device:
            self._size(entry, storage.nbytes())
        if on_device and self._largest is not None and storage.nbytes() > self._largest:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {storage.nbytes() / GIB:.2f} GiB. GPU 0 has a total capacity of"
                f" {self._largest / GIB:.2f} GiB."
            )
        return entry

    def _size(self, entry: _Entry, size: int) -> None:
        rounded = -(-size // BLOCK_BYTES) * BLOCK_BYTES
        if rounded != entry.bytes:
            self._count(entry.bytes, -1)
            self._count(rounded, 1)
            entry.bytes = rounded

    def _count(self, size: int, by: int) -> None:
        """One block of a size more, or one less."""
        if size:
            for pool in ("all", "small_pool" if size <= SMALL_BYTES else "large_pool"):
                self.bytes[pool].change(by * size)
                self.blocks[pool].change(by)

    def _free(self, address: int) -> None:
        entry = self._entries.pop(address)
        self._count(entry.bytes, -1)
        self.freed(entry.number)


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The dense tensor that holds a sparse tensor's values."""
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()
