"""torch.compile of the ops on the CPU, where they are their references."""

import torch
import torch._dynamo.testing

from undertorch import ops


def call(x, residual, weight, head, labels):
    y, total = ops.add_layer_norm(ops.rms_norm(x, weight), residual, weight, weight)
    loss = ops.linear_cross_entropy(ops.swiglu(y, total), head, labels)
    return loss + ops.cross_entropy(total @ head.t(), labels, z_loss=1e-3)


def test_they_compile_whole_and_once_for_all_batch_sizes():
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, fullgraph=True, backend=counter)
    weight, head = torch.rand(16, requires_grad=True), torch.randn(40, 16, requires_grad=True)
    for rows in range(4, 12):
        x, residual = (torch.randn(rows, 16, requires_grad=True) for _ in range(2))
        labels = torch.randint(0, 40, (rows,))
        results = [
            torch.autograd.grad(function(x, residual, weight, head, labels), [x, residual, weight, head])
            for function in (call, compiled)
        ]
        for ours, right in zip(*results, strict=True):
            torch.testing.assert_close(ours, right)
    assert counter.frame_count <= 2
