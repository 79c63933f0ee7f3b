"""The closed vocabularies: what a kernel does, when in the step, what bounds it, which unit does its arithmetic."""

from enum import StrEnum


class Kind(StrEnum):
    """What a kernel does, told from its work and not from its name."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORM = "norm"
    SOFTMAX = "softmax"
    LOSS = "loss"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SCAN = "scan"
    SORT = "sort"
    RANDOM = "random"
    EMBEDDING = "embedding"
    COPY = "copy"
    """A kernel that moves or converts without arithmetic: copy, cast, cat, gather of whole rows (if no embedding)."""
    FILL = "fill"
    OPTIMIZER = "optimizer"
    COLLECTIVE = "collective"
    MEMCPY = "memcpy"
    """The copy engine or the driver; it has no grid."""
    MEMSET = "memset"
    """The driver; it has no grid."""
    CUSTOM = "custom"
    """A kernel that somebody wrote and undertorch does not know."""


class Phase(StrEnum):
    """When in the step an Op runs. The phases of a step's launches sum to its busy time."""

    FORWARD = "forward"
    LOSS = "loss"
    """Of the forward: calls of torch's loss functions and loss modules, and what follows them until backward starts."""
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    """Forward work done again inside backward (activation checkpointing)."""
    ACCUMULATE = "accumulate"
    """Adding a gradient to the one a parameter already holds."""
    CLIP = "clip"
    UPDATE = "update"
    """Inside `optimizer.step()`."""
    COMMUNICATE = "communicate"
    OTHER = "other"


class Bound(StrEnum):
    """What a launch is waiting for."""

    MEMORY = "memory"
    """Of the GPU."""
    COMPUTE = "compute"
    """Its arithmetic unit, or the instructions that it has to issue: those of a cast, without a FLOP."""
    LATENCY = "latency"
    """Too small to fill the GPU: neither the memory nor the arithmetic is busy."""
    LAUNCH = "launch"
    """The CPU is too slow: the GPU waits for the launch."""
    COMMUNICATION = "communication"
    LINK = "link"
    """A copy between host and GPU: its bytes go over PCIe once."""


class Limiter(StrEnum):
    """What keeps more blocks from being resident on an SM."""

    THREADS = "threads"
    """The limit on resident threads (or warps) of an SM; at full occupancy this is the limiter."""
    BLOCKS = "blocks"
    REGISTERS = "registers"
    SHARED = "shared"
    BARRIERS = "barriers"


class Math(StrEnum):
    """The arithmetic units that a spec sheet gives a peak rate for. `tensor-` means tensor (or matrix) cores, dense."""

    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    TENSOR_FP64 = "tensor-fp64"
    TENSOR_TF32 = "tensor-tf32"
    TENSOR_FP16 = "tensor-fp16"
    """With float32 accumulation."""
    TENSOR_BF16 = "tensor-bf16"
    """With float32 accumulation."""
    TENSOR_FP8 = "tensor-fp8"
    """With float32 accumulation."""
    TENSOR_INT8 = "tensor-int8"
    TENSOR_FP4 = "tensor-fp4"
