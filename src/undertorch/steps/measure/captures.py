"""CUDA graphs that the script captures itself: what was called in the capture, so that a replay has its lines.

A replay is one launch of many kernels, which run in the order in which they were captured. So each capture is profiled,
with markers; it launches nothing. What Inductor captures (mode="reduce-overhead") is left alone: its kernels have their
lines from Inductor.
"""

import sys
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.profiler import ProfilerActivity, profile

from undertorch.steps.measure.exchange import capture_name
from undertorch.steps.measure.markers import Markers
from undertorch.steps.record.patching import put

INDUCTOR = str(Path(torch.__file__).parent / "_inductor")


class Captures:
    """Follows captures of CUDA graphs for the whole run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._next = 0
        self._running: tuple[Any, int] | None = None

    def number(self, graph: Any) -> int | None:
        """Of a captured graph; None for one that was not followed."""
        return self._numbers.get(graph)

    def follow(self, markers: Markers) -> None:
        """Wraps the two functions between which a graph is captured. Call once."""
        begin, end = torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end

        def begun(graph: Any, *arguments: Any, **named: Any) -> Any:
            if self._running is None and not markers.there and not _inside_inductor(sys._getframe(1)):
                activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
                profiler = profile(activities=activities, record_shapes=True, acc_events=True)
                profiler.start()
                self._running = (profiler, self._next)
                self._numbers[graph] = self._next
                self._next += 1
                result = begin(graph, *arguments, **named)
                markers.put()
                return result
            return begin(graph, *arguments, **named)

        def ended(graph: Any) -> Any:
            running, self._running = self._running, None
            if running is None:
                return end(graph)
            markers.take()
            result = end(graph)
            profiler, number = running
            profiler.stop()
            profiler.export_chrome_trace(str(self._folder / capture_name(number)))
            return result

        put(torch.cuda.CUDAGraph, "capture_begin", begun)
        put(torch.cuda.CUDAGraph, "capture_end", ended)


def _inside_inductor(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(INDUCTOR):
            return True
        frame = frame.f_back
    return False
