"""A small detector of races for tests: a whole vector clock for each thread and every access of each byte (Lamport
1978, Mattern 1989). It sees the events of a launch and nothing else."""

from collections import defaultdict

import numpy as np

from undertorch.simt.events import SPACES, EventKind


class VectorClocks:
    """Of one block, byte by byte, of shared and global memory."""

    def __init__(self, threads):
        self.clocks = np.eye(threads, dtype=int)
        self.seen = defaultdict(list)  # byte: (thread, its time, wrote, atomic, start, bytes)
        self.copies = {}  # byte: (thread, group) of a copy on its way
        self.arrived = defaultdict(list)
        self.races = 0

    def take(self, rows, sites):
        for row in rows:
            kind, site = EventKind(row["kind"]), sites[row["site"]]
            lanes = [n for n in range(32) if int(row["mask"]) >> n & 1]
            threads = [32 * int(row["warp"]) + n for n in lanes]
            if kind in {EventKind.ACCESS, EventKind.ISSUED} and site.space not in {"param", "const"}:
                for lane, thread in zip(lanes, threads, strict=True):
                    at = int(row["addresses"][lane])
                    if kind is EventKind.ISSUED and SPACES[row["space"]] == "global":
                        continue
                    self.bytes(thread, at, int(row["bytes"]), site, int(row["number"]), kind is EventKind.ISSUED)
            elif kind is EventKind.COMPLETED:
                for byte, (thread, group) in list(self.copies.items()):
                    if thread in threads and group < row["number"]:
                        del self.copies[byte]
                        self.seen[byte].append((thread, self.clocks[thread, thread], True, False, 0, 0))
                for thread in threads:
                    self.clocks[thread, thread] += 1
            elif kind is EventKind.ARRIVED:
                waits = site.instruction.name != "bar.arrive"
                self.arrived[int(row["number"])] += [(t, self.clocks[t].copy(), waits) for t in threads]
                self.clocks[threads, threads] += 1
            elif kind is EventKind.OPENED:
                came = self.arrived.pop(int(row["number"]))
                self.join([t for t, _, waits in came if waits], [clock for _, clock, _ in came])
            elif kind is EventKind.WARP_SYNC:
                clocks = list(self.clocks[threads].copy())
                self.clocks[threads, threads] += 1
                self.join(threads, clocks)

    def join(self, threads, clocks):
        for thread in threads:
            self.clocks[thread] = np.maximum(self.clocks[thread], np.max(clocks, axis=0))

    def bytes(self, thread, at, size, site, group, issued):
        for byte in range(at, at + size):
            if byte in self.copies:
                self.races += 1
            for other, time, wrote, atomic, start, length in self.seen[byte]:
                if other == thread or not (wrote or site.writes) or self.clocks[thread, other] >= time:
                    continue
                if not (atomic and site.atomic and (start, length) == (at, size)):
                    self.races += 1
            if issued:
                self.copies[byte] = (thread, group)
            else:
                self.seen[byte].append((thread, self.clocks[thread, thread], site.writes, site.atomic, at, size))
