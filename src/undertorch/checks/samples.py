"""Examples of what each memory instruction accessed: a few of the launch's events, kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertorch.simt.runtime.layout import ACCESS, EVENT, ISSUED

Array = np.ndarray[Any, Any]
IN_A_ROW = 32
"""Of each instruction so many of its first accesses: how one warp's follow each other."""
WARPS = 32
"""And the first access of so many warps: how they lie beside each other."""
LOOKS = 8
"""Buffers of events that are looked through for other warps of an instruction."""


class Samples:
    """Of one launch: `take` gets its events."""

    def __init__(self, sites: int) -> None:
        self.rows: list[list[Array]] = [[] for _ in range(sites)]
        self.warps: list[dict[int, np.void]] = [{} for _ in range(sites)]
        """By block and warp."""
        self.left = np.full(max(1, sites), IN_A_ROW)
        self.looks = np.full(max(1, sites), LOOKS)

    def take(self, rows: Array) -> None:
        """Rows of events."""
        sites = rows["site"]
        fresh = (self.left[sites] > 0) | (self.looks[sites] > 0)
        if not fresh.any():
            return
        fresh &= (rows["kind"] == ACCESS) | (rows["kind"] == ISSUED)
        for site in np.unique(sites[fresh]):
            found = np.flatnonzero(fresh & (sites == site))
            kept = found[: self.left[site]]
            if kept.size:
                self.rows[site].append(rows[kept].copy())
                self.left[site] -= kept.size
            self._other_warps(int(site), rows, found)

    def _other_warps(self, site: int, rows: Array, found: Array) -> None:
        if self.looks[site] <= 0:
            return
        self.looks[site] -= 1
        known = self.warps[site]
        keys = (rows["block"][found].astype(np.uint64) << np.uint64(6)) | rows["warp"][found]
        for key, index in zip(*np.unique(keys, return_index=True), strict=True):
            if int(key) not in known and len(known) < WARPS:
                known[int(key)] = rows[found[index]].copy()
        if len(known) == WARPS:
            self.looks[site] = 0

    def first(self, site: int) -> Array:
        """The first accesses of an instruction, in order."""
        return np.concatenate(self.rows[site]) if self.rows[site] else np.zeros(0, EVENT)

    def beside(self, site: int) -> Sequence["np.void"]:
        """The first access of each of several warps, by block and warp."""
        return [row for _, row in sorted(self.warps[site].items())]

    def all(self, site: int) -> Sequence["np.void"]:
        """Both."""
        return [*self.first(site), *self.beside(site)]
