import pytest
import torch
from kernels import scaled, total


@pytest.mark.parametrize("n", [256, 1000])
def test_total(n):
    x = torch.randn(n, device="cuda")
    torch.testing.assert_close(total(x), x.sum(), atol=1e-4, rtol=1e-4)


def test_scaled():
    x = torch.randn(1000, device="cuda")
    for factor in range(100):
        torch.testing.assert_close(scaled(x, float(factor)), x * factor)
