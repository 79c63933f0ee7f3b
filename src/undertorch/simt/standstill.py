"""Whether a launch whose loops all turn will turn for ever: it is in a state in which it was before.

What runs is a function of memory: registers, shared and local memory, barriers, and the launch's buffers. When all of
it is again as it was after an earlier round of turns, every later round repeats one that was. A loop that counts, or
computes anything new, never gets there. (Detection of cycles: Brent, "An improved Monte Carlo factorization algorithm",
1980: the state is compared with one that is kept anew after 1, 2, 4, … looks.)
"""

import ctypes
import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertorch.simt.program import Program
from undertorch.simt.ptx.special import special_registers
from undertorch.simt.runtime.layout import READ_ONLY

Array = np.ndarray[Any, Any]
QUIET = 1.0
"""Seconds without any warp ending or barrier opening before the first look: most launches are never looked at."""
SHARE = 32
"""A look that took a second is followed by so many seconds without one."""
CLOCKS = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")


def can_be_told(program: Program) -> bool:
    """Whether all that decides what runs lies in memory: the time does not, nor what malloc has handed out."""
    return not program.allocates and special_registers(program.module, program.name).isdisjoint(CLOCKS)


@dataclass(slots=True)
class Standstill:
    """What was seen of a launch since it last moved."""

    kept: bytes = b""
    """Digest of the blocks' memory at some earlier look."""
    kept_buffers: bytes = b""
    """Of the buffers then; empty: they were not looked at."""
    looks: int = 0
    following: float = 0.0
    """When the next look is due."""

    def reached(self, blocks: Iterable[Array], buffers: Array) -> bool:
        """Whether blocks and buffers are as they were at an earlier look. Called after a round of turns."""
        began = time.monotonic()
        if began < self.following:
            return False
        state = _digest(blocks)
        again = state == self.kept
        written = _digest(_writable(buffers)) if again else b""
        if again and written == self.kept_buffers:
            return True
        self.looks += 1
        if again or self.looks & (self.looks - 1) == 0:
            self.kept, self.kept_buffers = state, written
        now = time.monotonic()
        self.following = now + SHARE * (now - began)
        return False


def contents(shared: Iterable[Array], buffers: Array) -> bytes:
    """Digest of the memory by which threads tell each other anything."""
    return _digest(shared) + _digest(_writable(buffers))


def _digest(arrays: Iterable[Array]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(array.view(np.uint8).data)
    return found.digest()


def _writable(buffers: Array) -> Iterable[Array]:
    for row in buffers[:-1]:
        if int(row["bytes"]) and not int(row["flags"]) & READ_ONLY:
            yield np.ctypeslib.as_array((ctypes.c_uint8 * int(row["bytes"])).from_address(int(row["base"])))
