"""Kernels as operators of torch."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import undertorch

SOURCE = """
__global__ void scale(float* y, const float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
"""


@pytest.fixture(scope="module")
def scaled():
    kernel = undertorch.cuda(SOURCE)["scale"]

    @undertorch.torch_op("undertorch_tests::scaled")
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        x = x.contiguous()  # sum's gradient is one number, expanded
        y = torch.empty_like(x)
        kernel[-(-x.numel() // 128), 128](y, x, by, x.numel())
        return y

    def backward(ctx, gradient):
        return scaled(gradient, ctx.by), None

    def setup(ctx, inputs, output):
        ctx.by = inputs[1]

    scaled.register_autograd(backward, setup_context=setup)
    return scaled


def test_it_is_called_as_torch_calls_operators(scaled):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    assert torch.equal(scaled(x, 3.0), 3 * x)
    assert torch.equal(torch.ops.undertorch_tests.scaled(x, -0.5), -0.5 * x)


def test_torch_finds_nothing_wrong_with_it(scaled):
    """torch.library.opcheck: the schema is true, fake outputs have the real ones' shapes, autograd is registered."""
    torch.library.opcheck(scaled, (torch.randn(33, requires_grad=True), 2.0))


def test_its_gradient_is_that_of_the_function(scaled):
    x = torch.randn(65, requires_grad=True)
    scaled(x, 4.0).sum().backward()
    assert torch.equal(x.grad, torch.full((65,), 4.0))


def test_a_compiled_function_has_it_in_its_graph(scaled):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    @torch.compile(backend=backend, fullgraph=True)
    def function(x):
        return scaled(x + 1, 2.0) * 3

    assert torch.equal(function(torch.arange(7.0)), 6 * (torch.arange(7.0) + 1))
    assert any(node.target is torch.ops.undertorch_tests.scaled.default for node in graphs[0].graph.nodes)


def test_fake_tensors_have_its_shape_and_nothing_runs(scaled):
    with FakeTensorMode():
        y = scaled(torch.empty(10**12), 2.0)
    assert y.shape == (10**12,)


def test_an_operator_may_write_to_its_arguments():
    kernel = undertorch.cuda(SOURCE)["scale"]

    @undertorch.torch_op("undertorch_tests::scale_", mutates=["x"])
    def scale_(x: torch.Tensor, by: float) -> None:
        kernel[1, 64](x, x, by, x.numel())

    x = torch.arange(40.0)
    version = x._version
    scale_(x, 5.0)
    assert torch.equal(x, 5 * torch.arange(40.0))
    assert x._version > version
    torch.library.opcheck(scale_, (torch.ones(8), 2.0))


def test_a_tensor_that_was_saved_for_backward_and_written_to_is_told():
    """What a kernel only reads stays as it was: its backward goes on."""
    kernel = undertorch.cuda("__global__ void adds(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }")[
        "adds"
    ]
    start = torch.zeros(3, requires_grad=True)
    written, read = start.exp(), start.exp()
    with torch.no_grad():
        kernel[1, 3](written, read)
    read.sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        written.sum().backward()
