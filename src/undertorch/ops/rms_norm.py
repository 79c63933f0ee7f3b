"""RMS norm (Zhang and Sennrich, 2019): y = x / sqrt(mean(x²) + eps) * weight, over the last dimension.

Contract
    x: any rank from 1 on, any strides, float32, bfloat16 or float16 on CUDA (anything that floats elsewhere); its last
    dimension is normalised. weight: None, or as long as that dimension, of any such dtype. y has x's shape and dtype,
    row-major. Statistics and sums are float32. The same result every time. Raises BadCall.
"""

import torch
from torch import Tensor

from undertorch.ops import norms
from undertorch.ops.calls import Arguments, runs_own
from undertorch.ops.candidates import norm_candidates
from undertorch.ops.choose import prefers_library

ARGUMENTS = Arguments(
    layout="x (..., D), whose last dimension is normalised; weight (D,) or None; no shape is passed",
    unlike_torch="F.rms_norm takes the normalised shape second, and its eps is by default the epsilon of the dtype "
    "that it computes in (1.2e-7, float32's, of half types too; 2.2e-16 of float64), here 1e-6",
)

# Reference


def reference(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    norms.check("rms_norm", x, None, weight, None, eps)
    value = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    value = value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        value = value * weight.to(value.dtype)
    return value.to(x.dtype)


# Kernels: norm_kernels.py. One pass over the rows forward and one backward, where torch's backward makes two and reads
# the rows of each twice.

NORM = norms.norm("rms_norm", centred=False, residual=False)


# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = norm_candidates(centred=False, residual=False)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight over the last dimension, differentiable in x and weight. Raises BadCall."""
    if prefers_library() or not runs_own(x, weight):
        return reference(x, weight, eps)
    norms.check("rms_norm", x, None, weight, None, eps)
    y: Tensor = NORM.call(x, None, weight, None, eps)
    return y
