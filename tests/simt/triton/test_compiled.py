"""Kernels that torch.compile writes, on the machine."""

import pytest
import torch
import torch._inductor.config as inductor
import triton
import triton.language as tl

import undertorch
from undertorch.simt.frontends import torch_compile


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def norm_and_gelu(x, w):
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (w.shape[0],), w))


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_forward_and_backward_run_as_triton_kernels():
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(33, 200, generator=generator), torch.randn(200, generator=generator)
    for tensor in (x, w):
        tensor.requires_grad_()
    right = norm_and_gelu(x.double(), w.double())
    wanted = torch.autograd.grad(right.square().sum(), (x, w))
    with undertorch.machine() as machine:
        y = torch.compile(norm_and_gelu)(x, w)
        forward = len(machine.launches)
        got = torch.autograd.grad(y.square().sum(), (x, w))
    assert 0 < forward < len(machine.launches)
    assert all(result.kernel.startswith("triton_") for result in machine.launches)
    torch.testing.assert_close(y.double(), right, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_device_that_it_names_is_served():
    def function(x):
        return torch.cat([x.sin(), torch.arange(5, device="cuda") * 2.0])

    with undertorch.machine() as machine:
        x = torch.linspace(0, 1, 50, device="cuda")
        y = torch.compile(function)(x)
    assert machine.launches
    torch.testing.assert_close(y, torch.cat([x.sin(), torch.arange(5) * 2.0]))


def test_kernels_of_ones_own_inside_of_a_compiled_function():
    def function(x):
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y + 1

    with undertorch.machine() as machine:
        x = torch.arange(100.0)
        y = torch.compile(function, fullgraph=True)(x)
    assert "double_kernel" in " ".join(result.kernel for result in machine.launches)
    assert torch.equal(y, 2 * x + 1)


def test_outside_inductor_is_as_it_was():
    before = inductor.cpu_backend, inductor.compile_threads
    with undertorch.machine() as machine:
        compiled = torch.compile(lambda x: x.exp() + 1)
        compiled(torch.ones(10))
        inside = len(machine.launches)
    assert (inductor.cpu_backend, inductor.compile_threads) == before
    torch.testing.assert_close(compiled(torch.ones(10)), torch.ones(10).exp() + 1)
    assert len(machine.launches) == inside == 1


def test_a_torch_that_was_not_tried_is_refused(monkeypatch):
    monkeypatch.setattr(torch_compile, "TRIED", ((2, 11), (2, 12)))
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with undertorch.machine(), pytest.raises(Exception, match=r"torch 2\.11 to 2\.12, and this is 2\.99\.0"):
        torch.compile(lambda x: x.exp() + 3)(torch.ones(10))


def test_whether_there_is_a_gpu_is_asked_again_outside():
    from torch.utils._triton import has_triton

    outside = has_triton()
    with undertorch.machine():
        assert has_triton()
    assert has_triton() == outside
