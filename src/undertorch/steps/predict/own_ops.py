"""CPU time of an eager call of undertorch's own ops, which are Python where torch's are C++."""

from undertorch.steps.predict import shares

GRAD_CALL_US = 64.0 - shares.HOST_OP_US
"""Of torch.autograd.grad itself: what torch's own softmax takes there, less the Op's part."""

FORWARD_US = {
    "rms_norm": 63.0, "layer_norm": 87.0, "add_rms_norm": 79.0, "add_layer_norm": 87.0, "swiglu": 65.0,
    "geglu": 44.0, "softmax": 57.0, "cross_entropy": 154.0, "linear_cross_entropy": 272.0, "linear_act": 106.0,
    "rope": 94.0,
}  # fmt: skip
"""A call on tensors so small that the GPU is never waited for, on the CPU beside an H200
(benchmarks/results/ops_overhead.json)."""

BACKWARD_US = {
    "rms_norm": 148.0, "layer_norm": 157.0, "add_rms_norm": 151.0, "add_layer_norm": 178.0, "swiglu": 171.0,
    "geglu": 144.0, "softmax": 102.0, "cross_entropy": 128.0, "linear_cross_entropy": 109.0,
    "linear_act": 236.0, "rope": 210.0,
}  # fmt: skip
"""Its backward by torch.autograd.grad, from the same place."""

BACKWARDS = ("_backward", "_unless_one", "_scale")
"""How the names of Ops of a backward end."""


def host_us(name: str) -> float | None:
    """CPU time of an Op such as `undertorch::rms_norm_forward`; None: it is none of these."""
    own, _, op = name.rpartition("::")
    if own != "undertorch":
        return None
    for end in BACKWARDS:
        if op.endswith(end):
            whole = BACKWARD_US.get(op.removesuffix(end))
            return None if whole is None else whole - GRAD_CALL_US
    return FORWARD_US.get(op.removesuffix("_forward"))
