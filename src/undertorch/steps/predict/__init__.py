"""Ops → Launches with no GPU: kernels from the costs, then time, occupancy and bound for a named GPU."""

from undertorch.steps.predict.prediction import predict

__all__ = ["predict"]
