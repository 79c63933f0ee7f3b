"""What each of two ranks does: processes that are spawned import it, which they cannot do with a test's module."""

import pytest
import torch
from torch import distributed

from undertorch.ops import AdamW, BadCall, add_layer_norm, grad_norm, rms_norm, softmax

SIZES = ((8, 6), (5, 4), (3,))
"""The second and third do not divide by two."""


def values(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(size, generator=generator) for size in SIZES]


def train(rank, path):
    """Two ranks; the first tensor sharded, the second sharded unevenly, the third replicated."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    distributed.init_process_group("gloo", init_method=f"file://{path}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    kinds = (Shard(0), Shard(0), Replicate())
    parameters = [
        torch.nn.Parameter(distribute_tensor(value, mesh, [kind])) for value, kind in zip(values(0), kinds, strict=True)
    ]
    plain = [value.clone().requires_grad_() for value in values(0)]
    ours, theirs = AdamW(parameters, lr=0.1, max_norm=0.5), torch.optim.AdamW(plain, lr=0.1)
    for step in range(1, 4):
        for parameter, other, gradient, kind in zip(parameters, plain, values(step), kinds, strict=True):
            parameter.grad, other.grad = distribute_tensor(gradient, mesh, [kind]), gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_(plain, 0.5)
        ours.step()
        theirs.step()
        torch.testing.assert_close(ours.norm, norm)
        for parameter, other in zip(parameters, plain, strict=True):
            torch.testing.assert_close(parameter.full_tensor(), other)
    with pytest.raises(BadCall, match="partial"):
        grad_norm([DTensor.from_local(torch.ones(3), mesh, [Partial()])])
    for kind in (Shard(0), Replicate()):
        check_rows(mesh, kind)
    distributed.destroy_process_group()


def check_rows(mesh, kind):
    """Norms and softmax of rows on both ranks, with whole weights: what they are of all rows, gradients included."""
    from torch.distributed.tensor import Replicate, distribute_tensor

    rows, weight = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), torch.linspace(1, 2, 6)
    given = [distribute_tensor(rows, mesh, [kind]), distribute_tensor(weight, mesh, [Replicate()])]
    both = []
    for tensors in (given, (rows.clone(), weight.clone())):
        x, w = (tensor.requires_grad_() for tensor in tensors)
        y, total = add_layer_norm(rms_norm(x, w), x, w, w)
        result = softmax(y) * total
        both.append([result, *torch.autograd.grad(result.square().sum(), [x, w])])
    for ours, right in zip(*both, strict=True):
        torch.testing.assert_close(ours.full_tensor(), right)
