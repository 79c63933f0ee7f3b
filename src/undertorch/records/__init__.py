"""The records that everything speaks in. They know nobody: no torch, no other part of undertorch."""

from undertorch.records.checked import Checked, Counts, Suppressed
from undertorch.records.findings import (
    Figures,
    Finding,
    FindingKind,
    LineLanes,
    Place,
    Request,
    Scope,
    Severity,
    TextOrigin,
    Unit,
)
from undertorch.records.gpus import Gpu
from undertorch.records.kernels import Dim3, Kernel
from undertorch.records.kinds import Bound, Kind, Limiter, Math, Phase
from undertorch.records.launches import Launch
from undertorch.records.ops import Argument, Op, Scalar, Value, Where
from undertorch.records.origins import Origin
from undertorch.records.steps import (
    Accounting,
    Advice,
    Assumption,
    Environment,
    Idle,
    IdleCause,
    Memory,
    MemorySample,
    Recording,
    Step,
)
from undertorch.records.tensors import DTYPE_BYTES, TensorRef

__all__ = [
    "DTYPE_BYTES",
    "Accounting",
    "Advice",
    "Argument",
    "Assumption",
    "Bound",
    "Checked",
    "Counts",
    "Dim3",
    "Environment",
    "Figures",
    "Finding",
    "FindingKind",
    "Gpu",
    "Idle",
    "IdleCause",
    "Kernel",
    "Kind",
    "Launch",
    "Limiter",
    "LineLanes",
    "Math",
    "Memory",
    "MemorySample",
    "Op",
    "Origin",
    "Phase",
    "Place",
    "Recording",
    "Request",
    "Scalar",
    "Scope",
    "Severity",
    "Step",
    "Suppressed",
    "TensorRef",
    "TextOrigin",
    "Unit",
    "Value",
    "Where",
]
