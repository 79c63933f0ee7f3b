"""torch.compile of the ops: on the CPU, where they are their references, and with our kernels on the machine."""

import sys

import pytest
import torch
import torch._dynamo.testing

import undertorch
from undertorch import ops
from undertorch.ops.calls import on_host


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


def test_sizes_that_a_compiler_takes_for_unknown_are_taken():
    """So is each default that is a number, which stands for itself no more than a size does."""

    def every(x, head, labels, q, k):
        losses = ops.cross_entropy(x, labels, ignore_index=x.shape[-1]), ops.linear_cross_entropy(x, head, labels)
        return losses, ops.attention(q, k, k, causal=q.shape[2] > 1), ops.grad_norm([x, head.double()])

    compiled = torch.compile(every, fullgraph=True, dynamic=True, backend="eager")
    x, head, labels = torch.randn(2, 3, 4), torch.randn(9, 4), torch.zeros(2, 3).long()
    given = x, head, labels, torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    torch.testing.assert_close(compiled(*given), every(*given))


LAYERS = 3


def layers(x, *weights):
    """Each takes both results of the one before: what Inductor knows of the last has 2^LAYERS ways to the first."""
    y, total = x, x
    for weight in weights:
        y, total = ops.add_rms_norm(y, total, weight)
    return y


@pytest.fixture
def printed(monkeypatch):
    """How often Inductor writes out what it knows of a kernel, with all that goes into it."""
    from torch._inductor.ir import ExternKernel

    counted = []
    monkeypatch.setattr(ExternKernel, "__str__", lambda kernel: counted.append(kernel) or "")
    monkeypatch.setattr(ExternKernel, "__repr__", ExternKernel.__str__)
    return counted


@pytest.fixture
def codes(monkeypatch):
    """What Inductor wrote, new each time."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    written = []
    monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(written.append))
    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False):
        yield written
    torch._dynamo.reset()


def test_inductor_calls_our_kernels_directly_and_writes_no_histories(printed, codes, monkeypatch):
    """torch 2.11 wrote an operator's history into a log message when it first met it: a dozen layers never ended."""
    monkeypatch.setattr(sys.modules["undertorch.ops.add_rms_norm"], "runs_own", lambda *tensors: True)
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    x = torch.randn(3, 40, requires_grad=True)
    weights = [torch.rand(40, requires_grad=True) for _ in range(LAYERS)]
    with undertorch.machine(gpu="H200"), on_host():
        y = torch.compile(layers, fullgraph=True)(x, *weights)
        ours = torch.autograd.grad(y, [x, *weights], torch.ones_like(y))
    monkeypatch.undo()
    expected = layers(x, *weights)
    torch.testing.assert_close(y, expected)
    for ours_, right in zip(ours, torch.autograd.grad(expected, [x, *weights], torch.ones_like(y)), strict=True):
        torch.testing.assert_close(ours_, right)
    calls = [line for code in codes for line in code.splitlines() if "= torch.ops.undertorch." in line]
    assert len(calls) == 2 * LAYERS
    assert all(".directly(" in line for line in calls)
    assert printed == []
