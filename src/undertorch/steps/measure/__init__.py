"""A training script run for real on a GPU: one of its steps as torch's profiler saw it, each kernel with its line."""

from undertorch.steps.measure.devices import has_cuda
from undertorch.steps.measure.spawn import measure

__all__ = ["has_cuda", "measure"]
