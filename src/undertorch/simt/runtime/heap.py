"""Memory that device code asks for with malloc and new."""

import threading
from dataclasses import dataclass, field

import numpy as np

BYTES = 8 << 20
"""cudaLimitMallocHeapSize, if nobody sets it; and results are 16-byte aligned: CUDA C++ Programming Guide, "Dynamic
Global Memory Allocation and Operations"."""
ALIGNMENT = 16


@dataclass(slots=True)
class Heap:
    """One file's heap: what a kernel leaves there the next one finds. Within it, accesses are not told apart."""

    room: np.ndarray = field(default_factory=lambda: np.zeros(BYTES + ALIGNMENT, np.uint8))
    taken: dict[int, int] = field(default_factory=dict)
    """Offset and bytes of what was handed out."""
    gaps: dict[int, int] = field(default_factory=lambda: {0: BYTES})
    """And of what is free; neighbours are joined when none is large enough."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Launches of several threads of the host may share it."""

    @property
    def start(self) -> int:
        """Its first address."""
        return -(-int(self.room.ctypes.data) // ALIGNMENT) * ALIGNMENT

    def allocate(self, size: int) -> int:
        """An address with so many bytes behind it; 0 where there is no such gap."""
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        with self.lock:
            at = self._gap(size)
            if at is None:
                self._join()
                at = self._gap(size)
            if at is None:
                return 0
            left = self.gaps.pop(at) - size
            if left:
                self.gaps[at + size] = left
            self.taken[at] = size
            return self.start + at

    def release(self, address: int) -> bool:
        """Whether it was handed out, or is 0."""
        at = address - self.start
        with self.lock:
            if at in self.taken:
                self.gaps[at] = self.taken.pop(at)
                return True
        return address == 0

    def _gap(self, size: int) -> int | None:
        return next((at for at, room in self.gaps.items() if room >= size), None)

    def _join(self) -> None:
        joined: dict[int, int] = {}
        last = -1
        for at, room in sorted(self.gaps.items()):
            if last >= 0 and last + joined[last] == at:
                joined[last] += room
            else:
                joined[at] = room
                last = at
        self.gaps = joined
