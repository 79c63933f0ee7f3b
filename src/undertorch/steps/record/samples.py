"""How many samples a model is called with.

Shapes do not tell which dimension counts them: the first, unless something knows better. That is the DataLoader which
brought the batch, or a recurrent layer or an attention inside the model, which names the dimension that it takes for
the batch (`batch_first`). What the loader contradicts is unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a model is called with."""

    samples: int | None
    """None: unknown."""


class Samples:
    """Counts the samples of each call of a model."""

    def __init__(self) -> None:
        self._loaded: int | None = None
        self._shape: Sequence[int] = ()
        """Of the input whose first dimension is taken for the samples, as long as no layer has said otherwise."""

    def loaded(self, count: int | None) -> None:
        """A DataLoader brings so many samples; None: nobody knows how many."""
        self._loaded = count

    def called(self, arguments: Sequence[object], named: Mapping[str, object]) -> Batch | None:
        """A model is called. None: its arguments hold no batch. The DataLoader's word is about the first call that
        follows it.
        """
        loaded, self._loaded = self._loaded, None
        self._shape = ()
        given = next((value for value in (*arguments, *named.values()) if not _is_plain(value)), None)
        while isinstance(given, Mapping):
            given = next((value for value in given.values() if not _is_plain(value)), None)
        if given is None:
            return None
        if not isinstance(given, torch.Tensor):  # a list of images, a graph
            return Batch(samples=loaded)
        if loaded is None:
            self._shape = given.shape[:2]
            return Batch(samples=given.shape[0])
        return Batch(samples=_by_the_loader(given.shape, loaded))

    def layer_called(self, layer: nn.Module, arguments: Sequence[object], named: Mapping[str, object]) -> Batch | None:
        """A module inside that model is called, or the model itself. None: that tells nothing new."""
        if not self._shape or not isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
            return None
        given = next(iter((*arguments, *named.values())), None)
        shape, self._shape = self._shape, ()
        if not isinstance(given, torch.Tensor) or given.dim() != 3:
            return None
        samples = given.shape[0 if layer.batch_first else 1]
        return Batch(samples=samples) if samples in shape else None


def _is_plain(value: object) -> bool:
    """Whether a value is a setting rather than data."""
    if isinstance(value, torch.Tensor):
        return value.dim() == 0
    return value is None or isinstance(value, bool | int | float | complex | str | torch.dtype | torch.device)


def _by_the_loader(shape: Sequence[int], loaded: int) -> int | None:
    """The samples in an input of a batch that a loader brought. A part of the batch (a microbatch) and several views of
    it count by the first dimension, and sequences that come first by the second.
    """
    if loaded in shape[:2]:
        return loaded
    first = shape[0]
    return first if first and loaded and (loaded % first == 0 or first % loaded == 0) else None
