"""How long unprofiled steps take, and what memory they need."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch


class Clock:
    """Notes the moments at which steps end without waiting for the GPU, so that the script runs as it does unseen."""

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._moments: list[Any] = []
        self.start_bytes: int | None = None
        self.peak_bytes: int | None = None

    def start(self) -> None:
        """The first timed step begins; the GPU has nothing left to do."""
        if self._on_gpu:
            torch.cuda.synchronize()
        self.watch_memory()
        self.tick()

    def watch_memory(self) -> None:
        """From here on the peak is counted."""
        if self._on_gpu:
            self.start_bytes = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()

    def tick(self) -> None:
        """A step ends: on the GPU when it has done what was asked of it until now."""
        if not self._on_gpu:
            self._moments.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._moments.append(event)

    def read_memory(self) -> None:
        """The peak so far."""
        if self._on_gpu:
            self.peak_bytes = torch.cuda.max_memory_allocated()

    def stop(self) -> tuple[float, ...]:
        """Microseconds of each step."""
        if self._on_gpu:
            torch.cuda.synchronize()
        self.read_memory()
        return tuple(self._between(self._moments))

    def _between(self, moments: Sequence[Any]) -> list[float]:
        pairs = pairwise(moments)
        if self._on_gpu:
            return [before.elapsed_time(after) * 1e3 for before, after in pairs]  # milliseconds
        return [(after - before) * 1e6 for before, after in pairs]
