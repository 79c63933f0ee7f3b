"""FSDP2's update as a CUDA graph.

Of shares an update takes the host two milliseconds, a GPU at work as long: it walks over four lists of DTensors. FSDP2
makes its gradients anew at each step, yet torch's allocator, asked in the same order, hands out the same memory: a
graph holds while the gradients lie where they did when it was captured.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from undertorch.train.update import Update

MOST = 4
"""Graphs: where gradients lie elsewhere every time, none is of use."""

SETTLED = 2
"""Steps that gradients have to have lain in the same places for, before a graph is captured of them."""


class UpdateGraphs:
    """`update.step`, replayed where it can be. `look` comes first, while the GPU computes."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self.graphs: dict[tuple[int, ...], torch.cuda.CUDAGraph] = {}
        self.seen: Counter[tuple[int, ...]] = Counter()
        self.places: tuple[int, ...] = ()
        self.gradients: Mapping[str, Tensor] = {}
        self.replayed = 0
        """Updates so far that were."""

    def look(self, gradients: Mapping[str, Tensor]) -> None:
        """Takes the gradients of this step, and notes where they lie."""
        shares: list[Any] = [getattr(gradient, "_local_tensor", gradient) for gradient in gradients.values()]
        self.gradients, self.places = gradients, tuple([share.data_ptr() for share in shares])
        if self.places not in self.graphs:
            self.seen[self.places] += 1

    def __call__(self, norm: Tensor) -> None:
        """Updates the weights by the gradients that were looked at. `norm` and the rate have places of their own."""
        graph, gradients, self.gradients = self.graphs.get(self.places), self.gradients, {}
        if graph is None and self.seen[self.places] > SETTLED and len(self.graphs) < MOST:
            graph = self.graphs[self.places] = self._captured(gradients, norm)
        if graph is None:
            self.update.step(gradients, norm)
        else:
            graph.replay()
            self.replayed += 1

    def _captured(self, gradients: Mapping[str, Tensor], norm: Tensor) -> torch.cuda.CUDAGraph:
        """Not by torch.cuda.graph, which gives free memory back first: gradients would then lie elsewhere."""
        torch.cuda.synchronize()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            # Other threads (NCCL's watchdog) go on calling CUDA meanwhile.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self.update.step(gradients, norm)
            finally:
                graph.capture_end()
        return graph

    def let_go(self) -> None:
        """Of the graphs."""
        for graph in self.graphs.values():
            graph.reset()
        self.graphs.clear()
        self.seen.clear()
