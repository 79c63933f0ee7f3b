"""GeGLU (Shazeer, 2020): gelu(gate) * up.

Contract
    gate and up: alike in shape and dtype; any rank from 1 on, any strides (halves of one tensor, for one), float32,
    bfloat16 or float16 on CUDA (anything that floats elsewhere). approximate: `none`, or `tanh` as torch's GELU has it.
    The result has their shape and dtype, row-major. Arithmetic is float32. Elementwise, so the same result every time.
    Raises BadCall.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from undertorch.ops import gated
from undertorch.ops.calls import Arguments, BadCall, runs_own
from undertorch.ops.choose import prefers_library

ARGUMENTS = Arguments(
    layout="gate and up (...), alike: two tensors, for example the halves of one",
    unlike_torch="There is none; it is F.gelu(gate, approximate=approximate) * up, with F.gelu's default",
)

# Reference


def reference(gate: Tensor, up: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    check(gate, up, approximate)
    if gate.dtype in (torch.bfloat16, torch.float16):
        return (functional.gelu(gate.float(), approximate=approximate) * up.float()).to(gate.dtype)
    return functional.gelu(gate, approximate=approximate) * up


def check(gate: Tensor, up: Tensor, approximate: str) -> None:
    """Raises BadCall."""
    gated.check("geglu", gate, up)
    if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
        raise BadCall(f"geglu: approximate is {approximate!r}; it is none or tanh.")


# Kernels: gated_kernels.py.

_CALL = gated.gated("geglu")

# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = gated.CANDIDATES


def geglu(gate: Tensor, up: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """gelu(gate) * up, differentiable in both. Raises BadCall."""
    if prefers_library() or not runs_own(gate, up) or gate.dim() == 0:
        return reference(gate, up, approximate)
    check(gate, up, approximate)
    return _CALL(gate, up, gated.KINDS["gelu" if approximate == "none" else "gelu_tanh"])
