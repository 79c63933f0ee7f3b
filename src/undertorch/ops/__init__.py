"""Fused training ops: forward and backward with the bytes moved once, the library where it is as good.

Each op has a file of its own name: contract, reference in plain torch, kernels, cost, candidates.
"""

from undertorch.ops.adamw import adamw
from undertorch.ops.adamw_optimizer import AdamW
from undertorch.ops.add_layer_norm import add_layer_norm
from undertorch.ops.add_rms_norm import add_rms_norm
from undertorch.ops.attention import attention
from undertorch.ops.calls import BadCall
from undertorch.ops.cross_entropy import cross_entropy
from undertorch.ops.geglu import geglu
from undertorch.ops.grad_norm import grad_norm
from undertorch.ops.layer_norm import layer_norm
from undertorch.ops.linear_act import linear_act
from undertorch.ops.linear_cross_entropy import linear_cross_entropy
from undertorch.ops.rms_norm import rms_norm
from undertorch.ops.rope import rope
from undertorch.ops.softmax import softmax
from undertorch.ops.swiglu import swiglu
from undertorch.ops.told import BadLabel, check_labels

__all__ = [
    "AdamW",
    "BadCall",
    "BadLabel",
    "adamw",
    "add_layer_norm",
    "add_rms_norm",
    "attention",
    "check_labels",
    "cross_entropy",
    "geglu",
    "grad_norm",
    "layer_norm",
    "linear_act",
    "linear_cross_entropy",
    "rms_norm",
    "rope",
    "softmax",
    "swiglu",
]
