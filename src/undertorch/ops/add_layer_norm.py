"""A residual added, then layer norm: total = x + residual; y = layer_norm(total). Both are returned.

Contract
    x and residual: alike in shape and dtype, otherwise as x of layer_norm; total is rounded to that dtype, and y is the
    norm of the rounded sum, as if the two were called one after the other. Raises BadCall.
"""

from torch import Tensor

from undertorch.ops import norms
from undertorch.ops.calls import Arguments, no_tensor, runs_own
from undertorch.ops.candidates import norm_candidates
from undertorch.ops.choose import prefers_library
from undertorch.ops.layer_norm import reference as layer_norm_reference

ARGUMENTS = Arguments(
    layout="x and residual (..., D), alike; weight and bias (D,) or None; the result is (layer_norm(x + residual), "
    "x + residual)",
    unlike_torch="There is none; eps is 1e-5 as of layer_norm",
)

# Reference


def reference(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """The definition, in plain torch."""
    norms.check("add_layer_norm", x, residual, weight, bias, eps)
    total = x + residual
    return layer_norm_reference(total, weight, bias, eps), total


# Kernels: norm_kernels.py. The sum is not read again for the norm, and backward its gradient is added where the norm's
# is written.

NORM = norms.norm("add_layer_norm", centred=True, residual=True)


# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = norm_candidates(centred=True, residual=True)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """(layer_norm(x + residual), x + residual), differentiable in all four tensors. Raises BadCall."""
    if not isinstance(residual, Tensor):
        raise no_tensor("add_layer_norm", residual=residual)
    if prefers_library() or not runs_own(x, residual, weight, bias):
        return reference(x, residual, weight, bias, eps)
    norms.check("add_layer_norm", x, residual, weight, bias, eps)
    y, total = NORM.call(x, residual, weight, bias, eps)
    return y, total
