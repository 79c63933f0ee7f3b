"""SwiGLU (Shazeer, 2020): silu(gate) * up.

Contract
    gate and up: alike in shape and dtype; any rank from 1 on, any strides (halves of one tensor, for one), float32,
    bfloat16 or float16 on CUDA (anything that floats elsewhere). The result has their shape and dtype, row-major.
    Arithmetic is float32. Elementwise, so the same result every time. Raises BadCall.
"""

import torch
from torch import Tensor
from torch.nn import functional

from undertorch.ops import gated
from undertorch.ops.calls import Arguments, runs_own
from undertorch.ops.choose import prefers_library

ARGUMENTS = Arguments(
    layout="gate and up (...), alike: two tensors, for example the halves of one",
    unlike_torch="There is none; it is F.silu(gate) * up",
)

# Reference


def reference(gate: Tensor, up: Tensor) -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    gated.check("swiglu", gate, up)
    if gate.dtype in (torch.bfloat16, torch.float16):
        return (functional.silu(gate.float()) * up.float()).to(gate.dtype)
    return functional.silu(gate) * up


# Kernels: gated_kernels.py.

_CALL = gated.gated("swiglu")

# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = gated.CANDIDATES


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, differentiable in both. Raises BadCall."""
    if prefers_library() or not runs_own(gate, up) or gate.dim() == 0:
        return reference(gate, up)
    gated.check("swiglu", gate, up)
    return _CALL(gate, up, gated.KINDS["silu"])
