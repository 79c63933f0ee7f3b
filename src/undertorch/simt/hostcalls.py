"""Functions of device code that the host answers: printf, assert, malloc, free."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertorch.simt.codegen.sites import Site
from undertorch.simt.ptx.instructions import Group, Symbol
from undertorch.simt.runtime import layout
from undertorch.simt.runtime.heap import Heap
from undertorch.simt.runtime.layout import WARP
from undertorch.simt.runtime.printf import assertion, formatted, parsed_arguments

POINTER = 8
"""Bytes of an address, and of each argument that is looked at."""


@dataclass(slots=True)
class Reader:
    """Reads memory of the launch for the host; outside of its buffers nothing is touched."""

    buffers: "np.ndarray[Any, Any]"
    local: int
    """Address of the warp's local memory."""
    local_bytes: int
    """Of a thread."""
    shared: int
    """Address of the block's shared memory."""
    shared_bytes: int
    places: Mapping[str, int]
    """Of variables in local memory."""

    def place(self, symbol: Symbol, lane: int) -> int:
        """Where one thread's variable lies."""
        return self.local + lane * self.local_bytes + self.places[symbol.name]

    def word(self, address: int) -> int:
        """8 bytes."""
        return int.from_bytes(self.bytes(address, POINTER), "little")

    def bytes(self, address: int, count: int) -> bytes:
        """Some bytes; of what lies outside, nothing."""
        for start, size in self._spans():
            if start <= address < start + size:
                return ctypes.string_at(address, min(count, start + size - address))
        return b""

    def text(self, address: int) -> str:
        """A string that ends with a zero."""
        return self.bytes(address, 1 << 16).split(b"\0")[0].decode(errors="replace")

    def _spans(self) -> list[tuple[int, int]]:
        spans = [(int(row["base"]), int(row["bytes"])) for row in self.buffers[:-1]]
        return [*spans, (self.local, WARP * self.local_bytes), (self.shared, self.shared_bytes)]


def answer(
    kind: int, memory: Reader, site: Site, lane: int, printed: list[str], heap: Heap | None
) -> tuple[str, str] | None:
    """Does what one thread calls for; the kind of fault, and what the thread did, where that ends the launch."""
    results, _, given = site.instruction.sources
    assert isinstance(results, Group)
    assert isinstance(given, Group)
    arguments = [memory.word(memory.place(item, lane)) for item in given.items if isinstance(item, Symbol)]
    if kind == layout.PRINT:
        printed.append(formatted(memory, *arguments[:2]))
        (result,) = results.items
        assert isinstance(result, Symbol)
        count = parsed_arguments(memory.text(arguments[0])) if arguments[1] else 0
        ctypes.memmove(memory.place(result, lane), count.to_bytes(4, "little"), 4)
    elif kind == layout.ASSERT:
        return "assert", assertion(memory, arguments)
    elif kind == layout.ALLOCATE:
        assert heap is not None
        (result,) = results.items
        assert isinstance(result, Symbol)
        address = heap.allocate(arguments[0])
        ctypes.memmove(memory.place(result, lane), address.to_bytes(POINTER, "little"), POINTER)
    elif not (heap.release(arguments[0]) if heap is not None else arguments[0] == 0):
        return "invalid-free", f"frees {arguments[0]:#x}, which malloc has not handed out, or which is free"
    return None
