"""Runs a training script without a GPU and records the Ops of one step. Importing this imports no torch."""

from undertorch.steps.record.errors import (
    BadAssumption,
    MissingScript,
    NoCompiler,
    NoStep,
    NotHandedOver,
    NoTorch,
    RecordError,
    ScriptFailed,
)
from undertorch.steps.record.spawn import record

__all__ = [
    "BadAssumption",
    "MissingScript",
    "NoCompiler",
    "NoStep",
    "NoTorch",
    "NotHandedOver",
    "RecordError",
    "ScriptFailed",
    "record",
]
