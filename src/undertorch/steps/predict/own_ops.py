"""CPU time of an eager call of undertorch's own ops, which are Python where torch's are C++."""

from undertorch.steps.predict import shares

GRAD_CALL_US = 77.8 - shares.HOST_OP_US
"""Of torch.autograd.grad itself: what torch's own softmax takes there, less the Op's part."""

FORWARD_US = {
    "rms_norm": 109.0, "layer_norm": 64.0, "add_rms_norm": 110.0, "add_layer_norm": 93.0, "swiglu": 59.0,
    "geglu": 49.0, "softmax": 54.0, "cross_entropy": 228.0, "linear_cross_entropy": 502.0, "linear_act": 159.0,
    "rope": 180.0,
}  # fmt: skip
"""A call on tensors so small that the GPU is never waited for, on the CPU beside an H200
(benchmarks/results/ops_overhead.json)."""

BACKWARD_US = {
    "rms_norm": 176.0, "layer_norm": 153.0, "add_rms_norm": 186.0, "add_layer_norm": 290.0, "swiglu": 185.0,
    "geglu": 122.0, "softmax": 111.0, "cross_entropy": 175.0, "linear_cross_entropy": 143.0,
    "linear_act": 374.0, "rope": 274.0,
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
