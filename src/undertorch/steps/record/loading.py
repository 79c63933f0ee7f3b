"""How a DataLoader loads here: in the script's own process, as its first worker would.

Worker processes know nothing of fake tensors, and one step needs no speed. What the script sees of its loader
(`num_workers`, pinned batches, `get_worker_info()` in the dataset, `worker_init_fn`) is as it asked for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import worker

from undertorch.steps.record.patching import put
from undertorch.steps.record.samples import Samples


def install(samples: Samples) -> None:
    """Loads in this process, whatever `num_workers` says. Call once."""
    put(DataLoader, "_get_iterator", lambda loader: InProcess(loader, samples))
    # The number of processors is not asked for workers that are never started.
    put(DataLoader, "check_worker_number_rationality", lambda loader: None)


class _AsOne:
    """A loader, but that it has no workers."""

    num_workers = 0
    timeout = 0
    persistent_workers = False

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class InProcess(dataloader._SingleProcessDataLoaderIter):
    """Iterates a loader in this process; where it has workers, its dataset runs as in the first of them."""

    def __init__(self, loader: DataLoader[Any], samples: Samples) -> None:
        enter: Any = super().__init__
        enter(_AsOne(loader))
        self._samples = samples
        self._first: Any = None
        if loader.num_workers:
            self._first = worker.WorkerInfo(
                id=0, num_workers=loader.num_workers, seed=int(self._base_seed), dataset=loader.dataset
            )
            if loader.worker_init_fn is not None:
                with self._in_worker(), torch.random.fork_rng(devices=()):
                    loader.worker_init_fn(0)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """The next epoch of persistent workers: an iterable dataset begins again."""
        InProcess.__init__(self, loader, self._samples)

    def _next_index(self) -> Any:
        """The samples that are fetched next. An iterable dataset may have fewer left."""
        following: Any = super()._next_index
        index = following()
        counts = isinstance(index, list | tuple) and self._dataset_kind == dataloader._DatasetKind.Map
        self._samples.loaded(len(index) if counts else None)
        return index

    def _next_data(self) -> Any:
        following: Any = super()._next_data
        with self._in_worker():
            return following()

    @contextmanager
    def _in_worker(self) -> Iterator[None]:
        """What `get_worker_info()` answers meanwhile."""
        before = worker._worker_info
        worker._worker_info = self._first
        try:
            yield
        finally:
            worker._worker_info = before
