"""Layer norm (Ba, Kiros and Hinton, 2016): y = (x - mean) / sqrt(variance + eps) * weight + bias, over the last
dimension.

Contract
    x: any rank from 1 on, any strides, float32, bfloat16 or float16 on CUDA (anything that floats elsewhere); its last
    dimension is normalised. weight and bias: None, or as long as that dimension, of any such dtype. y has x's shape and
    dtype, row-major. Statistics and sums are float32; the variance is that of the differences from the mean, so that a
    large mean costs no digits. The same result every time. Raises BadCall.
"""

import torch
from torch import Tensor

from undertorch.ops import norms
from undertorch.ops.calls import Arguments, runs_own
from undertorch.ops.candidates import norm_candidates
from undertorch.ops.choose import prefers_library

ARGUMENTS = Arguments(
    layout="x (..., D), whose last dimension is normalised; weight and bias (D,) or None; no shape is passed",
    unlike_torch="F.layer_norm takes the normalised shape second; eps is 1e-5 in both. Under autocast torch's answers "
    "in float32, this one in x's dtype",
)

# Reference


def reference(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """The definition, in plain torch: half types are computed in float32."""
    norms.check("layer_norm", x, None, weight, bias, eps)
    value = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    value = value - value.mean(-1, keepdim=True)
    value = value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        value = value * weight.to(value.dtype)
    if bias is not None:
        value = value + bias.to(value.dtype)
    return value.to(x.dtype)


# Kernels: norm_kernels.py. One pass over the rows forward and one backward, where torch's backward makes two and reads
# the rows of each twice.

NORM = norms.norm("layer_norm", centred=True, residual=False)


# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = norm_candidates(centred=True, residual=False)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, differentiable. Raises BadCall."""
    if prefers_library() or not runs_own(x, weight, bias):
        return reference(x, weight, bias, eps)
    norms.check("layer_norm", x, None, weight, bias, eps)
    y: Tensor = NORM.call(x, None, weight, bias, eps)
    return y
