"""The ways of every pass, as `undertorch ops bench` calls them: on the machine, where there is no GPU."""

import pytest
import torch

import undertorch
from undertorch.ops.calls import on_host
from undertorch.ops.passes import NORMS, PASSES

SIZES = {
    "ROWSxWIDTH": (5, 24),
    "ROWSxCLASSES": (5, 40),
    "TENSORSxELEMENTS": (3, 90),
    "BATCHxHEADSxTOKENSxSIZE": (1, 1, 5, 16),
}
IN_THREE = (5, 16, 24)
SLOW = (*NORMS, "attention")
BY_LIBRARIES = ("forward, causal", "both, causal")
"""cuDNN, FlashAttention and the memory-efficient kernels: no machine without a GPU has them. (Nor torch's own backward
of an RMS norm: of norms the last way is the last of our own.)"""


def tensors_in(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [one for part in result or () for one in tensors_in(part)]


@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.slow) if op in SLOW else op for op in PASSES])
def test_the_usual_way_of_a_pass_gives_what_the_last_gives(op, monkeypatch):
    """Of most ops the last one is plain torch. (Those of the norms and of attention take long here.)"""
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    torch.manual_seed(0)
    passes, shape = PASSES[op]
    with undertorch.machine(gpu="H200"), on_host():
        for each in passes(op, SIZES.get(shape, IN_THREE), torch.float32, "cpu"):
            if each.name in BY_LIBRARIES:
                continue
            answers = []
            ways = [way for way in each.ways if not (op in NORMS and isinstance(way, str))]
            for way in (ways[0], ways[-1]):
                given = [None if tensor is None else tensor.clone() for tensor in each.tensors]
                result = tensors_in(each.call(way, given))
                answers.append(result or [tensor for tensor in given if tensor is not None])
            assert answers[0]
            for one, same in zip(*answers, strict=False):
                torch.testing.assert_close(one, same, rtol=2e-4, atol=2e-5)
