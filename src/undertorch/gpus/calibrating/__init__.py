"""Measures what this machine's GPU reaches: bandwidths, matrix products, the cost of a launch. No clock is touched."""

from undertorch.gpus.calibrating.backends import Backend, Facts, NoGpu, ProbeFailed
from undertorch.gpus.calibrating.measuring import calibrate
from undertorch.gpus.calibrating.probes import plan

__all__ = ["Backend", "Facts", "NoGpu", "ProbeFailed", "calibrate", "plan"]
