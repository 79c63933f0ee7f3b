"""A residual added, then RMS norm: total = x + residual; y = rms_norm(total). Both are returned.

Contract
    x and residual: alike in shape and dtype, otherwise as x of rms_norm; total is rounded to that dtype, and y is the
    norm of the rounded sum, as if the two were called one after the other. Raises BadCall.
"""

from torch import Tensor

from undertorch.ops import norms
from undertorch.ops.calls import Arguments, no_tensor, runs_own
from undertorch.ops.candidates import norm_candidates
from undertorch.ops.choose import prefers_library
from undertorch.ops.rms_norm import reference as rms_norm_reference

ARGUMENTS = Arguments(
    layout="x and residual (..., D), alike; weight (D,) or None; the result is (rms_norm(x + residual), x + residual)",
    unlike_torch="There is none; eps is 1e-6 as of rms_norm",
)

# Reference


def reference(x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """The definition, in plain torch."""
    norms.check("add_rms_norm", x, residual, weight, None, eps)
    total = x + residual
    return rms_norm_reference(total, weight, eps), total


# Kernels: norm_kernels.py. The sum is not read again for the norm, and backward its gradient is added where the norm's
# is written.

NORM = norms.norm("add_rms_norm", centred=False, residual=True)


# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = norm_candidates(centred=False, residual=True)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """(rms_norm(x + residual), x + residual), differentiable in all three tensors. Raises BadCall."""
    if not isinstance(residual, Tensor):
        raise no_tensor("add_rms_norm", residual=residual)
    if prefers_library() or not runs_own(x, residual, weight):
        return reference(x, residual, weight, eps)
    norms.check("add_rms_norm", x, residual, weight, None, eps)
    y, total = NORM.call(x, residual, weight, None, eps)
    return y, total
