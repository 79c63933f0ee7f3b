"""Spec sheets of GPUs. What follows from a sheet is in the modules `occupancy` and `roofline`. Knows no torch."""

from undertorch.gpus.catalogue import UnknownGpu, all_gpus, find, names
from undertorch.gpus.sheet import BadSheet

__all__ = ["BadSheet", "UnknownGpu", "all_gpus", "find", "names"]
