"""No optimizer: parameters are updated by hand, with momentum."""

import torch

weight = torch.randn(64, 32, device="cuda", requires_grad=True)
bias = torch.zeros(32, device="cuda", requires_grad=True)
momenta = [torch.zeros_like(weight), torch.zeros_like(bias)]
shown = []
for _ in range(5):
    x = torch.randn(128, 64, device="cuda")
    y = (x @ weight + bias).tanh()
    loss = y.pow(2).mean()
    loss.backward()
    shown.append(loss.item())
    with torch.no_grad():
        for parameter, momentum in zip((weight, bias), momenta, strict=True):
            momentum.mul_(0.9).add_(parameter.grad)
            change = 0.01 * momentum
            parameter -= change
            parameter.grad.zero_()
