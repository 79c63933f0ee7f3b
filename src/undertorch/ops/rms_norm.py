"""RMS norm (Zhang and Sennrich, 2019): y = x / sqrt(mean(x²) + eps) * weight, over the last dimension.

Contract
    x: any rank from 1 on, any strides, float32, bfloat16 or float16 on CUDA (anything that floats elsewhere); its last
    dimension is normalised. weight: None, or as long as that dimension, of any such dtype. y has x's shape and dtype,
    row-major. Statistics and sums are float32. The same result every time. Raises BadCall.
"""

import torch
from torch import Tensor

from undertorch.ops import norms
from undertorch.ops.calls import runs_own
from undertorch.ops.candidates import LIBRARY_NORM, OWN_NORM_BACKWARD, OWN_NORM_FORWARD
from undertorch.ops.choose import prefers_library

# Reference


def reference(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    norms.check("rms_norm", x, None, weight, None)
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

CANDIDATES = (OWN_NORM_FORWARD, OWN_NORM_BACKWARD, LIBRARY_NORM)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight over the last dimension, differentiable in x and weight. Raises BadCall."""
    if prefers_library() or not runs_own(x, weight):
        return reference(x, weight, eps)
    norms.check("rms_norm", x, None, weight, None)
    y: Tensor = NORM.call(x, None, weight, None, eps)[0]
    return y
