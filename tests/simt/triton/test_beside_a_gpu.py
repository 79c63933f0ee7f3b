"""Where there is a GPU: CPU tensors run on the machine inside of the block, and the GPU has its own back outside."""

import pytest
import torch
import triton
import triton.language as tl

import undertorch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="asks a GPU, and there is none here"),
]


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def exp_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)


def launched(x):
    y = torch.empty_like(x)
    exp_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


def test_the_same_kernel_runs_on_either():
    x = torch.randn(1000)
    before = launched(x.to("cuda"))
    chosen, driver = dict(exp_kernel.cache), triton.runtime.driver.active
    with undertorch.machine() as machine:
        inside = launched(x)
        with pytest.raises(undertorch.simt.BadLaunch, match=r"\.cpu\(\)"):
            launched(before)
    assert len(machine.launches) == 1
    assert exp_kernel.cache == chosen
    assert triton.runtime.driver.active is driver
    after = launched(x.to("cuda"))
    assert after.device.type == "cuda"
    assert torch.equal(before, after)
    torch.testing.assert_close(inside, after.cpu(), rtol=1e-6, atol=0)


def test_torch_compile_is_the_gpus_again():
    def function(x):
        return (x.sin() + 1).square()

    x = torch.randn(1000)
    with undertorch.machine() as machine:
        inside = torch.compile(function)(x)
    assert machine.launches
    outside = torch.compile(function)(x.to("cuda"))
    assert outside.device.type == "cuda"
    torch.testing.assert_close(inside, outside.cpu(), rtol=1e-5, atol=1e-6)
