"""An optimizer of one's own."""

import torch
from torch import nn


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                parameter.add_(state["momentum"].sign(), alpha=-group["lr"])


model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 1)).cuda()
optimizer = Lion(model.parameters(), 1e-3)
for _ in range(3):
    loss = model(torch.randn(64, 4, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
